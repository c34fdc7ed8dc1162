"""What a frame of a run's log holds: names of its parts, numbers and texts as JSON, values as arrays.

`<run>/log/<writer>/` is an archive; each writer has its own. A frame's `about` may have

- `opened`, in a writer's first frame: the time it was opened, in seconds since 1970. Nothing is rewritten when a run
  goes on from an earlier step, or begins anew: what earlier openings wrote no longer holds from there on.
- `rows`: by table, `step` and `time` of each row, and its cells by column (`cells`).
- `heads`: by table, its title and axes. `alerts`: each with its `id`. `network`; `account` of a watch's values.
- `values`: layer, variable, type, shape of values whose statistics are the rows of three arrays under layer `(watch)`:
  `statistics` (float64, columns `STATISTICS`), `counts` (int64, columns `COUNTS`) and `histogram` (uint32; a value's
  `binned` count is its row there, or -1). Arrays that are kept whole are separate entries.
- `samples`: what people logged beside numbers (`media`); each is an entry, and a record here: `name` (its layer),
  `kind` (its variable), `item`, `time`, and what its array means (`caption`, `layout`, `rate`, `names`). Text and
  tables are UTF-8 in an array of uint8.
"""

from __future__ import annotations

import math
from typing import Any, Final

from torcheer.runlog.kept_rows import cell_of
from torcheer.samples import PERCENTILES

LAYER: Final = "(watch)"
STATISTICS: Final = (
    "time_secs", "minimum", "maximum", "mean", "std", "norm", *(f"p{percent}" for percent in PERCENTILES),
)  # fmt: skip
COUNTS: Final = ("item", "seen", "count", "zeros", "nans", "infs", "stride", "finite", "binned")
METRICS: Final = "metric"  # the table of a watch's scalars
SYSTEM: Final = "system"  # the table of CPU, memory and GPUs, and its writer
_NON_FINITE: Final = "$float"  # JSON has no NaN and no infinities


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


def decode_cell(value: Any) -> Any:
    """The value that `encode_cell` was given."""
    if isinstance(value, dict):
        if len(value) == 1 and _NON_FINITE in value:
            return float(value[_NON_FINITE])
        return {name: decode_cell(part) for name, part in value.items()}
    return [decode_cell(part) for part in value] if isinstance(value, list) else value


def count_values(about: dict[str, Any]) -> int:
    """How many values of a watch a frame holds: those with statistics, scalars, samples of people's own."""
    lists = [part for part in (about.get("values"), about.get("samples")) if isinstance(part, list)]
    metrics = about.get("rows")
    cells = metrics.get(METRICS, {}).get("cells", {}) if isinstance(metrics, dict) else {}
    scalars = sum(cell is not None for column in cells.values() for cell in column)
    return scalars + sum(map(len, lists))
