"""Hook objects on modules and tensors that call the probes; copying a model drops them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.compiler import is_dynamo_compiling

if TYPE_CHECKING:
    from torcheer.tap.probes import Probes

in_backward: Callable[[], int] = torch._C._current_graph_task_id  # not -1 where checkpointing recomputes a pass


class ProbeHook:
    """A hook registered on a module; a copy of the module has a `RemovedHook` instead."""

    __slots__ = ("__weakref__",)
    __torch_unserializable__ = True  # torch need not warn

    def __deepcopy__(self, memo: Any) -> RemovedHook:
        return RemovedHook()

    def __reduce__(self) -> tuple[Any, ...]:
        return RemovedHook, ()


class RemovedHook:
    """Replaces our hooks in a copied model: removes itself when first called."""

    def __call__(self, module: nn.Module, *_: Any) -> None:
        for hooks in (module._forward_pre_hooks, module._forward_hooks):
            for number in [number for number, hook in hooks.items() if hook is self]:
                del hooks[number]


class PassHook(ProbeHook):
    """Registered on the model all the time: counts down the idle passes, which need no other work."""

    __slots__ = ("_probes", "count", "counter", "idle_passes", "in_any_mode")

    def __init__(self, probes: Probes, only_training: bool) -> None:
        self._probes, self.in_any_mode, self.idle_passes = probes, not only_training, 0
        self.count: Callable[[], bool] | None = None  # where a pass is not a step; False: no idle pass
        self.counter: Any = None  # the `PassCounter` that replaces it over many idle passes

    def __call__(self, module: nn.Module, arguments: Any) -> None:
        if is_dynamo_compiling() or in_backward() >= 0:
            return
        if module.training:
            self.in_any_mode = False
        if self.idle_passes > 0 and (module.training or self.in_any_mode):  # below zero where two threads count at once
            if self.count is None:
                self.idle_passes -= 1
                return
            if self.count():
                return
        self._probes.begin_pass(module)


class OutputHook(ProbeHook):
    """Registered on a selected module during a watched pass: passes on its output."""

    __slots__ = ("_name", "_probes")

    def __init__(self, probes: Probes, name: str) -> None:
        self._probes, self._name = probes, name

    def __call__(self, module: nn.Module, arguments: Any, output: Any) -> None:
        if torch.compiler.is_compiling() or in_backward() >= 0:
            return
        try:
            with torch._C.DisableTorchFunction():  # keep out of a capture in progress
                if not self._probes.input_checked:
                    self._probes.check_input(self._name, arguments)
                self._probes.output(self._name, output)
        except Exception as error:
            self._probes.drop_layer(self._name, error)


class PassEndHook(ProbeHook):
    """Registered on the model during a watched pass: ends it."""

    __slots__ = ("_probes",)

    def __init__(self, probes: Probes) -> None:
        self._probes = probes

    def __call__(self, module: nn.Module, arguments: Any, output: Any) -> None:
        self._probes.end_pass()


class GradientHook(ProbeHook):
    """Registered on a tensor that a selected module returned: passes on its gradient."""

    __slots__ = ("_probes", "_step", "_where")

    def __init__(self, probes: Probes, where: str, step: int) -> None:
        self._probes, self._where, self._step = probes, where, step

    def __call__(self, gradient: Tensor | None) -> None:
        if gradient is not None:
            self._probes.gradient(self._where, self._step, gradient)


class CarriedGradientHook(ProbeHook):
    """Registered on a parameter between two optimizer steps: what `grad` still holds when a new gradient arrives."""

    __slots__ = ("parameter", "sums")

    def __init__(self, parameter: Tensor) -> None:
        self.parameter = parameter
        self.sums: list[Tensor | None] = []  # of the magnitudes in `grad`, at each backward pass

    def __call__(self, gradient: Tensor) -> None:
        previous = self.parameter.grad
        with torch._C.DisableTorchFunction(), torch.no_grad():
            self.sums.append(None if previous is None else previous.detach().abs().sum())


_CALL = nn.Module._call_impl.__code__


def calls_of(module: nn.Module) -> int:
    """Number of calls of a module in progress, at most two: it may call itself."""
    frame, calls = sys._getframe(), 0
    while frame is not None and calls < 2:
        calls += frame.f_code is _CALL and frame.f_locals.get("self") is module
        frame = frame.f_back  # type: ignore[assignment]
    return calls
