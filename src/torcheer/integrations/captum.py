"""captum's attributions as a variable of layers, beside their values and gradients."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

from torcheer.capture import log_forward_pass
from torcheer.errors import BadArgument
from torcheer.history import ModelHistory
from torcheer.tap.module_selection import choose
from torcheer.terminal import did_you_mean

__all__ = ["attribute"]


def attribute(
    model: nn.Module, inputs: Any, target: Any = None, *, method: Any = "LayerGradientXActivation", layers: Any = None,
    history: ModelHistory | None = None, name: str = "", **options: Any,
) -> ModelHistory:  # fmt: skip
    """Attribute an output of a model to its layers with captum; the history has it as a variable of each.

    history = attribute(model, x, target=3, layers=["conv1", "fc"])
    history["conv1"].variables["GradientXActivation"]; tl.show(history)

    - `inputs`: a tensor, or a tuple of arguments. - `target`: which output: a class, or whatever captum takes
    - `method`: a layer method of captum, by name ("LayerIntegratedGradients", "LayerConductance", "LayerDeepLift", …)
      or as its class
    - `layers`: modules, as `tl.watch` takes them; None for every one that computes and is called once
    - `history`: a recorded pass of the same inputs to add it to; recorded here by default
    - `name`: of the variable; the method's without "Layer" by default
    - `options`: of captum's `attribute`: `n_steps`, `baselines`, `additional_forward_args`, …

    Attributions with one channel or one position where the output has several (LayerGradCam) are repeated.
    """
    made = _method(method)
    history = log_forward_pass(model, inputs) if history is None else history
    values = {}
    for path in choose(model, layers, "attribute").modules:
        index = _output(history, path)
        if index is None:
            if layers is not None:
                raise BadArgument(f"attribute: {path!r} has no single output in this pass: it is called several times, "
                                  "not at all, or returns several tensors")  # fmt: skip
            continue
        found = made(model, model.get_submodule(path)).attribute(inputs, target=target, **options)
        values[index] = _fitted(found, history[index].shape, path)
    if not values:
        raise BadArgument("attribute: no layer of this model has a single output; name some with layers=")
    history.add_variable(name or made.__name__.removeprefix("Layer"), values)
    return history


def _method(method: Any) -> Any:
    if find_spec("captum") is None:
        raise BadArgument("torcheer.integrations.captum needs captum: pip install captum")
    from captum import attr

    if isinstance(method, str):
        names = [each for each in dir(attr) if each.startswith("Layer") and each not in ("LayerAttribution", "Layer")]
        if method not in names:
            raise BadArgument(f"captum has no layer method {method!r}; it has {', '.join(names)}."
                              f"{did_you_mean(method, names)}")  # fmt: skip
        method = getattr(attr, method)
    if not isinstance(method, type) or not issubclass(method, attr.LayerAttribution):
        raise BadArgument(f"method={method!r} is no layer method of captum, which attributes to the units of a layer")
    return method


def _output(history: ModelHistory, path: str) -> int | None:
    """The operation that made what a module returned, if that is one tensor of one call."""
    if path not in history.modules or history.modules[path].calls != 1:
        return None
    outputs = history.modules[path].outputs
    indices = {value.parent for value in _run(history, path)}
    return indices.pop() if len(outputs) == 1 and len(indices) == 1 else None


def _run(history: ModelHistory, path: str) -> Any:
    return next(run.outputs for run in history.trace.runs() if run.call.address == path)


def _fitted(found: Any, shape: tuple[int, ...], path: str) -> Tensor:
    if isinstance(found, tuple | list) and len(found) == 1:
        found = found[0]
    if isinstance(found, Tensor):
        try:
            return torch.broadcast_to(found.detach(), shape).contiguous()
        except RuntimeError:
            pass
    there = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
    raise BadArgument(f"attribute: what captum gives for {path!r} is {there}, and the layer's output {tuple(shape)}")
