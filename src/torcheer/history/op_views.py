"""Views of operations and layers: a record together with its history."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, SupportsIndex, overload

from torcheer.errors import AmbiguousLayer, ValueUnavailable
from torcheer.history.call_values import Arguments, op_arguments
from torcheer.history.doors import missing_attribute
from torcheer.history.text import op_text
from torcheer.records import BackwardStep, Edge, ModuleCall, Op, Source, Stored, TensorMeta
from torcheer.terminal import plural
from torcheer.terminal.streams import encodable

if TYPE_CHECKING:
    from torch import Tensor

    from torcheer.history.model_history import ModelHistory


class RecordFields:
    """What views have of their operations' records, through `__getattr__`; for editors and type checkers."""

    __slots__ = ()

    index: int
    name: str
    kind: str
    outputs: tuple[TensorMeta, ...]
    modules: tuple[ModuleCall, ...]
    root_call: int
    output_of: tuple[ModuleCall, ...]
    site: tuple[Any, ...]
    elapsed_secs: float
    function: str
    grad_fn: str
    settings: tuple[tuple[tuple[int | str, ...], Any], ...]
    inplace: bool
    view: bool
    random: bool
    level: str
    under: int
    edited: str
    note: str
    written: tuple[TensorMeta, ...]
    backward: BackwardStep | None
    returned_at: tuple[int | str, ...]
    given_at: tuple[int | str, ...]
    timing: str
    is_launch_timed: bool
    tensors: tuple[TensorMeta, ...]


class OpView(RecordFields):
    """One operation: its record's fields, and its label, neighbours, values and gradients.

    Has the same attributes as a `LayerView`: as a sequence it is the single pass that it stands for.
    """

    __slots__ = ("history", "record")
    history: ModelHistory
    record: Op
    stored: tuple[Stored, ...]
    source: Source | None

    def __init__(self, history: ModelHistory, record: Op) -> None:
        self.history = history
        self.record = record

    if not TYPE_CHECKING:  # to type checkers any other name is a typing error

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_") or name in OpView.__slots__:  # read by `copy` before they are set
                raise AttributeError(name)
            try:
                return getattr(self.record, name)
            except AttributeError:
                return missing_attribute(self, name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OpView) and other.history is self.history and other.record.index == self.record.index

    def __hash__(self) -> int:
        return hash((id(self.history), self.record.index))

    def __repr__(self) -> str:
        return encodable(op_text.describe(self))

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *_attributes()})

    def __len__(self) -> int:
        return 1

    def __iter__(self) -> Iterator[OpView]:
        return iter(self.passes)

    def __getitem__(self, place: Any) -> Any:
        return self.passes[place]

    @property
    def passes(self) -> OpList:
        """Itself, as a list; `layer.passes` has those of its layer."""
        return OpList([self])

    @property
    def num_passes(self) -> int:
        """The number of `passes`."""
        return 1

    @property
    def key(self) -> str:
        """The key of its layer; that of a pass is this with ":1" appended."""
        return self.layer.key

    @property
    def numbers(self) -> Sequence[int]:
        """The number in the key of each of `passes`."""
        return (self.pass_number,)

    @property
    def label(self) -> str:
        """The label, with the pass if its layer has several."""
        return self.history.facts.layers.label(self.record.index)

    @property
    def layer(self) -> LayerView:
        """All passes of its layer."""
        return self.history.layer_at(self.history.facts.layers.of[self.record.index])

    @property
    def layer_label(self) -> str:
        """The label of its layer."""
        layers = self.history.facts.layers
        return layers.all[layers.of[self.record.index]].label

    @property
    def pass_number(self) -> int:
        """Number of the pass of its layer, from 1."""
        return self.history.facts.layers.passes[self.record.index]

    @property
    def module(self) -> str:
        """The path of the innermost module it ran in; "" outside of any."""
        return self.record.modules[-1].address if self.record.modules else ""

    @property
    def module_type(self) -> str:
        """The class of that module, "Conv2d"; "" outside of any."""
        return self.record.modules[-1].type if self.record.modules else ""

    @property
    def edges(self) -> tuple[Edge, ...]:
        """The tensors it read, and their argument positions."""
        return self.record.parents

    @property
    def inputs(self) -> Arguments:
        """Its arguments by position: tensors, parameters and settings."""
        return Arguments(self.history, op_arguments(self.record))

    @property
    def parents(self) -> OpList:
        """The operations whose results it read."""
        return self.history.pick(dict.fromkeys(edge.parent for edge in self.record.parents))

    @property
    def children(self) -> OpList:
        """The operations that read its results."""
        return self.history.pick(self.history.facts.children[self.record.index])

    @property
    def parent_layers(self) -> list[str]:
        """The labels of its parents."""
        return self.parents.labels

    @property
    def child_layers(self) -> list[str]:
        """The labels of its children."""
        return self.children.labels

    @property
    def is_saved(self) -> bool:
        """Whether all its output values are available."""
        trace, index = self.history.trace, self.record.index
        return bool(self.record.outputs) and all(
            trace.is_saved(index, output) for output in range(len(self.record.outputs))
        )

    @property
    def tensor_contents(self) -> Tensor | Any:
        """Its output value; a tuple if it returned several tensors."""
        values = tuple(self._value(output) for output in range(len(self.record.outputs)))
        if not values:
            raise ValueUnavailable(f"{self.label} returned no tensor.")
        return values[0] if len(values) == 1 else values

    @property
    def written_contents(self) -> tuple[Tensor | Any, ...]:
        """Values of the arguments it wrote but did not return: batch norm's running statistics."""
        return tuple(self._value(output) for output in range(len(self.record.outputs), len(self.record.tensors)))

    def _value(self, output: int) -> Any:
        try:
            return self.history.trace.value(self.record.index, output)
        except ValueUnavailable as error:
            raise ValueUnavailable(f"the value of {self.label} cannot be had: {error}") from None

    @property
    def grad_contents(self) -> Tensor | Any:
        """The last gradient that reached it; None if none did."""
        return next((gradient for gradient in reversed(self.gradients) if gradient is not None), None)

    @property
    def gradients(self) -> list[Any]:
        """One gradient per backward call; tuples if it returned several tensors."""
        by_output = [self.history.trace.gradients(self.record.index, n) for n in range(len(self.record.outputs))]
        return by_output[0] if len(by_output) == 1 else list(zip_longest(*by_output))

    @property
    def variables(self) -> dict[str, Any]:
        """What `history.add_variable` has added to it, by name."""
        return self.history.variables_of(self.record.index)

    @property
    def flops(self) -> int | None:
        """Its floating point operations; None if no formula is known."""
        return self.history.facts.flops[self.record.index]

    @property
    def below(self) -> list[Op]:
        """The aten operations it ran, if captured with `level="aten"`."""
        return self.history.trace.below(self.record.index)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of its first output."""
        return self.record.outputs[0].shape if self.record.outputs else ()

    @property
    def dtype(self) -> str:
        """The dtype of its first output, "torch.float32"."""
        return self.record.outputs[0].dtype if self.record.outputs else ""

    @property
    def device(self) -> str:
        """The device of its first output."""
        return self.record.outputs[0].device if self.record.outputs else ""

    @property
    def bytes(self) -> int:
        """The total size of its outputs."""
        return sum(meta.bytes for meta in self.record.outputs)

    @property
    def lookup_keys(self) -> list[int | str]:
        """Every key by which `history[…]` finds it."""
        count = len(self.history)
        return [self.record.index - count, self.record.index, *op_text.names_of(self)]


class LayerView(RecordFields):
    """A layer: its passes, and every attribute of an operation that they have in common.

    An attribute that differs between passes, and values, gradients and times in any case, raise `AmbiguousLayer`.
    """

    __slots__ = ("history", "key", "numbers", "passes")

    # of its operations' views, through `__getattr__`
    layer: LayerView
    pass_number: int
    tensor_contents: Tensor | Any
    written_contents: tuple[Tensor | Any, ...]
    grad_contents: Tensor | Any
    gradients: list[Any]
    below: list[Op]
    record: Op
    layer_label: str
    module: str
    module_type: str
    edges: tuple[Edge, ...]
    inputs: Arguments
    parents: OpList
    children: OpList
    parent_layers: list[str]
    child_layers: list[str]
    is_saved: bool
    flops: int | None
    shape: tuple[int, ...]
    dtype: str
    device: str
    bytes: int
    variables: dict[str, Any]

    def __init__(self, history: ModelHistory, key: str, passes: OpList, numbers: Sequence[int] = ()) -> None:
        self.history = history
        self.key = key  # the key of a pass is this with ":1" appended
        self.passes = passes
        self.numbers = numbers or range(1, len(passes) + 1)  # the number in the key of each pass

    def __len__(self) -> int:
        return len(self.passes)

    def __iter__(self) -> Iterator[OpView]:
        return iter(self.passes)

    def __getitem__(self, place: Any) -> Any:
        return self.passes[place]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LayerView) and other.passes == self.passes

    def __hash__(self) -> int:
        return hash(tuple(self.passes))

    def __repr__(self) -> str:
        return encodable(op_text.describe_layer(self))

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *_attributes()})

    if not TYPE_CHECKING:  # to type checkers any other name is a typing error

        def __getattr__(self, name: str) -> Any:
            if name not in _attributes():
                if name.startswith("_"):
                    raise AttributeError(name)
                return missing_attribute(self, name)
            if len(self.passes) == 1:
                return getattr(self.passes[0], name)
            if name in _PER_PASS:
                raise self._ambiguous(name)
            first, *others = (getattr(op, name) for op in self.passes)
            if not _all_equal(first, others):
                raise self._ambiguous(name)
            return first

    def _ambiguous(self, name: str) -> AmbiguousLayer:
        first, last = (f"'{self.key}:{self.numbers[end]}'" for end in (0, -1))
        return AmbiguousLayer(
            f"{self.key!r} ran {len(self)} times, so it has no single {name}. "
            f"Ask for one pass, {first} … {last}, or go through .passes."
        )

    @property
    def num_passes(self) -> int:
        """The number of `passes`."""
        return len(self.passes)

    @property
    def label(self) -> str:
        """The layer's label; the module's address if its calls are different layers."""
        labels = {op.layer_label for op in self.passes}
        return labels.pop() if len(labels) == 1 else self.key

    @property
    def stored(self) -> tuple[Stored, ...]:
        """The parameters and buffers it reads."""
        return tuple({stored.name: stored for op in self.passes for stored in op.record.stored}.values())

    @property
    def source(self) -> Source | None:
        """The line of the user's code."""
        return self.passes[0].record.source


# What belongs to one run, even where two of them happen to agree.
_PER_PASS = frozenset(
    "record index inputs tensor_contents written_contents grad_contents gradients variables below elapsed_secs".split()
)


@cache
def _attributes() -> frozenset[str]:
    """Return every public attribute of an operation: the fields of its record, and its view's own."""
    return frozenset(name for name in (*dir(OpView), *dir(Op)) if not name.startswith("_"))


def _all_equal(first: Any, others: list[Any]) -> bool:
    try:
        return all(bool(first == other) for other in others)
    except Exception:  # arrays among a function's settings
        return False


class OpList(list[OpView]):
    """A list of operations of a history."""

    def __init__(self, ops: Iterable[OpView] = ()) -> None:
        super().__init__(ops)

    @overload
    def __getitem__(self, place: SupportsIndex) -> OpView: ...
    @overload
    def __getitem__(self, place: slice) -> OpList: ...
    def __getitem__(self, place: Any) -> Any:
        picked = super().__getitem__(place)
        return OpList(picked) if isinstance(place, slice) else picked

    @property
    def labels(self) -> list[str]:
        """The labels of the operations."""
        return [op.label for op in self]

    def __repr__(self) -> str:
        shown = [f"  {op.record.index}: {op.label} {op.shape}" for op in self[:60]]
        more = [f"  … {len(self) - 60} more …"] if len(self) > 60 else []
        return encodable("\n".join([plural(len(self), "operation"), *shown, *more]))
