"""What each module costs: parameters, FLOPs, memory, time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from torcheer.history import op_table
from torcheer.terminal import align, human_bytes, human_flops

if TYPE_CHECKING:
    from torcheer.history.model_history import ModelHistory


@dataclass(frozen=True, slots=True)
class Row:
    """One module with everything below it."""

    address: str  # "" for the whole model
    type: str
    calls: int
    parameters: int
    trainable: int
    flops: int  # of the operations whose formula is known
    flops_unknown: int  # how many have none
    bytes: int  # of all results
    elapsed_secs: float


@dataclass(frozen=True, slots=True)
class Summary:
    """The modules of a run; the last row of its text is the whole model."""

    rows: tuple[Row, ...]
    total: Row

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __str__(self) -> str:
        head = ("module", "type", "calls", "params", "trainable", "FLOPs", "output", "time")
        lines = align([head, *map(_cells, (*self.rows, self.total))], left=2)
        rule = "─" * max(map(len, lines))
        return "\n".join([lines[0], rule, *lines[1:-1], rule, lines[-1]])

    __repr__ = __str__

    def to_pandas(self) -> Any:
        """The rows as a pandas DataFrame, without the total."""
        return op_table.to_pandas({name: [asdict(row)[name] for row in self.rows] for name in Row.__slots__})


def summarise(history: ModelHistory) -> Summary:
    """One row per module, in the model's order."""
    rows = tuple(_row(history, address) for address in history.facts.module_types)
    return Summary(rows, _row(history, ""))


def _row(history: ModelHistory, address: str) -> Row:
    view = history.modules[address]
    return Row(
        address=address,
        type=view.type,
        calls=view.calls,
        parameters=view.parameter_count,
        trainable=view.trainable_count,
        flops=view.flops,
        flops_unknown=view.flops_unknown,
        bytes=view.bytes,
        elapsed_secs=view.elapsed_secs,
    )


def _cells(row: Row) -> tuple[str, ...]:
    return (
        "  " * row.address.count(".") + row.address if row.address else "total",
        row.type,
        str(row.calls),
        f"{row.parameters:,}",
        f"{row.trainable:,}",
        human_flops(row.flops, row.flops_unknown),
        human_bytes(row.bytes),
        f"{row.elapsed_secs * 1e3:.2f} ms",
    )
