"""A folder of TensorBoard's event files: scalars, histograms, settings, and where pictures and sounds lie."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from torcheer.errors import TorcheerError
from torcheer.foreign.readers.budget import TooLarge
from torcheer.foreign.readers.logs.encoded_media import sound_rate
from torcheer.foreign.readers.logs.event_messages import EventReader, EventValue, Histogram
from torcheer.foreign.readers.logs.event_records import find_records
from torcheer.foreign.readers.logs.yaml_settings import read_settings
from torcheer.foreign.readers.protobuf import Messages
from torcheer.foreign.readers.reading import Reading, place_of

_MOST_SAMPLES: Final = 5000
_MOST_TEXT: Final = 1 << 20  # characters of a text


def read(reading: Reading) -> dict[str, Any]:
    """Read all event files of a folder; a value that was written again for a step replaces the earlier one."""
    run = _Run(reading)
    for name in reading.names:
        run.read_file(name)
    return run.answer()


class _Run:
    """What has been read of a run."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._scalars: dict[str, dict[int, float]] = {}
        self._histograms: dict[str, dict[int, Histogram]] = {}
        self._samples: list[dict[str, Any]] = []
        self._config, self._problems = read_settings(reading)

    def read_file(self, name: str) -> None:
        """Add what a file says; an event that cannot be read is left out, and said."""
        number = self._reading.file(name)
        data = self._reading.data(number)
        records = find_records(data, name, self._reading.budget)
        events, bad, why = EventReader(Messages(self._reading.budget, name)), 0, ""
        for begin, length in records.places:
            try:
                for value in events.values(data[begin : begin + length]):
                    self._add(value, number)
            except TooLarge:
                raise
            except (TorcheerError, ValueError, OverflowError) as error:
                bad, why = bad + 1, why or f"{name}: an event that cannot be read, at byte {begin:,}: {error}"
        if bad:
            self._problems.append(f"{why}; and {bad - 1:,} more" if bad > 1 else why)
        if records.problem:
            self._problems.append(records.problem)
        self._reading.release(number)

    def _add(self, value: EventValue, file: int) -> None:
        if value.kind == "scalar":
            self._scalars.setdefault(value.tag, {})[value.step] = value.value
        elif value.kind == "histogram":
            self._reading.budget.spend("items", len(value.value.counts) + 1, "its histograms")
            self._histograms.setdefault(value.tag, {})[value.step] = value.value
        elif value.kind == "hparams":
            self._config |= value.value
        elif isinstance(value.value, memoryview | str):
            self._samples.append(self._sample(value, file))
            if len(self._samples) > 2 * _MOST_SAMPLES:
                self._drop_samples()

    def _drop_samples(self) -> None:
        """Keep those of the last steps."""
        self._samples = sorted(self._samples, key=lambda each: each["step"])[-_MOST_SAMPLES:]

    def answer(self) -> dict[str, Any]:
        """What is sent: of a scalar its steps and numbers, of a histogram its limits and counts, among the bytes."""
        steps = set[int]().union(*self._scalars.values())
        self._reading.budget.spend("items", len(steps) * (1 + len(self._scalars)), "its table of scalars")
        self._drop_samples()
        return {
            "scalars": [
                [tag, len(cells), *self._kept(np.array(list(cells), "<i8"), np.array(list(cells.values()), "<f8"))]
                for tag, cells in self._scalars.items()
            ],
            "histograms": [
                [tag, [self._histogram(step, rows[step]) for step in sorted(rows)]]
                for tag, rows in self._histograms.items()
            ],
            "samples": self._samples,
            "config": self._config,
            "problems": self._problems,
        }

    def _histogram(self, step: int, histogram: Histogram) -> list[int]:
        return [step, len(histogram.counts), *self._kept(histogram.limits, histogram.counts)]

    def _kept(self, first: Any, second: Any) -> tuple[int, int]:
        """Where the bytes of two arrays of numbers begin among those that are sent."""
        parts = [np.ascontiguousarray(first).astype(first.dtype.newbyteorder("<")), np.asarray(second, "<f8")]
        return self._reading.keep(parts[0].tobytes())[0], self._reading.keep(parts[1].tobytes())[0]

    def _sample(self, value: EventValue, file: int) -> dict[str, Any]:
        """A picture, a sound or a text: the text itself, of the others where they lie in their file."""
        known = {"tag": value.tag, "kind": value.kind, "step": value.step, "time": value.time_secs}
        if isinstance(value.value, str):
            text = value.value[:_MOST_TEXT]
            self._reading.budget.spend("bytes", len(text), "its texts")
            return {**known, "text": text}
        begin = place_of(value.value, self._reading.data(file))
        where = {"file": self._reading.files[file], "begin": begin, "end": begin + len(value.value)}
        return {**known, **where, "rate": sound_rate(value.value) if value.kind == "audio" else 0}
