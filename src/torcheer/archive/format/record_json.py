"""Conversion of a history's records to JSON and back.

Only the record types of `records.py` are named in it, and nothing is imported or looked up by such a name.
A hundred thousand operations are stored as columns, with each distinct value once.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from itertools import chain, repeat
from typing import Any

from torcheer.errors import ArchiveDamaged
from torcheer.records import (
    Argument,
    BackwardStep,
    Edge,
    ModuleCall,
    ModuleInfo,
    ModuleRun,
    Op,
    RunInfo,
    Source,
    Stored,
    TensorMeta,
)


class OpaqueValue:
    """A value that JSON cannot hold (a dtype, device, function): only its text was saved."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OpaqueValue) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)


def history_to_json(info: RunInfo, ops: list[Op], below: list[Op], runs: Sequence[ModuleRun] = ()) -> dict[str, Any]:
    """Convert a history's records to a JSON document."""
    table = RecordTable()
    info_fields = {
        field.name: value_to_json(getattr(info, field.name))
        for field in fields(RunInfo)
        if field.name not in _INFO_RECORDS
    }
    info_fields |= {name: [table.number(field) for field in getattr(info, name).values()] for name in _INFO_RECORDS}
    document: dict[str, Any] = {
        "info": info_fields,
        "ops": _ops_to_columns(ops, table),
        "below": _ops_to_columns(below, table),
    }
    document["runs"] = [
        [table.number(run.call), *(list(map(_argument_to_json, side)) for side in (run.inputs, run.outputs))]
        for run in runs
    ]
    return {**document, "records": table.rows()}


Runs = Callable[[], list[ModuleRun]]


def history_from_json(document: dict[str, Any], where: object) -> tuple[RunInfo, list[Op], list[Op], Runs]:
    """Rebuild the records from a document of `history_to_json`; the runs of modules when they are asked for.

    `where`: the archive, for errors.
    """
    with _damage(where):
        records = _parse_records(document["records"])
        info_fields = {
            name: value_from_json(value) for name, value in document["info"].items() if name not in _INFO_RECORDS
        }
        for name, (kind, key) in _INFO_RECORDS.items():
            info_fields[name] = {
                getattr(record, key): record
                for record in _lookup_records(records[kind.__name__], document["info"][name])
            }
        ops = _ops_from_columns(document["ops"], records)
        if [op.index for op in ops] != [*range(len(ops))]:
            raise ValueError("operations are numbered from 0 on, in their order")
        info, below = RunInfo(**info_fields), _ops_from_columns(document["below"], records)
        rows = document.get("runs", [])  # files of 0.1 have none

    def runs() -> list[ModuleRun]:
        with _damage(where):
            return [_run_from_json(records["ModuleCall"], row, ops) for row in rows]

    return info, ops, below, runs


@contextmanager
def _damage(where: object) -> Iterator[None]:
    """Report what cannot be read as damage."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise ArchiveDamaged(f"{where}: the records of a history cannot be read: {error!r}") from None


# -- records ---------------------------------------------------------------------------------------------------------

_FIELD_TYPES: dict[Any, tuple[Any, ...]] = {  # the types of their fields; {int}: a tuple of whole numbers
    TensorMeta: ({int}, str, str, int, bool),
    ModuleCall: (str, int, str),
    Stored: (str, str, {int}, str, int, bool, {int, str}),
    ModuleInfo: (str, str, {str}),
    Source: (str, int, str),
    BackwardStep: (str, str, tuple, tuple, bool, str),
}
_INFO_RECORDS: dict[str, tuple[Any, str]] = {"modules": (ModuleInfo, "address"), "stored": (Stored, "name")}


class RecordTable:
    """Deduplicated records of every kind; other rows refer to them by number."""

    def __init__(self) -> None:
        self._numbers: dict[type, dict[Any, int]] = {kind: {} for kind in _FIELD_TYPES}

    def number(self, record: Any) -> int:
        """Return the index of a record among those of its kind, adding it if it is new."""
        numbers = self._numbers[type(record)]
        return numbers.setdefault(record, len(numbers))

    def rows(self) -> dict[str, list[list[Any]]]:
        """Return all records as rows of field values, by kind."""
        tables = {}
        for kind, numbers in self._numbers.items():
            names = getattr(kind, "_fields", None) or [field.name for field in fields(kind)]
            tables[kind.__name__] = [[getattr(record, name) for name in names] for record in numbers]
        return tables


def _parse_records(rows: dict[str, list[list[Any]]]) -> dict[str, list[Any]]:
    rows = {"BackwardStep": []} | rows  # files of 0.1 have none
    return {kind.__name__: _parse_kind(kind, types, rows[kind.__name__]) for kind, types in _FIELD_TYPES.items()}


def _parse_kind(kind: Any, types: tuple[Any, ...], rows: list[list[Any]]) -> list[Any]:
    """Rebuild the records of one kind, field by field: there may be a hundred thousand."""
    if not set(map(len, rows)) <= {len(types)}:
        raise ValueError(f"a {kind.__name__} has {len(types)} fields")
    columns: list[Sequence[Any]] = []
    for values, wanted in zip(zip(*rows), types):
        is_tuple = wanted is tuple or isinstance(wanted, set)
        columns.append(list(map(tuple, values)) if is_tuple else values)
        if not set(map(type, values)) <= {list if is_tuple else wanted}:
            raise ValueError(f"a field of a {kind.__name__} is not as torcheer writes it")
        if isinstance(wanted, set) and not set(map(type, chain.from_iterable(values))) <= wanted:
            raise ValueError(f"a part of a field of a {kind.__name__} is not as torcheer writes it")
        if wanted is int or wanted == {int}:
            _check_sizes(values if wanted is int else chain.from_iterable(values), f"a {kind.__name__}")
    return _build(kind, columns) if rows else []


def _check_sizes(numbers: Iterable[int], owner: str) -> None:
    """Refuse sizes and counts that no computer has: sums of them are no floats any more."""
    if not all(map(_POSSIBLE.__contains__, numbers)):
        raise ValueError(f"a number of {owner} is beyond 63 bits")


_POSSIBLE = range(-(2**63), 2**63)


def _build(kind: Any, columns: Sequence[Sequence[Any]]) -> list[Any]:
    """Make a record of each row of checked columns: slot by slot, as a frozen class takes three times as long."""
    if issubclass(kind, tuple):
        return list(map(tuple.__new__, repeat(kind), zip(*columns)))
    records = [kind.__new__(kind) for _ in columns[0]]
    for field, values in zip(fields(kind), columns):
        deque(map(getattr(kind, field.name).__set__, records, values), maxlen=0)
    return records


def _lookup_records(records: Sequence[Any], numbers: Iterable[Any]) -> list[Any]:
    """Look up records by number; a negative number raises IndexError."""
    return [records[number] if number >= 0 else records[len(records)] for number in numbers]


# -- operations, field by field --------------------------------------------------------------------------------------

_NUMBER_FIELDS: dict[str, set[type]] = {
    "index": {int},
    "elapsed_secs": {int, float},
}  # as they are
_RECORD_FIELDS = {"outputs": "TensorMeta", "stored": "Stored", "modules": "ModuleCall", "output_of": "ModuleCall"}
_RECORD_FIELDS["written"] = "TensorMeta"
_OPTIONAL_RECORDS = {"source": "Source", "backward": "BackwardStep"}
# Not in files of 0.1, where all that an operation wrote counts as returned.
_SINCE_0_2: dict[str, Any] = {"written": [], "backward": None, "returned_at": (), "given_at": (), "timing": "host"}
_REPEATED_FIELDS: dict[str, Any] = {  # the rest, each distinct value once, and their types
    **dict.fromkeys(("name", "kind", "function", "grad_fn", "level", "edited", "note", "timing"), str),
    **dict.fromkeys(("root_call", "under"), int),
    **dict.fromkeys(("inplace", "view", "random"), bool),
    **dict.fromkeys((*_RECORD_FIELDS, "parents", "site", "settings", "returned_at", "given_at"), tuple),
    "source": (Source, type(None)),
    "backward": (BackwardStep, type(None)),
}


def _ops_to_columns(ops: list[Op], table: RecordTable) -> dict[str, Any]:
    columns: dict[str, Any] = {name: [getattr(op, name) for op in ops] for name in (*_NUMBER_FIELDS, *_REPEATED_FIELDS)}
    # Parents as distances back from the op: then the iterations of a loop have equal values.
    columns["parents"] = [
        tuple([(op.index - edge.parent, edge.output, edge.where) for edge in op.parents]) for op in ops
    ]
    for name in _REPEATED_FIELDS:
        values = keys = columns[name]
        if name in ("parents", "settings"):  # 1, 1.0 and True are equal, and a setting of 1.0 is not one of 1
            keys = list(map(repr, values))
        numbers: dict[Any, int] = {}
        indices = [numbers.setdefault(key, len(numbers)) for key in keys]
        distinct = dict(zip(keys, values)).values() if keys is not values else numbers
        encoded = [_field_to_json(name, value, table) for value in distinct]
        columns[name] = {"of": encoded, "at": indices if len(encoded) > 1 else len(ops)}
    return columns


def _field_to_json(name: str, value: Any, table: RecordTable) -> Any:
    if name in _RECORD_FIELDS:
        return [table.number(record) for record in value]
    if name in _OPTIONAL_RECORDS:
        return None if value is None else table.number(value)
    return value if name == "parents" else value_to_json(value)


def _ops_from_columns(stored: dict[str, Any], records: dict[str, list[Any]]) -> list[Op]:
    columns: list[list[Any]] = []
    stored = {name: {"of": [value], "at": len(stored["index"])} for name, value in _SINCE_0_2.items()} | stored
    for field in fields(Op):
        values = stored[field.name]
        if field.name in _NUMBER_FIELDS:
            if not set(map(type, values)) <= _NUMBER_FIELDS[field.name]:
                raise ValueError(f"{field.name} of an operation is a number")
            columns.append(values)
        else:
            distinct = [_field_from_json(field.name, value, records) for value in values["of"]]
            if not all(isinstance(value, _REPEATED_FIELDS[field.name]) for value in distinct):
                raise ValueError(f"{field.name} of an operation is {_REPEATED_FIELDS[field.name]}")
            if field.name == "site":
                list(map(hash, distinct))  # a layer is found by it
            indices = values["at"]
            if type(indices) is int and indices == len(columns[0]):
                indices = [0] * indices  # all ops share one value
            columns.append(_lookup_records(distinct, indices))
    names = [field.name for field in fields(Op)]
    parents = names.index("parents")
    columns[parents] = [
        _check_edges(index, edges) for index, edges in zip(columns[names.index("index")], columns[parents])
    ]
    if set(stored) != set(names) or len(set(map(len, columns))) > 1:
        raise ValueError(f"operations are of one length in every field, and have no others: {list(stored)}")
    ops: list[Op] = _build(Op, columns)
    for op in ops if records["BackwardStep"] else ():
        if op.backward is not None and not all(0 <= saved <= op.index for saved in op.backward.saved):
            raise ValueError(f"the rule of operation {op.index} cannot read operations {op.backward.saved}")
    return ops


def _field_from_json(name: str, value: Any, records: dict[str, list[Any]]) -> Any:
    if name in _RECORD_FIELDS:
        return tuple(_lookup_records(records[_RECORD_FIELDS[name]], value))
    if name in _OPTIONAL_RECORDS:
        return None if value is None else _lookup_records(records[_OPTIONAL_RECORDS[name]], [value])[0]
    if name == "parents":
        return tuple((distance, output, tuple(where)) for distance, output, where in value)
    return value_from_json(value)


def _check_edges(index: int, edges: tuple[Any, ...]) -> tuple[Edge, ...]:
    for distance, output, _ in edges:
        if not (type(distance) is type(output) is int and 0 < distance <= index and output >= 0):
            raise ValueError(f"operation {index} cannot read output {output} of operation {index - distance}")
    return tuple([Edge(index - distance, output, where) for distance, output, where in edges])


# -- what modules received and returned ------------------------------------------------------------------------------

_STORED, _SETTING = -1, -2  # in place of an op's index


def _argument_to_json(argument: Argument) -> list[Any]:
    where = list(argument.where)
    if argument.parent >= 0:
        return [where, argument.parent, argument.output]
    return [where, _STORED, argument.stored] if argument.stored else [where, _SETTING, value_to_json(argument.setting)]


def _run_from_json(calls: Sequence[ModuleCall], row: list[Any], ops: list[Op]) -> ModuleRun:
    number, inputs, outputs = row
    sides = [tuple([_argument_from_json(parts, ops) for parts in side]) for side in (inputs, outputs)]
    return ModuleRun(_lookup_records(calls, [number])[0], *sides)


def _argument_from_json(parts: list[Any], ops: list[Op]) -> Argument:
    where, parent, payload = parts
    path = tuple(where)
    if parent == _SETTING:
        return Argument(path, setting=value_from_json(payload))
    if parent == _STORED and type(payload) is str:
        return Argument(path, stored=payload)
    if parent < 0 or payload < 0:
        raise ValueError(f"a module cannot have received output {payload} of operation {parent}")
    ops[parent].tensors[payload]  # an IndexError where there is none
    return Argument(path, parent, payload)


# -- any value -------------------------------------------------------------------------------------------------------


def value_to_json(value: Any) -> Any:
    """Convert any value to JSON; what JSON cannot hold becomes its text."""
    if value is None or type(value) in (bool, int, str) or (type(value) is float and math.isfinite(value)):
        return value
    if isinstance(value, list):
        return [value_to_json(part) for part in value]
    if isinstance(value, tuple):
        return {"$": "tuple", "v": [value_to_json(part) for part in value]}
    if isinstance(value, dict):
        return {"$": "dict", "v": [[value_to_json(key), value_to_json(part)] for key, part in value.items()]}
    if isinstance(value, slice):
        return {"$": "slice", "v": [value_to_json(part) for part in (value.start, value.stop, value.step)]}
    if isinstance(value, (float, complex)):
        return {"$": "complex" if isinstance(value, complex) else "float", "v": str(value)}
    return {"$": "told", "v": "..." if value is Ellipsis else str(value)}


def value_from_json(value: Any) -> Any:
    """Rebuild a value that `value_to_json` converted."""
    if isinstance(value, list):
        return [value_from_json(part) for part in value]
    return _DECODERS[value["$"]](value["v"]) if isinstance(value, dict) else value


_DECODERS: dict[str, Callable[[Any], Any]] = {
    "tuple": lambda parts: tuple([value_from_json(part) for part in parts]),
    "dict": lambda parts: {value_from_json(key): value_from_json(part) for key, part in parts},
    "slice": lambda parts: slice(*[value_from_json(part) for part in parts]),
    "float": float,
    "complex": complex,
    "told": lambda text: Ellipsis if text == "..." else OpaqueValue(str(text)),
}
