"""The summary table of modules: parameters, FLOPs, memory, time, and which repeat (×N)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from torcheer.history import ModelHistory, op_table
from torcheer.network.module_tree import tree_of
from torcheer.network.pass_fold import fold_pass
from torcheer.records import garbage_collection_off
from torcheer.terminal import format_table, human_bytes, human_flops, human_secs, human_shape
from torcheer.terminal.streams import encodable

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True, slots=True)
class ModuleRow:
    """One module, including its submodules."""

    address: str  # "" for the whole model
    type: str
    calls: int
    parameters: int
    trainable: int | None  # None: not known, as in a file
    flops: int  # of the operations whose formula is known
    flops_unknown: int  # number of operations without a formula
    bytes: int  # of all outputs
    elapsed_secs: float  # of all its operations; on an accelerator of their launches, as `time_name` says
    repeats: int = 1  # ×N: how many equal modules begin with it; 0 for the others among them
    output_shape: tuple[int, ...] = ()  # of the first tensor that its first call returned
    outputs: int = 0  # number of tensors that this call returned; 0: none, or it was not called


@dataclass(frozen=True, slots=True)
class ModuleSummary:
    """The modules of a run; the last printed row is the whole model."""

    rows: tuple[ModuleRow, ...]
    total: ModuleRow
    time_name: str = "time"  # "launch time": the host's clock saw how long an accelerator's operations took to launch

    def __iter__(self) -> Iterator[ModuleRow]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __str__(self) -> str:
        head = ("module", "type", "calls", "output shape", "params", "trainable", "FLOPs", "output", self.time_name)
        lines = format_table([head, *map(_cells, (*self.rows, self.total))], left=2)
        rule = "─" * max(map(len, lines))
        return encodable("\n".join([lines[0], rule, *lines[1:-1], rule, lines[-1]]))

    __repr__ = __str__

    def to_pandas(self) -> pandas.DataFrame:
        """Return the rows as a pandas DataFrame, without the total: one per module, with all that is inside it.

        | column | |
        |---|---|
        | `address`, `type` | the module's path and class |
        | `calls`, `repeats` | how often it was called; how many equal modules begin with it (×N), 0 for the others |
        | `parameters`, `trainable` | number of elements of all and of the trainable parameters; None: not known |
        | `flops`, `flops_unknown` | floating point operations; how many operations have no formula |
        | `bytes` | size of all outputs, in bytes |
        | `elapsed_secs` | seconds of all operations |
        | `output_shape`, `outputs` | shape of the first tensor that its first call returned; how many it returned |
        """
        return op_table.to_pandas({name: [asdict(row)[name] for row in self.rows] for name in ModuleRow.__slots__})


@garbage_collection_off()
def summarise(history: ModelHistory) -> ModuleSummary:
    """Summarise a history: one row per module in the order they ran, then those that did not run."""
    ran = history.facts.module_ops
    order = sorted(history.facts.module_types, key=lambda address: ran[address][0] if address in ran else len(history))
    repeats = {node.path: node.repeats for node in tree_of(fold_pass(history.facts))}
    rows = tuple(_row(history, address, repeats.get(address, 1)) for address in order)
    return ModuleSummary(rows, _row(history, "", 1), history.facts.time_name())


def _row(history: ModelHistory, address: str, repeats: int) -> ModuleRow:
    view = history.modules[address]
    shapes = _output_shapes(history, address)
    return ModuleRow(
        address=address,
        type=view.type,
        calls=view.calls,
        parameters=view.parameter_count,
        trainable=view.trainable_count,
        flops=view.flops,
        flops_unknown=view.flops_unknown,
        bytes=view.bytes,
        elapsed_secs=view.elapsed_secs,
        repeats=repeats,
        output_shape=shapes[0] if shapes else (),
        outputs=len(shapes),
    )


def _output_shapes(history: ModelHistory, address: str) -> list[tuple[int, ...]]:
    """Return the shapes of the tensors that the first call of a module returned."""
    ops = history.facts.ops
    if not address:
        returned = [op.index for op in ops if op.kind == "output"]
    else:
        returned = next(iter(history.facts.module_outputs.get(address, {}).values()), [])
    return [tuple(meta.shape) for index in returned for meta in ops[index].outputs]


def _cells(row: ModuleRow) -> tuple[str, ...]:
    times = f" ×{row.repeats}" if row.repeats > 1 else ""
    return (
        "  " * row.address.count(".") + row.address + times if row.address else "total",
        row.type,
        str(row.calls),
        _shape_text(row),
        f"{row.parameters:,}",
        "?" if row.trainable is None else f"{row.trainable:,}",
        human_flops(row.flops, row.flops_unknown),
        human_bytes(row.bytes),
        human_secs(row.elapsed_secs) if row.elapsed_secs else "–",
    )


def _shape_text(row: ModuleRow) -> str:
    if not row.outputs:
        return "–"
    return human_shape(row.output_shape) + (f", +{row.outputs - 1}" if row.outputs > 1 else "")
