"""What hangs on modules and tensors: small objects that tell the probes, and that no copy of a model takes along."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.compiler import is_dynamo_compiling

if TYPE_CHECKING:
    from torcheer.tap.probes import Probes

in_backward: Callable[[], int] = torch._C._current_graph_task_id  # not -1 where a checkpointed pass is run again


class ProbeHook:
    """Something of ours that lies in a module; a copy of the module does without."""

    __slots__ = ("__weakref__",)
    __torch_unserializable__ = True  # torch need not warn

    def __deepcopy__(self, memo: Any) -> Gone:
        return Gone()

    def __reduce__(self) -> tuple[Any, ...]:
        return Gone, ()


class Gone:
    """What a copied model has in place of our hooks: it leaves when it is first called."""

    def __call__(self, module: nn.Module, *_: Any) -> None:
        for hooks in (module._forward_pre_hooks, module._forward_hooks):
            for number in [number for number, hook in hooks.items() if hook is self]:
                del hooks[number]


class Called(ProbeHook):
    """On the model all the time, and doing next to nothing: it counts down the passes that need no more."""

    __slots__ = ("_probes", "count", "in_any_mode", "nap", "quiet")

    def __init__(self, probes: Probes, only_training: bool) -> None:
        self._probes, self.in_any_mode, self.quiet = probes, not only_training, 0
        self.count: Callable[[], bool] | None = None  # where a pass is not a step; False: it was not foreseen
        self.nap: Any = None  # what counts in its place, where there is nothing else to do for long

    def __call__(self, module: nn.Module, arguments: Any) -> None:
        if is_dynamo_compiling() or in_backward() >= 0:
            return
        if module.training:
            self.in_any_mode = False
        if self.quiet > 0 and (module.training or self.in_any_mode):  # less than zero where two threads count at once
            if self.count is None:
                self.quiet -= 1
                return
            if self.count():
                return
        self._probes.called(module)


class Output(ProbeHook):
    """On a chosen module, while a pass is watched: what it returns."""

    __slots__ = ("_name", "_probes")

    def __init__(self, probes: Probes, name: str) -> None:
        self._probes, self._name = probes, name

    def __call__(self, module: nn.Module, arguments: Any, output: Any) -> None:
        if torch.compiler.is_compiling() or in_backward() >= 0:
            return
        try:
            with torch._C.DisableTorchFunction():  # a capture in progress is none of ours
                if not self._probes.entered:
                    self._probes.enter(self._name, arguments)
                self._probes.output(self._name, output)
        except Exception as error:
            self._probes.failed(self._name, error)


class Ended(ProbeHook):
    """On the model, while a pass is watched: that is over."""

    __slots__ = ("_probes",)

    def __init__(self, probes: Probes) -> None:
        self._probes = probes

    def __call__(self, module: nn.Module, arguments: Any, output: Any) -> None:
        self._probes.end_pass()


class Gradient(ProbeHook):
    """On a tensor that a chosen module returned."""

    __slots__ = ("_probes", "_step", "_where")

    def __init__(self, probes: Probes, where: str, step: int) -> None:
        self._probes, self._where, self._step = probes, where, step

    def __call__(self, gradient: Tensor | None) -> None:
        if gradient is not None:
            self._probes.gradient(self._where, self._step, gradient)


class Carried(ProbeHook):
    """On a parameter, from an optimizer's step to its next: what its gradient still has when another comes."""

    __slots__ = ("_parameter", "sums")

    def __init__(self, parameter: Tensor) -> None:
        self._parameter = parameter
        self.sums: list[Tensor | None] = []  # of the sizes of its numbers, at each backward pass

    def __call__(self, gradient: Tensor) -> None:
        carried = self._parameter.grad
        with torch._C.DisableTorchFunction(), torch.no_grad():
            self.sums.append(None if carried is None else carried.detach().abs().sum())


_CALL = nn.Module._call_impl.__code__


def calls_of(module: nn.Module) -> int:
    """How many calls of a module are going on now, as far as two: it may call itself."""
    frame, calls = sys._getframe(), 0
    while frame is not None and calls < 2:
        calls += frame.f_code is _CALL and frame.f_locals.get("self") is module
        frame = frame.f_back  # type: ignore[assignment]
    return calls
