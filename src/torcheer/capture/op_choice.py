"""Which operations `layers_to_save` wants, decided as each of them ends.

What a selector can say of a function's name alone is decided once: most operations cost a look into a set.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from torcheer.capture.label_patterns import LabelPattern
from torcheer.capture.live_selection import KnownLater, RunningNames, RunningOp, RunningRecord, RunningView
from torcheer.capture.record.function_table import TorchCall
from torcheer.capture.record.op_rows import LiveTrace
from torcheer.errors import UnknownLayer
from torcheer.history.layers.layer_names import layer_name
from torcheer.selection import Selector


class OpChoice:
    """The selectors that choose operations by themselves: 'all', positions, labels, patterns, predicates."""

    def __init__(
        self, selectors: Sequence[Selector], trace: LiveTrace, history: Any, *, logs_gradients: bool = False
    ) -> None:
        self._trace, self._history = trace, history
        self._names = RunningNames(trace.recorder)  # of the operations whose functions are named
        self._selectors = [selector for selector in selectors if selector.for_ops]
        self.matched: set[Any] = set()  # keys that matched an operation for certain
        self.nodes: set[int] = set()  # what they matched, labels and patterns aside
        self._unsure: dict[Any, set[int]] = {}  # key -> operations that it may match
        self._takes_all = any(selector.form == "all" for selector in selectors)
        self._is_all = self._takes_all and len(selectors) == 1
        positions = [selector for selector in selectors if selector.form == "position"]
        self._positions = {selector.index: selector.key for selector in positions if selector.index >= 0}
        self.from_end = {selector.index: selector.key for selector in positions if selector.index < 0}
        self.window = -min(self.from_end, default=0)  # rows to hold: which of them is meant is known at the end
        self._last_position = max(self._positions, default=-1)
        self._tests = [selector for selector in selectors if selector.test is not None]
        self._named = [
            (selector, LabelPattern(selector.name) if selector.is_pattern else None)
            for selector in selectors
            if selector.form == "label" or selector.is_pattern
        ]
        # True while any operation may be wanted, or has a gradient that may be
        self._by_node = bool(self._takes_all or self._tests or (self.window and logs_gradients))
        # True where operations need not be shown: only outputs of modules are chosen, or the newest rows are held
        self.is_empty = not (self._by_node or self._positions or self._named)
        self._named_by_call: dict[TorchCall, list[tuple[Selector, LabelPattern | None]]] = {}
        self._surely_named: set[TorchCall] = set()  # functions whose every label all of these patterns match

    @property
    def seen(self) -> set[Any]:
        """Keys that matched an operation, or may have."""
        return self.matched | self._unsure.keys()

    def ignores(self, call: TorchCall, node: int = -1) -> bool:
        """Whether no operation of this function can be wanted, from row `node` on."""
        return not (self._by_node or node < self._last_position or self._named_of(call))

    def wants(self, node: int, call: TorchCall) -> bool:
        """Whether the operation that just ran is wanted, as far as is known."""
        if self._is_all:
            return True
        wanted = self._takes_all
        if node in self._positions:
            self.matched.add(self._positions[node])
            self.nodes.add(node)
            wanted = True
        named = self._named_of(call) if self._named else ()
        if named and call in self._surely_named:  # whatever its number will be
            self.matched.update(selector.key for selector, _ in named)
            self.nodes.add(node)
            wanted = True
        elif named:
            running = self._names.name(node, layer_name(call.name))
            for selector, pattern in named:
                wanted = self._may_match(running, selector, pattern) or wanted
        for selector in self._tests:
            wanted = self._passes_test(node, call, selector) or wanted
        return wanted

    def _named_of(self, call: TorchCall) -> list[tuple[Selector, LabelPattern | None]]:
        named = self._named_by_call.get(call)
        if named is None:
            name = layer_name(call.name)
            named = self._named_by_call[call] = [
                (selector, pattern)
                for selector, pattern in self._named
                if (selector.name == name if pattern is None else pattern.may_match(name))
            ]
            if all(pattern is not None and pattern.matches_all(name) for _, pattern in named):
                self._surely_named.add(call)
        return named

    def _may_match(self, running: RunningOp, selector: Selector, pattern: LabelPattern | None) -> bool:
        if not running.may_match(selector, pattern):
            return False
        if running.surely_matches(selector, pattern):
            self.matched.add(selector.key)
            self.nodes.add(running.index)
        else:
            self._unsure.setdefault(selector.key, set()).add(running.index)
        return True

    def _passes_test(self, node: int, call: TorchCall, selector: Selector) -> bool:
        """Ask a predicate about an operation that just ran; what it cannot say yet, it is asked at the end."""
        assert selector.test is not None
        record: Any = RunningRecord(self._trace, node, call.name)
        try:
            with self._trace.recorder.paused():  # the work of a predicate is not part of the model
                matches = bool(selector.test(RunningView(self._history, record)))
        except KnownLater:
            self._unsure.setdefault(selector.key, set()).add(node)
            return True
        if matches:
            self.matched.add(selector.key)
            self.nodes.add(node)
        return matches

    # -- at the end --------------------------------------------------------------------------------------------------

    def finish(self, count: int) -> None:
        """Note which positions from the end there were."""
        for index, key in self.from_end.items():
            if -count <= index:
                self.matched.add(key)
                self.nodes.add(index + count)

    def late(self, matched: set[Any], nodes: set[int]) -> LateChoice | None:
        """Return what final names must decide, beside keys and operations known to match; None if nothing."""
        self.matched |= matched
        unsure = [
            (selector, self._unsure[selector.key]) for selector in self._selectors if selector.key in self._unsure
        ]
        if self._takes_all or not unsure:
            return None
        return LateChoice(unsure, self.matched, self.nodes | nodes)


class LateChoice(NamedTuple):
    """What names of layers decide when the run is over; until then, all that may be wanted is kept."""

    unsure: list[tuple[Selector, set[int]]]  # with the operations that it may match
    matched: set[Any]  # keys that matched an operation or a module
    nodes: set[int]  # what they matched

    @property
    def can_wait(self) -> bool:
        """True where every key is known to match something: the rest is decided when a value is read."""
        return self.matched.issuperset(selector.key for selector, _ in self.unsure)

    def settle(self, history: Any) -> set[int]:
        """Return all operations wanted, by their final names; add keys that matched."""
        wanted = set(self.nodes)
        for selector, unsure in self.unsure:
            nodes = _final_nodes(history, selector, unsure)
            if nodes:
                self.matched.add(selector.key)
            wanted |= nodes
        return wanted


def _final_nodes(history: Any, selector: Selector, unsure: set[int]) -> set[int]:
    if selector.test is not None:
        return {node for node in unsure if selector.test(history[node])}
    try:
        return set(history.indices(selector.key))
    except UnknownLayer:
        return set()
