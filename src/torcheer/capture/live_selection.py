"""Which operations a selector matches while the model still runs.

A layer's number is certain only after the run (a loop may turn out to be one layer with many passes), so during the
run a name is a range of numbers: saving keeps everything that may match and prunes at the end, edits use the likeliest
number. A predicate that reads what is known only at the end (a label, a value) is asked again then.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torcheer.capture.label_patterns import LabelPattern
from torcheer.capture.record.recorder import WIDTH, Recorder
from torcheer.capture.record.refs import SLOT_BITS
from torcheer.history.flops import count_flops
from torcheer.history.op_views import OpView
from torcheer.records import ModuleCall, Op, TensorMeta
from torcheer.selection import Selector

if TYPE_CHECKING:
    from torcheer.capture.record.op_rows import LiveTrace

# What a layer knows of itself only when the run is over.
LATER = (
    "below", "child_layers", "children", "edited", "grad_contents", "gradients", "inputs", "is_saved", "label", "layer",
    "layer_label", "lookup_keys", "output_of", "parent_layers", "parents", "pass_number", "tensor_contents",
    "written_contents",
)  # fmt: skip


class KnownLater(BaseException):
    """A predicate read a fact that is known only after the run.

    Not an Exception: the predicate's own handlers must not catch it.
    """


class RunningRecord:
    """The record of an operation that just ran; what predicates ask for most is read without building all of it."""

    __slots__ = ("_built", "_trace", "index", "name")

    def __init__(self, trace: LiveTrace, index: int, name: str) -> None:
        self._trace, self.index, self.name = trace, index, name
        self._built: Op | None = None

    @property
    def outputs(self) -> tuple[TensorMeta, ...]:
        """The metadata of what it returned."""
        return self._trace.output_metas(self.index)

    @property
    def modules(self) -> tuple[ModuleCall, ...]:
        """The module calls around it, outermost first."""
        return self._trace.modules_around(self.index)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if self._built is None:
            self._built = self._trace.build(self.index)
        return getattr(self._built, name)


class RunningView(OpView):
    """A layer as a predicate receives it while the model runs: reading a later fact raises KnownLater."""

    __slots__ = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of its first output."""
        return self.history.trace.first_shape(self.record.index)  # type: ignore[attr-defined, no-any-return]

    @property
    def flops(self) -> int | None:
        """Its floating point operations; None if no formula is known."""
        return count_flops(self.record, self.history.trace.ops())


def _known_later(name: str) -> property:
    def read(view: RunningView) -> Any:
        raise KnownLater(name)

    return property(read)


for _name in LATER:
    setattr(RunningView, _name, _known_later(_name))


@dataclass(slots=True)
class RunningOp:
    """The name of an operation as far as it is known while the model runs."""

    index: int
    name: str
    number: int = 0  # the likeliest number of its layer
    first: int = 0  # index of the first pass
    pass_number: int = 0
    low: int = 0  # bounds of the layer's number
    high: int = 0
    max_pass: int = 1  # upper bound of the pass number
    is_sure: bool = True  # whether `first` and `pass_number` are certain

    @property
    def label(self) -> str:
        """The likeliest name, with the pass."""
        return f"{self.name}_{self.number}:{self.pass_number}"

    def likely_matches(self, selector: Selector) -> bool:
        """Whether a selector matches the likeliest name of this operation."""
        if selector.form == "all":
            return True
        if selector.form == "position":
            return selector.index == self.index
        if selector.form == "label":
            return (
                selector.name == self.name
                and selector.number == self.number
                and selector.index in (-1, self.first)
                and selector.call in (0, self.pass_number)
            )
        return selector.is_pattern and selector.matches_name(self._names(self.number))

    def may_match(self, selector: Selector, pattern: LabelPattern | None) -> bool:
        """Whether a label, or a pattern over labels, may match the final name of this operation."""
        if pattern is None:
            passes = selector.call in (0, self.pass_number) if self.is_sure else selector.call <= self.max_pass
            return selector.name == self.name and self.low <= selector.number <= self.high and passes
        if self.low == self.high and self.is_sure:
            return selector.matches_name(self._names(self.low))
        return pattern.may_match(self.name, self.low, self.high)

    def surely_matches(self, selector: Selector, pattern: LabelPattern | None) -> bool:
        """Whether it matches, whatever the rest of the run brings; for one that `may_match`."""
        if self.low != self.high or (not self.is_sure and self.max_pass > 1):
            return False
        if pattern is None:
            return selector.index in (-1, self.first) and selector.call in (0, self.pass_number)
        return selector.matches_name(self._names(self.low)[:2])  # with a pass only if the layer has several

    def _names(self, number: int) -> tuple[str, ...]:
        short, full = f"{self.name}_{number}", f"{self.name}_{number}_{self.first}"
        return (short, full, f"{short}:{self.pass_number}", f"{full}:{self.pass_number}")


class RunningNames:
    """Assign likely layer numbers to operations as they run."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._counts: dict[str, list[int]] = {}  # name -> counts of [likely layers, distinct places, possible layers]
        # place -> (number, first, passes so far, last parents)
        self._repeats: dict[Any, tuple[int, int, int, Any]] = {}
        self._layers: dict[int, tuple[str, int]] = {}  # node -> its likeliest layer
        self._bounds: dict[Any, tuple[int, int]] = {}  # place -> bounds of the number of the first operation there
        self._op_counts: dict[Any, int] = {}  # place -> operations there so far
        self._last_scopes: dict[Any, int] = {}  # place -> module call of the last operation there
        self._chains: dict[int, tuple[int, ...]] = {-1: ()}  # module call -> ids of the modules around it

    def name(self, node: int, name: str) -> RunningOp:
        """Return the likely name of the operation that just ran, whose labels begin with `name`."""
        recorder = self._recorder
        _, _, _, _, begin, scope, code, lasti, _ = recorder.rows[node * WIDTH : (node + 1) * WIDTH]
        refs = recorder.refs[begin:]
        stored = tuple([ref for ref in refs if ref < 0])
        place = (name, id(code), lasti, self._modules(scope), stored)
        counts = self._counts.setdefault(name, [0, 0, 0])
        max_pass = self._op_counts[place] = self._op_counts.get(place, 0) + 1
        # The only operation of its place in each call of a module that holds its parameters: they identify its layer.
        is_sure = bool(stored) and scope >= 0 and self._last_scopes.get(place) != scope
        self._last_scopes[place] = scope if is_sure else -1
        if max_pass == 1:
            counts[1] += 1
        if max_pass == 1 or not is_sure:
            counts[2] += 1
        if max_pass == 1:
            self._bounds[place] = (counts[1], counts[2])
        low, high = self._bounds[place]
        # Others repeat if they follow new passes of the same layers.
        parents = tuple([ref for ref in refs if ref >= 0])
        likely = place if stored else (place, tuple([self._layers.get(ref >> SLOT_BITS) for ref in parents]))
        number, first, passes, last_parents = self._repeats.get(likely, (0, node, 0, ()))
        if not passes or (not stored and (not parents or parents == last_parents)):
            counts[0] += 1
            number, first, passes = counts[0], node, 0
        self._repeats[likely] = (number, first, passes + 1, parents)
        self._layers[node] = (name, number)
        high = high if is_sure else counts[2]
        return RunningOp(node, name, number, first, passes + 1, low, high, max_pass, is_sure)

    def place(self, running: RunningOp, node: int) -> None:
        """Note that an operation stands in another row than the one it was named in."""
        self._layers[node] = (running.name, running.number)

    def _modules(self, scope: int) -> tuple[int, ...]:
        chain = self._chains.get(scope)
        if chain is None:
            outer, module = self._recorder.scopes[4 * scope : 4 * scope + 2]
            chain = self._chains[scope] = (id(module), *self._modules(outer))
        return chain
