"""A forward and a backward pass as a tree of text: a line per operation, with its rule and what that keeps."""

from __future__ import annotations

from torcheer.drawing.items.backward_items import ITS_OWN, Flow
from torcheer.drawing.items.box_text import shape_text
from torcheer.drawing.items.history_items import several_calls
from torcheer.drawing.writers.text_tree import draw_tree
from torcheer.history.text.latex_text import latex_to_text
from torcheer.records import ModuleCall, Step


def draw_steps_text(flow: Flow, header: list[str], depth: int | None) -> str:
    """Forward from top to bottom; ↑ is the rule by which the gradient comes back."""
    steps = [step for step in flow.steps.values() if step.kind == "op"]
    lines = [" · ".join(header)]
    lines += draw_tree(_StepLines(flow), ((step.index, step.modules) for step in steps), depth)
    return "\n".join(lines) + "\n"


class _StepLines:
    """The lines of a backward pass."""

    def __init__(self, flow: Flow) -> None:
        self._flow = flow
        self._several = several_calls(call for step in flow.steps.values() for call in step.modules)
        self._above = -1

    def module(self, call: ModuleCall | None) -> str:
        """The line of a module call."""
        assert call is not None
        again = f":{call.call}" if self._several[call.address] else ""
        kind = "" if call.address.endswith(call.type) else f" ({call.type})"  # a composite is called as what it is
        return f"{call.address}{again}{kind}".strip()

    def op(self, index: int, inside: ModuleCall | None = None) -> str:
        """The line of an operation: what it read where that is not just above, its rule, and what the rule keeps."""
        step = self._flow.steps[index]
        sources = list(dict.fromkeys(edge.parent for edge in step.parents))
        parts = [f"{self._called(step)}  {shape_text(step.shape)}", f"[{self.module(inside)}]" if inside else ""]
        if sources and sources != [self._above]:
            parts.append(f"← {', '.join(self._called(self._flow.steps[source]) for source in sources)}")
        parts.append(self._rule(step))
        self._above = index
        return "  ".join(part for part in parts if part)

    def skip_to(self, index: int) -> None:
        """The line above stood for operations up to this one."""
        self._above = index

    def _rule(self, step: Step) -> str:
        if step.index not in self._flow.sent:
            return ""
        words = latex_to_text(step.formula) or (ITS_OWN if step.borrowed else "")
        kept = ["its result" if one == step.index else self._called(self._flow.steps[one]) for one in step.saved]
        parts = [f"↑ {words}", f"keeps {', '.join(kept)}" if kept else ""]
        parts.append(f"+= of {self._flow.uses[step.index]}" if self._flow.uses[step.index] > 1 else "")
        return "  ".join(part for part in parts if part)

    def _called(self, step: Step) -> str:
        """Its name, with its place where it is an operation: the same name comes again."""
        return f"{step.name}_{step.index}" if step.kind == "op" else step.title or step.name or "constant"
