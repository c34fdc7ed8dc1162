"""Opens files with torcheer, by the doors that users have, and tells what was read."""

from __future__ import annotations

import hashlib
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
from seams import TYPES, answer_of, kind_of, open_source, read_about, read_curves, read_facts, runs_in

import torcheer as tl
from torcheer.errors import TorcheerError, ValueUnavailable

UNKNOWN: Final = "?"  # numbers that a reader does not decode
_MOST_READ: Final = 1 << 24  # numbers of a tensor: larger ones are sampled
_MOST_WAIT_SECS: Final = 60.0  # for the reading process, on a busy machine
_DRAWN: Final = 10  # one graph of so many is drawn


def digest(array: Any) -> str:
    """A short name of the bytes of an array."""
    return hashlib.sha1(np.ascontiguousarray(array).tobytes()).hexdigest()[:12]


def digest_of_decoded(array: Any) -> str:
    """The same of decoded numbers, in which one NaN is as good as another."""
    array = np.array(array, np.float32)
    array[np.isnan(array)] = np.nan
    return digest(array)


def open_model(path: Path) -> Any:
    """Open a model file as `tl.load` and as the studio do, read all of it, and draw its graph."""
    file = tl.load(path)
    repr(file), str(file.metadata)
    tensors = {name: _tensor(tensor) for name, tensor in file.items()}
    facts: dict[str, Any] = {"tensors": tensors}
    if file.program is not None:
        facts["nodes"] = [[node.operation, list(node.inputs), list(node.outputs)] for node in file.program.nodes]
        str(file.history())
    _show(path, draws=zlib.crc32(path.read_bytes()) % _DRAWN == 0)
    return facts


def _tensor(tensor: Any) -> Any:
    if tensor.size > _MOST_READ:
        tensor.preview(1000)
        return [tensor.type, list(tensor.shape), UNKNOWN]
    try:
        numbers = tensor.numpy()
    except ValueUnavailable:
        return [tensor.type, list(tensor.shape), UNKNOWN]
    tensor.statistics()
    tensor.preview(10)
    assert numbers.shape == tensor.shape, f"{numbers.shape} is not {tensor.shape}"
    values = digest(tensor.mapped()) if tensor.type in TYPES else digest_of_decoded(numbers)
    return [tensor.type, list(tensor.shape), values]


def _show(path: Path, draws: bool) -> None:
    """Open it as the studio does, with what a page asks for first; to draw a graph takes most of the time."""
    source = open_source(path)
    try:
        source.poll()
        if source.net is not None and draws:
            source.graph(source.net)
        for moment in source.moments[:2]:
            source.store.values(moment.id)
    finally:
        source.close()


def open_foreign_run(path: Path) -> Any:
    """Open a folder of TensorBoard or Lightning as the studio does, alone and in a list of runs."""
    source = open_source(path)
    try:
        problems = list(source.poll().problems)
        until = time.monotonic() + _MOST_WAIT_SECS
        while source.state.message == "its log is being read" and time.monotonic() < until:  # another process reads it
            time.sleep(0.005)
            problems += source.poll().problems
        tables = {name: table for name, table in source.tables.items()}
        for sample in source.samples.all[:20]:
            _look(sample)
    finally:
        source.close()
    runs_in(path.parent)
    read_curves(path, kind_of(path), [name for table in tables.values() for name in table.columns])
    rows: dict[str, Any] = {}
    for name, table in tables.items():
        assert all(len(cells) == table.count for cells in table.columns.values()), (
            f"{name} has columns of other lengths"
        )
        rows[name] = {column: [_cell(cell) for cell in cells] for column, cells in table.columns.items()}
    return {"rows": rows.get("metric", {}), "problems": len(problems)}


def _look(sample: Any) -> None:
    """Decode it, as a page asks for; what cannot be decoded says so."""
    try:
        answer_of(sample, 1)
    except TorcheerError:
        pass


def _cell(cell: Any) -> Any:
    return str(cell) if isinstance(cell, float) else cell if isinstance(cell, int | None) else str(cell)[:50]


def open_own(path: Path) -> Any:
    """Open a folder of ours as `tl.load` and as the studio do, and read all of it."""
    opened = tl.load(path)
    repr(opened)
    _READ[type(opened).__name__](opened)
    if type(opened).__name__ in ("Archive", "Extraction") and not opened_by_studio(path):
        return {}
    source = open_source(path)
    try:
        source.poll()
        for sample in source.samples.all[:20]:
            _look(sample)
        for moment in source.moments[:3]:
            _read_moment(source, moment.id)
    finally:
        source.close()
    runs_in(path.parent)
    if kind_of(path) == "run":
        read_curves(path, "run", list(read_facts(path, "run").results))
    return {}


def opened_by_studio(path: Path) -> bool:
    """Whether the studio shows such a folder: not all archives."""
    return kind_of(path) == "run" or (kind_of(path) == "archive" and read_about(path).get("kind") == "studio recording")


def _read_moment(source: Any, moment: int) -> None:
    try:
        source.store.values(moment)
    except TorcheerError:
        pass


def _read_history(history: Any) -> None:
    str(history)
    for op in history:
        try:
            str(history[op.label].tensor_contents)
        except TorcheerError:
            pass


def _read_archive(archive: Any) -> None:
    for entry in archive.entries:
        archive.numbers(entry)
    archive.verify()


def _read_run(run: Any) -> None:
    for table in run.tables.values():
        str(table)
    str(run.alerts), str(run.config)
    for sample in run.samples():
        _look(sample)
    for watched in run.watches.values():
        _read_watched(watched)
    if run.captures is not None:
        _read_archive(run.captures)


def _read_watched(watched: Any) -> None:
    str(watched), str(watched.alerts), len(watched.steps)
    for layer, variable in watched.keys():  # a tensor of statistics each
        str(watched[layer, variable])


def _read_extraction(extraction: Any) -> None:
    for name in extraction:
        np.asarray(extraction[name])


_READ: Final[dict[str, Callable[[Any], None]]] = {
    "ModelHistory": _read_history, "Archive": _read_archive, "RunFolder": _read_run, "Watched": _read_watched,
    "Extraction": _read_extraction,
}  # fmt: skip


def check_config(path: Path) -> Any:
    """Read a config, and list its mistakes without running its code."""
    from seams import checked

    from torcheer.config import read

    config = read(path)
    result = checked(config, trusted=(), imports=False)
    str(result.problems), str(result.notes)
    return {"data": repr(config.data)}


DOORS: Final[dict[str, Callable[[Path], Any]]] = {
    "model": open_model, "foreign-run": open_foreign_run, "own": open_own, "config": check_config,
}  # fmt: skip
