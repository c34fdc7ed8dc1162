"""`draw_steps`: draw a forward and a backward pass, and the values saved between them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from math import prod
from typing import Any

from torcheer.drawing.drawing import Drawing, check_options, count_noun, garbage_collection_off
from torcheer.drawing.items.backward_items import BackwardFlow, items_of_steps, number_text
from torcheer.drawing.items.box_text import count_text, shape_text
from torcheer.drawing.items.item import Item
from torcheer.drawing.items.restyle import restyle
from torcheer.drawing.layout.picture import Picture, picture
from torcheer.drawing.layout.plans import plan_scene
from torcheer.drawing.looks.style import Style, style_of
from torcheer.drawing.writers.backward_text import draw_steps_text
from torcheer.drawing.writers.html_page import ItemDetails
from torcheer.history.text.latex_text import latex_to_text
from torcheer.records import Step
from torcheer.terminal import human_bytes


def draw_steps(
    steps: Sequence[Step],
    path: str | os.PathLike[str] | None = None,
    *,
    depth: int | str | None = None,
    direction: str = "auto",
    style: Any = None,
    title: str = "loss",
) -> BackwardDrawing:
    """Draw a backward pass.

    Values flow down, gradients up; dotted lines lead from saved values to the rules that read them.

    Args:
        steps: the steps, as `autograd.explain` returns them; the last to run is the loss.
        path: also write the drawing to this file, in the format of its suffix (.svg if it has none).
        depth: how many levels of modules are open: a number, "all" for every operation, or None for as many as stay
            readable on a page.
        direction: "down", "right", or "auto" for whichever fills a page better.
        style: a theme, a function of a node, a dict, or a `Style`.
        title: what the gradients are of, for the header.
    """
    check_options(depth, direction, path)
    checked_style = style_of(style)
    with garbage_collection_off():
        flow = BackwardFlow(steps)
        items = items_of_steps(flow, title)
        if checked_style.node:
            items = restyle(items, checked_style, lambda item: (item.label,) if item.label else ())
        layout = picture(plan_scene(items), depth=depth, direction=direction, style=checked_style)
        drawing = BackwardDrawing(flow, layout, checked_style, title)
        if path is not None:
            drawing.save(path)
    return drawing


class BackwardDrawing(Drawing):
    """A drawing of a forward and a backward pass."""

    def __init__(self, flow: BackwardFlow, picture: Picture, style: Style, title: str) -> None:
        super().__init__(picture, style)
        self.flow, self._title = flow, title

    @property
    def name(self) -> str:
        """The name of what the gradients are of."""
        return self._title

    def text(self) -> str:
        """Return the drawing as a tree of text, for the terminal."""
        return draw_steps_text(self.flow, self._header(), self.picture.depth)

    def _header(self) -> list[str]:
        flow = self.flow
        steps = flow.steps.values()
        sizes = [prod(step.shape) for step in steps if step.kind == "parameter"]
        saved_bytes, parameter_bytes = flow.bytes("op", "constant"), flow.bytes("parameter")
        value = number_text(flow.steps[flow.loss]) if steps else ""
        return [
            f"{self._title} = {value}" if value else self._title,
            count_noun(sum(step.kind == "op" for step in steps), "operation"),
            f"{count_noun(len(sizes), 'parameter')} ({numbers_text(sum(sizes))})" if sizes else "no parameters",
            f"{human_bytes(saved_bytes)} kept for backward",
            *([f"{human_bytes(parameter_bytes)} of parameters read again"] if parameter_bytes else []),
            *([f"{count_noun(self.picture.depth, 'level')} shown"] if self.picture.depth else []),
        ]

    def _label(self, item: Item) -> str:
        """Return the sentence that explains a rule, for the hover text."""
        step = self._step(item)
        return step.why if step and item.look == "gradient" else ""

    def _details(self, item: Item) -> ItemDetails:
        step = self._step(item)
        around = item.path[-1].address if item.path else ""
        return item.name or item.kind, around, self._step_details(step, item.look == "gradient") if step else []

    def _step(self, item: Item) -> Step | None:
        return self.flow.steps[int(item.label)] if item.label else None

    def _step_details(self, step: Step, backward: bool) -> list[tuple[str, str]]:
        """Return (name, text) pairs about a step, or about its rule."""
        flow = self.flow
        dtype = step.dtype.removeprefix("torch.")
        details = [("result", f"{shape_text(step.shape)} {dtype}, {human_bytes(step.bytes)}")]
        if backward:
            details = [("rule", latex_to_text(step.formula))] if step.formula else []
            details += [("why", step.why)] if step.why else []
            details += [("by", "torch")] if step.borrowed else []
            details += [("keeps", ", ".join(self._name(index, step) for index in step.saved) or "nothing")]
        elif step.index in flow.kept:
            details += [("kept for", ", ".join(self._readers(step)))]
        uses = flow.uses[step.index]
        details += [("gradient", f"sum of {uses}")] if uses > 1 and (backward or step.kind == "parameter") else []
        value = number_text(step)
        details += [("value", value)] if value and not backward else []
        source = step.source
        return details + ([("source", f"{source.file}:{source.line} in {source.function}")] if source else [])

    def _name(self, index: int, reader: Step) -> str:
        step = self.flow.steps[index]
        return "its result" if index == reader.index else f"{step.name} {shape_text(step.shape)}"

    def _readers(self, step: Step) -> list[str]:
        """Return the names of the operations whose rules read the saved value of a step."""
        others = (self.flow.steps[index] for index in reversed(self.flow.sent))
        return [
            "itself" if reader.index == step.index else reader.name for reader in others if step.index in reader.saved
        ]


def numbers_text(count: int) -> str:
    """ "1 number", "1.2k numbers"."""
    return f"{count_text(count)} number{'' if count == 1 else 's'}"
