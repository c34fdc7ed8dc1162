"""Records as JSON and back: only our own plain records have a name in it, and nothing is looked up by one.

A hundred thousand operations are written field by field, and what many of them share only once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from typing import Any

from torcheer.errors import ArchiveDamaged
from torcheer.records import Argument, Edge, ModuleCall, ModuleInfo, ModuleRun, Op, RunInfo, Source, Stored, TensorMeta


class Told:
    """Something that JSON cannot hold, of which the text was kept: a dtype, a device, a function."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Told) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)


def to_plain(info: RunInfo, ops: list[Op], below: list[Op], runs: Sequence[ModuleRun] = ()) -> dict[str, Any]:
    """A history's records, as JSON can hold them."""
    shelf = Shelf()
    about = {one.name: plain(getattr(info, one.name)) for one in fields(RunInfo) if one.name not in _INFO_RECORDS}
    about |= {name: [shelf.number(one) for one in getattr(info, name).values()] for name in _INFO_RECORDS}
    found: dict[str, Any] = {"info": about, "ops": _columns(ops, shelf), "below": _columns(below, shelf)}
    found["runs"] = [
        [shelf.number(run.call), *(list(map(_row, side)) for side in (run.inputs, run.outputs))] for run in runs
    ]
    return {**found, "records": shelf.rows()}


def from_plain(found: dict[str, Any]) -> tuple[RunInfo, list[Op], list[Op], list[ModuleRun]]:
    """What `to_plain` was given."""
    try:
        shelf = _records(found["records"])
        about = {name: restored(value) for name, value in found["info"].items() if name not in _INFO_RECORDS}
        for name, (kind, key) in _INFO_RECORDS.items():
            about[name] = {getattr(one, key): one for one in _picked(shelf[kind.__name__], found["info"][name])}
        ops = _ops(found["ops"], shelf)
        runs = [_run(shelf["ModuleCall"], row, ops) for row in found.get("runs", ())]  # files of 0.1 have none
        return RunInfo(**about), ops, _ops(found["below"], shelf), runs
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise ArchiveDamaged(f"the records of a history cannot be read: {error!r}") from None


# -- records ---------------------------------------------------------------------------------------------------------

_ROWS: dict[Any, tuple[type, ...]] = {  # the types of their fields
    TensorMeta: (tuple, str, str, int, bool),
    ModuleCall: (str, int, str),
    Stored: (str, str, tuple, str, int, bool, tuple),
    ModuleInfo: (str, str, tuple),
    Source: (str, int, str),
}
_INFO_RECORDS: dict[str, tuple[Any, str]] = {"modules": (ModuleInfo, "address"), "stored": (Stored, "name")}


class Shelf:
    """Records of every kind, each once; others name it by its number."""

    def __init__(self) -> None:
        self._numbers: dict[type, dict[Any, int]] = {kind: {} for kind in _ROWS}

    def number(self, record: Any) -> int:
        """Where a record stands among those of its kind."""
        numbers = self._numbers[type(record)]
        return numbers.setdefault(record, len(numbers))

    def rows(self) -> dict[str, list[list[Any]]]:
        """All of them."""
        found = {}
        for kind, numbers in self._numbers.items():
            names = getattr(kind, "_fields", None) or [one.name for one in fields(kind)]
            found[kind.__name__] = [[getattr(record, name) for name in names] for record in numbers]
        return found


def _records(rows: dict[str, list[list[Any]]]) -> dict[str, list[Any]]:
    return {kind.__name__: [_record(kind, types, row) for row in rows[kind.__name__]] for kind, types in _ROWS.items()}


def _record(kind: Any, types: tuple[type, ...], row: list[Any]) -> Any:
    parts = [tuple(part) if type(part) is list else part for part in row]
    if tuple(map(type, parts)) != types:
        raise ValueError(f"no {kind.__name__}: {row!r:.80}")
    return kind(*parts)


def _picked(shelf: Sequence[Any], numbers: Iterable[Any]) -> list[Any]:
    """Records by their numbers; a negative one names none."""
    return [shelf[number] if number >= 0 else shelf[len(shelf)] for number in numbers]


# -- operations, field by field --------------------------------------------------------------------------------------

_NUMBERS = ("index", "elapsed_secs")  # nearly every one differs
_RECORDS = {"outputs": "TensorMeta", "stored": "Stored", "modules": "ModuleCall", "output_of": "ModuleCall"}
_RECORDS["written"] = "TensorMeta"
_LATER = ("written",)  # not in files of 0.1, where all that an operation wrote counts as returned
_REPEATED: dict[str, Any] = {  # the rest, each distinct value once, and their types
    **dict.fromkeys(("name", "kind", "function", "grad_fn", "level", "edited", "note"), str),
    **dict.fromkeys(("root_call", "under"), int),
    **dict.fromkeys(("inplace", "view", "random"), bool),
    **dict.fromkeys((*_RECORDS, "parents", "site", "settings"), tuple),
    "source": (Source, type(None)),
}


def _columns(ops: list[Op], shelf: Shelf) -> dict[str, Any]:
    found: dict[str, Any] = {name: [getattr(op, name) for op in ops] for name in (*_NUMBERS, *_REPEATED)}
    # Told by how far back a parent is, loops repeat themselves.
    found["parents"] = [tuple([(op.index - edge.parent, edge.output, edge.where) for edge in op.parents]) for op in ops]
    for name in _REPEATED:
        values = keys = found[name]
        if name in ("parents", "settings"):  # 1, 1.0 and True are equal, and a setting of 1.0 is not one of 1
            keys = list(map(repr, values))
        numbers: dict[Any, int] = {}
        at = [numbers.setdefault(key, len(numbers)) for key in keys]
        distinct = dict(zip(keys, values)).values() if keys is not values else numbers
        of = [_to_plain(name, value, shelf) for value in distinct]
        found[name] = {"of": of, "at": at if len(of) > 1 else len(ops)}
    return found


def _to_plain(name: str, value: Any, shelf: Shelf) -> Any:
    if name in _RECORDS:
        return [shelf.number(record) for record in value]
    if name == "source":
        return None if value is None else shelf.number(value)
    return value if name == "parents" else plain(value)


def _ops(found: dict[str, Any], shelf: dict[str, list[Any]]) -> list[Op]:
    columns: list[list[Any]] = []
    found = {name: {"of": [[]], "at": len(found["index"])} for name in _LATER} | found
    for field in fields(Op):
        values = found[field.name]
        if field.name in _NUMBERS:
            if not set(map(type, values)) <= {int, float}:
                raise ValueError(f"{field.name} of an operation is a number")
            columns.append(values)
        else:
            distinct = [_from_plain(field.name, value, shelf) for value in values["of"]]
            if not all(isinstance(value, _REPEATED[field.name]) for value in distinct):
                raise ValueError(f"{field.name} of an operation is {_REPEATED[field.name]}")
            at = values["at"]
            if type(at) is int and at == len(columns[0]):
                at = [0] * at  # all the same
            columns.append(_picked(distinct, at))
    names = [field.name for field in fields(Op)]
    parents = names.index("parents")
    columns[parents] = [_edges(index, edges) for index, edges in zip(columns[names.index("index")], columns[parents])]
    if set(found) != set(names) or len(set(map(len, columns))) > 1:
        raise ValueError(f"operations are of one length in every field, and have no others: {list(found)}")
    return list(map(Op, *columns))


def _from_plain(name: str, value: Any, shelf: dict[str, list[Any]]) -> Any:
    if name in _RECORDS:
        return tuple(_picked(shelf[_RECORDS[name]], value))
    if name == "source":
        return None if value is None else _picked(shelf["Source"], [value])[0]
    if name == "parents":
        return tuple((back, output, tuple(where)) for back, output, where in value)
    return restored(value)


def _edges(index: int, edges: tuple[Any, ...]) -> tuple[Edge, ...]:
    for back, output, _ in edges:
        if not (0 < back <= index and output >= 0):
            raise ValueError(f"operation {index} cannot read output {output} of operation {index - back}")
    return tuple([Edge(index - back, output, where) for back, output, where in edges])


# -- what modules received and returned ------------------------------------------------------------------------------

_STORED, _SETTING = -1, -2  # in the place of an op's index


def _row(argument: Argument) -> list[Any]:
    where = list(argument.where)
    if argument.parent >= 0:
        return [where, argument.parent, argument.output]
    return [where, _STORED, argument.stored] if argument.stored else [where, _SETTING, plain(argument.setting)]


def _run(calls: Sequence[ModuleCall], row: list[Any], ops: list[Op]) -> ModuleRun:
    number, inputs, outputs = row
    sides = [tuple([_argument(parts, ops) for parts in side]) for side in (inputs, outputs)]
    return ModuleRun(_picked(calls, [number])[0], *sides)


def _argument(parts: list[Any], ops: list[Op]) -> Argument:
    where, parent, what = parts
    place = tuple(where)
    if parent == _SETTING:
        return Argument(place, setting=restored(what))
    if parent == _STORED and type(what) is str:
        return Argument(place, stored=what)
    if parent < 0 or what < 0:
        raise ValueError(f"a module cannot have received output {what} of operation {parent}")
    ops[parent].tensors[what]  # an IndexError where there is none
    return Argument(place, parent, what)


# -- any value -------------------------------------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """A value as JSON can hold it."""
    if value is None or type(value) in (bool, int, str) or (type(value) is float and math.isfinite(value)):
        return value
    if isinstance(value, list):
        return [plain(part) for part in value]
    if isinstance(value, tuple):
        return {"$": "tuple", "v": [plain(part) for part in value]}
    if isinstance(value, dict):
        return {"$": "dict", "v": [[plain(key), plain(part)] for key, part in value.items()]}
    if isinstance(value, slice):
        return {"$": "slice", "v": [plain(part) for part in (value.start, value.stop, value.step)]}
    if isinstance(value, (float, complex)):
        return {"$": "complex" if isinstance(value, complex) else "float", "v": str(value)}
    return {"$": "told", "v": "..." if value is Ellipsis else str(value)}


def restored(value: Any) -> Any:
    """What `plain` was given."""
    if isinstance(value, list):
        return [restored(part) for part in value]
    return _MAKE[value["$"]](value["v"]) if isinstance(value, dict) else value


_MAKE: dict[str, Callable[[Any], Any]] = {
    "tuple": lambda parts: tuple([restored(part) for part in parts]),
    "dict": lambda parts: {restored(key): restored(part) for key, part in parts},
    "slice": lambda parts: slice(*[restored(part) for part in parts]),
    "float": float,
    "complex": complex,
    "told": lambda text: Ellipsis if text == "..." else Told(str(text)),
}
