"""Edits: functions that change a layer's output while the model runs.

An edit maps a tensor to a tensor; these are the common ones. Any function will do:
`edits={'relu_1': lambda x: x.clamp(max=1)}`. An `Edit` says where in the layer: at its input, to one head, at some
positions: `edits={'attn[5]': tl.Edit(tl.edits.zero(), head=3)}`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Any

import torch
from torch import Tensor

from torcheer.errors import BadArgument
from torcheer.public_names import PublicClass

EditFunction = Callable[[Tensor], Tensor]
SIDES = ("output", "input", "gradient")


@dataclass(frozen=True)
class Edit(metaclass=PublicClass):
    """A function, and where in a layer it is applied: `tl.Edit(tl.edits.zero(), head=3, positions=[0, -1])`.

    - `function`: from tensor to tensor of the same shape; or a number or tensor to put there.
    - `at`: "output" of the layer, "input" of a module or operation (for it alone), or "gradient": what backward sends
      to the output.
    - `head`: a head, or several, of an attention; the function then receives (batch, positions, size of the heads).
    - `positions`: one or several places in the sequence, or a slice; None for all. They count over the whole sequence,
      also in `generate`, where a cache lets each call see new tokens only. Negative ones count from the end of the
      sequence as it is in that call.
    - `output`: which tensor, where a layer returns or receives several.
    """

    function: Any
    at: str = "output"
    head: int | Sequence[int] | None = None
    positions: int | slice | Sequence[int] | None = None
    output: int = 0

    def __post_init__(self) -> None:
        if isinstance(self.function, (int, float, Tensor)) and not isinstance(self.function, bool):
            object.__setattr__(self, "function", replace(self.function))
        name = getattr(self.function, "__name__", "")
        maker = globals().get(name)
        if callable(maker) and maker is self.function:
            missing = "…" if signature(maker).parameters else ""
            raise BadArgument(f"tl.edits.{name} makes an edit when it is called: write tl.edits.{name}({missing})")
        if not callable(self.function):
            raise BadArgument(
                f"Edit: a {type(self.function).__name__} is neither a function from tensor to tensor nor a value"
            )
        if self.at not in SIDES:
            raise BadArgument(f"Edit: at={self.at!r}; use one of {', '.join(map(repr, SIDES))}")
        for name in ("head", "positions"):
            value = getattr(self, name)
            if not (value is None or (isinstance(value, slice) and name == "positions")):
                object.__setattr__(self, name, _whole_numbers(name, value))
        if not isinstance(self.output, int) or isinstance(self.output, bool) or self.output < 0:
            raise BadArgument(f"Edit: output={self.output!r}; give the number of a tensor, from 0")

    @property
    def text(self) -> str:
        """What it does, as the history says it: "zeroed (head 3)"."""
        text = getattr(self.function, "__name__", "edited")
        text = "edited by a function" if text == "<lambda>" else text
        where = [
            *({"input": ["input"], "gradient": ["gradient"]}.get(self.at, [])),
            *([f"head {', '.join(map(str, self.head))}"] if isinstance(self.head, tuple) else []),
            *([f"positions {_positions_text(self.positions)}"] if self.positions is not None else []),
        ]
        return f"{text} ({'; '.join(where)})" if where else text


def _whole_numbers(name: str, value: Any) -> tuple[int, ...]:
    numbers = value.tolist() if hasattr(value, "tolist") else value
    numbers = (numbers,) if hasattr(numbers, "__index__") else numbers
    try:
        integers = tuple(number.__index__() for number in numbers)
    except (TypeError, AttributeError):
        integers = ()
    if not integers or any(isinstance(number, bool) for number in numbers):
        expected = "a whole number or several" + (", or a slice" if name == "positions" else "")
        raise BadArgument(f"Edit: {name}={value!r}; give {expected}")
    return integers


def _positions_text(positions: Any) -> str:
    if isinstance(positions, slice):
        return ":".join("" if end is None else str(end) for end in (positions.start, positions.stop))
    return ", ".join(map(str, positions))


def _named(text: str, edit: EditFunction) -> EditFunction:
    edit.__name__ = text
    return edit


def replace(value: Any) -> EditFunction:
    """Replace the output by another value: a number, or a tensor of the same shape."""

    def edit(x: Tensor) -> Tensor:
        new = torch.as_tensor(value, dtype=x.dtype, device=x.device)
        if new.ndim and new.shape != x.shape:
            raise BadArgument(
                f"replace: the layer's output has shape {tuple(x.shape)}, the new value {tuple(new.shape)}"
            )
        return new.expand_as(x).clone()

    return _named("replaced", edit)


def zero() -> EditFunction:
    """Set the output to zero."""
    return _named("zeroed", lambda x: torch.zeros_like(x))


def scale(factor: float) -> EditFunction:
    """Multiply the output by a factor."""
    return _named(f"scaled by {factor:g}", lambda x: x * factor)


def noise(std: float = 1.0) -> EditFunction:
    """Add Gaussian noise of standard deviation `std`."""
    return _named(f"noise added, std {std:g}", lambda x: x + torch.randn_like(x) * std)


def steer(direction: Tensor, strength: float = 1.0) -> EditFunction:
    """Add `strength` times a direction, broadcast over the leading dimensions."""
    return _named(f"steered, strength {strength:g}", lambda x: x + direction.to(x) * strength)


def clamp(low: float | None = None, high: float | None = None) -> EditFunction:
    """Clamp the output to the range from `low` to `high`; None leaves a side open."""
    return _named(f"clamped to [{low}, {high}]", lambda x: x.clamp(low, high))


def mean() -> EditFunction:
    """Replace every sample by the batch mean."""
    return _named("replaced by its batch mean", lambda x: x.mean(0, keepdim=True).expand_as(x).clone())


def patch(history: Any, layer: str | int | None = None) -> EditFunction:
    """Replace the output by another history's value of the same layer, or of `layer`."""
    if not hasattr(history, "layer_labels"):
        raise BadArgument(f"patch: a {type(history).__name__} is no history; tl.edits.replace puts a tensor there")

    def edit(x: Tensor, key: Any = layer) -> Tensor:
        if key is None:
            raise BadArgument("patch: name the layer of the other history when the edit is called by hand")
        value = history[key].tensor_contents
        chosen = value[getattr(edit, "output", 0)] if isinstance(value, tuple) else value
        return replace(chosen.detach() if isinstance(chosen, Tensor) else chosen)(x)  # no gradient into the other run

    edit.wants_key = layer is None  # type: ignore[attr-defined]
    edit.takes_whole = True  # type: ignore[attr-defined]
    return _named("patched in from another history", edit)


def of_output(number: int, edit: EditFunction) -> EditFunction:
    """Apply an edit to output `number` of a layer instead of the first: `of_output(1, zero())`."""

    def edit_output(x: Tensor, *key: Any) -> Tensor:
        return edit(x, *key)

    edit_output.output = number  # type: ignore[attr-defined]
    edit_output.wants_key = getattr(edit, "wants_key", False)  # type: ignore[attr-defined]
    edit.output = number  # type: ignore[attr-defined]
    return _named(f"{edit.__name__} (output {number})", edit_output)


def splice(autoencoder: Any, features: EditFunction | None = None, *, keep_error: bool = False) -> EditFunction:
    """Send the value through an autoencoder: any object with `encode` and `decode`, such as one of SAELens.

    - `features`: an edit of what `encode` returns, before it is decoded.
    - `keep_error`: add what the autoencoder misses of the value, so that without `features` nothing changes.
    """
    missing = [name for name in ("encode", "decode") if not callable(getattr(autoencoder, name, None))]
    if missing:
        raise BadArgument(f"splice: a {type(autoencoder).__name__} has no {' and no '.join(missing)}")

    def edit(x: Tensor) -> Tensor:
        kind = next((p.dtype for p in getattr(autoencoder, "parameters", list)()), x.dtype)
        code = autoencoder.encode(x.to(kind))
        decoded = autoencoder.decode(code if features is None else features(code))
        if keep_error:
            decoded = decoded + (x.to(kind) - autoencoder.decode(code))
        return decoded.to(x.dtype)  # type: ignore[no-any-return]

    text = f"sent through {type(autoencoder).__name__}"
    return _named(f"{text}, {getattr(features, '__name__', 'features edited')}" if features else text, edit)


def check(edits: Any) -> dict[Any, list[Edit]]:
    """Check that `edits` is a dict of functions, of `Edit`s, or of lists of them; return these by layer."""
    if not isinstance(edits, Mapping):
        raise BadArgument(f"edits is a {type(edits).__name__}; give a dict such as {{'relu_1': tl.edits.zero()}}")
    return {
        key: [_as_edit(key, edit) for edit in (value if isinstance(value, (list, tuple)) else [value])]
        for key, value in edits.items()
    }


def _as_edit(key: Any, edit: Any) -> Edit:
    if isinstance(edit, Edit):
        return edit
    if not callable(edit):
        raise BadArgument(
            f"edits[{key!r}] is a {type(edit).__name__}; give a function from tensor to tensor, "
            "such as tl.edits.zero(), or a tl.Edit"
        )
    return Edit(edit, output=getattr(edit, "output", 0))
