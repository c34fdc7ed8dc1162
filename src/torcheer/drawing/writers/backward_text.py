"""Write a forward and backward pass as a tree of text, a line per operation."""

from __future__ import annotations

from torcheer.drawing.items.backward_items import BORROWED_RULE, BackwardFlow
from torcheer.drawing.items.box_text import shape_text
from torcheer.drawing.items.history_items import several_calls
from torcheer.drawing.writers.text_tree import draw_tree
from torcheer.history.text.latex_text import latex_to_text
from torcheer.records import ModuleCall, Step


def draw_steps_text(flow: BackwardFlow, header: list[str], depth: int | None) -> str:
    """Return the tree: the forward pass from top to bottom, the rule of each operation after ↑."""
    steps = [step for step in flow.steps.values() if step.kind == "op"]
    lines = [" · ".join(header)]
    lines += draw_tree(_StepLines(flow), ((step.index, step.modules) for step in steps), depth)
    return "\n".join(lines) + "\n"


class _StepLines:
    """Writes the lines of a backward pass."""

    def __init__(self, flow: BackwardFlow) -> None:
        self._flow = flow
        self._several = several_calls(call for step in flow.steps.values() for call in step.modules)
        self._above = -1

    def module(self, call: ModuleCall | None) -> str:
        """Return the line of a module call."""
        assert call is not None
        number = f":{call.call}" if self._several[call.address] else ""
        kind = "" if call.address.endswith(call.type) else f" ({call.type})"  # the name of a composite is its type
        return f"{call.address}{number}{kind}".strip()

    def op(self, index: int, inside: ModuleCall | None = None) -> str:
        """Return an operation's line: inputs if not just above, rule, saved values."""
        step = self._flow.steps[index]
        sources = list(dict.fromkeys(edge.parent for edge in step.parents))
        parts = [f"{self._name(step)}  {shape_text(step.shape)}", f"[{self.module(inside)}]" if inside else ""]
        if sources and sources != [self._above]:
            parts.append(f"← {', '.join(self._name(self._flow.steps[source]) for source in sources)}")
        parts.append(self._rule(step))
        self._above = index
        return "  ".join(part for part in parts if part)

    def skip_to(self, index: int) -> None:
        """Note that the line above covers operations up to this one."""
        self._above = index

    def _rule(self, step: Step) -> str:
        if step.index not in self._flow.sent:
            return ""
        words = latex_to_text(step.formula) or (BORROWED_RULE if step.borrowed else "")
        saved = ["its result" if index == step.index else self._name(self._flow.steps[index]) for index in step.saved]
        parts = [f"↑ {words}", f"keeps {', '.join(saved)}" if saved else ""]
        parts.append(f"+= of {self._flow.uses[step.index]}" if self._flow.uses[step.index] > 1 else "")
        return "  ".join(part for part in parts if part)

    def _name(self, step: Step) -> str:
        """Return a step's name; an operation's with its index, as names repeat."""
        return f"{step.name}_{step.index}" if step.kind == "op" else step.title or step.name or "constant"
