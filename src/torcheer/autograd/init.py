"""Numbers to begin with: each function fills a tensor in place and returns it."""

from __future__ import annotations

from math import sqrt
from typing import Any

from torch import Tensor

from torcheer.autograd.tape.torch_grad_off import unrecorded
from torcheer.errors import BadArgument

# How much a signal's size shrinks in each: what is multiplied back.
GAINS = {"linear": 1.0, "conv2d": 1.0, "sigmoid": 1.0, "tanh": 5 / 3, "relu": sqrt(2), "selu": 3 / 4}


def uniform_(tensor: Any, a: float = 0.0, b: float = 1.0) -> Any:
    """Any number between `a` and `b`, all as likely."""
    with unrecorded():
        return tensor.uniform_(a, b)


def normal_(tensor: Any, mean: float = 0.0, std: float = 1.0) -> Any:
    """Numbers around `mean`, most within `std` of it."""
    with unrecorded():
        return tensor.normal_(mean, std)


def xavier_uniform_(tensor: Any, gain: float = 1.0) -> Any:
    r"""Between $\pm g\sqrt{6 / (n_\text{in} + n_\text{out})}$: keeps sizes both forward and backward, half and half."""
    bound = gain * sqrt(6 / sum(calculate_fan(tensor)))
    return uniform_(tensor, -bound, bound)


def xavier_normal_(tensor: Any, gain: float = 1.0) -> Any:
    r"""Around 0 by $g\sqrt{2 / (n_\text{in} + n_\text{out})}$."""
    return normal_(tensor, 0.0, gain * sqrt(2 / sum(calculate_fan(tensor))))


def kaiming_uniform_(tensor: Any, a: float = 0.0, mode: str = "fan_in", nonlinearity: str = "leaky_relu") -> Any:
    r"""Between $\pm g\sqrt{3 / n}$: a relu drops half of what passes, and $g$ makes up for it."""
    bound = sqrt(3) * _spread(tensor, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound)


def kaiming_normal_(tensor: Any, a: float = 0.0, mode: str = "fan_in", nonlinearity: str = "leaky_relu") -> Any:
    r"""Around 0 by $g / \sqrt n$."""
    return normal_(tensor, 0.0, _spread(tensor, a, mode, nonlinearity))


def calculate_fan(tensor: Tensor) -> tuple[int, int]:
    """How many inputs go into one output, and how many outputs one input goes to."""
    if tensor.dim() < 2:
        raise BadArgument(
            f"calculate_fan: a weight of shape {tuple(tensor.shape)} joins no inputs to outputs; it takes at least two "
            f"axes. uniform_ and normal_ fill tensors of any shape"
        )
    field = tensor[0][0].numel()
    return tensor.shape[1] * field, tensor.shape[0] * field


def calculate_gain(nonlinearity: str, a: float = 0.01) -> float:
    """By how much a signal shrinks in a nonlinearity."""
    if nonlinearity == "leaky_relu":
        return sqrt(2 / (1 + a * a))
    if nonlinearity not in GAINS:
        known = ", ".join(["leaky_relu", *GAINS])
        raise BadArgument(f"no gain is known for {nonlinearity!r}; there are {known}")
    return GAINS[nonlinearity]


def _spread(tensor: Tensor, a: float, mode: str, nonlinearity: str) -> float:
    if mode not in ("fan_in", "fan_out"):
        raise BadArgument(f"mode is 'fan_in' (sizes stay forward) or 'fan_out' (backward), not {mode!r}")
    fan = calculate_fan(tensor)[0 if mode == "fan_in" else 1]
    return calculate_gain(nonlinearity, a) / sqrt(fan)
