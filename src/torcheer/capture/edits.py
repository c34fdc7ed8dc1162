"""Edits: functions that change a layer's output while the model runs.

An edit maps a tensor to a tensor; these are the common ones. Any function will do:
`edits={'relu_1': lambda x: x.clamp(max=1)}`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from torcheer.errors import BadArgument

Edit = Callable[[Tensor], Tensor]


def _named(text: str, edit: Edit) -> Edit:
    edit.__name__ = text
    return edit


def replace(value: Any) -> Edit:
    """Replace the output by another value: a number, or a tensor of the same shape."""

    def edit(x: Tensor) -> Tensor:
        new = torch.as_tensor(value, dtype=x.dtype, device=x.device)
        if new.ndim and new.shape != x.shape:
            raise BadArgument(
                f"replace: the layer's output has shape {tuple(x.shape)}, the new value {tuple(new.shape)}"
            )
        return new.expand_as(x).clone()

    return _named("replaced", edit)


def zero() -> Edit:
    """Set the output to zero."""
    return _named("zeroed", lambda x: torch.zeros_like(x))


def scale(factor: float) -> Edit:
    """Multiply the output by a factor."""
    return _named(f"scaled by {factor:g}", lambda x: x * factor)


def noise(std: float = 1.0) -> Edit:
    """Add Gaussian noise of standard deviation `std`."""
    return _named(f"noise added, std {std:g}", lambda x: x + torch.randn_like(x) * std)


def steer(direction: Tensor, strength: float = 1.0) -> Edit:
    """Add `strength` times a direction, broadcast over the leading dimensions."""
    return _named(f"steered, strength {strength:g}", lambda x: x + direction.to(x) * strength)


def clamp(low: float | None = None, high: float | None = None) -> Edit:
    """Clamp the output to the range from `low` to `high`; None leaves a side open."""
    return _named(f"clamped to [{low}, {high}]", lambda x: x.clamp(low, high))


def mean() -> Edit:
    """Replace every sample by the batch mean."""
    return _named("replaced by its batch mean", lambda x: x.mean(0, keepdim=True).expand_as(x).clone())


def patch(history: Any, layer: str | int | None = None) -> Edit:
    """Replace the output by another history's value of the same layer, or of `layer`."""

    def edit(x: Tensor, key: Any = layer) -> Tensor:
        if key is None:
            raise BadArgument("patch: name the layer of the other history when the edit is called by hand")
        value = history[key].tensor_contents
        chosen = value[getattr(edit, "output", 0)] if isinstance(value, tuple) else value
        return replace(chosen.detach() if isinstance(chosen, Tensor) else chosen)(x)  # no gradient into the other run

    edit.wants_key = layer is None  # type: ignore[attr-defined]
    return _named("patched in from another history", edit)


def of_output(number: int, edit: Edit) -> Edit:
    """Apply an edit to output `number` of a layer instead of the first: `of_output(1, zero())`."""

    def edit_output(x: Tensor, *key: Any) -> Tensor:
        return edit(x, *key)

    edit_output.output = number  # type: ignore[attr-defined]
    edit_output.wants_key = getattr(edit, "wants_key", False)  # type: ignore[attr-defined]
    edit.output = number  # type: ignore[attr-defined]
    return _named(f"{edit.__name__} (output {number})", edit_output)


def check(edits: Any) -> dict[Any, Edit]:
    """Check that `edits` is a dict of functions and return a copy of it."""
    if not isinstance(edits, Mapping):
        raise BadArgument(f"edits is a {type(edits).__name__}; give a dict such as {{'relu_1': tl.edits.zero()}}")
    for key, edit in edits.items():
        if not callable(edit):
            raise BadArgument(
                f"edits[{key!r}] is a {type(edit).__name__}; give a function from tensor to tensor, "
                "such as tl.edits.zero()"
            )
    return dict(edits)
