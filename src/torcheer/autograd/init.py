"""Initial weights: each function fills a tensor in place and returns it."""

from __future__ import annotations

from math import sqrt
from typing import Any

from torch import Tensor

from torcheer.autograd.argument_names import also_takes
from torcheer.autograd.tape.torch_grad_off import unrecorded
from torcheer.errors import BadArgument
from torcheer.terminal import met_difference

# Factors that make up for how much each nonlinearity shrinks a signal.
GAINS = {"linear": 1.0, "conv2d": 1.0, "sigmoid": 1.0, "tanh": 5 / 3, "relu": sqrt(2), "selu": 3 / 4}


@also_takes(weight="tensor")
def uniform_(tensor: Any, a: Any = 0.0, b: float = 1.0, bounds: Any = None) -> Any:
    """Fill with uniform samples between `a` and `b`, which torchtrace gives together as `bounds`."""
    if isinstance(a, (list, tuple)):
        bounds = a
    a, b = (a, b) if bounds is None else bounds
    with unrecorded():
        return tensor.uniform_(a, b)


@also_takes(weight="tensor", loc="mean")
def normal_(tensor: Any, mean: float = 0.0, std: float = 1.0) -> Any:
    """Fill with normal samples of the given mean and standard deviation."""
    with unrecorded():
        return tensor.normal_(mean, std)


def xavier_uniform_(tensor: Any, gain: float = 1.0) -> Any:
    r"""Fill uniformly between $\pm g\sqrt{6 / (n_\text{in} + n_\text{out})}$.

    A compromise between keeping the size of the signal forward and that of the gradient backward.
    """
    bound = gain * sqrt(6 / sum(calculate_fan(tensor)))
    return uniform_(tensor, -bound, bound)


def xavier_normal_(tensor: Any, gain: float = 1.0) -> Any:
    r"""Fill with normal samples of standard deviation $g\sqrt{2 / (n_\text{in} + n_\text{out})}$."""
    return normal_(tensor, 0.0, gain * sqrt(2 / sum(calculate_fan(tensor))))


@also_takes(weight="tensor")
def kaiming_uniform_(
    tensor: Any, a: float | None = None, mode: str = "fan_in", nonlinearity: str = "leaky_relu", k: int | None = None
) -> Any:
    r"""Fill uniformly between $\pm g\sqrt{3 / n}$: a relu drops half of the signal, and $g$ makes up for it.

    `k` is $n$ where the tensor's shape does not say it, as that of a bias; then `a` is $\sqrt 5$ unless given.
    """
    a = _slope(a, k, sqrt(5))
    bound = sqrt(3) * _standard_deviation(tensor, a, mode, nonlinearity, k)
    return uniform_(tensor, -bound, bound)


@also_takes(weight="tensor")
def kaiming_normal_(
    tensor: Any, a: float | None = None, mode: str = "fan_in", nonlinearity: str = "leaky_relu", k: int | None = None
) -> Any:
    r"""Fill with normal samples of standard deviation $g / \sqrt n$.

    `k` is $n$ where the tensor's shape does not say it, as that of a bias; then `a` is 1 unless given.
    """
    return normal_(tensor, 0.0, _standard_deviation(tensor, _slope(a, k, 1.0), mode, nonlinearity, k))


@also_takes(weight="tensor")
def calculate_fan(tensor: Tensor) -> tuple[int, int]:
    """Return the number of inputs per output, and of outputs per input."""
    if tensor.dim() < 2:
        raise BadArgument(
            f"calculate_fan: a weight of shape {tuple(tensor.shape)} joins no inputs to outputs; it takes at least two "
            f"axes. uniform_ and normal_ fill tensors of any shape"
        )
    field = tensor[0][0].numel()
    return tensor.shape[1] * field, tensor.shape[0] * field


def calculate_gain(nonlinearity: str, a: float = 0.01) -> float:
    """Return the factor that makes up for how much a nonlinearity shrinks a signal."""
    if nonlinearity == "leaky_relu":
        return sqrt(2 / (1 + a * a))
    if nonlinearity not in GAINS:
        names = ", ".join(["leaky_relu", *GAINS])
        raise BadArgument(f"no gain is known for {nonlinearity!r}; there are {names}")
    return GAINS[nonlinearity]


def _slope(a: float | None, k: int | None, torchtraces: float) -> float:
    """Return `a`, or what it is by default: torchtrace's with its `k`, else torch's."""
    if a is None and k is None:
        met_difference("torchtrace", "kaiming")
    return (torchtraces if k else 0.0) if a is None else a


def _standard_deviation(tensor: Tensor, a: float, mode: str, nonlinearity: str, k: int | None) -> float:
    if mode not in ("fan_in", "fan_out"):
        raise BadArgument(f"mode is 'fan_in' (sizes stay forward) or 'fan_out' (backward), not {mode!r}")
    fan = k or calculate_fan(tensor)[0 if mode == "fan_in" else 1]
    return calculate_gain(nonlinearity, a) / sqrt(fan)
