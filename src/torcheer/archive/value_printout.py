"""What `torcheer archive cat` prints or writes: one value."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from difflib import get_close_matches
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torcheer.archive.format.archive_reader import Archive
from torcheer.archive.listing import Row, rows_of, span
from torcheer.encoding import to_bytes
from torcheer.errors import BadArgument, UnknownLayer
from torcheer.terminal import plural, printable


def choose(archive: Archive, layer: str, variable: str | None, step: int | None, item: int | None) -> Row:
    """The one value that is meant: the newest step, the whole batch and the value itself where nothing else is said."""
    rows = rows_of(archive)
    found = [row for row in rows if layer in (row.layer, row.entry.layer)]
    if not found:
        raise UnknownLayer(unknown_layer(layer, [row.layer for row in rows]))
    found = _only(found, "variable", variable, [one for one in ("value", "value 0") if one in _all(found, "variable")])
    found = _only(found, "step", step, [max(_all(found, "step"))])
    found = _only(found, "item", item, [one for one in (-1,) if one in _all(found, "item")])
    return found[-1]


def unknown_layer(layer: str, there: list[str]) -> str:
    """What to say of a layer that is not there."""
    near = get_close_matches(layer, there, 1)
    hint = f" Did you mean {near[0]!r}?" if near else f" There are {_few(there)}" if there else " It holds no values."
    return f"no layer {layer!r}.{hint}"


def _all(rows: list[Row], field: str) -> list[Any]:
    return sorted({getattr(row.entry, field) for row in rows})


def _only(rows: list[Row], field: str, asked: Any, usual: list[Any]) -> list[Row]:
    """The values of which a field is what was asked for, or what is usual, or the only thing there is."""
    there = _all(rows, field)
    wanted = asked if asked is not None else next(iter([*usual, *(there if len(there) == 1 else [])]), None)
    if wanted not in there:
        shown = _few(there) if field == "variable" else span(there)
        asks = f"has no {field} {asked!r}" if asked is not None else f"has more than one {field}"
        raise BadArgument(f"{rows[0].layer!r} {asks}; there are {shown}")
    return [row for row in rows if getattr(row.entry, field) == wanted]


def _few(names: list[Any]) -> str:
    shown = ", ".join(dict.fromkeys(repr(name) for name in names[:1000]))
    return shown if len(shown) < 300 else f"{shown[:300]}…"


def printed(row: Row, array: NDArray[Any], width: int) -> str:
    """A line about a value, and the value as numpy prints it."""
    entry = row.entry
    where = f"{printable(row.layer)} {printable(entry.variable)}, step {entry.step}"
    where += f", item {entry.item}" if entry.item >= 0 else ""
    bits = "" if array.dtype.name == entry.type else " (as its bits: ml_dtypes is not installed)"
    with np.printoptions(linewidth=max(20, width)):
        return f"{where}, {entry.type}{bits} {entry.shape}: {summary(array)}\n{array}"


def summary(array: NDArray[Any]) -> str:
    """Least, mean and greatest number."""
    if not array.size:
        return "empty"
    if array.dtype == bool:
        return f"{array.mean():.1%} true"
    numbers = widened(array)
    of = " of the absolute values" if np.iscomplexobj(numbers) else ""
    numbers = np.abs(numbers) if of else numbers
    finite = numbers[np.isfinite(numbers)]
    odd = f", {numbers.size - finite.size} not finite" if finite.size < numbers.size else ""
    if not finite.size:
        return f"none of {numbers.size} finite"
    return f"min {finite.min():.6g}, mean {finite.mean(dtype=np.float64):.6g}, max {finite.max():.6g}{of}{odd}"


def widened(array: NDArray[Any]) -> NDArray[Any]:
    """A type of numpy's own that holds every number exactly; bfloat16 and float8 become float32."""
    return (
        array.astype(np.float32) if array.dtype.kind == "V" or array.dtype.name.startswith(("bf", "float8")) else array
    )


def write_npy(file: str, array: NDArray[Any]) -> str:
    """Write a .npy file, to the standard output for "-"; say what it holds."""
    numbers = widened(array)
    with _opened(file) as out:
        np.lib.format.write_array(out, numbers, allow_pickle=False)
    return f"{numbers.dtype} {numbers.shape}"


def write_raw(file: str, array: NDArray[Any]) -> str:
    """Write the bytes and nothing else, little-endian, row by row; say how many."""
    _, _, data = to_bytes(array)
    with _opened(file) as out:
        out.write(data)
    return plural(len(data), "byte")


def _opened(file: str) -> AbstractContextManager[Any]:
    try:
        return nullcontext(sys.stdout.buffer) if file == "-" else open(file, "xb")
    except FileExistsError:
        raise BadArgument(f"{file} is there already; write to another file") from None
