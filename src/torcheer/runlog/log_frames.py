"""What a frame of a run's log holds: names of its parts, numbers and texts as JSON, values as arrays.

`<run>/log/<writer>/` is an archive; each writer has its own. A frame's `about` may have

- `opened`, in a writer's first frame: the time it was opened, in seconds since 1970. Nothing is rewritten when a run
  goes on from an earlier step, or begins anew: what earlier openings wrote no longer holds from its first step on.
- `cut`: `step` and `epoch`. What stands before this frame holds up to that step, an epoch's row up to that epoch; all
  of it where there is neither. A run that goes on from a checkpoint says so at once: what it trains again is never
  there twice. Without a `cut` an opening's first rows say where it goes on.
- `rows`: by table, `step` and `time` of each row, and its cells by column (`cells`). `cleared`: tables whose earlier
  rows no longer hold.
- `elsewhere`: how many values of a watch are left out, as another writer has them as rows.
- `heads`: by table, its title, axes and `columns`, each with what is not usual of it (not in older logs). A table with
  columns is there before its first row. `steps` false: its rows do not show their step.
- `alerts`: each with its `id`. `network`; `account` of a watch's values.
- `ended`: how training or a loop ended, `status` ("done", "failed") and `why`. One that was killed says nothing.
- `values`: layer, variable, type, shape of values whose statistics are the rows of three arrays under layer `(watch)`:
  `statistics` (float64, columns `STATISTICS`), `counts` (int64, columns `COUNTS`) and `bins` (uint32, histograms as
  `packed_histograms` says; a value's `binned` count is its row there, or -1). Logs up to 0.3 have `histogram` in its
  place, uint32, a column for each bin. Arrays that are kept whole are separate entries.
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
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any, Final

from torcheer.runlog.table_cells import cell_of
from torcheer.runlog.table_records import Column, TableHead
from torcheer.samples import PERCENTILES

LAYER: Final = "(watch)"
STATISTICS: Final = (
    "time_secs", "minimum", "maximum", "mean", "std", "norm", *(f"p{percent}" for percent in PERCENTILES),
)  # fmt: skip
COUNTS: Final = ("item", "seen", "count", "zeros", "nans", "infs", "stride", "finite", "binned")
METRICS: Final = "metric"  # the table of a watch's scalars
EVERYTHING: Final = "*"  # among the metrics that another writer logs: all of them
SYSTEM: Final = "system"  # the table of CPU, memory and GPUs, and its writer
EPOCHS: Final = "train_epoch/"  # a table for each stage, "train_epoch/0": the rows of its epochs
STEPS: Final = "train_step/"  # a table for each pipeline, "train_step/train": losses of every n-th step
LOSSES: Final = "train_loss/"  # the same for losses that were read a few times a second, for a page
UNCUT: Final = frozenset(("changes", "run"))  # tables that a cut leaves alone: they hold until they are cleared
_COLUMN: Final = {field.name: None if field.default is MISSING else field.default for field in fields(Column)}
_NON_FINITE: Final = "$float"  # JSON has no NaN and no infinities
_MARKED: Final = ({_NON_FINITE: "nan"}, {_NON_FINITE: "inf"}, {_NON_FINITE: "-inf"})
_DEEPEST: Final = 64  # a cell in lists and dicts
_MOST: Final = 2**63


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


def count_values(about: dict[str, Any]) -> int:
    """How many values of a watch a frame holds: those with statistics, scalars, samples of people's own."""
    lists = [part for part in (about.get("values"), about.get("samples")) if isinstance(part, list)]
    metrics = about.get("rows")
    cells = metrics.get(METRICS, {}).get("cells", {}) if isinstance(metrics, dict) else {}
    scalars = sum(cell is not None for column in cells.values() for cell in column)
    elsewhere = about.get("elsewhere", 0)
    return scalars + sum(map(len, lists)) + (elsewhere if type(elsewhere) is int else 0)
