"""Hooks: one on the model that does next to nothing, and those of the chosen layers, for watched passes only."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.compiler import is_dynamo_compiling
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from torcheer.inspector.schedule import Schedule
from torcheer.inspector.selection import Chosen, unwrapped
from torcheer.inspector.sending import Sender
from torcheer.inspector.tensors import tensors_in
from torcheer.inspector.weights import Weights, has_closure

_LOOK_SECS = 0.2  # between two looks at what the child says, where no step is watched


class Probes:
    """Counts the steps of a model and looks at those that are due.

    A step is a pass through the model; where the model itself is not what is called (Lightning's `training_step`, a
    ModuleDict), or an optimizer was given, it is a step of the optimizer, and of its passes the first is watched.
    """

    def __init__(
        self,
        model: nn.Module,
        chosen: Chosen,
        what: Collection[str],
        sender: Sender,
        *,
        schedule: Schedule,
        on_boundary: Callable[[], None],
        optimizer: Optimizer | None = None,
        step_of: Callable[[], int] | None = None,
    ) -> None:
        self._step_of = step_of  # who knows the number of the step; else they are counted here
        self._hook = _Called(self, model.training)
        self._reached, self._passes = -1, 0  # the step at which the hook's quiet ends; passes, where others number them
        self.watched_step = -1
        self._model, self._sender, self._schedule, self._on_boundary = model, sender, schedule, on_boundary
        self._weights = Weights(chosen.parameters, what, sender)
        self._outputs = {name: _Output(self, name) for name in chosen.modules}
        self._modules, self._what, self._optimizer = dict(chosen.modules), frozenset(what), optimizer
        self.only_training = model.training
        self._by_optimizer = optimizer is not None or not is_called(model)
        self._listening = False  # whether the optimizer's next step is of interest
        self._ears = True  # whether any step of an optimizer is
        self._begun = False  # by the optimizer: whether this step has had its first pass
        self._idle, self._attached = list[Any](), list[Any]()
        self._calls: Counter[str] = Counter()
        self._leaves: list[Any] = []  # hooks on tensors that outlive their pass
        self._soon = True  # there is something to do when the next step begins
        self._looked_at, self._looked_step, self._pace = (
            time.monotonic(),
            0,
            0,
        )  # when last, and how many steps until then
        self._began_at = self._ended_at = 0.0  # of the watched step; 0 where unknown
        self._evaluated = False
        self.closed, self._process = False, os.getpid()

    def attach(self) -> None:
        """Begin to count."""
        places = [self._model] if is_called(self._model) else list(_entrances(self._model))
        self._idle = [place.register_forward_pre_hook(self._hook, prepend=True) for place in places]
        # For as long as the watch lasts: torch does not allow hooks to come and go while it calls them.
        if self._optimizer is not None:
            before, after = self._optimizer.register_step_pre_hook, self._optimizer.register_step_post_hook
        else:
            before, after = register_optimizer_step_pre_hook, register_optimizer_step_post_hook
        self._idle += [before(self._optimizer_steps), after(self._optimizer_stepped)]

    # -- counting ----------------------------------------------------------------------------------------------------

    @property
    def step(self) -> int:
        """The step that began last; -1 before the first."""
        return self._reached - self._hook.quiet

    @property
    def count(self) -> int:
        """How many there were."""
        return self.step + 1 if self._step_of is None else self._passes

    def called(self, module: nn.Module) -> None:
        """A pass begins, and is not one of those that were foreseen to need nothing."""
        if torch.compiler.is_compiling() or torch._C._is_tracing():
            return
        if self.only_training and not module.training:
            self._evaluated = True
            return
        if self._by_optimizer:
            if self._begun:
                return
            self._begun = True
        elif self._attached and not self._interrupted():
            return
        self._passes += 1
        step = self.step + 1 if self._step_of is None else self._number(self._step_of)
        self._be_quiet(step, 0)
        if not self.closed and self._process == os.getpid():  # a forked worker has the hook, not the ring
            self._boundary(step)

    def _be_quiet(self, step: int, passes: int) -> None:
        """From this step on, so many more are only counted."""
        self._reached, self._hook.quiet = step + passes, passes
        self._ears = self._listening or self._by_optimizer

    def _number(self, step_of: Callable[[], int]) -> int:
        try:
            return int(step_of())
        except Exception as error:
            self._step_of = None
            self._sender.report(f"step_of failed, steps are counted from here on: {type(error).__name__}: {error}")
            return self.step + 1

    def _interrupted(self) -> bool:
        """Whether the watched pass ended without a word (Ctrl-C); else this is the model calling itself."""
        frame, calls = sys._getframe(), 0
        while frame is not None and calls < 2:
            calls += frame.f_code is _CALL and frame.f_locals.get("self") is self._model
            frame = frame.f_back  # type: ignore[assignment]
        if calls < 2:
            self.end_pass()
        return calls < 2

    def _boundary(self, step: int) -> None:
        """Between two steps, with time for more than counting."""
        now = time.monotonic()
        due = self._schedule.due(step, now)
        if due or self._soon or now - self._looked_at >= _LOOK_SECS:
            self._on_boundary()  # the only thing that may raise: it was asked to end the run
            self._take_pace(step, now)
            with self._sender.guard("a step"), torch._C.DisableTorchFunction():
                self._settle(now)
                if due:
                    self._begin(step, now)
            self._soon = due or self._weights.waiting
        self._be_quiet(step, 0 if self._soon else self._quiet_after(step))

    def _begin(self, step: int, now: float) -> None:
        """Watch a step."""
        self._began_at, self._ended_at, self._evaluated = now, 0.0, False
        self._listening, self.watched_step = True, step
        self._attach_outputs()
        self._weights.begin(step)

    def _take_pace(self, step: int, now: float) -> None:
        """How many steps there are between two looks at what the child says; a sudden change is not trusted."""
        steps = (step - self._looked_step) * _LOOK_SECS / max(now - self._looked_at, 1e-6)
        self._pace = int(min(steps, 2 * self._pace + 1, 1000))
        self._looked_at, self._looked_step = now, step

    def _quiet_after(self, step: int) -> int:
        if self._by_optimizer or self._step_of is not None:
            return 0
        return int(max(min(self._schedule.next_step - step - 1, self._pace), 0))

    def _settle(self, now: float) -> None:
        """Deal with what the last watched step left."""
        self._let_go()
        self._weights.settle()
        self._sender.harvest()
        if self._began_at and self._ended_at and not self._evaluated:
            self._sender.number("step_secs", now - self._began_at, self.watched_step)
            self._sender.number("wait_secs", now - self._ended_at, self.watched_step)
        self._began_at = 0.0

    # -- a watched pass ----------------------------------------------------------------------------------------------

    def _attach_outputs(self) -> None:
        self._calls.clear()
        if not {"output", "grad"} & self._what:
            return
        for name, hook in self._outputs.items():
            self._attached.append(self._modules[name].register_forward_hook(hook))
        if is_called(self._model):
            self._attached.append(self._model.register_forward_hook(_Ended(self), always_call=True))

    @property
    def is_watching(self) -> bool:
        """Whether the step that began last is a watched one."""
        return self.step >= 0 and self.step == self.watched_step

    def end_pass(self) -> None:
        """The modules go back to how they were."""
        attached, self._attached = self._attached, []
        for handle in attached:
            handle.remove()

    def output(self, name: str, value: Any) -> None:
        """A chosen module returned something."""
        self._calls[name] += 1
        label = name if self._calls[name] == 1 else f"{name}:{self._calls[name]}"
        found = [(label, value)] if isinstance(value, Tensor) else tensors_in(value, label)
        for where, tensor in found:
            if "output" in self._what:
                self._sender.send(tensor, where, "output", self.watched_step)
            if tensor.requires_grad and ("grad" in self._what or self._by_optimizer):
                self._follow(tensor, where)

    def _follow(self, tensor: Tensor, where: str) -> None:
        """Be told the gradient. Of the tensor as it is now: what is written into it later has a gradient of its own."""
        follow: Any = tensor.register_hook
        handle = follow(_Gradient(self, where, self.watched_step))
        if tensor.is_leaf:  # it would keep the hook for ever
            self._leaves.append(handle)

    def gradient(self, where: str, step: int, gradient: Tensor) -> None:
        """A gradient arrived, maybe in one of autograd's threads."""
        if self.closed:
            return
        if self._by_optimizer and self._attached:
            self.end_pass()  # further passes of the step are not watched
        if "grad" in self._what:
            self._sender.send(gradient, where, "grad", step)

    def failed(self, name: str, error: Exception) -> None:
        """A probe goes, the others stay."""
        self._outputs.pop(name, None)
        self._sender.report(f"{name} is no longer watched: {type(error).__name__}: {error}")

    def _let_go(self) -> None:
        leaves, self._leaves = self._leaves, []
        for handle in leaves:
            handle.remove()

    # -- the optimizer -----------------------------------------------------------------------------------------------

    def _optimizer_steps(self, optimizer: Optimizer, arguments: Any, keywords: Any) -> None:
        if is_dynamo_compiling() or not self._ears:
            return  # nearly always
        with self._sender.guard("the gradients of the weights"):
            if self._by_optimizer or self.step < 0:
                self._count_step(optimizer, arguments, keywords)
            if self._listening:
                self._weights.stepping(optimizer, arguments, keywords)

    def _count_step(self, optimizer: Optimizer, arguments: Any, keywords: Any) -> None:
        """See to it that a step has begun, also where its pass was not seen or is yet to come, in a closure."""
        if self._begun or not self._weights.concerns(optimizer):
            return
        if not self._by_optimizer:
            if has_closure(arguments, keywords):
                return
            self._by_optimizer = True
            self._sender.report(
                "the model's own call is not seen, as it runs inside compiled code or is not called itself: steps are "
                "those of the optimizer, outputs and gradients may be missing. Watch the compiled model instead"
            )
        self.called(_ALWAYS if self.only_training else self._model)

    def _optimizer_stepped(self, optimizer: Optimizer, arguments: Any, keywords: Any) -> None:
        if is_dynamo_compiling() or not self._ears:
            return
        with self._sender.guard("the updates of the weights"):
            if self._weights.stepped(optimizer):
                self._begun, self._ended_at = False, time.monotonic()
                self._listening = self._weights.unsent
                self._ears = self._listening or self._by_optimizer
                if self._by_optimizer:
                    self.end_pass()

    def close(self) -> None:
        """Take every hook off; send what is still to come."""
        with self._sender.guard("the last step"):
            self.end_pass()
            for handle in self._idle:
                handle.remove()
            if self._process == os.getpid() and not self.closed:
                self._weights.settle()
                self._sender.harvest(wait=True)
            self._let_go()
            self._weights.rest()
        self.closed = True


_CALL = nn.Module._call_impl.__code__
_ALWAYS = nn.Identity()  # stands for a model in training mode


def is_called(model: nn.Module) -> bool:
    """Whether a step goes through the model's own `forward`, as far as one can tell."""
    inner = unwrapped(model)
    if getattr(inner, "_compiled_call_impl", None) is not None:
        return False  # model.compile(): hooks are compiled away with it
    lightning = callable(getattr(inner, "training_step", None)) and inner is model
    return not lightning and type(inner).forward is not nn.Module.forward


def _entrances(model: nn.Module) -> Iterator[nn.Module]:
    """Modules of which the first one to be called begins a step: the model and its topmost parts."""
    yield model
    for part in model.children():
        if type(part).forward is nn.Module.forward:
            yield from _entrances(part)
        else:
            yield part


class _Hook:
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


class _Called(_Hook):
    """On the model all the time, and doing next to nothing: it counts down the passes that need no more."""

    __slots__ = ("_in_any_mode", "_probes", "quiet")

    def __init__(self, probes: Probes, only_training: bool) -> None:
        self._probes, self._in_any_mode, self.quiet = probes, not only_training, 0

    def __call__(self, module: nn.Module, arguments: Any) -> None:
        if is_dynamo_compiling():
            return
        if self.quiet and (module.training or self._in_any_mode):
            self.quiet -= 1
        else:
            self._probes.called(module)


class _Output(_Hook):
    __slots__ = ("_name", "_probes")

    def __init__(self, probes: Probes, name: str) -> None:
        self._probes, self._name = probes, name

    def __call__(self, module: nn.Module, arguments: Any, output: Any) -> None:
        if torch.compiler.is_compiling():
            return
        try:
            with torch._C.DisableTorchFunction():  # a capture in progress is none of ours
                self._probes.output(self._name, output)
        except Exception as error:
            self._probes.failed(self._name, error)


class _Ended(_Hook):
    __slots__ = ("_probes",)

    def __init__(self, probes: Probes) -> None:
        self._probes = probes

    def __call__(self, module: nn.Module, arguments: Any, output: Any) -> None:
        self._probes.end_pass()


class _Gradient(_Hook):
    __slots__ = ("_probes", "_step", "_where")

    def __init__(self, probes: Probes, where: str, step: int) -> None:
        self._probes, self._where, self._step = probes, where, step

    def __call__(self, gradient: Tensor | None) -> None:
        if gradient is not None:
            self._probes.gradient(self._where, self._step, gradient)
