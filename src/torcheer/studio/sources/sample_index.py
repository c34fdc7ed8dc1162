"""What people logged beside numbers, numbered for the pages; a sample's content as an answer. All of it bounded."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any, Final

import numpy as np

from torcheer.encoding import real_numbers
from torcheer.errors import ArchiveDamaged, BadArgument
from torcheer.runlog.media.logged_samples import LoggedSample
from torcheer.runlog.media.media_files import image_note, sound_note, sound_of
from torcheer.runlog.media.media_intake import MOST_BYTES
from torcheer.studio.connections.messages import Answer, SampleFrame, SampleHead
from torcheer.studio.sources.layer_frames import binary_message
from torcheer.terminal import human_bytes, plural

_MOST_TEXT: Final = 200_000  # characters of a text that are sent
_MOST_ROWS, _MOST_CELLS, _MOST_CELL = 1000, 20_000, 500  # of a table; characters of a cell
_MOST_NAME: Final = 500


class SampleIndex:
    """The samples of a source; each has a number that no other gets."""

    def __init__(self) -> None:
        self._samples: list[LoggedSample] = []
        self._keys: list[tuple[Any, ...]] = []
        self._first_id = 0  # number of the first sample
        self.restarts = 0  # how often what was sent became void

    def __len__(self) -> int:
        return len(self._samples)

    @property
    def all(self) -> list[LoggedSample]:
        """The samples, by step."""
        return self._samples

    def update(self, samples: Sequence[LoggedSample]) -> bool:
        """Take the samples that were read; True if they are others, or more."""
        new = list(samples)
        keys = [(sample.step, sample.time_secs, sample.name, sample.kind, sample.item) for sample in new]
        if keys == self._keys:
            return False
        if keys[: len(self._keys)] != self._keys:
            self._first_id, self.restarts = self._first_id + len(self._keys), self.restarts + 1
        self._samples, self._keys = new, keys
        return True

    def heads(self, first: int, count: int) -> tuple[SampleHead, ...]:
        """Describe samples from a position on."""
        return tuple(
            SampleHead(
                self._first_id + first + place, sample.name[:_MOST_NAME], sample.kind, sample.step, sample.item,
                sample.caption, sample.time_secs,
            )
            for place, sample in enumerate(self._samples[first : first + count])
        )  # fmt: skip

    def find(self, id: int) -> LoggedSample:
        """The sample of a number."""
        if not 0 <= id - self._first_id < len(self._samples):
            raise BadArgument("this sample is no longer in the run's log")
        return self._samples[id - self._first_id]


def answer_of(sample: LoggedSample, question: int) -> Answer | bytes:
    """A sample's content, as the answer to `AskSample`; raises `TorcheerError` for one that cannot be shown."""
    if sample.nbytes > MOST_BYTES:
        raise BadArgument(f"it has {human_bytes(sample.nbytes)}; up to {human_bytes(MOST_BYTES)} are shown")
    return _ANSWERS[sample.kind](sample, question)


def _image(sample: LoggedSample, question: int) -> bytes:
    pixels = np.ascontiguousarray(sample.pixels)
    head = SampleFrame(question, pixels.nbytes, pixels.shape, note=image_note(sample.array))
    return binary_message(asdict(head), pixels)


def _audio(sample: LoggedSample, question: int) -> bytes:
    if sample.array.ndim not in (1, 2) or not 1 <= sample.rate <= 1_000_000:
        raise ArchiveDamaged(f"sound of the shape {sample.shape} at rate {sample.rate}")
    sound = np.ascontiguousarray(sound_of(sample.array), "<i2")
    head = SampleFrame(question, sound.nbytes, sound.shape, sample.rate, sound_note(sample.array))
    return binary_message(asdict(head), sound)


def _text(sample: LoggedSample, question: int) -> Answer:
    text = sample.text
    note = f"the first {_MOST_TEXT:,} of {len(text):,} characters" if len(text) > _MOST_TEXT else ""
    shown = text[:_MOST_TEXT].encode("utf-8", "replace").decode()  # half of a pair is no character
    return Answer(question, {"text": shown, "note": note})


def _table(sample: LoggedSample, question: int) -> Answer:
    cells = sample.cells
    names = list(cells)[:_MOST_CELLS]
    count = max(map(len, cells.values()), default=0)
    rows = max(1, min(count, _MOST_ROWS, _MOST_CELLS // max(1, len(names))))
    columns = [[_cell(cell) for cell in cells[name][:rows]] for name in names]
    note = f"the first {rows:,} of {plural(count, 'row')}" if rows < count else ""
    return Answer(question, {"names": [_cell(name) for name in names], "columns": columns, "note": note})


def _cell(cell: Any) -> Any:
    if cell is None or isinstance(cell, bool | int | float):
        return cell
    text = cell if isinstance(cell, str) else json.dumps(cell)
    text = text.encode("utf-8", "replace").decode()
    return text if len(text) <= _MOST_CELL else f"{text[:_MOST_CELL]}…"


def _confusion(sample: LoggedSample, question: int) -> Answer:
    matrix = sample.array
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ArchiveDamaged(f"a confusion matrix of the shape {sample.shape}")
    names = [str(_cell(name)) for name in sample.names] if len(sample.names) == len(matrix) else []
    exact = matrix.tolist() if matrix.dtype.kind in "iu" else real_numbers(matrix).tolist()
    return Answer(question, {"names": names, "matrix": exact, "note": ""})


_ANSWERS: Final[dict[str, Callable[[LoggedSample, int], Answer | bytes]]] = {
    "image": _image, "audio": _audio, "text": _text, "table": _table, "confusion": _confusion
}  # fmt: skip
