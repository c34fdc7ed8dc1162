"""ModelHistory: one run of a model, to be asked anything."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, overload

from torcheer.errors import AmbiguousLayer, BadArgument, UnknownLayer
from torcheer.history import compare, lookup, op_table, program_structure
from torcheer.history.derived_facts import Facts
from torcheer.history.doors import Doors
from torcheer.history.module_views import Modules, StoredView
from torcheer.history.op_views import LayerView, OpList, OpView
from torcheer.history.text import history_text, module_summary, notebook_table
from torcheer.history.trace_protocol import Trace
from torcheer.records import Op, RunInfo


class ModelHistory(Doors):
    """Everything that happened in a run, in order.

    `history['conv2d_3_7']`, `history['conv2d_3']`, `history['features.6']`, `history[7]` and `history[-17]` are ways to
    the same layer; `len(history)` counts operations.
    """

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self._facts: Facts | None = None

    @property
    def facts(self) -> Facts:
        """What is worked out from the ops, anew when there are more of them."""
        ops = self.trace.ops()
        if self._facts is None or not self._facts.hold_for(ops):
            self._facts = Facts(ops, self.trace.info(), self.trace.runs)
        return self._facts

    # Finding

    @overload
    def __getitem__(self, key: str) -> Any: ...
    @overload
    def __getitem__(self, key: int) -> OpView: ...
    @overload
    def __getitem__(self, key: slice) -> OpList: ...
    def __getitem__(self, key: Any) -> Any:
        return lookup.lookup(self, key)

    def __contains__(self, key: object) -> bool:
        if isinstance(key, OpView):
            return key.history is self
        try:
            lookup.lookup(self, key)
        except UnknownLayer:
            return False
        except AmbiguousLayer:
            return True
        return True

    def __len__(self) -> int:
        return len(self.trace.ops())

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[OpView]:
        return (OpView(self, op) for op in self.facts.ops)

    def find(self, what: str | int | slice | Callable[[OpView], object]) -> OpList:
        """Every operation that matches a pattern ("features.*"), a function of the operation, or a key."""
        return self.pick(lookup.find(self, what))

    def indices(self, what: str | int | slice | Callable[[OpView], object]) -> list[int]:
        """The positions of what `find` finds; raises UnknownLayer where that is nothing."""
        return lookup.must_find(self, what)

    def pick(self, indices: Iterable[int]) -> OpList:
        """The operations at these positions."""
        ops = self.facts.ops
        return OpList(OpView(self, ops[index]) for index in indices)

    def layer_at(self, position: int) -> LayerView:
        """The layer at a position of `layers`."""
        layer = self.facts.layers.all[position]
        return LayerView(self, layer.short, self.pick(layer.ops))

    @property
    def layers(self) -> list[LayerView]:
        """Every layer with its passes, by first appearance."""
        return [self.layer_at(position) for position in range(len(self.facts.layers.all))]

    @property
    def layer_labels(self) -> list[str]:
        """The names of the layers, by first appearance."""
        return [layer.label for layer in self.facts.layers.all]

    @property
    def modules(self) -> Modules:
        """Every module by its address."""
        return Modules(self)

    @property
    def parameters(self) -> dict[str, StoredView]:
        """Every parameter by its name."""
        return self._stored("parameter")

    @property
    def buffers(self) -> dict[str, StoredView]:
        """Every buffer by its name."""
        return self._stored("buffer")

    def _stored(self, kind: str) -> dict[str, StoredView]:
        stored = self.facts.stored.items()
        return lookup.Named(kind, {name: StoredView(self, one) for name, one in stored if one.kind == kind})

    @property
    def ops(self) -> list[Op]:
        """The plain records."""
        return self.facts.ops

    @property
    def model_name(self) -> str:
        """The class of the model."""
        return self.trace.info().model

    @property
    def info(self) -> RunInfo:
        """The run's own facts: model, seed, time, notes, why it stopped."""
        return self.trace.info()

    def follow(self, reader: Callable[[Op], object]) -> None:
        """Hand every operation so far to `reader`, then each new one as it runs."""
        self.trace.follow(reader)

    # Showing

    def __repr__(self) -> str:
        return f"<ModelHistory of {self.info.model}: {len(self)} operations>"

    def __str__(self) -> str:
        return self.text()

    def text(self, *, full: bool = False) -> str:
        """What `print(history)` shows; `full` leaves nothing out."""
        return history_text.describe(self, full=full)

    def _repr_html_(self) -> str:
        return notebook_table.describe(self)

    def __rich__(self) -> Any:
        from rich.text import Text

        return Text(self.text())

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(self.text())

    def summary(self) -> module_summary.Summary:
        """Parameters, FLOPs, memory and time, module by module."""
        return module_summary.summarise(self)

    def to_pandas(self) -> Any:
        """A pandas DataFrame with one row per operation."""
        return op_table.to_pandas(op_table.columns(self))

    def to_arrow(self) -> Any:
        """A pyarrow Table with one row per operation."""
        return op_table.to_arrow(op_table.columns(self))

    def compare(self, other: ModelHistory) -> compare.Comparison:
        """Layer by layer, how the values of another run differ."""
        if not isinstance(other, ModelHistory):
            raise BadArgument(f"compare needs another history, got {type(other).__name__}")
        return compare.compare(self, other)

    def structural_hash(self) -> str:
        """A fingerprint of functions, connections and shapes; values, times and lines of code leave it alone."""
        return program_structure.structural_hash(self.facts.ops)
