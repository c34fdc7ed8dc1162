"""Output of `torcheer archive cat`: one value, printed or written to a file."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torcheer.archive.format.archive_reader import Archive
from torcheer.archive.listing import ValueRow, format_span, list_values
from torcheer.encoding import to_bytes
from torcheer.errors import BadArgument, UnknownLayer
from torcheer.terminal import did_you_mean, first_names, plural, printable
from torcheer.vocabulary.array_statistics import facts_of
from torcheer.vocabulary.dtypes import DTYPES


def choose_value(archive: Archive, layer: str, variable: str | None, step: int | None, item: int | None) -> ValueRow:
    """Select one value.

    The defaults are the newest step, the whole batch and the variable "value".
    """
    rows = list_values(archive)
    matches = [row for row in rows if layer in (row.layer, row.entry.layer)]
    if not matches:
        raise UnknownLayer(unknown_layer_message(layer, [row.layer for row in rows]))
    matches = _filter_rows(
        matches, "variable", variable, [name for name in ("value", "value 0") if name in _distinct(matches, "variable")]
    )
    matches = _filter_rows(matches, "step", step, [max(_distinct(matches, "step"))])
    matches = _filter_rows(matches, "item", item, [name for name in (-1,) if name in _distinct(matches, "item")])
    return matches[-1]


def unknown_layer_message(layer: str, layers: list[str]) -> str:
    """Format the error for an unknown layer, with the nearest name."""
    there = f" There are {first_names(dict.fromkeys(map(repr, layers)))}" if layers else " It holds no values."
    return f"no layer {layer!r}.{did_you_mean(layer, layers) or there}"


def _distinct(rows: list[ValueRow], field: str) -> list[Any]:
    return sorted({getattr(row.entry, field) for row in rows})


def _filter_rows(rows: list[ValueRow], field: str, requested: Any, defaults: list[Any]) -> list[ValueRow]:
    """Filter rows by a field: the requested value, else the first default, else the only one."""
    available = _distinct(rows, field)
    wanted = (
        requested
        if requested is not None
        else next(iter([*defaults, *(available if len(available) == 1 else [])]), None)
    )
    if wanted not in available:
        shown = first_names(map(repr, available)) if field == "variable" else format_span(available)
        complaint = f"has no {field} {requested!r}" if requested is not None else f"has more than one {field}"
        raise BadArgument(f"{rows[0].layer!r} {complaint}; there are {shown}")
    return [row for row in rows if getattr(row.entry, field) == wanted]


def format_value(row: ValueRow, array: NDArray[Any], width: int) -> str:
    """Format a line about a value, and the value as numpy prints it."""
    entry = row.entry
    where = f"{printable(row.layer)} {printable(entry.variable)}, step {entry.step}"
    where += f", item {entry.item}" if entry.item >= 0 else ""
    bits = "" if array.dtype.name == entry.type else " (as its bits: ml_dtypes is not installed)"
    with np.printoptions(linewidth=max(20, width)):
        return f"{where}, {entry.type}{bits} {entry.shape}: {summarize_array(array)}\n{array}"


def summarize_array(array: NDArray[Any]) -> str:
    """Summarize an array by its minimum, mean and maximum."""
    if not array.size:
        return "empty"
    if array.dtype == bool:
        return f"{array.mean():.1%} true"
    facts, of = facts_of(array), " of the absolute values" if np.iscomplexobj(array) else ""
    not_finite = facts["nans"] + facts["infs"]
    if not_finite == array.size:
        return f"none of {array.size} finite"
    ends = f"min {facts['minimum']:.6g}, mean {facts['mean']:.6g}, max {facts['maximum']:.6g}"
    return f"{ends}{of}" + (f", {not_finite} not finite" if not_finite else "")


def widen(array: NDArray[Any]) -> NDArray[Any]:
    """Convert a type of ml_dtypes to float32, which holds every number of it exactly; return others unchanged."""
    return array if DTYPES[array.dtype.name].in_numpy else array.astype(np.float32)


def write_npy(file: str, array: NDArray[Any]) -> str:
    """Write a .npy file, to the standard output for "-"; return its type and shape as text."""
    numbers = widen(array)
    with _open_new(file) as out:
        np.lib.format.write_array(out, numbers, allow_pickle=False)
    return f"{numbers.dtype} {numbers.shape}"


def write_raw(file: str, array: NDArray[Any]) -> str:
    """Write the bytes only, little-endian in row-major order; return their count as text."""
    _, _, data = to_bytes(array)
    with _open_new(file) as out:
        out.write(data)
    return plural(len(data), "byte")


def _open_new(file: str) -> AbstractContextManager[Any]:
    try:
        return nullcontext(sys.stdout.buffer) if file == "-" else open(file, "xb")
    except FileExistsError:
        raise BadArgument(f"{file} is there already; write to another file") from None
