"""Layers and models in torchtrace's style; each is a small `Operator`, to read and to copy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from math import prod
from operator import attrgetter
from typing import Any

import torch
from torch.nn import functional

from torcheer.autograd import init
from torcheer.autograd.argument_names import also_takes
from torcheer.autograd.base import Input, Operator
from torcheer.autograd.losses import BCE, MSE, BCEWithLogits, CrossEntropy, Huber
from torcheer.autograd.tape.tape import current
from torcheer.autograd.tape.traced_tensor import tracer
from torcheer.errors import WrongInputs
from torcheer.terminal import met_difference

__all__ = [
    "BCE", "MSE", "BCEWithLogits", "Conv2d", "CrossEntropy", "Gather_last", "Huber", "Input", "Linear", "Model",
    "Operator", "ReLU", "Sequential", "Sum", "View",
]  # fmt: skip


# Layers


def as_pair(size: Any) -> tuple[int, int]:
    """Return height and width: one number stands for both."""
    return (size, size) if isinstance(size, int) else tuple(size)


def with_type_of(weight: Any, x: Any) -> Any:
    """Convert an input to the type of the weights, as torchtrace does."""
    return x if x.dtype == weight.dtype else x.to(weight.dtype)


def make_weight(shape: tuple[int, ...], bound: float, name: str) -> tracer:
    """Return a leaf with uniform samples between `-bound` and `bound`."""
    weight = tracer(init.uniform_(torch.empty(shape), -bound, bound), requires_grad=True)
    weight.name = name
    return weight


class Linear(Operator):
    r"""$y = x W^\top + b$ over the last axis; any number of axes may come before it.

    - `in_features`: size of the last axis of the input.
    - `out_features`: size of the last axis of the result.
    - `bias`: add a learned `b`.
    """

    in_shape = property(attrgetter("in_features"))
    out_shape = property(attrgetter("out_features"))

    @also_takes(in_shape="in_features", out_shape="out_features")
    def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:
        self.in_features, self.out_features = in_features, out_features
        bound = max(in_features, 1) ** -0.5
        self.weight = make_weight((out_features, in_features), bound, "weight")
        self.bias = make_weight((out_features,), bound, "bias") if bias else None
        self._name = f"Linear layer ({in_features} X {out_features})"

    def forward(self, x: Any) -> Any:
        """Apply the linear map."""
        if x.dim() > 2:
            met_difference("torchtrace", "linear gradient")
        try:
            return functional.linear(with_type_of(self.weight, x), self.weight, self.bias)
        except RuntimeError as problem:
            shape = tuple(x.shape)
            if shape[-1:] == (self.in_features,):
                raise
            raise WrongInputs(
                f"{self} takes {self.in_features} features in the last axis, and was given shape {shape}. "
                f"Use View(…) before it, or Linear({shape[-1] if shape else 1}, {self.out_features})"
            ) from problem


class Conv2d(Operator):
    """A 2D convolution: a small window of weights, moved over an image.

    - `in_channels`: channels of the image.
    - `filters`: channels of the result.
    - `kernel_size`: height and width of the window, or one number for both.
    - `stride`: how far it moves each time.
    - `padding`: zeros around the image.
    - `bias`: add a learned number to each channel.
    """

    in_channel = property(attrgetter("in_channels"))
    out_channel = property(attrgetter("out_channels"))
    kernel = property(attrgetter("kernel_size"))
    filters = property(attrgetter("weight"))

    @also_takes(in_channel="in_channels")
    def __init__(
        self, in_channels: int, filters: int, kernel_size: Any, stride: Any = 1, padding: Any = 0, bias: bool = True
    ) -> None:
        self.in_channels, self.out_channels = in_channels, filters
        self.kernel_size, self.stride = as_pair(kernel_size), as_pair(stride)
        self.padding = padding if isinstance(padding, str) else as_pair(padding)
        bound = max(in_channels * prod(self.kernel_size), 1) ** -0.5
        self.weight = make_weight((filters, in_channels, *self.kernel_size), bound, "weight")
        self.bias = make_weight((filters,), bound, "bias") if bias else None
        self._name = f"Conv2d {in_channels} -> {filters}"
        met_difference("torchtrace", "conv weights")
        if self.stride != (1, 1):
            met_difference("torchtrace", "conv gradient")

    def forward(self, x: Any) -> Any:
        """Apply the window at every position of the image."""
        try:
            return functional.conv2d(with_type_of(self.weight, x), self.weight, self.bias, self.stride, self.padding)
        except RuntimeError as problem:
            shape = tuple(x.shape)
            if len(shape) in (3, 4) and shape[-3] == self.in_channels:
                raise
            raise WrongInputs(
                f"{self} takes images as (batch, {self.in_channels}, height, width), and was given shape {shape}. "
                + self._hint(shape)
            ) from problem

    def _hint(self, shape: tuple[int, ...]) -> str:
        if len(shape) in (3, 4):
            if shape[-1] == self.in_channels:
                return "If the channels stand last, move them with x.movedim(-1, -3)"
            return f"Conv2d({shape[-3]}, …) would take it"
        return f"View(-1, {self.in_channels}, height, width) makes images of it"

    def line(self, output_shape: torch.Size, input_shape: torch.Size) -> str:
        """Return its line with the shapes of the gradients of its result and its input."""
        return f"{self}   GRAD:{output_shape} -> {input_shape}"


class ReLU(Operator):
    r"""$y = \max(x, 0)$."""

    def forward(self, x: Any) -> Any:
        """Set negative entries to zero."""
        return torch.relu(x)


class Sum(Operator):
    """The sum of all elements, as a tensor of one element."""

    ends_chain = True

    def forward(self, x: Any) -> Any:
        """Sum all elements."""
        return (x if x.dim() == 1 else x.reshape(-1)).sum(0, keepdim=True)


class View(Operator):
    """The same numbers in another shape; -1 stands for the remaining size."""

    to_shape = property(attrgetter("shape"))

    def __init__(self, *shape: Any) -> None:
        self.shape = tuple(shape[0]) if len(shape) == 1 and not isinstance(shape[0], int) else shape
        self._name = f"View({self.shape})"

    def forward(self, x: Any) -> Any:
        """Reshape the tensor."""
        return x.reshape(self.shape)


class Gather_last(Operator):
    """One entry of each row, at the column in `where`: (N, M) becomes (N, 1).

    - `where`: a column for each row; whole numbers, also as floats.
    """

    _name = "Gather()"

    def __init__(self, where: Any) -> None:
        self.where = _whole(torch.as_tensor(where))

    @property
    def index(self) -> Any:
        """The numbers of the rows."""
        return torch.arange(len(self.where))

    def forward(self, x: Any) -> Any:
        """Gather one entry of each row."""
        where = self.where.detach().to(x.device)
        where = where.reshape(*x.shape[:-1], 1) if where.numel() * x.shape[-1] == x.numel() else where
        if where.shape != (*x.shape[:-1], 1) or where.is_floating_point():
            raise WrongInputs(
                f"Gather takes one whole number for each of the {prod(x.shape[:-1])} rows of {tuple(x.shape)}, and was "
                f"given {self.where.dtype} of shape {tuple(self.where.shape)}"
            )
        return x.gather(-1, where.long())


def _whole(where: torch.Tensor) -> torch.Tensor:
    """Convert columns given as floats, where they are whole numbers."""
    return where.long() if where.is_floating_point() and bool((where == where.round()).all()) else where


# Models


class _Ops:
    """`model.ops`: what `construct` returned, called once until another layer is assigned; may be assigned itself."""

    def __get__(self, model: Model, kind: type[Model]) -> Any:
        if model is None:
            return self
        if kind.construct is Model.construct:
            return model.construct()
        if "_constructed" not in vars(model):  # it may make its layers there and then
            model._constructed = model.construct()
            model.check()
        return model._constructed


class Model(Operator):
    """A model: assign layers as attributes, list them in `construct()`, use them in `forward`.

    Without `construct` all layers among the attributes count; without `forward` they run one after the other. Calling
    `super().__init__()` is optional.
    """

    def construct(self) -> Any:
        """Return the layers, in the order in which they print."""
        return list(super().parts())

    ops: Any = _Ops()
    _constructed: Any

    @property
    def input_layer(self) -> Input:
        """The layer that makes tracers of inputs; every layer does so itself."""
        return Input()

    def check(self) -> None:
        """Refuse a layer that cannot be called."""
        for place, op in enumerate(self.ops):
            if not callable(op):
                raise WrongInputs(
                    f"{type(self).__name__}: number {place} is {op!r}, which cannot be called with a tensor"
                )

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if callable(value):
            vars(self).pop("_constructed", None)  # another layer: construct() may return it

    def parts(self) -> Iterable[Any]:
        """Return the layers of `construct` that have parameters."""
        return [part for part in self.ops if hasattr(part, "parameters")]

    def forward(self, x: Any) -> Any:
        """Pass `x` through each layer in turn."""
        for op in self.ops:
            x = op(x)
        return x

    def _run(self, forward: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        if not torch.is_grad_enabled():
            return tracer.wrap(forward(*args, **kwargs))
        with current().on():  # torch modules inside are traced as well; no scope, so that the layers are shown
            return tracer.wrap(forward(*args, **kwargs))

    def __str__(self) -> str:
        lines = [f"({place}):{part!r}" for place, part in enumerate(self.ops)]
        inner = "\n".join(lines).replace("\n", "\n    ")
        return f"{self._name or 'Sequence'}(\n    {inner}\n)" if lines else f"{self._name or 'Sequence'}()"


class Sequential(Model):
    """Layers that run one after the other."""

    def __init__(self, *ops: Any) -> None:
        self.ops = list(ops[0]) if len(ops) == 1 and isinstance(ops[0], (list, tuple)) else list(ops)
        self.check()

    @property
    def args(self) -> tuple[Any, ...]:
        """The layers."""
        return tuple(self.ops)

    def construct(self) -> Any:
        """Return the layers."""
        return self.ops

    def __len__(self) -> int:
        return len(self.ops)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.ops)

    def __getitem__(self, place: Any) -> Any:
        return Sequential(*self.ops[place]) if isinstance(place, slice) else self.ops[place]
