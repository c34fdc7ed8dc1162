"""Find the layers of a model that can be tracked; keep their names as text.

layers = discover(model, torch.rand(1, 3, 224, 224), gradients=True, match="classifier.*")
handler.track_layer(-1, layers)
save_layers(layers, "layers.txt")
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from torcheer.errors import BadArgument, NotAModel, UnknownLayer
from torcheer.selection import class_name, parse_all
from torcheer.terminal import did_you_mean, first_names

Layers = dict[str, nn.Module]
Pick = Callable[[Any], Tensor]


def discover(
    model: nn.Module, inputs: Any = None, *, gradients: bool = False, match: str | Iterable[str] = (),
    pick: Pick | None = None,
) -> Layers:  # fmt: skip
    """The layers of a model by name: all without children; with `inputs`, the innermost that give a tensor.

    `inputs` are a tensor, a tuple or list of arguments, or a dict of named ones; the model is run once on them and left
    as it was. `gradients` keeps the layers whose output gets a gradient from the mean of the model's output, or from
    what `pick` takes out of it. `match` are patterns ("features.*", "Conv2d") of names or types.

    - `model`: any module.
    """
    if inputs is not None:
        layers = run_layers(model, inputs, gradients, pick)[gradients]
    elif gradients:
        raise BadArgument("whether a layer gets a gradient shows only in a run: give inputs too")
    else:
        layers = {name: module for name, module in named(model).items() if next(module.children(), None) is None}
    return _matching(layers, [match] if isinstance(match, str) else list(match))


def save_layers(layers: Iterable[str], path: str | PathLike[str]) -> None:
    """Write names to a text file, one a line.

    - `layers`: names, or a dict by names.
    - `path`: the file to write.
    """
    names = list(layers)
    for name in names:
        if name != name.strip() or not name or "\n" in name or name.startswith("#"):
            raise BadArgument(f"{name!r} cannot stand on a line of its own; give the layer another name")
    Path(path).write_text("".join(f"{name}\n" for name in ("# one layer a line", *names)), encoding="utf-8")


def read_names(path: str | PathLike[str]) -> list[str]:
    """The names in a text file, without comments and empty lines."""
    lines = (line.strip() for line in Path(path).read_text(encoding="utf-8").splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def load_layers(path: str | PathLike[str], model: nn.Module) -> Layers:
    """The layers of `model` that a text file names; PyTorch Inspector's names are understood.

    - `path`: a text file, one name a line.
    """
    names = read_names(path)
    if not names:
        raise BadArgument(f"{path} names no layer; it should have one name a line, such as {next(iter(named(model)))}")
    return find_layers(model, names, f" that {path} asks for")


def find_layers(model: nn.Module, names: Iterable[str], why: str = "") -> Layers:
    """The layers of a model with these names.

    - `model`: any module.
    - `names`: module paths; PyTorch Inspector's names are understood.
    - `why`: who asks, for the error about a name that is not there.
    """
    everything = named(model)
    older = {f"{types}.{name}": name for _, name, _, _, types in describe(model)}
    layers = {}
    for requested in names:
        name = older.get(requested, requested)
        if name not in everything:
            near = did_you_mean(requested, everything) or f" It has {first_names(everything)}."
            raise UnknownLayer(f"{type(model).__name__} has no layer {requested!r}{why}.{near}")
        layers[name] = everything[name]
    return layers


def named(model: nn.Module) -> Layers:
    """Every module of a model by name; the model itself goes by its type."""
    if not isinstance(model, nn.Module):
        raise NotAModel(f"layers are those of an nn.Module, and this is a {type(model).__name__}")
    return {name or type(model).__name__: module for name, module in model.named_modules()}


def first_tensor(output: Any, requires_grad: bool = False) -> Tensor | None:
    """The first tensor that a module returned, however deep in tuples, dicts and dataclasses."""
    if isinstance(output, Tensor):
        return output if output.requires_grad or not requires_grad else None
    inside: Iterable[Any] = ()
    if isinstance(output, Mapping):
        inside = output.values()
    elif isinstance(output, tuple | list):
        inside = output
    elif is_dataclass(output):
        inside = (getattr(output, field.name, None) for field in fields(output))
    return next((tensor for each in inside if (tensor := first_tensor(each, requires_grad)) is not None), None)


def on_gradient(tensor: Any, function: Callable[[Tensor], object]) -> Any:
    """Call a function with the gradient of a tensor when it arrives; what it returns is not used as one."""

    def arrived(gradient: Tensor) -> None:
        function(gradient)

    return tensor.register_hook(arrived)


# Which layers ran


def run_layers(model: nn.Module, inputs: Any, gradients: bool, pick: Pick | None) -> tuple[Layers, Layers]:
    """The innermost modules that gave a tensor, and those of them whose tensor got a gradient.

    Attention that never calls its own children is one of the innermost.
    """
    everything, ran, reached = named(model), set[str](), set[str]()
    with (
        torch.enable_grad() if gradients else torch.no_grad(),
        _state_restored(model),
        _hooked(everything, ran, reached),
    ):
        output = _called(model, inputs)
        if gradients:
            _backward(model, inputs, output, pick)
    root = type(model).__name__
    busy = {above for name in ran for above in _above(name)} | ({root} if len(ran) > 1 else set())
    innermost = {name: module for name, module in everything.items() if name in ran - busy}
    return innermost, {name: module for name, module in innermost.items() if name in reached}


def _above(name: str) -> Iterator[str]:
    while "." in name:
        name = name.rpartition(".")[0]
        yield name


@contextmanager
def _hooked(everything: Layers, ran: set[str], reached: set[str]) -> Iterator[None]:
    """Record whose output is a tensor, and which of those get a gradient."""

    def note(name: str, module: nn.Module, args: Any, output: Any) -> None:
        if first_tensor(output) is not None:
            ran.add(name)
        if torch.is_grad_enabled() and (tensor := first_tensor(output, requires_grad=True)) is not None:
            on_gradient(tensor, lambda _: reached.add(name))

    hookable = {name: module for name, module in everything.items() if not isinstance(module, torch.jit.ScriptModule)}
    handles = [module.register_forward_hook(partial(note, name)) for name, module in hookable.items()]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _called(model: nn.Module, inputs: Any) -> Any:
    if isinstance(inputs, Mapping):
        return model(**inputs)
    return model(*inputs) if isinstance(inputs, tuple | list) else model(inputs)


def _backward(model: nn.Module, inputs: Any, output: Any, pick: Pick | None) -> None:
    """Run a backward pass that changes no `.grad` of the model."""
    start = pick(output) if pick is not None else first_tensor(output, requires_grad=True)
    if not isinstance(start, Tensor) or not start.requires_grad:
        source = "pick gave" if pick is not None else "the model returned"
        raise BadArgument(
            f"{source} no tensor with a gradient; try pick=lambda output: …, or requires_grad on a weight"
        )
    ends: list[Tensor] = [parameter for parameter in model.parameters() if parameter.requires_grad]
    arguments = (
        inputs.values() if isinstance(inputs, Mapping) else inputs if isinstance(inputs, tuple | list) else [inputs]
    )
    ends += [each for each in arguments if isinstance(each, Tensor) and each.requires_grad]
    value = start.abs() if start.is_complex() else start
    torch.autograd.grad(value.mean(), ends, allow_unused=True)


@contextmanager
def _state_restored(model: nn.Module) -> Iterator[None]:
    """Restore buffers (running statistics) and the random state after the block."""
    slots = [(module, name, buffer) for module in model.modules() for name, buffer in module._buffers.items()]
    buffers = [(module, name, buffer, buffer.detach().clone()) for module, name, buffer in slots if buffer is not None]
    devices = {tensor.device for tensor in model.parameters() if tensor.is_cuda}
    with torch.random.fork_rng(devices=sorted(devices, key=str)):
        try:
            yield
        finally:
            with torch.no_grad():
                for module, name, buffer, value in buffers:
                    module._buffers[name] = buffer
                    if not torch.equal(buffer, value):
                        buffer.copy_(value)


# Which of them are wanted


def _matching(layers: Layers, patterns: list[str]) -> Layers:
    names: set[str] = set()
    for selector in parse_all(patterns, layers, "watch"):
        fits = {name for name, module in layers.items() if selector.matches_call(name, 0, class_name(module))}
        if not fits:
            raise UnknownLayer(f"no layer among {len(layers)} fits {selector.key!r}.")
        names |= fits
    return {name: module for name, module in layers.items() if name in names or not patterns}


# PyTorch Inspector's description of the same


Described = tuple[nn.Module, str, str, str, str]


def describe(model: nn.Module, name: str = "", types: str = "") -> list[Described]:
    """Layers without children: module, "features.0", "Conv2d", "features", "AlexNet.Sequential"."""
    children = dict(model.named_children())
    if not children:
        return [(model, name, type(model).__name__, name.rpartition(".")[0], types)]
    below = f"{types}.{type(model).__name__}".lstrip(".")
    return [each for part, child in children.items() for each in describe(child, f"{name}.{part}".lstrip("."), below)]
