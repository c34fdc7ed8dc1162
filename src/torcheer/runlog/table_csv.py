"""Tables as CSV: with emergent's headers, which say the type of each column and the shape of its cells, or plain.

A header begins with a sign for the type. A column of tensors has one header per number of a cell, its index in
brackets, the first with the whole shape: `%Input[2:0,0]<2:5,5>`, `%Input[2:0,1]`, …
"""

from __future__ import annotations

import csv
import math
import re
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from torcheer.errors import BadArgument

if TYPE_CHECKING:
    from torcheer.runlog.table import Table

Array = NDArray[Any]
SIGNS = {"$": "text", "&": "text", "%": "float32", "#": "float64", "|": "int64", "@": "uint8", "^": "bool"}
_TENSOR = re.compile(r"(?P<name>.*)\[\d+:(?P<index>[\d,]+)\](?:<\d+:(?P<shape>[\d,]+)>)?")
_PLAIN_TENSOR = re.compile(r"(?P<name>.+)\[(?P<index>\d+(?:,\d+)*)\]")
_TRUTH = {"true": True, "1": True, "false": False, "0": False}


def write(table: Table, path: str | PathLike[str], header: str) -> None:
    """The whole table, all digits of every number."""
    if header not in ("emergent", "plain"):
        raise BadArgument(f"to_csv(header={header!r}): headers are 'emergent' (with types) or 'plain'")
    target = Path(path)
    names = [title for name in table.columns for title in _titles(name, table[name], header == "emergent")]
    columns = [one for name in table.columns for one in _texts(table[name])]
    between = "\t" if target.suffix == ".tsv" else ","
    # A carriage return by itself is left unquoted, and ends a line for whoever reads.
    quoting: Any = (
        csv.QUOTE_ALL if any("\r" in cell for one in (names, *columns) for cell in one) else csv.QUOTE_MINIMAL
    )
    with open(target, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter=between, lineterminator="\n", quoting=quoting)
        writer.writerow(names)
        writer.writerows(zip(*columns))


def _titles(name: str, values: Array, emergent: bool) -> list[str]:
    sign = _sign(values.dtype) if emergent else ""
    if values.ndim == 1:
        return [sign + name]
    shape = values.shape[1:]
    indices = [",".join(map(str, index)) for index in np.ndindex(shape)]
    if not emergent:
        return [f"{name}[{index}]" for index in indices]
    found = [f"{sign}{name}[{len(shape)}:{index}]" for index in indices]
    found[0] += f"<{len(shape)}:{','.join(map(str, shape))}>"
    return found


def _sign(kind: np.dtype[Any]) -> str:
    """There are six: other whole numbers are written as |, half precision as %."""
    wider = {"O": "text", "f": "float32", "i": "int64", "u": "int64"}.get(kind.kind, "")
    return next(sign for name in (kind.name, wider) for sign, known in SIGNS.items() if known == name)


def _texts(values: Array) -> list[list[str]]:
    """Its columns of cells; a float32 has fewer digits than the float64 it would become."""
    flat = values.reshape(len(values), math.prod(values.shape[1:]))
    if values.dtype.kind == "f":
        return [[_digits(one) for one in column] for column in flat.T]
    return [[str(one) for one in column] for column in flat.T]


def _digits(value: np.floating[Any]) -> str:
    if value != value:
        return "NaN"
    return ("Inf" if value > 0 else "-Inf") if np.isinf(value) else str(value)


# -- reading ---------------------------------------------------------------------------------------------------------


def read(path: str | PathLike[str]) -> dict[str, Array]:
    """The columns of a file."""
    source = Path(path)
    try:
        with open(source, newline="", encoding="utf-8-sig") as file:
            first = file.readline()
            file.seek(0)
            delimiter = "\t" if source.suffix == ".tsv" or _has_tabs(first) else ","
            rows = [row for row in csv.reader(file, delimiter=delimiter) if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BadArgument(f"{source} cannot be read as a table: {error}") from None
    if not rows:
        raise BadArgument(f"{source} is empty: a table has at least its headers")
    titles, cells = rows[0], rows[1:]
    if titles[0] == "_H:":  # emergent's mark in front of the headers; data has its own
        titles, cells = titles[1:], [row[1:] for row in cells if row[0] == "_D:"]
    if titles and titles[-1] == "" and all(len(row) < len(titles) or row[-1] == "" for row in cells):
        titles, cells = titles[:-1], [row[: len(titles) - 1] for row in cells]  # a delimiter after the last one
    for number, row in enumerate(cells, 2):
        if len(row) != len(titles):
            raise BadArgument(f"{source}, line {number}: {len(row)} cells under {len(titles)} headers")
    columns = [[row[place] for row in cells] for place in range(len(titles))]
    signed = all(title[:1] in SIGNS for title in titles)
    return (_typed if signed else _found)(titles, columns, source)


def _has_tabs(line: str) -> bool:
    """Whether tabs part the headers; commas of an index, or between quotes, part nothing."""
    outside = re.sub(r'"[^"]*"|\[[^\]]*\]|<[^>]*>', "", line)
    return "\t" in outside and "," not in outside


def _typed(titles: list[str], columns: list[list[str]], source: Path) -> dict[str, Array]:
    """By emergent's headers."""
    parts: dict[str, list[list[str]]] = {}
    kinds: dict[str, tuple[str, tuple[int, ...]]] = {}
    for title, column in zip(titles, columns):
        tensor = _TENSOR.fullmatch(title[1:])
        name = tensor["name"] if tensor else title[1:]
        if tensor and tensor["shape"]:
            kinds[name] = SIGNS[title[0]], tuple(int(size) for size in tensor["shape"].split(","))
        elif not tensor:
            if name in kinds:
                raise BadArgument(f"{source} has two columns {name!r}")
            kinds[name] = SIGNS[title[0]], ()
        if name not in kinds:
            raise BadArgument(f"{source}: {title!r} comes before the header with its shape, <dimensions:sizes>")
        parts.setdefault(name, []).append(column)
    return {name: _column(parts[name], *kinds[name], f"{source}: {name!r}") for name in parts}


def _column(parts: list[list[str]], kind: str, shape: tuple[int, ...], where: str) -> Array:
    if len(parts) != int(np.prod(shape)):
        raise BadArgument(f"{where} has {len(parts)} columns, and its shape {shape} needs {int(np.prod(shape))}")
    values = [_parsed(column, kind, where) for column in parts]
    return np.stack(values, 1).reshape(len(parts[0]), *shape) if shape else values[0]


def _parsed(cells: list[str], kind: str, where: str) -> Array:
    try:
        if kind == "text":
            return np.array(cells, object)
        if kind == "bool":
            return np.array([_TRUTH[cell.strip().lower()] for cell in cells], bool)
        if kind.startswith("float"):
            return np.array([float(cell) if cell.strip() else np.nan for cell in cells], kind)
        return np.array([int(cell) for cell in cells], kind)
    except (ValueError, KeyError, OverflowError) as error:
        raise BadArgument(f"{where} says {kind}, and a cell is not: {error}") from None


def _found(titles: list[str], columns: list[list[str]], source: Path) -> dict[str, Array]:
    """By what the cells look like; "Input[0,1]" and its like are put together again."""
    tensors: dict[str, dict[tuple[int, ...], Array]] = {}
    found: dict[str, Array | None] = {}
    for place, (title, column) in enumerate(zip(titles, columns)):
        values, tensor = _guessed(column, str(source)), _PLAIN_TENSOR.fullmatch(title)
        name = tensor["name"] if tensor and values.dtype != object else title or f"column_{place}"
        if name in found and not (tensor and name in tensors):
            raise BadArgument(f"{source} has two columns {name!r}")
        found[name] = None if tensor and values.dtype != object else values
        if tensor and values.dtype != object:
            tensors.setdefault(name, {})[tuple(int(size) for size in tensor["index"].split(","))] = values
    for name, parts in tensors.items():
        found[name] = _stacked(parts, f"{source}: {name!r}")
    return {name: values for name, values in found.items() if values is not None}


def _stacked(parts: dict[tuple[int, ...], Array], where: str) -> Array:
    shape = tuple(1 + max(sizes) for sizes in zip(*parts))
    if any(len(index) != len(shape) for index in parts) or len(parts) != int(np.prod(shape)):
        raise BadArgument(f"{where} has {len(parts)} columns, and indices of shape {shape}")
    columns = np.stack([parts[index] for index in np.ndindex(shape)], 1)
    return columns.reshape(len(columns), *shape)


def _guessed(cells: list[str], where: str) -> Array:
    if cells and all(cell in ("True", "False") for cell in cells):
        return _parsed(cells, "bool", where)
    for kind in ("int64", "float64"):
        try:
            return _parsed(cells, kind, where)
        except BadArgument:
            continue
    return np.array(cells, object)
