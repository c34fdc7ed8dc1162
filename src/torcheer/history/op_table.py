"""A history as a table: one row per operation."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torcheer.errors import TorcheerError

if TYPE_CHECKING:
    import pandas

    from torcheer.history.model_history import ModelHistory
    from torcheer.history.op_views import OpView

Columns = dict[str, list[Any]]


def columns(history: ModelHistory) -> Columns:
    """Return the table's columns as lists."""
    ops = list(history)
    return {name: [read(op) for op in ops] for name, read in COLUMNS.items()}


def to_pandas(table: Columns) -> pandas.DataFrame:
    """Convert columns to a pandas DataFrame."""
    try:
        import pandas
    except ImportError as error:
        raise _missing("pandas") from error
    return pandas.DataFrame(table)


def to_arrow(table: Columns) -> Any:
    """Convert columns to a pyarrow Table."""
    try:
        import pyarrow
    except ImportError as error:
        raise _missing("pyarrow") from error
    lists = {"shape": pyarrow.list_(pyarrow.int64()), "flops": pyarrow.int64()}
    lists |= dict.fromkeys(("parents", "children", "params", "output_of"), pyarrow.list_(pyarrow.string()))
    return pyarrow.table({name: pyarrow.array(cells, lists.get(name)) for name, cells in table.items()})


def _missing(package: str) -> TorcheerError:
    return TorcheerError(f"this table needs {package}, which is not installed. Try: pip install 'torcheer[all]'")


def _source(op: OpView) -> str:
    source = op.record.source
    return f"{source.file}:{source.line}" if source else ""


COLUMNS: dict[str, Callable[[OpView], Any]] = {
    "index": lambda op: op.record.index,
    "label": lambda op: op.label,
    "layer": lambda op: op.layer_label,
    "pass": lambda op: op.pass_number,
    "name": lambda op: op.record.name,
    "kind": lambda op: op.record.kind,
    "function": lambda op: op.record.function,
    "shape": lambda op: list(op.shape),
    "dtype": lambda op: op.dtype,
    "device": lambda op: op.device,
    "outputs": lambda op: len(op.record.outputs),
    "written": lambda op: len(op.record.written),
    "bytes": lambda op: op.bytes,
    "parents": lambda op: op.parent_layers,
    "children": lambda op: op.child_layers,
    "module": lambda op: op.record.modules[-1].address if op.record.modules else "",
    "module_type": lambda op: op.record.modules[-1].type if op.record.modules else "",
    "module_call": lambda op: op.record.modules[-1].call if op.record.modules else 0,
    "output_of": lambda op: [call.address for call in op.record.output_of],
    "params": lambda op: [stored.name for stored in op.record.stored],
    "param_count": lambda op: sum(stored.count for stored in op.record.stored if stored.kind == "parameter"),
    "flops": lambda op: op.flops,
    "elapsed_secs": lambda op: op.record.elapsed_secs,
    "timing": lambda op: "launch" if op.record.is_launch_timed else op.record.timing,
    "source": _source,
    "grad_fn": lambda op: op.record.grad_fn,
    "inplace": lambda op: op.record.inplace,
    "view": lambda op: op.record.view,
    "random": lambda op: op.record.random,
    "level": lambda op: op.record.level,
    "edited": lambda op: op.record.edited,
    "note": lambda op: op.record.note,
    "saved": lambda op: op.is_saved,
}
