"""The operations of a pass as a graph: which module call each belongs to, and what flows into it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container
from typing import Final

from torcheer.network.module_tree import stack_of
from torcheer.records import BESIDE, KERNEL, ModuleCall, Op

SAME_VALUES: Final = ("dropout", "alpha_dropout", "dropout2d", "contiguous", "clone", "detach", "to", "identity")


def given_name(op: Op) -> str:
    """The name of one input of several, as forward names it: "input_ids", "images.0"."""
    return ".".join(map(str, op.given_at))


def apart_from(modules: Container[str], name: str) -> str:
    """The name of an input, where a module has the same one: "source (input)"."""
    return f"{name} (input)" if name in modules else name


class PassGraph:
    """The operations of a pass: which module call each belongs to, and where its values come from."""

    def __init__(self, ops: list[Op]) -> None:
        # What the model returned.
        self.given_out = {edge.parent for op in ops if op.kind == "output" for edge in op.parents}
        ops = [op for op in ops if op.kind != "output"]  # a recording around a model has none
        self.ops, self.by_index = ops, {op.index: op for op in ops}
        self.stacks = stacks = {op.index: stack_of(op) for op in ops}
        inner = {stack[-1].address for stack in stacks.values() if stack}
        self.leaves = inner - {call.address for stack in stacks.values() for call in stack[:-1]}
        self.home = {index: stack[-1] if stack else None for index, stack in stacks.items()}
        self.inside: dict[ModuleCall, list[Op]] = {}
        self.returned: dict[ModuleCall, list[Op]] = {}
        for op in ops:
            for call in stacks[op.index]:
                self.inside.setdefault(call, []).append(op)
            for call in op.output_of:
                self.returned.setdefault(call, []).append(op)
        self._explicit = self._explicit_results()
        self._parents = {op.index: [edge.parent for edge in op.parents] for op in ops}
        self._parents |= {index: [result] for index, result in self._explicit.items()}
        for call, returned in self.returned.items():
            if len(returned) > 1:  # first what the module did not read itself: its result, before attention weights
                read = {parent for op in self.inside.get(call, ()) for parent in self._parents[op.index]}
                returned.sort(key=lambda op: op.index in read)
        self.readers = Counter(parent for op in ops for parent in set(self.parents(op.index)))
        inputs = {op.index for op in ops if op.kind == "input"}
        self.fed = {op.index for op in ops} if not inputs else inputs  # what depends on an input
        for op in ops:
            if not self.fed.isdisjoint(self.parents(op.index)):
                self.fed.add(op.index)

    def _explicit_results(self) -> dict[int, int]:
        """Fused kernels whose inside was computed beside them: the operation that computed the same there."""
        results: dict[int, int] = {}
        last = -1
        for op in self.ops:
            if op.note == BESIDE:
                last = op.index
            elif op.note == KERNEL and last >= 0 and set(op.modules) <= set(self.by_index[last].modules):
                results[op.index] = last
        return results

    def is_kernel(self, op: Op) -> bool:
        """True for a fused kernel that the operations beside it explain."""
        return op.index in self._explicit

    def parents(self, index: int) -> list[int]:
        """The operations that an operation's arguments come from."""
        return self._parents[index]

    def computed_by(self, op: Op, owners: Container[int]) -> int | None:
        """Which of the `owners` computed an operation's values, seen through views and copies; None: none of them."""
        while op.index not in owners:
            parents = self.parents(op.index)
            if len(parents) != 1 or not (op.view or op.name in SAME_VALUES or self.is_kernel(op)):
                return None
            op = self.by_index[parents[0]]
        return op.index

    def sources(self, owners: Container[int]) -> dict[int, set[int]]:
        """For each of the `owners`, the nearest ones before it.

        Of a sum that others read too, as in a residual stream, a later sum takes over only the last source: what came
        before it is seen to flow through that.
        """
        nearest: dict[int, set[int]] = {}
        streams: set[int] = set()  # values of several sources that several operations read
        sources: dict[int, set[int]] = {}
        for op in self.ops:
            parents = set(self.parents(op.index)) & nearest.keys()
            origins: set[int] = set()
            for parent in parents:
                origins |= {max(nearest[parent])} if len(parents) > 1 and parent in streams else nearest[parent]
            if op.index in owners:
                sources[op.index], origins = origins, {op.index}
            nearest[op.index] = origins
            if len(origins) > 1 and (self.readers[op.index] > 1 or not streams.isdisjoint(parents)):
                streams.add(op.index)
        return sources
