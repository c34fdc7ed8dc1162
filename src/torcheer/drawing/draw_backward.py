"""`draw_steps`: a forward and a backward pass as one picture, with what is kept between them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from math import prod
from typing import Any

from torcheer.drawing.drawing import Drawing, check_options, counted, uncollected
from torcheer.drawing.items.backward_items import Flow, items_of_steps, number_text
from torcheer.drawing.items.box_text import count_text, shape_text
from torcheer.drawing.items.item import Item
from torcheer.drawing.items.restyle import restyled
from torcheer.drawing.layout.picture import Picture, picture
from torcheer.drawing.layout.plans import plan_scene
from torcheer.drawing.looks.style import Style, style_of
from torcheer.drawing.writers.backward_text import draw_steps_text
from torcheer.drawing.writers.html_page import Facts
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
    """Draw the steps of a backward pass, of which the last to run is the loss, and write the picture to `path`.

    Values flow down, gradients flow up beside them; dotted lines lead from what is kept to the rule that reads it.
    """
    check_options(depth, direction, path)
    wanted = style_of(style)
    with uncollected():
        flow = Flow(steps)
        items = items_of_steps(flow, title)
        if wanted.node:
            items = restyled(items, wanted, lambda item: (item.label,) if item.label else ())
        found = picture(plan_scene(items), depth=depth, direction=direction, style=wanted)
        drawing = BackwardDrawing(flow, found, wanted, title)
        if path is not None:
            drawing.save(path)
    return drawing


class BackwardDrawing(Drawing):
    """A picture of a forward and a backward pass."""

    def __init__(self, flow: Flow, picture: Picture, style: Style, title: str) -> None:
        super().__init__(picture, style)
        self.flow, self._title = flow, title

    @property
    def name(self) -> str:
        """What the gradients are of."""
        return self._title

    def text(self) -> str:
        """A tree for the terminal."""
        return draw_steps_text(self.flow, self._header(), self.picture.depth)

    def _header(self) -> list[str]:
        flow = self.flow
        steps = flow.steps.values()
        sizes = [prod(step.shape) for step in steps if step.kind == "parameter"]
        kept, held = flow.bytes("op", "constant"), flow.bytes("parameter")
        value = number_text(flow.steps[flow.loss]) if steps else ""
        return [
            f"{self._title} = {value}" if value else self._title,
            counted(sum(step.kind == "op" for step in steps), "operation"),
            f"{counted(len(sizes), 'parameter')} ({counted_text(sum(sizes))})" if sizes else "no parameters",
            f"{human_bytes(kept)} kept for backward",
            *([f"{human_bytes(held)} of parameters read again"] if held else []),
            *([f"{counted(self.picture.depth, 'level')} shown"] if self.picture.depth else []),
        ]

    def _label(self, item: Item) -> str:
        """Why the rule is as it is."""
        step = self._step(item)
        return step.why if step and item.look == "gradient" else ""

    def _facts(self, item: Item) -> Facts:
        step = self._step(item)
        around = item.path[-1].address if item.path else ""
        return item.name or item.kind, around, self._told(step, item.look == "gradient") if step else []

    def _step(self, item: Item) -> Step | None:
        return self.flow.steps[int(item.label)] if item.label else None

    def _told(self, step: Step, backward: bool) -> list[tuple[str, str]]:
        """Pairs of what there is to know of a step, or of its rule."""
        flow = self.flow
        told = [("result", f"{shape_text(step.shape)} {step.dtype.removeprefix('torch.')}, {human_bytes(step.bytes)}")]
        if backward:
            told = [("rule", latex_to_text(step.formula))] if step.formula else []
            told += [("why", step.why)] if step.why else []
            told += [("by", "torch")] if step.borrowed else []
            told += [("keeps", ", ".join(self._name(index, step) for index in step.saved) or "nothing")]
        elif step.index in flow.kept:
            told += [("kept for", ", ".join(self._keepers(step)))]
        uses = flow.uses[step.index]
        told += [("gradient", f"sum of {uses}")] if uses > 1 and (backward or step.kind == "parameter") else []
        value = number_text(step)
        told += [("value", value)] if value and not backward else []
        source = step.source
        return told + ([("source", f"{source.file}:{source.line} in {source.function}")] if source else [])

    def _name(self, index: int, reader: Step) -> str:
        step = self.flow.steps[index]
        return "its result" if index == reader.index else f"{step.name} {shape_text(step.shape)}"

    def _keepers(self, step: Step) -> list[str]:
        """The operations whose rules read the value of a step again."""
        found = (self.flow.steps[index] for index in reversed(self.flow.sent))
        return ["itself" if one.index == step.index else one.name for one in found if step.index in one.saved]


def counted_text(count: int) -> str:
    """ "1 number", "1.2k numbers"."""
    return f"{count_text(count)} number{'' if count == 1 else 's'}"
