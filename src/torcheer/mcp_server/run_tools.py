"""The tools: what lies in one folder, read and never run or changed. Every answer is plain JSON, or a PNG."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np

from torcheer.archive import Archive
from torcheer.encoding import real_numbers
from torcheer.errors import BadArgument, UnknownLayer, ValueUnavailable
from torcheer.foreign.beneath import LeadsOut
from torcheer.history import ModelHistory
from torcheer.modelfiles import is_model_file
from torcheer.modelfiles.model_file import open_apart
from torcheer.path_reader import load
from torcheer.runlog.log_reader import RunLog
from torcheer.runlog.media.media_files import png_bytes
from torcheer.runlog.run_folder import RunFolder
from torcheer.runlog.watch_reader import Watched
from torcheer.studio.runs.foreign_run import FOREIGN, ForeignRun, read_foreign
from torcheer.studio.sources.open_source import index_of, kind_of
from torcheer.terminal import did_you_mean
from torcheer.vocabulary.array_statistics import TABLE, facts_of, finite_part

MOST_ROWS, MOST_NUMBERS, MOST_NAMES = 500, 1000, 2000  # of one answer: a program reads it as text
MOST_READ = 1 << 26  # numbers that are brought into memory for an answer


class RunTools:
    """The tools of one folder; paths in their arguments lead into it and nowhere else."""

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            raise BadArgument(f"there is no folder {folder}; name one with runs in it")
        self._folder = folder.resolve()

    @property
    def all(self) -> tuple[Callable[..., Any], ...]:
        """Every tool; its name, parameters and docstring are what a program is told."""
        return self.list_runs, self.metrics, self.alerts, self.layers, self.values, self.picture

    def list_runs(self, pattern: str = "") -> dict[str, Any]:
        """List the runs of the folder: path, name, status (live, running, ended, failed, killed) and a summary of each.

        The path is what other tools take as run or path. pattern: a text that path or name must contain, in which *
        stands for any text and ? for any character.
        """
        index = index_of(self._folder, self._refuse_links_out)
        rows = [
            {"path": index.name_of(run.id), "name": run.name, "status": run.status, "summary": run.summary}
            for run in index.listed()
        ]
        rows = [row for row in rows if _fits(pattern, row["path"]) or _fits(pattern, row["name"])]
        return {"runs": rows[:MOST_NAMES], "count": len(rows)}

    def metrics(self, run: str, table: str = "", columns: Sequence[str] = (), last: int = 50) -> dict[str, Any]:
        """Return logged numbers of a run, the last rows of one table; without a table, which tables there are.

        columns: those to return; all where none are named. last: how many rows, from the end.
        """
        if last < 1:
            raise BadArgument(f"last={last}: it is how many rows are returned, from the end")
        opened = self._open(run)
        if not isinstance(opened, RunFolder | ForeignRun):
            raise BadArgument(f"{run} is {_kind(opened)}, which has no metrics; runs have")
        tables = (
            opened.tables if isinstance(opened, ForeignRun) else RunLog(opened.path).tables()
        )  # None: an empty cell
        if not table:
            return {"tables": {name: {"rows": rows.count, "columns": [*rows.columns]} for name, rows in tables.items()}}
        if table not in tables:
            raise UnknownLayer(f"{run} has no table {table!r}.{_there_are(table, tables)}")
        shown = tables[table]
        for column in columns:
            if column not in shown.columns:
                raise UnknownLayer(f"{table} has no column {column!r}.{_there_are(column, shown.columns)}")
        first = max(0, shown.count - min(last, MOST_ROWS))
        rows = {name: _plain(shown.columns[name][first:]) for name in columns or shown.columns}
        return {"rows": shown.count, "first_row": first, "columns": rows}

    def alerts(self, run: str) -> dict[str, Any]:
        """Return what was found wrong in a run: rule, layer, step, since when, what it is, what to try.

        follows: the alert that may explain it, as "dead_relu at step 20".
        place: the class of the layer's module and the line that calls it.
        """
        opened = self._open(run)
        if not isinstance(opened, RunFolder | Watched):
            raise BadArgument(f"{run} is {_kind(opened)}, which has no alerts; runs and watches have")
        keys = ("rule", "layer", "variable", "step", "since", "severity", "what", "advice", "follows", "place")
        return {"alerts": [{key: getattr(alert, key) for key in keys} for alert in opened.alerts[:MOST_ROWS]]}

    def layers(self, path: str, pattern: str = "") -> dict[str, Any]:
        """List the layers of a run, a saved history, an extraction or a model's file, with what is known of each.

        pattern: a text that the name must contain, in which * stands for any text and ? for any character.
        """
        opened = self._open(path)
        _check_layers(opened, path)
        rows = [row for row in _layers(opened) if _fits(pattern, row["name"])]
        return {"kind": type(opened).__name__, "layers": rows[:MOST_NAMES], "count": len(rows)}

    def values(
        self, path: str, layer: str, variable: str = "", step: int = -1, index: Sequence[int] = ()
    ) -> dict[str, Any]:
        """Return the numbers of a layer: statistics of the whole, and the numbers themselves where they are few.

        layer, variable: as `layers` lists them. step: of a run, the step; -1 for the newest. index: positions along the
        first axes, to look at a part of a large value.
        """
        array, at = self._array(path, layer, variable, step, index)
        facts = {name: _cell(number) for name, number in facts_of(array).items()}
        answer = {"layer": layer, **at, "shape": list(array.shape), "dtype": str(array.dtype), **facts}
        if array.size <= MOST_NUMBERS:
            answer["numbers"] = _plain(array)
        return answer

    def picture(self, path: str, layer: str = "", variable: str = "", step: int = -1) -> bytes:
        """Return a PNG: a value of a layer, bright for large numbers; without a layer, the graph of a history."""
        if not layer:
            opened = self._open(path)
            _check_layers(opened, path)
            if not isinstance(opened, ModelHistory):
                raise BadArgument(f"{path} is {_kind(opened)}, which has no graph; name a layer of it")
            return opened.draw().png()
        array, _ = self._array(path, layer, variable, step)
        while array.ndim > 2:
            array = array[0]
        return png_bytes(_grey(np.atleast_2d(array)))

    # -- finding -----------------------------------------------------------------------------------------------------

    def _open(self, path: str) -> Any:
        if "\0" in path:
            raise BadArgument(f"{path!r} is no path; list_runs names what is there")
        place = (self._folder / path).resolve()
        if not place.is_relative_to(self._folder):
            raise BadArgument(f"{path!r} is outside of the folder that is served; list_runs names what is there")
        if not place.exists():
            raise UnknownLayer(f"there is nothing at {path!r}; list_runs names what is there")
        if is_model_file(place):
            return open_apart(place, self._folder)
        if (kind := kind_of(place)) in FOREIGN:
            return read_foreign(place, kind, self._folder)
        self._refuse_links_out(place)
        return load(place)

    def _refuse_links_out(self, place: Path) -> None:
        """Raise where a link in a run or an archive leads out of the folder that is served."""
        for parent, folders, files in os.walk(place):
            for name in (*folders, *files):
                link = os.path.join(parent, name)
                if os.path.islink(link) and not Path(link).resolve().is_relative_to(self._folder):
                    raise LeadsOut(f"{os.path.relpath(link, self._folder)} is a link out of the folder that is served")

    def _array(
        self, path: str, layer: str, variable: str, step: int, index: Sequence[int] = ()
    ) -> tuple[np.ndarray[Any, Any], dict[str, Any]]:
        """Return a value, or the part of it at an index, and where it is from."""
        opened = self._open(path)
        if isinstance(opened, ModelHistory):
            value = opened[layer].tensor_contents
            return _part(np.asarray(value[0] if isinstance(value, tuple) else value), index, layer), {}
        _check_layers(opened, path)
        if isinstance(opened, RunFolder):
            opened = next((watch for watch in opened.watches.values() if _has(watch, layer)), opened.captures)
        if isinstance(opened, Watched):
            series = opened[(layer, variable)] if variable else opened[layer]
            kept = series.values
            chosen = _step(step, sorted(kept), layer)
            return _part(kept[chosen], index, layer), {"variable": series.variable, "step": chosen}
        if isinstance(opened, Archive):
            chosen = _step(step, [number for number in opened.steps if number is not None], layer)
            entry = opened.find(layer, variable or "value", chosen)
            array = _part(opened.numbers(entry), index, layer)
            return array, {"variable": variable or "value", "step": chosen}
        if opened is None:
            raise ValueUnavailable(f"{path} keeps no values of {layer!r}: it was neither watched nor captured")
        return _part(opened[layer], index, layer), {}


def _part(stored: Any, index: Sequence[int], layer: str) -> np.ndarray[Any, Any]:
    """The part of a value at an index, read where it lies; a value that is too large for memory needs one."""
    shape = tuple(stored.shape)
    if len(index) > len(shape) or any(not -size <= place < size for place, size in zip(index, shape)):
        raise BadArgument(f"index {list(index)} is outside of a value of shape {shape}")
    rest = math.prod(shape[1:] if index else shape)
    if rest > MOST_READ:
        raise BadArgument(
            f"{layer!r} has {rest:,} numbers{' at each place' if index else ''}; at most {MOST_READ:,} are read for "
            f"one answer: index=[0] is its first part along an axis"
        )
    array = np.asarray(stored[index[0]] if index else stored[...] if isinstance(stored, np.ndarray) else stored[:])
    for place in index[1:]:
        array = array[place]
    return np.asarray(array)


def _check_layers(opened: Any, path: str) -> None:
    if isinstance(opened, ForeignRun):
        raise ValueUnavailable(f"{path} is {_kind(opened)}, which has metrics and no layers")


def _fits(pattern: str, name: str) -> bool:
    """Return whether a name contains a pattern of * and ?; a regular expression could take for ever."""
    return fnmatchcase(name, f"*{pattern.replace('[', '[[]')}*")


def _layers(opened: Any) -> list[dict[str, Any]]:
    if isinstance(opened, ModelHistory):
        return [
            {"name": op.label, "module": op.module, "shape": list(op.shape), "dtype": op.dtype, "saved": op.is_saved}
            for op in opened
        ]
    if isinstance(opened, RunFolder):
        return [
            row for part in (*opened.watches.values(), opened.captures) if part is not None for row in _layers(part)
        ]
    if isinstance(opened, Watched):
        return [
            {"name": layer, "variable": variable, "steps": len(series), "last": _last(series)}
            for layer, variable in opened.keys()
            for series in [opened[layer, variable]]
        ]
    if isinstance(opened, Archive):
        names = {(sample.layer, sample.variable): None for sample in opened.samples()}
        return [{"name": layer, "variable": variable, "captured": True} for layer, variable in names]
    stored = {name: opened[name] for name in opened}
    return [
        {"name": name, "shape": list(value.shape), "dtype": str(getattr(value, "dtype", None) or value.type)}
        for name, value in stored.items()
    ]


def _last(series: Any) -> dict[str, Any]:
    """The newest statistics of a watched value."""
    return {row.name: _plain(getattr(series, row.name)[-1:])[0] for row in TABLE}


def _has(watch: Watched, layer: str) -> bool:
    return any(name == layer for name, _ in watch.keys())


def _step(step: int, steps: Sequence[int], layer: str) -> int:
    if not steps:
        raise ValueUnavailable(f"no value of {layer!r} was kept")
    if step == -1:
        return steps[-1]
    if step not in steps:
        raise ValueUnavailable(
            f"{layer!r} was kept at {len(steps)} steps from {steps[0]} to {steps[-1]}, not at {step}"
        )
    return step


def _grey(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Numbers as grey pixels, from the least to the largest finite one; of a small value, each number is a square."""
    numbers = real_numbers(array).astype(np.float64)
    finite, low, high, *_ = finite_part(numbers)
    low, high = (low, high) if finite.size else (0.0, 0.0)
    pixels = np.rint((np.nan_to_num(numbers, nan=low, neginf=low, posinf=high) - low) / ((high - low) or 1.0) * 255)
    pixels = pixels.astype(np.uint8)
    size = max(1, 256 // max(pixels.shape))
    return np.kron(pixels, np.ones((size, size), np.uint8))[:, :, None]


def _plain(column: Any) -> list[Any]:
    """Cells as JSON has them: NaN and infinities, which it lacks, as text."""
    cells = column.tolist() if hasattr(column, "tolist") else list(column)
    return [_plain(cell) if isinstance(cell, list) else _cell(cell) for cell in cells] if isinstance(cells, list) else [
        _cell(cells)
    ]  # fmt: skip


def _cell(cell: Any) -> Any:
    if isinstance(cell, complex) or (isinstance(cell, float) and not math.isfinite(cell)):
        return str(cell)
    return cell if isinstance(cell, str | int | float | bool | None) else str(cell)


def _kind(opened: Any) -> str:
    """What something is, with its article."""
    return _KINDS.get(type(opened).__name__, f"a {type(opened).__name__}")


_KINDS = {
    "ModelHistory": "a saved history", "RunFolder": "a run", "Watched": "the log of a watch",
    "Archive": "an archive of captured values", "Extraction": "an extraction", "ModelFile": "a model file",
    "ForeignRun": "a log of another program",
}  # fmt: skip


def _there_are(name: str, names: Any) -> str:
    return did_you_mean(name, names) or f" There are {', '.join(names) or 'none'}."
