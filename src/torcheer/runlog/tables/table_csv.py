"""Tables as CSV, with emergent's headers (column types and cell shapes) or plain ones.

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
    """Write a table with all digits of every number."""
    if header not in ("emergent", "plain"):
        raise BadArgument(f"to_csv(header={header!r}): headers are 'emergent' (with types) or 'plain'")
    target = Path(path)
    names = csv_titles(table, header == "emergent")
    columns = [column for name in table.columns for column in _texts(table[name])]
    delimiter = "\t" if target.suffix == ".tsv" else ","
    # csv leaves a lone carriage return unquoted, and readers take it for a line end.
    quoting: Any = (
        csv.QUOTE_ALL if any("\r" in cell for column in (names, *columns) for cell in column) else csv.QUOTE_MINIMAL
    )
    with open(target, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter=delimiter, lineterminator="\n", quoting=quoting)
        writer.writerow(names)
        writer.writerows(zip(*columns))


def csv_titles(table: Table, emergent: bool = True) -> list[str]:
    """The headers of a table."""
    return [title for name in table.columns for title in _titles(name, table[name], emergent)]


def csv_cells(table: Table, row: int, digits: int = 0) -> list[str]:
    """The cells of a row, as text; numbers with so many digits, or with all of theirs."""
    return [text for name in table.columns for (text,) in _texts(table[name][row : row + 1], digits)]


def _titles(name: str, values: Array, emergent: bool) -> list[str]:
    sign = _sign(values.dtype) if emergent else ""
    if values.ndim == 1:
        return [sign + name]
    shape = values.shape[1:]
    indices = [",".join(map(str, index)) for index in np.ndindex(shape)]
    if not emergent:
        return [f"{name}[{index}]" for index in indices]
    titles = [f"{sign}{name}[{len(shape)}:{index}]" for index in indices]
    titles[0] += f"<{len(shape)}:{','.join(map(str, shape))}>"
    return titles


def _sign(kind: np.dtype[Any]) -> str:
    """The sign of a dtype; other integers are written as |, half precision as %."""
    wider = {"O": "text", "f": "float32", "i": "int64", "u": "int64"}.get(kind.kind, "")
    return next(sign for name in (kind.name, wider) for sign, type_ in SIGNS.items() if type_ == name)


def _texts(values: Array, digits: int = 0) -> list[list[str]]:
    """The cells of each CSV column.

    A float32 is printed with fewer digits than the float64 it would become.
    """
    flat = values.reshape(len(values), math.prod(values.shape[1:]))
    if values.dtype.kind == "f":
        return [[_number(number, digits) for number in column] for column in flat.T]
    return [[str(cell) for cell in column] for column in flat.T]


def _number(value: np.floating[Any], digits: int) -> str:
    if value != value:
        return "NaN"
    if np.isinf(value):
        return "Inf" if value > 0 else "-Inf"
    return f"{value:.{digits}g}" if digits else str(value)


# -- reading ---------------------------------------------------------------------------------------------------------


def read(path: str | PathLike[str]) -> dict[str, Array]:
    """Read the columns of a file."""
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
    if titles[0] == "_H:":  # emergent marks header lines with _H:, data lines with _D:
        titles, cells = titles[1:], [row[1:] for row in cells if row[0] == "_D:"]
    if titles and titles[-1] == "" and all(len(row) < len(titles) or row[-1] == "" for row in cells):
        titles, cells = titles[:-1], [row[: len(titles) - 1] for row in cells]  # a trailing delimiter
    for number, row in enumerate(cells, 2):
        if len(row) != len(titles):
            raise BadArgument(f"{source}, line {number}: {len(row)} cells under {len(titles)} headers")
    columns = [[row[position] for row in cells] for position in range(len(titles))]
    signed = all(title[:1] in SIGNS for title in titles)
    return (_parse_typed if signed else _parse_untyped)(titles, columns, source)


def _has_tabs(line: str) -> bool:
    """True if tabs separate the headers; commas in an index or between quotes do not count."""
    outside = re.sub(r'"[^"]*"|\[[^\]]*\]|<[^>]*>', "", line)
    return "\t" in outside and "," not in outside


def _parse_typed(titles: list[str], columns: list[list[str]], source: Path) -> dict[str, Array]:
    """Parse columns with emergent's typed headers."""
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
    values = [_parse(column, kind, where) for column in parts]
    return np.stack(values, 1).reshape(len(parts[0]), *shape) if shape else values[0]


def _parse(cells: list[str], kind: str, where: str) -> Array:
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


def _parse_untyped(titles: list[str], columns: list[list[str]], source: Path) -> dict[str, Array]:
    """Parse columns by guessing types from the cells.

    Join the columns "Input[0,1]", … to a tensor column.
    """
    tensors: dict[str, dict[tuple[int, ...], Array]] = {}
    arrays: dict[str, Array | None] = {}
    for position, (title, column) in enumerate(zip(titles, columns)):
        values, tensor = _guess_column(column, str(source)), _PLAIN_TENSOR.fullmatch(title)
        name = tensor["name"] if tensor and values.dtype != object else title or f"column_{position}"
        if name in arrays and not (tensor and name in tensors):
            raise BadArgument(f"{source} has two columns {name!r}")
        arrays[name] = None if tensor and values.dtype != object else values
        if tensor and values.dtype != object:
            tensors.setdefault(name, {})[tuple(int(size) for size in tensor["index"].split(","))] = values
    for name, parts in tensors.items():
        arrays[name] = _stack(parts, f"{source}: {name!r}")
    return {name: values for name, values in arrays.items() if values is not None}


def _stack(parts: dict[tuple[int, ...], Array], where: str) -> Array:
    shape = tuple(1 + max(sizes) for sizes in zip(*parts))
    if any(len(index) != len(shape) for index in parts) or len(parts) != int(np.prod(shape)):
        raise BadArgument(f"{where} has {len(parts)} columns, and indices of shape {shape}")
    columns = np.stack([parts[index] for index in np.ndindex(shape)], 1)
    return columns.reshape(len(columns), *shape)


def _guess_column(cells: list[str], where: str) -> Array:
    if cells and all(cell in ("True", "False") for cell in cells):
        return _parse(cells, "bool", where)
    for kind in ("int64", "float64"):
        try:
            return _parse(cells, kind, where)
        except BadArgument:
            continue
    return np.array(cells, object)
