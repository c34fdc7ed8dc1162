"""ModelHistory: one recorded run of a model, with lookup, text, tables and comparison."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NoReturn, overload

from torcheer.errors import AmbiguousLayer, BadArgument, UnknownLayer
from torcheer.history import lookup, op_table, program_structure
from torcheer.history.derived_facts import HistoryFacts
from torcheer.history.doors import Doors
from torcheer.history.module_views import Modules, StoredView
from torcheer.history.op_views import LayerView, OpList, OpView
from torcheer.history.text import history_text, notebook_table
from torcheer.history.trace_protocol import Trace
from torcheer.history.value_arrays import memory_bytes
from torcheer.public_names import PublicClass
from torcheer.records import Op, RunInfo
from torcheer.selection import Layers
from torcheer.terminal import NamedItems
from torcheer.terminal.streams import encodable
from torcheer.vocabulary.variables import OF_ANY_PASS

if TYPE_CHECKING:
    import pandas

    from torcheer.history.compare import Comparison


class ModelHistory(Doors, metaclass=PublicClass):
    """Every operation of a run, in order of execution.

    `history['conv2d_3_7']`, `history['conv2d_3']`, `history['features.6']`, `history[7]` and `history[-17]` may all
    select the same layer; `len(history)` counts operations. `print(history)`, `summary()` and `to_pandas()` list them,
    `draw()` and `report()` show them, `compare(other)` finds where two runs part, `first_nan()` and `first_inf()` where
    NaN or infinity begins, `validate()` runs the operations again.
    """

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self._facts: HistoryFacts | None = None
        self._variables: dict[int, dict[str, Any]] = {}  # by operation, what was added to it

    @property
    def facts(self) -> HistoryFacts:
        """Facts derived from the ops; recomputed when there are new ones."""
        ops = self.trace.ops()
        if self._facts is None or not self._facts.is_current(ops):
            self._facts = HistoryFacts(ops, self.trace.info(), self.trace.runs)
        return self._facts

    # Finding

    @overload
    def __getitem__(self, key: str) -> OpView | LayerView: ...  # an OpList for several roles ('resid[*]'): use `find`
    @overload
    def __getitem__(self, key: int) -> OpView: ...
    @overload
    def __getitem__(self, key: slice) -> OpList: ...
    def __getitem__(self, key: Any) -> Any:
        return lookup.lookup(self, key)

    def _ipython_key_completions_(self) -> list[str]:
        return [*self.facts.layer_keys, *self.facts.module_outputs]

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

    def find(self, what: Layers) -> OpList:
        """Return every operation that `what` selects, in order of execution; none is an empty list.

        `what` is one or a list of: labels ("relu_1", "relu_1:2"), module paths ("features.6"), positions (7, -1),
        slices, patterns ("features.*"), module classes ("Conv2d", nn.Conv2d), modules, predicates
        (lambda layer: (layer.flops or 0) > 1000), "all".
        """
        return self.pick(lookup.find(self, what))

    def indices(self, what: Layers) -> list[int]:
        """Return the positions of the matches of `find`; raises UnknownLayer if there are none."""
        return lookup.find_or_raise(self, what)

    def pick(self, indices: Iterable[int]) -> OpList:
        """Return the operations at these positions."""
        ops = self.facts.ops
        return OpList(OpView(self, ops[index]) for index in indices)

    def layer_at(self, position: int) -> LayerView:
        """Return the layer at a position of `layers`."""
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
        views = {name: StoredView(self, tensor) for name, tensor in stored if tensor.kind == kind}
        return NamedItems(kind, views, UnknownLayer)

    @property
    def ops(self) -> list[Op]:
        """The records of all operations."""
        return self.facts.ops

    @property
    def model_name(self) -> str:
        """The class of the model."""
        return self.trace.info().model

    @property
    def info(self) -> RunInfo:
        """Facts of the run: model, seed, time, notes, why it stopped."""
        return self.trace.info()

    def follow(self, reader: Callable[[Op], object]) -> None:
        """Call `reader` with every operation so far, then with each new one as it runs."""
        self.trace.follow(reader)

    def add_variable(self, name: str, values: Mapping[Any, Any]) -> None:
        """Add a variable to layers, beside their values and gradients: attributions, a mask, a saliency map.

        - `name`: what it is called in `history["relu_1"].variables` and in the studio
        - `values`: a tensor or array for each layer, of the shape of its output; layers as `history[…]` takes them
        """
        if not isinstance(name, str) or not name.strip() or name in OF_ANY_PASS:
            raise BadArgument(f"a variable cannot be called {name!r}; {', '.join(OF_ANY_PASS)} are there already")
        found = {key: self.indices(key) for key in values}
        for key, indices in found.items():
            shape = tuple(values[key].shape)
            if len(indices) != 1:
                raise AmbiguousLayer(f"{key!r} is {len(indices)} operations; name one: {self.pick(indices[:3]).labels}")
            if shape != tuple(self[indices[0]].shape):
                raise BadArgument(f"{name} of {key!r} has the shape {shape}, and its output {self[indices[0]].shape}")
        for key, indices in found.items():
            self._variables.setdefault(indices[0], {})[name] = values[key]

    def variables_of(self, index: int) -> dict[str, Any]:
        """Return what was added to the operation at a position, by name."""
        return {**self.trace.variables(index), **self._variables.get(index, {})}

    # Showing

    def __repr__(self) -> str:
        return f"<ModelHistory of {self.info.model}: {len(self)} operations>"

    def __str__(self) -> str:
        return encodable(self.text())

    def text(self, *, full: bool = False) -> str:
        """Return what `print(history)` shows; `full` abbreviates nothing."""
        return history_text.describe(self, full=full)

    def _repr_html_(self) -> str:
        return notebook_table.describe(self)

    def __rich__(self) -> Any:
        from rich.text import Text

        return Text(self.text())

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(self.text())

    def to_pandas(self) -> pandas.DataFrame:
        """Return a pandas DataFrame with one row per operation, in order of execution, inputs first.

        | column | |
        |---|---|
        | `index`, `label` | its position, from 0; its name, "relu_1_2", with ":2" for a second pass |
        | `layer`, `pass` | the layer's name, and which of its passes this is, from 1 |
        | `name`, `kind`, `function` | "relu"; "input", "op", "output" …; the function's full name |
        | `shape`, `dtype`, `device`, `bytes` | of its output: shape as a list, size in bytes |
        | `outputs`, `written` | how many tensors it returned, and how many it wrote to |
        | `parents`, `children` | the layers that it reads, and those that read it |
        | `module`, `module_type`, `module_call` | the innermost module around it: path, class, which call, from 1 |
        | `output_of` | paths of the modules whose result it is |
        | `params`, `param_count` | parameters and buffers that it reads; number of elements of the parameters |
        | `flops` | floating point operations; None where no formula is known |
        | `elapsed_secs`, `timing` | seconds that it took, and what was timed: "host", "launch" or "device" |
        | `source` | the line of code, "net.py:14", with the path of the file |
        | `grad_fn` | the class of torch's backward node |
        | `inplace`, `view`, `random` | whether it wrote to an input, returned a view, drew random numbers |
        | `level` | "function", or "aten" for a call of the dispatcher below one |
        | `edited`, `note` | the edit that was applied to it; a remark on it; empty without |
        | `saved` | whether its value was saved |
        """
        return op_table.to_pandas(op_table.columns(self))

    def to_arrow(self) -> Any:
        """Return a pyarrow Table with one row per operation."""
        return op_table.to_arrow(op_table.columns(self))

    def compare(self, other: ModelHistory) -> Comparison:
        """Compare with another run that should compute the same, and name where the two part.

        - `other`: a run of the same program, or of another with other operations, shapes or precision: a port, a
          compiled graph, bfloat16. Its values are found by their numbers and along the dataflow.
        """
        from torcheer.history.compare import compare  # fourteen files that few need

        if not isinstance(other, ModelHistory):
            raise BadArgument(f"compare needs another history, got {type(other).__name__}")
        return compare(self, other)

    def first_nan(self) -> OpView | None:
        """Return the first operation of whose NaN the results are made: nothing that it reads holds one; None if none.

        Its `stored` names the parameters that it read, one of which may hold the NaN; an input that holds one is
        returned itself. Passed over: NaN that is masked out again and NaN in uninitialised memory, unless every NaN is
        so. Only forward operations are looked at. Raises ValueUnavailable if a value that decides was not saved.
        """
        from torcheer.history.numbers.not_finite import first_nan

        return first_nan(self)

    def first_inf(self) -> OpView | None:
        """Return the first operation whose result overflows to ±infinity and is not masked out again; None if none.

        An infinity counts if it reaches the results of the run or makes a NaN that does. One that was put there, by a
        mask (`masked_fill`, `torch.full`) or by arithmetic on positions, is returned only if no other does.
        Raises ValueUnavailable if a value that decides was not saved.
        """
        from torcheer.history.numbers.not_finite import first_inf

        return first_inf(self)

    @property
    def saved_bytes(self) -> int:
        """Bytes that the saved values take: those that share their memory, a view and its base, count once.

        The printed total is that of the sizes, as every value's own.
        """
        values = (
            (self.trace, op.index, output)
            for op in self.ops
            for output in range(len(op.outputs))
            if self.trace.is_saved(op.index, output)
        )
        return memory_bytes((trace.value(op, output) for trace, op, output in values))

    def __copy__(self) -> ModelHistory:
        copied = object.__new__(type(self))
        vars(copied).update(vars(self))
        return copied

    def __deepcopy__(self, memo: Any) -> NoReturn:
        raise TypeError(
            "a history cannot be copied deeply: its values would be, and their autograd graph cannot. Record again, or "
            "history.save(path) and tl.load(path)."
        )

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError(
            "a history cannot be pickled, nor saved by torch.save: history.save(path) writes it, tl.load(path) opens it"
        )

    def structural_hash(self) -> str:
        """Return a hash of functions, connections and shapes, not of values, times or source lines."""
        return program_structure.structural_hash(self.facts.ops)
