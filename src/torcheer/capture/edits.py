"""Changing a layer's output while the model runs.

An edit is a function from tensor to tensor; these are the common ones. Any function of one's own does as well:
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
    """Put another value in its place."""

    def edit(x: Tensor) -> Tensor:
        new = torch.as_tensor(value, dtype=x.dtype, device=x.device)
        if new.ndim and new.shape != x.shape:
            raise BadArgument(
                f"replace: the layer's output has shape {tuple(x.shape)}, the new value {tuple(new.shape)}"
            )
        return new.expand_as(x).clone()

    return _named("replaced", edit)


def zero() -> Edit:
    """Set it to zero."""
    return _named("zeroed", lambda x: torch.zeros_like(x))


def scale(factor: float) -> Edit:
    """Multiply it."""
    return _named(f"scaled by {factor:g}", lambda x: x * factor)


def noise(std: float = 1.0) -> Edit:
    """Add Gaussian noise."""
    return _named(f"noise added, std {std:g}", lambda x: x + torch.randn_like(x) * std)


def steer(direction: Tensor, strength: float = 1.0) -> Edit:
    """Add a direction, broadcast over the leading dimensions."""
    return _named(f"steered, strength {strength:g}", lambda x: x + direction.to(x) * strength)


def clamp(low: float | None = None, high: float | None = None) -> Edit:
    """Keep it within bounds."""
    return _named(f"clamped to [{low}, {high}]", lambda x: x.clamp(low, high))


def mean() -> Edit:
    """Replace every sample by the batch mean."""
    return _named("replaced by its batch mean", lambda x: x.mean(0, keepdim=True).expand_as(x).clone())


def patch(history: Any, layer: str | int | None = None) -> Edit:
    """Put in what another history saw at the same layer, or at `layer`."""

    def edit(x: Tensor, key: Any = layer) -> Tensor:
        if key is None:
            raise BadArgument("patch: name the layer of the other history when the edit is called by hand")
        value = history[key].tensor_contents
        chosen = value[getattr(edit, "output", 0)] if isinstance(value, tuple) else value
        return replace(chosen.detach() if isinstance(chosen, Tensor) else chosen)(x)  # the other run stays out of it

    edit.wants_key = layer is None  # type: ignore[attr-defined]
    return _named("patched in from another history", edit)


def of_output(number: int, edit: Edit) -> Edit:
    """Apply an edit to another tensor than the first that a layer returns: `of_output(1, zero())`."""

    def other(x: Tensor, *key: Any) -> Tensor:
        return edit(x, *key)

    other.output = number  # type: ignore[attr-defined]
    other.wants_key = getattr(edit, "wants_key", False)  # type: ignore[attr-defined]
    edit.output = number  # type: ignore[attr-defined]
    return _named(f"{edit.__name__} (output {number})", other)


def check(edits: Any) -> dict[Any, Edit]:
    """Refuse what is no set of edits."""
    if not isinstance(edits, Mapping):
        raise BadArgument(f"edits is a {type(edits).__name__}; give a dict such as {{'relu_1': tl.edits.zero()}}")
    for key, edit in edits.items():
        if not callable(edit):
            raise BadArgument(
                f"edits[{key!r}] is a {type(edit).__name__}; give a function from tensor to tensor, "
                "such as tl.edits.zero()"
            )
    return dict(edits)
