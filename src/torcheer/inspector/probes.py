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

from torcheer.inspector.hooks import Called, Ended, Gradient, Output
from torcheer.inspector.napping import Nap
from torcheer.inspector.schedule import Schedule
from torcheer.inspector.selection import Chosen, unwrapped
from torcheer.inspector.sending import Sender
from torcheer.inspector.tensors import tensors_in
from torcheer.inspector.weights import Weights, has_closure

_NAP_PASSES = 4  # for fewer it is not worth the change
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
        self._hook = Called(self, model.training)
        self._reached, self._passes = -1, 0  # the step at which the hook's quiet ends; passes, where others number them
        self.watched_step = -1
        self._model, self._sender, self._schedule, self._on_boundary = model, sender, schedule, on_boundary
        self._weights = Weights(chosen.parameters, what, sender, model.parameters())
        self._owners: dict[int, set[int]] = {}  # the modules that hold a parameter, all by their ids
        for module in model.modules():
            for parameter in module._parameters.values():
                self._owners.setdefault(id(parameter), set()).add(id(module))
        self._outputs = {name: Output(self, name) for name in chosen.modules}
        self._modules, self._what, self._optimizer = dict(chosen.modules), frozenset(what), optimizer
        self._by_optimizer = optimizer is not None or not is_called(model)
        self._listening = False  # whether the optimizer's next step is of interest
        self._ears = True  # whether any step of an optimizer is
        self._begun = False  # by the optimizer: whether this step has had its first pass
        self._idle, self._attached, self._entries = list[Any](), list[Any](), list[Any]()
        self._naps = is_called(model)
        self._calls: Counter[str] = Counter()
        self._leaves: list[Any] = []  # hooks on tensors that outlive their pass
        self._soon = True  # there is something to do when the next step begins
        self._looked_at, self._looked_step, self._pace = (
            time.monotonic(),
            0,
            0,
        )  # when last, and how many steps until then
        self._began_at = self._ended_at = 0.0  # of the watched step; 0 where unknown
        self._evaluated, self._differentiates = False, True
        self.closed, self._process = False, os.getpid()

    def attach(self) -> None:
        """Begin to count."""
        self._wake()
        # For as long as the watch lasts: torch does not allow hooks to come and go while it calls them.
        # And of all optimizers: beside the one that counts the steps, others may move weights of the model.
        self._idle = [
            register_optimizer_step_pre_hook(self._optimizer_steps),
            register_optimizer_step_post_hook(self._optimizer_stepped),
        ]

    def _wake(self) -> None:
        """Have the hook count the passes."""
        self._leave()
        places = [self._model] if is_called(self._model) else list(_entrances(self._model))
        self._entries = [place.register_forward_pre_hook(self._hook, prepend=True) for place in places]

    def _sleep(self) -> None:
        """Have something cheaper count them, until the hook's quiet is over."""
        if self._hook.quiet >= _NAP_PASSES and self._naps and Nap.fits(self._model):
            self._leave()
            self._hook.nap = Nap(self._model, self._hook, self._wake)

    def _leave(self) -> None:
        nap, self._hook.nap = self._hook.nap, None
        if nap is not None:
            nap.end()
        entries, self._entries = self._entries, []
        for handle in entries:
            handle.remove()

    # -- counting ----------------------------------------------------------------------------------------------------

    @property
    def step(self) -> int:
        """The step that began last; -1 before the first."""
        return self._reached - self._hook.quiet

    @property
    def now(self) -> int:
        """The number of the step that began last, or is to begin first."""
        if self.step < 0 and self._step_of is not None:
            return self._number(self._step_of)
        return max(self.step, 0)

    @property
    def count(self) -> int:
        """How many there were."""
        return self.step + 1 if self._step_of is None else self._passes

    @property
    def only_training(self) -> bool:
        """Whether passes in evaluation mode are left out: from the first one in training mode on."""
        return not self._hook.in_any_mode

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
            self._naps = self._naps and module is self._model  # not a replica of it on another GPU
            self._sleep()

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
        self._listening, self.watched_step, self._differentiates = True, step, torch.is_grad_enabled()
        self._leave_out_what_is_gone()
        self._attach_outputs()
        self._weights.begin(step)

    def _leave_out_what_is_gone(self) -> None:
        """A layer that was replaced has values, but they are no longer the model's."""
        here = set(map(id, self._model.modules()))  # by modules: their parameters may be others for a while (FSDP)
        gone = [name for name in self._outputs if id(self._modules[name]) not in here]
        for name in gone:
            del self._outputs[name]
        homeless = {number for number, owners in self._owners.items() if not owners & here}
        if gone := [*gone, *self._weights.leave_out(homeless)]:
            self._sender.report(
                f"{', '.join(gone[:3])}{', …' if len(gone) > 3 else ''}: no longer part of the model; what is there "
                "instead is not watched. Begin another watch"
            )

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
        for name, hook in list(self._outputs.items()):
            try:
                self._attached.append(self._modules[name].register_forward_hook(hook))
            except Exception as error:  # a module that takes no hooks; the others do
                self.failed(name, error)
        if is_called(self._model):
            self._attached.append(self._model.register_forward_hook(Ended(self), always_call=True))

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
            if where in self._modules and where != label:  # a part of that name has values of its own
                where = f"{label}[{where[len(label) + 1 :]}]"
            if "output" in self._what:
                self._sender.send(tensor, where, "output", self.watched_step)
            if tensor.requires_grad and ("grad" in self._what or self._by_optimizer):
                self._follow(tensor, where)
            elif self._differentiates and "grad" in self._what and not torch.is_grad_enabled():
                self._say_what_is_cut_off(name)

    def _say_what_is_cut_off(self, name: str) -> None:
        """Layers that are trained, but not by way of what they returned here."""
        if any(parameter.requires_grad for parameter in self._modules[name].parameters()):
            self._differentiates = False  # once is enough
            self._sender.report(
                f"{name} runs without gradients inside the model (checkpoint with use_reentrant=True, or no_grad): "
                "its own are not seen; use_reentrant=False shows them"
            )

    def _follow(self, tensor: Tensor, where: str) -> None:
        """Be told the gradient. Of the tensor as it is now: what is written into it later has a gradient of its own."""
        follow: Any = tensor.register_hook
        handle = follow(Gradient(self, where, self.watched_step))
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
        if not self._ears or is_dynamo_compiling():
            return  # nearly always
        with self._sender.guard("the gradients of the weights"):
            if self._by_optimizer or self.step < 0:
                self._count_step(optimizer, arguments, keywords)
            self._weights.stepping(optimizer, arguments, keywords)

    def _count_step(self, optimizer: Optimizer, arguments: Any, keywords: Any) -> None:
        """See to it that a step has begun, also where its pass was not seen or is yet to come, in a closure."""
        if self._begun or not self._counts(optimizer):
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

    def _counts(self, optimizer: Optimizer) -> bool:
        """Whether a step of this optimizer is one of the model's; what only wraps another has its groups."""
        if self._optimizer is not None:
            return optimizer.param_groups is self._optimizer.param_groups
        return self._weights.concerns(optimizer)

    def _goes_on(self) -> bool:
        """Whether the step that has ended is a part of another's, which may change the weights further (Lookahead)."""
        frame, steps = sys._getframe(), list[Optimizer]()
        while frame is not None:
            if frame.f_code is _STEP and isinstance(one := frame.f_locals.get("self"), Optimizer):
                steps.append(one)
            frame = frame.f_back  # type: ignore[assignment]
        return any(map(self._weights.concerns, steps[1:]))

    def _optimizer_stepped(self, optimizer: Optimizer, arguments: Any, keywords: Any) -> None:
        if not self._ears or is_dynamo_compiling():
            return
        with self._sender.guard("the updates of the weights"):
            if self._goes_on():
                return
            moved, counts = self._weights.stepped(optimizer), self._counts(optimizer)
            if moved or counts:
                self._listening = self._weights.unsent
                self._ears = self._listening or self._by_optimizer
            if counts:
                self._begun, self._ended_at = False, time.monotonic()
                if self._by_optimizer:
                    self.end_pass()

    def close(self) -> None:
        """Take every hook off; send what is still to come."""
        with self._sender.guard("the last step"):
            self.end_pass()
            self._leave()
            for handle in self._idle:
                handle.remove()
            if self._process == os.getpid() and not self.closed:
                self._weights.settle()
                self._sender.harvest(wait=True)
            self._let_go()
            self._weights.rest()
        self.closed = True


_STEP = Optimizer.profile_hook_step(lambda: None).__code__  # what torch puts around the step of every optimizer
_CALL = nn.Module._call_impl.__code__
_ALWAYS = nn.Identity()  # stands for a model in training mode


def is_called(model: nn.Module) -> bool:
    """Whether a step goes through the model's own `forward`, as far as one can tell."""
    inner = unwrapped(model)
    if getattr(inner, "_compiled_call_impl", None) is not None or isinstance(inner, torch.jit.ScriptModule):
        return False  # model.compile(): hooks are compiled away with it
    lightning = callable(getattr(inner, "training_step", None)) and inner is model
    return not lightning and type(inner).forward is not nn.Module.forward


def _entrances(model: nn.Module) -> Iterator[nn.Module]:
    """Modules of which the first one to be called begins a step: the model and its topmost parts."""
    if isinstance(model, torch.jit.ScriptModule):
        return  # takes no hooks
    yield model
    for part in model.children():
        if isinstance(part, torch.jit.ScriptModule) or type(part).forward is nn.Module.forward:
            yield from _entrances(part)
        else:
            yield part
