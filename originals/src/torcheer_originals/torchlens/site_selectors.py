"""TorchLens 2's selectors of operations, and its edits of what they select."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from torcheer import edits
from torcheer.errors import BadArgument
from torcheer.selection import label_name


class Selection:
    """A predicate over operations that `&`, `|` and `~` combine; every verb here takes it as a layer."""

    def __init__(self, text: str, test: Callable[[Any], object], key: str = "") -> None:
        self._text, self._test = text, test
        self.key: Any = key or self  # what our verbs are given: the text that means the same, where there is one

    def __call__(self, layer: Any) -> bool:
        return bool(self._test(layer))

    def __and__(self, other: Selection) -> Selection:
        return Selection(f"({self._text} & {other._text})", lambda layer: self(layer) and other(layer))

    def __or__(self, other: Selection) -> Selection:
        return Selection(f"({self._text} | {other._text})", lambda layer: self(layer) or other(layer))

    def __invert__(self) -> Selection:
        return Selection(f"~{self._text}", lambda layer: not self(layer))

    def __repr__(self) -> str:
        return self._text


def func(name: str) -> Selection:
    """Select every operation of a function: `func("relu")`."""
    return Selection(f"func({name!r})", lambda layer: label_name(layer.name) == label_name(name), name)


def in_module(address: str) -> Selection:
    """Select every operation that ran inside a module, at any depth."""
    return Selection(f"in_module({address!r})", lambda layer: any(call.address == address for call in layer.modules))


def module(address: str) -> Selection:
    """Select what a module returned."""
    return Selection(
        f"module({address!r})", lambda layer: any(call.address == address for call in layer.output_of), address
    )


def label(name: str) -> Selection:
    """Select a layer by its label, with or without position and pass: `label("relu_1_2")`."""
    return Selection(f"label({name!r})", lambda layer: name in layer.lookup_keys or name == layer.layer_label, name)


def contains(text: str) -> Selection:
    """Select layers whose label contains a text."""
    return Selection(f"contains({text!r})", lambda layer: text in layer.layer_label)


def where(predicate: Callable[[Any], object]) -> Selection:
    """Select the operations of which a function says yes."""
    return Selection(f"where({getattr(predicate, '__name__', predicate)})", predicate)


def when(site: Any, edit: Callable[[Tensor], Tensor]) -> dict[Any, Any]:
    """Return the edit of one site, as `trace(intervene=…)` takes it, and `edits=` of `log_forward_pass`."""
    return {layer_key(site): edit}


def layer_key(site: Any) -> Any:
    """Return a site as our verbs take it."""
    return site.key if isinstance(site, Selection) else site


def zero_ablate() -> edits.EditFunction:
    """Replace the output by zeros."""
    return edits.zero()


def mean_ablate(source: Tensor | None = None) -> edits.EditFunction:
    """Replace every value by the mean of the output, or of `source`."""
    return lambda output: torch.full_like(output, float((output if source is None else source).mean()))


def scale(factor: float) -> edits.EditFunction:
    """Multiply the output."""
    return edits.scale(factor)


def clamp(*, min: float | None = None, max: float | None = None) -> edits.EditFunction:
    """Clamp the output."""
    return edits.clamp(min, max)


def noise(std: float, *, seed: int | None = None) -> edits.EditFunction:
    """Add normal noise of this standard deviation."""
    if seed is not None:
        raise BadArgument("noise(seed=…): the whole pass has one seed here, log_forward_pass(…, seed=…)")
    return edits.noise(std)


def steer(direction: Tensor, magnitude: float = 1.0) -> edits.EditFunction:
    """Add a direction, times `magnitude`."""
    return edits.steer(direction, magnitude)


def replace_with(value: Any) -> edits.EditFunction:
    """Replace the output by a value of its shape."""
    return edits.replace(value)
