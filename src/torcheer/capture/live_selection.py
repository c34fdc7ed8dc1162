"""Which operations a selector matches while the model still runs.

A layer's number is certain only after the run (a loop may turn out to be one layer with many passes), so during the
run a name is a range of numbers: saving keeps everything that may match and prunes at the end, edits use the likeliest
number. A predicate that reads what is known only at the end (a label, a value) is asked again then.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from torcheer.capture.record.recorder import Recorder
from torcheer.capture.record.refs import SLOT_BITS
from torcheer.history.flops import count_flops
from torcheer.history.layers.layer_names import layer_name
from torcheer.history.op_views import OpView
from torcheer.selection import Selector

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


class RunningView(OpView):
    """A layer as a predicate receives it while the model runs: reading a later fact raises KnownLater."""

    __slots__ = ()

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
    number: int  # the likeliest number of its layer
    first: int  # index of the first pass
    pass_number: int
    low: int  # bounds of the layer's number
    high: int
    max_pass: int = 1  # upper bound of the pass number
    is_sure: bool = True  # whether `pass_number` is certain: operations with parameters are identified by them

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
        short, full = f"{self.name}_{self.number}", f"{self.name}_{self.number}_{self.first}"
        names = (short, full, f"{short}:{self.pass_number}", f"{full}:{self.pass_number}")
        return selector.form == "pattern" and selector.matches_name(names)

    def may_match(self, selector: Selector) -> bool:
        """Whether a selector may match the final name of this operation."""
        if selector.form == "label":
            passes = selector.call in (0, self.pass_number) if self.is_sure else selector.call <= self.max_pass
            return selector.name == self.name and self.low <= selector.number <= self.high and passes
        if selector.form == "pattern":
            numbers = range(self.low, min(self.high, self.low + 1000) + 1)
            stems = (f"{self.name}_{number}" for number in numbers)
            layer = selector.name.partition(":")[0]
            wild = layer.replace("_", "*")
            return any(fnmatchcase(stem, layer) or fnmatchcase(f"{stem}_{self.index}", wild) for stem in stems)
        return self.likely_matches(selector)


class RunningNames:
    """Assign likely layer numbers to operations as they run."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._counts: dict[str, list[int]] = {}  # name -> counts of [likely layers, distinct places, all operations]
        # place -> (number, first, passes so far, last parents)
        self._repeats: dict[Any, tuple[int, int, int, Any]] = {}
        self._layers: dict[int, tuple[str, int]] = {}  # node -> its likeliest layer
        self._lows: dict[Any, int] = {}  # place -> lower bound of its layer number
        self._op_counts: dict[Any, int] = {}  # place -> operations there so far

    def name(self, node: int) -> RunningOp:
        """Return the likely name of the operation that just ran."""
        row = self._recorder.row(node)
        name = layer_name(row.call.name)
        counts = self._counts.setdefault(name, [0, 0, 0])
        counts[2] += 1
        stored = tuple(ref for ref in row.refs if ref < 0)
        place = (name, id(row.code), row.lasti, self._modules(row.scope), stored)
        if place not in self._lows:
            counts[1] += 1
            self._lows[place] = counts[1]
        # Operations with parameters are identified by them; others repeat if they follow new passes of the same layers.
        parents = tuple(ref for ref in row.refs if ref >= 0)
        likely = place if stored else (place, tuple(self._layers.get(ref >> SLOT_BITS) for ref in parents))
        number, first, passes, last_parents = self._repeats.get(likely, (0, node, 0, ()))
        if not passes or (not stored and (not parents or parents == last_parents)):
            counts[0] += 1
            number, first, passes = counts[0], node, 0
        self._repeats[likely] = (number, first, passes + 1, parents)
        self._layers[node] = (name, number)
        max_pass = self._op_counts[place] = self._op_counts.get(place, 0) + 1
        return RunningOp(node, name, number, first, passes + 1, self._lows[place], counts[2], max_pass, bool(stored))

    def _modules(self, scope: int) -> tuple[int, ...]:
        chain = []
        while scope >= 0:
            scope, module = self._recorder.scopes[4 * scope : 4 * scope + 2]
            chain.append(id(module))
        return tuple(chain)
