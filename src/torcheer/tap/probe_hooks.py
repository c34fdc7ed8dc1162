"""Hook objects on modules and tensors; a module or a tensor has one, however many sinks listen. Copies drop them."""

from __future__ import annotations

import sys
import weakref
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.compiler import is_dynamo_compiling

from torcheer.tap.compiled.gradient_edges import note_edge
from torcheer.tap.device_copies import SharedCopies
from torcheer.tap.tensor_copies import tensors_in

in_backward: Callable[[], int] = torch._C._current_graph_task_id  # not -1 where checkpointing recomputes a pass
_SHARED_COPIES = SharedCopies()


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


BeginPass = Callable[[nn.Module, Any, Any], None]  # the module, its positional and keyword arguments


class PassHook(ProbeHook):
    """Registered on the model all the time: counts down the idle passes, which need no other work."""

    __slots__ = ("_begin", "count", "counter", "end_test", "idle_passes", "in_any_mode", "sees_tests")

    def __init__(self, begin: BeginPass, end_test: Callable[[], None], only_training: bool) -> None:
        self._begin, self.end_test, self.in_any_mode, self.idle_passes = begin, end_test, not only_training, 0
        self.sees_tests = False  # whether the counter must report passes in evaluation mode
        self.count: Callable[[], bool] | None = None  # where a pass is not a step; False: no idle pass
        self.counter: Any = None  # the `PassCounter` that replaces it over many idle passes

    def __call__(self, module: nn.Module, arguments: Any, keywords: Any = None) -> None:
        if not is_dynamo_compiling() and in_backward() < 0:
            self.notice(module, arguments, keywords)

    def notice(self, module: nn.Module, arguments: Any, keywords: Any) -> None:
        """Notice a pass that begins."""
        is_training = module.training  # asked once: of a compiled model it takes three calls
        if is_training:
            self.in_any_mode = False
        if self.idle_passes > 0 and (is_training or self.in_any_mode):  # below zero where two threads count at once
            if self.count is None:
                self.idle_passes -= 1
                return
            if self.count():
                return
        self._begin(module, arguments, keywords)


class ModuleOutput(NamedTuple):
    """What a call of a module was given and returned."""

    module: nn.Module
    arguments: Any
    keywords: Any
    value: Any
    tensors: list[tuple[str, Tensor]]  # in the value, each with its place in it: "", or ".0", ".hidden"


Take = Callable[[str, int, ModuleOutput], None]  # a module's name, the number of its call in this pass, its output
Failed = Callable[[str, Exception], None]


class Listener:
    """One sink at a module, in the passes that it attaches itself for."""

    __slots__ = ("_hook", "_spare_hook", "calls", "earlier_calls", "failed", "name", "take")

    def __init__(self, name: str, take: Take, failed: Failed) -> None:
        self.name, self.take, self.failed = name, take, failed
        self._hook: OutputHook | None = None
        self._spare_hook = OutputHook()  # registered where no other sink has one
        self.earlier_calls = 0  # that the hook had seen for other sinks
        self.calls = 0  # that this one had heard of when it was removed

    def attach(self, module: nn.Module, calls: int = 0) -> None:
        """Listen to a module, through the hook that another sink may have registered; `calls` were before."""
        if self._hook is not None:  # another thread has begun the same step
            return
        hook = self._spare_hook
        for other in module._forward_hooks.values():
            if type(other) is OutputHook:
                hook = other
        if hook is self._spare_hook:
            hook.register(module)
        self._hook, self.earlier_calls = hook, hook.calls - calls
        hook.listeners.append(self)

    def remove(self) -> None:
        """Stop listening; the last one takes the hook off."""
        hook, self._hook = self._hook, None
        if hook is not None:
            self.calls = hook.calls - self.earlier_calls
            hook.listeners.remove(self)
            if not hook.listeners:
                hook.unregister()
            elif hook is self._spare_hook:  # others go on with it
                self._spare_hook = OutputHook()


_REGISTER = nn.Module.register_forward_hook


class OutputHook(ProbeHook):
    """Registered on a module during a pass: hands its output to all who listen."""

    __slots__ = ("calls", "handle", "listeners", "module")

    def __init__(self) -> None:
        self.calls = 0
        self.listeners: list[Listener] = []
        self.module: nn.Module | None = None  # where it is registered
        self.handle: Any = None  # of a module that registers hooks in its own way

    def register(self, module: nn.Module) -> None:
        """Do as `register_forward_hook`, at a tenth of its cost; torch's own keys are small numbers."""
        if type(module).register_forward_hook is not _REGISTER:  # it may refuse, or do more
            self.handle, self.calls = module.register_forward_hook(self, with_kwargs=True), 0
            return
        self.module, self.calls, key = module, 0, id(self)
        module._forward_hooks_with_kwargs[key] = True
        module._forward_hooks[key] = self

    def unregister(self) -> None:
        """Undo `register`."""
        module, handle, self.module, self.handle = self.module, self.handle, None, None
        if handle is not None:
            handle.remove()
        if module is not None:
            module._forward_hooks.pop(id(self), None)
            module._forward_hooks_with_kwargs.pop(id(self), None)

    def __call__(self, module: nn.Module, *call: Any) -> None:
        listeners = self.listeners
        if not listeners or is_dynamo_compiling() or in_backward() >= 0:
            return  # without listeners it was removed, and torch may call it differently
        self.calls += 1
        arguments, keywords, value = call
        with torch._C.DisableTorchFunction():  # keep out of a capture in progress
            try:
                tensors = [("", value)] if isinstance(value, Tensor) else tensors_in(value, "")
            except Exception as error:  # a container of the user's own
                for listener in tuple(listeners):
                    listener.failed(listener.name, error)
                return
            output = ModuleOutput(module, arguments, keywords, value, tensors)
            if len(listeners) == 1:
                self._hand_to(listeners[0], output)
                return
            with _SHARED_COPIES:
                for listener in tuple(listeners):
                    self._hand_to(listener, output)

    def _hand_to(self, listener: Listener, output: ModuleOutput) -> None:
        try:
            listener.take(listener.name, self.calls - listener.earlier_calls, output)
        except Exception as error:  # must not reach the model
            listener.failed(listener.name, error)


class InputHook(ProbeHook):
    """Registered on a model during a pass: hands on the arguments it is called with."""

    __slots__ = ("_failed", "_take")

    def __init__(self, take: Callable[[Any, Any], None], failed: Failed) -> None:
        self._take, self._failed = take, failed

    def __call__(self, module: nn.Module, arguments: Any, keywords: Any = None) -> None:
        if torch.compiler.is_compiling() or in_backward() >= 0:
            return
        try:
            with torch._C.DisableTorchFunction():
                self._take(arguments, keywords)
        except Exception as error:
            self._failed("(input)", error)


class PassEndHook(ProbeHook):
    """Registered on the model during a watched pass: ends it."""

    __slots__ = ("_end",)

    def __init__(self, end: Callable[[], None]) -> None:
        self._end = end

    def __call__(self, module: nn.Module, arguments: Any, output: Any) -> None:
        self._end()


Action = Callable[[Tensor], None]


class GradientHook(ProbeHook):
    """Registered on a tensor: hands its gradient to all who follow it."""

    __slots__ = ("_actions", "_hooks")

    def __init__(self, tensor: Tensor, action: Action) -> None:
        self._actions = [action]
        hooks: Any = tensor._backward_hooks
        if hooks is None:  # as `register_hook` does, in half the time
            hooks = tensor._backward_hooks = OrderedDict()
            if tensor.grad_fn is not None:
                tensor.grad_fn._register_hook_dict(tensor)
        hooks[id(self)] = self  # torch's own keys are small numbers
        self._hooks = weakref.ref(hooks)
        note_edge(tensor)

    @classmethod
    def follow(cls, tensor: Tensor, action: Action) -> GradientHook:
        """Call `action` with the gradient of a tensor as it is now; what is written into it later has another."""
        hooks: Any = tensor._backward_hooks
        if hooks:
            for hook in hooks.values():
                if type(hook) is cls:
                    hook._actions.append(action)
                    return hook
        return cls(tensor, action)

    def remove(self, action: Action) -> None:
        """Do not call an action; the last one takes the hook off."""
        if action in self._actions:
            self._actions.remove(action)
        if not self._actions and (hooks := self._hooks()) is not None:
            hooks.pop(id(self), None)

    def __call__(self, gradient: Tensor | None) -> None:
        actions = self._actions
        if gradient is None or not actions:
            return
        with torch._C.DisableTorchFunction():
            if len(actions) == 1:
                with suppress(Exception):  # one value fewer; autograd must not fail
                    actions[0](gradient)
                return
            with _SHARED_COPIES:
                for action in tuple(actions):
                    with suppress(Exception):
                        action(gradient)


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
