"""Optimizers in torchtrace's style. Each update follows its formula line by line.

In the formulas $p$ is a parameter, $g$ its gradient, $\\eta$ the learning rate `lr`, $\\lambda$ `weight_decay`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor

from torcheer.autograd.argument_names import also_takes
from torcheer.autograd.tape.nodes import node_of
from torcheer.autograd.tape.torch_grad_off import unrecorded
from torcheer.errors import BadArgument
from torcheer.terminal import did_you_mean

State = dict[str, Any]
required: Any = type("Required", (), {"__repr__": lambda self: "<required parameter>"})()  # a setting without default


class Optimizer:
    """Parameter groups, each with its own settings, and the state of each parameter."""

    def __init__(self, params: Iterable[Any], **defaults: Any) -> None:
        self.defaults = defaults
        self.state: dict[Tensor, State] = {}
        self.param_groups: list[dict[str, Any]] = []
        entries: list[Any] = [params] if isinstance(params, (Tensor, dict)) else list(params)
        if not entries:
            raise BadArgument(
                f"{type(self).__name__} was given no parameters. An empty list, or a generator that was used up: "
                f"write model.parameters() where the optimizer is made"
            )
        for group in entries if isinstance(entries[0], dict) else [{"params": entries}]:
            self.add_param_group(group)

    @also_takes(param_group="group")
    def add_param_group(self, group: dict[str, Any]) -> None:
        """Add parameters with their own settings; settings left out are the optimizer's defaults."""
        if not isinstance(group, dict) or "params" not in group:
            raise BadArgument(f"a group of parameters is {{'params': […], 'lr': …}}, not {type(group).__name__}")
        params = [group["params"]] if isinstance(group["params"], Tensor) else list(group["params"])
        for name in group:
            if name not in self.defaults and name not in ("params", "name"):
                hint = did_you_mean(name, self.defaults) or f" It has {', '.join(self.defaults)}"
                raise BadArgument(f"{type(self).__name__} has no setting {name!r}.{hint}")
        known_ids = {id(param) for old in self.param_groups for param in old["params"]}
        for place, param in enumerate(params):
            self._check(param, place)
            if id(param) in known_ids:
                raise BadArgument(f"parameter {place} of shape {tuple(param.shape)} stands in the optimizer twice")
            known_ids.add(id(param))
        self.param_groups.append({**self.defaults, **group, "params": params})
        if missing := [name for name, value in self.param_groups[-1].items() if value is required]:
            raise BadArgument(f"{type(self).__name__}: a group of parameters needs its own {', '.join(missing)}")
        _check_settings(self.param_groups[-1])

    def _check(self, param: Any, place: int) -> None:
        if not isinstance(param, Tensor):
            raise BadArgument(f"parameter {place} of {type(self).__name__} is {type(param).__name__}, not a tensor")
        if node_of(param) is not None:
            raise BadArgument(
                f"parameter {place} of shape {tuple(param.shape)} was computed from others. Give those to the "
                f"optimizer, or detach().requires_grad_() makes it one of its own"
            )

    def zero_grad(self) -> None:
        """Set all gradients to None: the next backward would add to them."""
        for group in self.param_groups:
            for param in group["params"]:
                param.grad = None

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every parameter that has a gradient.

        An optional `closure` computes the loss first.
        """
        loss = None if closure is None else closure()
        with unrecorded():
            for group in self.param_groups:
                for param in group["params"]:
                    if param.grad is not None:
                        self.update(param, param.grad, self.state.setdefault(param, {}), group)
        return loss

    def update(self, param: Tensor, grad: Tensor, state: State, group: dict[str, Any]) -> None:
        """Update one parameter in place; `state` holds its values from earlier steps."""
        raise NotImplementedError(f"{type(self).__name__} needs an update(self, param, grad, state, group)")

    def state_dict(self) -> dict[str, Any]:
        """Return state and settings; parameters are replaced by their index."""
        order = self._param_indices()
        groups = [{**group, "params": [order[id(param)] for param in group["params"]]} for group in self.param_groups]
        state = {order[id(param)]: values for param, values in self.state.items()}
        return deepcopy({"state": state, "param_groups": groups})

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Restore the result of `state_dict()`."""
        sizes = [[len(group["params"]) for group in groups] for groups in (saved["param_groups"], self.param_groups)]
        if sizes[0] != sizes[1]:
            raise BadArgument(f"the saved optimizer has groups of {sizes[0]} parameters, this one of {sizes[1]}")
        params = [param for group in self.param_groups for param in group["params"]]
        restored = {}
        for number, state in deepcopy(saved["state"]).items():
            param = params[int(number)]
            restored[param] = {name: _convert_like(value, param, name) for name, value in state.items()}
        self.state = restored
        for group, saved_group in zip(self.param_groups, saved["param_groups"]):
            group.update({name: value for name, value in deepcopy(saved_group).items() if name != "params"})

    def _param_indices(self) -> dict[int, int]:
        params = [param for group in self.param_groups for param in group["params"]]
        return {id(param): number for number, param in enumerate(params)}

    def __repr__(self) -> str:
        settings = ", ".join(f"{name}={value}" for name, value in self.defaults.items())
        return f"{type(self).__name__}({len(self._param_indices())} parameters, {settings})"


class SGD(Optimizer):
    r"""$p \mathrel{-}= \eta\, g$; with momentum $m$: $b = m\,b + (1 - d)\, g$, $p \mathrel{-}= \eta\, b$.

    $d$ is `dampening`, and $b$ is $g$ the first time. `nesterov` looks a step ahead: $p \mathrel{-}= \eta\,(g + m\,b)$.
    """

    def __init__(
        self, params: Iterable[Any], lr: float = 1e-3, momentum: float = 0.0, dampening: float = 0.0,
        weight_decay: float = 0.0, nesterov: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(
            params, lr=lr, momentum=momentum, dampening=dampening, weight_decay=weight_decay, nesterov=nesterov
        )

    def update(self, param: Tensor, grad: Tensor, state: State, group: dict[str, Any]) -> None:
        """Step against the gradient."""
        grad = add_weight_decay(grad, param, group)
        momentum = group["momentum"]
        if momentum:
            if "velocity" not in state:
                state["velocity"] = grad.clone()
            else:
                state["velocity"].mul_(momentum).add_(grad, alpha=1 - group["dampening"])
            grad = grad + momentum * state["velocity"] if group["nesterov"] else state["velocity"]
        param.sub_(grad, alpha=group["lr"])


class RMSprop(Optimizer):
    r"""$s = \alpha\, s + (1 - \alpha)\, g^2$, $p \mathrel{-}= \eta\, g / (\sqrt s + \epsilon)$.

    Each number moves faster the smaller its gradients are. `centered` subtracts the squared average gradient from $s$;
    `momentum` $m$ moves by $b = m\,b + g / (\sqrt s + \epsilon)$.
    """

    def __init__(
        self, params: Iterable[Any], lr: float = 1e-2, alpha: float = 0.99, eps: float = 1e-8,
        weight_decay: float = 0.0, momentum: float = 0.0, centered: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(
            params, lr=lr, alpha=alpha, eps=eps, weight_decay=weight_decay, momentum=momentum, centered=centered
        )

    def update(self, param: Tensor, grad: Tensor, state: State, group: dict[str, Any]) -> None:
        """Step against the gradient, divided by its typical size."""
        grad = add_weight_decay(grad, param, group)
        square = running_average(state, "square", grad * grad, group["alpha"])
        if group["centered"]:
            mean = running_average(state, "mean", grad, group["alpha"])
            square = square - mean * mean
        step = grad / (square.sqrt() + group["eps"])
        if group["momentum"]:
            step = state["velocity"] = state.get("velocity", 0.0) * group["momentum"] + step
        param.sub_(step, alpha=group["lr"])


class Adam(Optimizer):
    r"""$p \mathrel{-}= \eta\, \hat m / (\sqrt{\hat v} + \epsilon)$.

    $m = \beta_1 m + (1 - \beta_1)\, g$ is the average gradient, $v = \beta_2 v + (1 - \beta_2)\, g^2$ that of its
    square; $\hat m = m / (1 - \beta_1^t)$ and $\hat v = v / (1 - \beta_2^t)$ make up for the zeros they begin with.
    `amsgrad` takes the largest $v$ so far.
    """

    def __init__(
        self, params: Iterable[Any], lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 0.0, amsgrad: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(params, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, amsgrad=amsgrad)

    def update(self, param: Tensor, grad: Tensor, state: State, group: dict[str, Any]) -> None:
        """Step against the average gradient, divided by its typical size."""
        self.apply_step(param, add_weight_decay(grad, param, group), state, group)

    def apply_step(self, param: Tensor, grad: Tensor, state: State, group: dict[str, Any]) -> None:
        """Update the averages and the parameter, without weight decay."""
        first, second = group["betas"]
        steps = state["steps"] = state.get("steps", 0) + 1
        mean = running_average(state, "mean", grad, first)
        square = running_average(state, "square", grad * grad, second)
        if group["amsgrad"]:
            square = state["largest"] = torch.maximum(state.get("largest", square), square)
        size = (square / (1 - second**steps)).sqrt() + group["eps"]
        param.sub_(mean / (1 - first**steps) / size, alpha=group["lr"])


class AdamW(Adam):
    r"""Adam with $p \mathrel{-}= \eta\,\lambda\, p$ separately: the decay is not divided by the gradient's size."""

    def __init__(
        self, params: Iterable[Any], lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 1e-2, amsgrad: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad)

    def update(self, param: Tensor, grad: Tensor, state: State, group: dict[str, Any]) -> None:
        """Shrink the parameter, then step as Adam does."""
        param.mul_(1 - group["lr"] * group["weight_decay"])
        self.apply_step(param, grad, state, group)


def add_weight_decay(grad: Tensor, param: Tensor, group: dict[str, Any]) -> Tensor:
    r"""$g + \lambda\, p$: add the gradient of $\tfrac\lambda2 p^2$, which pulls towards zero."""
    return grad + group["weight_decay"] * param if group["weight_decay"] else grad


def running_average(state: State, name: str, new: Tensor, keep: float) -> Tensor:
    """Update a running average: `keep` of the old (zero at first), `1 - keep` of the new."""
    if name not in state:
        state[name] = torch.zeros_like(new)
    return state[name].mul_(keep).add_(new, alpha=1 - keep)  # type: ignore[no-any-return]


def _check_settings(group: dict[str, Any]) -> None:
    for name in ("lr", "momentum", "weight_decay", "eps"):
        if group.get(name, 0.0) < 0:
            raise BadArgument(f"{name} is {group[name]}, and it cannot be below zero")
    if not all(0 <= beta < 1 for beta in group.get("betas", ())):
        raise BadArgument(f"betas are {group['betas']}: each says how much of an average stays, from 0 to below 1")
    if group.get("nesterov") and (group["momentum"] <= 0 or group["dampening"] != 0):
        raise BadArgument("nesterov looks ahead along the momentum: it needs momentum above 0 and dampening 0")


def _convert_like(value: Any, param: Tensor, name: str) -> Any:
    """Convert a saved value to the device and dtype of its parameter."""
    if not isinstance(value, Tensor):
        return value
    if value.shape != param.shape:
        raise BadArgument(f"the saved {name} has shape {tuple(value.shape)}, its parameter {tuple(param.shape)}")
    return value.to(param.device, param.dtype)
