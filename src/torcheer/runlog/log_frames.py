"""What a frame of a run's log holds: names of its parts, numbers and texts as JSON, values as arrays.

`<run>/log/<writer>/` is an archive; each writer has its own. A frame's `about` may have

- `opened`, in a writer's first frame: the time it was opened, in seconds since 1970.
- `cut`: `step` and `epoch`. What stands before this frame holds up to that step, an epoch's row up to that epoch; all
  of it where there is neither. Nothing is rewritten when a run goes on from an earlier step, or starts over: each
  opening has a `cut`, at the latest with its first step, which it cuts off. What it trains again is never there twice.
  The child of a watch that died and was started again has none.
- `rows`: by table, how many cells it has (`count`), the `types` of its columns of numbers, which are an array under
  layer `(rows)`, and the cells of other columns (`texts`): `log_rows`. `cleared`: tables whose earlier rows no longer
  hold.
- `elsewhere`: how many values of a watch are left out, as another writer has them as rows.
- `heads`: by table, its title, axes and `columns`, each with what is not usual of it. A table with columns is
  there before its first row. `steps` false: its rows do not show their step.
- `alerts`: each with its `id`. `network`; `account` of a watch's values.
- `ended`: how training or a loop ended, `status` ("done", "failed") and `why`. One that was killed says nothing.
- `values`: layer, variable, type, shape of values whose statistics are the rows of three arrays under layer `(watch)`:
  `statistics` (float64), `counts` (int64), whose columns `columns` names, and `bins` (uint32, histograms as
  `packed_histograms` says; a value's `binned` count is its row there, or -1). Arrays that are kept whole are separate
  entries.
- `rank`, in the first frame of an opening of a run of several processes: `rank`, `of` (how many there are), `parts`
  (by layer, which part of a sharded weight this rank holds: `ranks.Shard`), `hashed` (variables with hashes; "output"
  among them where ranks may hold the same outputs: tensor parallel).
- `hashes`: of `values`, a checksum of the bits of each, or null: replicas on other ranks have the same.
- `samples`: what people logged beside numbers (`media`); each is an entry, and a record here: `name` (its layer),
  `kind` (its variable), `item`, `time`, and what its array means (`caption`, `layout`, `rate`, `names`). Text and
  tables are UTF-8 in an array of uint8.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any, Final, TypeGuard

import numpy as np
from numpy.typing import NDArray

from torcheer.runlog.table_cells import MOST_NUMBERS, cell_of
from torcheer.runlog.table_records import Column, TableHead
from torcheer.vocabulary.array_statistics import PERCENTILES, SUMMED, TABLE, derived_columns

LAYER: Final = "(watch)"
ROWS: Final = "(rows)"
_PERCENTILES: Final = tuple(f"p{percent}" for percent in PERCENTILES)
STATISTICS: Final = ("time_secs", *(row.name for row in TABLE if not row.is_count), *_PERCENTILES)
COUNTS: Final = ("item", "seen", *(row.name for row in TABLE if row.is_count), "stride", "finite", "binned")
METRICS: Final = "metric"  # the table of a watch's scalars
EVERYTHING: Final = "*"  # among the metrics that another writer logs: all of them
SYSTEM: Final = "system"  # the table of CPU, memory and GPUs, and its writer
EPOCHS: Final = "train_epoch/"  # a table for each stage, "train_epoch/0": the rows of its epochs
STEPS: Final = "train_step/"  # a table for each pipeline, "train_step/train": losses of every n-th step
LOSSES: Final = "train_loss/"  # the same for losses that were read a few times a second, for a page
UNCUT: Final = frozenset(("changes", "run"))  # tables that a cut leaves alone: they hold until they are cleared
Frame = dict[str, Any]  # "step", "entries" and "about", as `Archive.frames` has it
COLUMNS: Final = {"statistics": list(STATISTICS), "counts": list(COUNTS)}  # as this version writes them
_DERIVED: Final = [STATISTICS.index(row.name) for row in TABLE if row.formula]
_MEASURED: Final = [place for place in range(len(STATISTICS)) if place not in _DERIVED]
_COLUMN: Final = {field.name: None if field.default is MISSING else field.default for field in fields(Column)}
_NON_FINITE: Final = "$float"  # JSON has no NaN and no infinities
_MARKED: Final = ({_NON_FINITE: "nan"}, {_NON_FINITE: "inf"}, {_NON_FINITE: "-inf"})
_DEEPEST: Final = 64  # a cell in lists and dicts
_MOST: Final = 2**63  # of whole numbers


@dataclass(frozen=True, slots=True)
class LogPlace:
    """A writer's part of a run's log."""

    run: Path
    writer: str = "watch"
    elsewhere: tuple[str, ...] = ()  # metrics that another writer logs

    @property
    def path(self) -> Path:
        """The folder of its archive."""
        return self.run / "log" / self.writer


def about_log(writer: str) -> dict[str, Any]:
    """What the archive of a writer is about."""
    return {"kind": "log", "version": 1, "writer": writer}


def encode_cell(value: Any) -> Any:
    """A value that JSON can hold, exactly; NaN and infinities are marked, unknown objects become text."""
    if type(value) is float:
        return value if math.isfinite(value) else {_NON_FINITE: repr(value)}
    if isinstance(value, dict):
        return {str(name): encode_cell(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [encode_cell(part) for part in value]
    cell = cell_of(value)
    return encode_cell(cell) if isinstance(cell, list) or type(cell) is float else cell


def encode_column(cells: list[Any]) -> list[Any]:
    """The cells of a column, each as `encode_cell` gives it; most are finite numbers as they are."""
    return [cell if type(cell) is float and -math.inf < cell < math.inf else encode_cell(cell) for cell in cells]


def decode_cell(value: Any) -> Any:
    """The value that `encode_cell` was given."""
    if isinstance(value, dict):
        if value in _MARKED:
            return float(value[_NON_FINITE])
        return {name: decode_cell(part) for name, part in value.items()}
    return [decode_cell(part) for part in value] if isinstance(value, list) else value


def is_cell(value: Any, depth: int = _DEEPEST) -> bool:
    """Whether a value is as `encode_cell` makes it, in at most so many lists and dicts."""
    if type(value) is int:
        return -_MOST < value < _MOST
    if not isinstance(value, dict | list) or value in _MARKED:
        return True
    parts = value.values() if isinstance(value, dict) else value
    return depth > 0 and all(is_cell(part, depth - 1) for part in parts)


def decode_column(cells: list[Any]) -> list[Any]:
    """The cells of a column; most are numbers as they are."""
    return [decode_cell(cell) if type(cell) in (dict, list) else cell for cell in cells]


def encode_head(head: TableHead) -> dict[str, Any]:
    """A table's head, without its name, as a frame holds it."""
    columns = [
        {name: encode_cell(getattr(column, name)) for name, usual in _COLUMN.items() if getattr(column, name) != usual}
        for column in head.columns
    ]
    return {"title": head.title, "x": head.x, "legend": head.legend, "columns": columns}


def decode_columns(logged: Mapping[str, Any]) -> tuple[Column, ...]:
    """The columns of a logged head; of those that a later version describes, what is known."""
    columns = []
    for facts in logged.get("columns", ()):
        known: dict[str, Any] = {name: decode_cell(fact) for name, fact in facts.items() if name in _COLUMN}
        known |= {name: tuple(fact) for name, fact in known.items() if isinstance(fact, list)}
        columns.append(Column(**known))
    return tuple(columns)


def known_columns(frame: Mapping[str, Any], kind: str, logged: NDArray[Any]) -> NDArray[Any]:
    """The columns of this version, of the `statistics` or `counts` of a frame that describes them.

    A column that the writer did not have is NaN, or -1; one that only the writer has is left out.
    """
    names, known = frame["columns"][kind], COLUMNS[kind]
    if names == known:
        return logged
    numbers = np.full((len(logged), len(known)), math.nan if kind == "statistics" else -1, logged.dtype)
    for place, name in enumerate(known):
        if name in names:
            numbers[:, place] = logged[:, names.index(name)]
    return numbers


def with_derived(measured: NDArray[Any], counts: NDArray[Any]) -> NDArray[Any]:
    """All STATISTICS, of those that follow from no others, and of the counts."""
    statistics = np.empty((len(measured), len(STATISTICS)))
    statistics[:, _MEASURED] = measured
    return derive_again(statistics, counts)


def derive_again(statistics: NDArray[Any], counts: NDArray[Any]) -> NDArray[Any]:
    """Fill in those that follow from others, in place: an earlier version may not have written them."""
    summed = {
        name: counts[:, COUNTS.index(name)] if name in COUNTS else statistics[:, STATISTICS.index(name)]
        for name in SUMMED
    }
    for name, column in derived_columns(summed).items():
        statistics[:, STATISTICS.index(name)] = column
    return statistics


def count_values(about: dict[str, Any]) -> int:
    """How many values of a watch a frame holds: those with statistics, scalars, samples of people's own."""
    lists = [part for part in (about.get("values"), about.get("samples")) if isinstance(part, list)]
    rows = about.get("rows")
    scalars = rows.get(METRICS, {}).get("count", 0) if isinstance(rows, dict) else 0
    elsewhere = about.get("elsewhere", 0)
    return scalars + sum(map(len, lists)) + (elsewhere if type(elsewhere) is int else 0)


# -- checks ------------------------------------------------------------------------------------------------------------
#
# The checksums of a frame say that it is what was written, not who wrote it: a log may come from another version, or
# from somebody who writes checksums that are right. Behind this door every part is as it is described above.

_PLAIN: Final = frozenset((int, float, bool, str, type(None)))  # types of cells that hold nothing else
_ANY: Final[frozenset[type]] = frozenset()
_MOST_RANKS: Final = 1_000_000


def is_understood(frame: dict[str, Any], report: Callable[[str], None]) -> bool:
    """Whether a frame is as this version writes it; reported if not."""
    about, step = frame["about"], frame["step"]
    try:
        known = all([_PARTS[name](part) for name, part in about.items() if name in _PARTS])
        if known and (step is not None or "values" not in about) and (step is None or -_MOST < step < _MOST):
            return True
    except RecursionError:  # nested a thousand deep
        pass
    report(f"step {step}: what it holds is of another version of torcheer")
    return False


def _is_table(record: Any) -> bool:
    """Whether a table is as `log_rows` writes it; its array is checked when it is read."""
    if not isinstance(record, dict) or not isinstance(texts := record.get("texts", {}), dict):
        return False
    types = record.get("types")
    if type(record.get("count")) is not int or not isinstance(types, dict):
        return False
    if not all(kind in ("int", "float", "bool", "text") for kind in types.values()):
        return False
    is_whole = texts.keys() == {name for name, kind in types.items() if kind == "text"}
    return is_whole and all(isinstance(cells, list) and _is_column(cells, _ANY) for cells in texts.values())


def _is_column(cells: list[Any], types: frozenset[type]) -> bool:
    found = set(map(type, cells))
    if int in found and not all(-_MOST < cell < _MOST for cell in cells if type(cell) is int):
        return False
    if types:
        return all(type(cell) in types or (type(cell) is dict and is_cell(cell, depth=0)) for cell in cells)
    return found <= _PLAIN or all(is_cell(cell) for cell in cells if type(cell) not in _PLAIN)


def _are_whole(numbers: Any) -> TypeGuard[list[int]]:
    if not isinstance(numbers, list) or not {int}.issuperset(map(type, numbers)):
        return False
    return not numbers or (-_MOST < min(numbers) and max(numbers) < _MOST)


def _are_numbers(numbers: list[Any]) -> bool:
    return all(type(number) is float or (type(number) is int and -_MOST < number < _MOST) for number in numbers)


def _are_texts(texts: Any) -> bool:
    return isinstance(texts, list) and {str}.issuperset(map(type, texts))


def _are_tables(tables: Any) -> bool:
    return isinstance(tables, dict) and all(map(_is_table, tables.values()))


def _are_named(names: Any) -> bool:
    """Layer and variable of each value, and more."""
    return isinstance(names, list) and all(
        isinstance(name, list) and len(name) >= 2 and _are_texts(name[:2]) and name[1] for name in names
    )


def are_described(names: list[Any]) -> bool:
    """Whether values have layer, variable, type and shape; optionally device and message."""
    return all(4 <= len(name) <= 6 and _are_texts(name[:3] + name[4:]) and _are_whole(name[3]) for name in names)


def _are_columns(columns: Any) -> bool:
    """The names of the columns of statistics and counts, no name twice."""
    return (
        isinstance(columns, dict)
        and columns.keys() >= COLUMNS.keys()
        and all(_are_texts(columns[name]) and len(set(columns[name])) == len(columns[name]) for name in COLUMNS)
    )


def _are_hashes(hashes: Any) -> bool:
    return isinstance(hashes, list) and {int, type(None)}.issuperset(map(type, hashes))


def _are_alerts(alerts: Any) -> bool:
    return isinstance(alerts, list) and all(isinstance(alert, dict) and is_cell(alert) for alert in alerts)


def _are_heads(heads: Any) -> bool:
    return isinstance(heads, dict) and all(map(_is_head, heads.values()))


def _is_head(head: Any) -> bool:
    """A table's title and axes, and further facts: its columns, and by stage those that an evaluation gives."""
    if not isinstance(head, dict) or not _are_texts([head.get(name, "") for name in ("title", "x", "legend")]):
        return False
    tested, columns = head.get("tested", {}), head.get("columns", [])
    is_tested = isinstance(tested, dict) and all(map(_are_texts, tested.values()))
    return is_tested and isinstance(columns, list) and all(map(_is_column_head, columns))


def _is_column_head(column: Any) -> bool:
    if not isinstance(column, dict) or type(column.get("name")) is not str:
        return False
    texts, ends = [column.get(name, "") for name in ("type", "error")], column.get("fixed")
    return (
        _are_texts(texts) and type(column.get("plotted", True)) is bool and _is_shape(column.get("shape", []))
        and (ends is None or _is_numbers_list(ends, 2)) and _is_numbers_list(column.get("edges", []))
    )  # fmt: skip


def _is_shape(shape: Any) -> bool:
    return _are_whole(shape) and min(shape, default=0) >= 0 and math.prod(shape) <= MOST_NUMBERS


def _is_numbers_list(numbers: Any, count: int | None = None) -> bool:
    if not isinstance(numbers, list) or (count is not None and len(numbers) != count):
        return False
    return _is_column(numbers, frozenset((int, float)))


def _is_cut(cut: Any) -> bool:
    return isinstance(cut, dict) and _are_whole([*cut.values()])


def _is_rank(record: Any) -> bool:
    return isinstance(record, dict) and _are_whole([record.get("of", 1)]) and record.get("of", 1) <= _MOST_RANKS


def _is_end(record: Any) -> bool:
    return isinstance(record, dict) and _are_texts([record.get(name, "") for name in ("status", "why")])


def _of(kind: type) -> Callable[[Any], bool]:
    return lambda part: isinstance(part, kind)


def _is_number(part: Any) -> bool:
    return _are_numbers([part])


_PARTS: Final[dict[str, Callable[[Any], bool]]] = {
    "opened": _is_number, "cut": _is_cut, "rows": _are_tables, "cleared": _are_texts, "heads": _are_heads,
    "values": _are_named, "columns": _are_columns, "hashes": _are_hashes, "alerts": _are_alerts, "samples": _of(list),
    "network": _of(dict), "account": _of(dict), "rank": _is_rank, "ended": _is_end, "rules": _of(list),
}  # fmt: skip
