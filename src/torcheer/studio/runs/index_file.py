"""The index of a folder of runs as a file: a JSON header, then the runs' numbers. A cache: damaged, it is made anew."""

from __future__ import annotations

import json
import mmap
import struct
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from torcheer.disk import write_file
from torcheer.encoding import crc32
from torcheer.studio.runs.run_facts import RunFacts
from torcheer.studio.runs.run_notes import RunNotes

Numbers = NDArray[np.float64]
_MAGIC: Final = b"TCHRUNS3"
_HEAD: Final = struct.Struct("<8sQII")  # magic, bytes of the header, its checksum, that of the numbers


@dataclass(slots=True)
class IndexedRun:
    """A run of the index: its facts, with the results as an array of which `series` names the places."""

    stamp: int  # of its files when they were read
    facts: RunFacts  # without results
    series: tuple[str, ...]  # shared by all runs with the same ones
    numbers: Numbers

    @classmethod
    def of(cls, stamp: int, facts: RunFacts, known: dict[tuple[str, ...], tuple[str, ...]]) -> IndexedRun:
        """Pack what was read; `known` holds the series of runs so far."""
        names = tuple(facts.results)
        numbers = np.fromiter(facts.results.values(), np.float64, len(names))
        return cls(stamp, replace(facts, results={}), known.setdefault(names, names), numbers)


def save_index(path: Path, runs: Mapping[str, IndexedRun]) -> None:
    """Write an index; `runs` by their paths within the folder."""
    series: dict[tuple[str, ...], int] = {}
    records = [
        [name, run.stamp, series.setdefault(run.series, len(series)), _record(run.facts)] for name, run in runs.items()
    ]
    header = json.dumps({"series": list(series), "runs": records}, separators=(",", ":")).encode()
    numbers = np.concatenate([run.numbers for run in runs.values()]) if runs else np.empty(0)
    payload = numbers.astype("<f8").tobytes()
    head = _HEAD.pack(_MAGIC, len(header), crc32(header), crc32(payload))
    gap = bytes(-(_HEAD.size + len(header)) % 8)
    write_file(path, head + header + gap + payload, sync=False)


def load_index(path: Path) -> dict[str, IndexedRun]:
    """Read an index; empty where there is none, or it is of another version, or damaged."""
    try:
        with open(path, "rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)  # replaced, it stays what it was
        magic, size, header_sum, payload_sum = _HEAD.unpack_from(data)
        header = data[_HEAD.size : _HEAD.size + size]
        start = (_HEAD.size + size + 7) // 8 * 8
        if magic != _MAGIC or crc32(header) != header_sum or crc32(memoryview(data)[start:]) != payload_sum:
            return {}
        return _parsed(json.loads(header), np.frombuffer(data, "<f8", offset=start))
    except (OSError, ValueError, TypeError, LookupError, struct.error):
        return {}


def _parsed(header: Any, numbers: Numbers) -> dict[str, IndexedRun]:
    series, runs, start = [tuple(names) for names in header["series"]], dict[str, IndexedRun](), 0
    for name, stamp, place, record in header["runs"]:
        end = start + len(series[place])
        notes = record.pop("notes", {})
        facts = RunFacts(**record, notes=RunNotes(**{**notes, "tags": tuple(notes.get("tags", ()))}))
        runs[name] = IndexedRun(stamp, facts, series[place], numbers[start:end])
        start = end
    return runs


def _record(facts: RunFacts) -> dict[str, Any]:
    """Facts as JSON, without what is empty: most runs have neither notes nor problems."""
    return {name: value for name, value in asdict(facts).items() if value not in ({}, "") and name != "results"}
