"""Hooks: one on the model that does next to nothing, and those of the chosen layers, for watched passes only."""

from __future__ import annotations

import math
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.compiler import is_dynamo_compiling
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from torcheer.tap.module_selection import Chosen, places_of, replaced, unwrapped
from torcheer.tap.pass_counter import Nap
from torcheer.tap.probe_hooks import Called, Ended, Gradient, Output, calls_of
from torcheer.tap.sample_sender import Sender
from torcheer.tap.step_schedule import Pace, Schedule
from torcheer.tap.step_timing import Timing
from torcheer.tap.tensor_copies import refusal, tensors_in
from torcheer.tap.weight_updates import Weights, has_closure

_NAP_PASSES = 4  # for fewer it is not worth the change


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
        self._reached = -1  # the step at which the hook's quiet ends
        self._shift, self._number = 0, -1  # from counted steps to their numbers; others' number
        self._until = -math.inf  # which of those is next to be looked at
        self.watched_step, self.looks = -1, 0
        self._model, self._sender, self._schedule, self._on_boundary = model, sender, schedule, on_boundary
        graded = chosen.behind if "grad" in what else ()
        self._weights = Weights(chosen.parameters, what, sender, model.parameters(), graded)
        self._places, self._replaced = places_of(model), set[int]()  # of parameters; which were not there at this look
        self._outputs = {name: Output(self, name) for name in chosen.modules}
        self._modules, self._what, self._optimizer = dict(chosen.modules), frozenset(what), optimizer
        self._by_optimizer = optimizer is not None or not is_called(model)
        self._listening = False  # whether the optimizer's next step is of interest
        self._ears = True  # whether any step of an optimizer is
        self._begun = False  # by the optimizer: whether this step has had its first pass
        self._within: Optimizer | None = None  # whose step it is in, with nothing to do but count it
        self._idle, self._attached, self._entries = list[Any](), list[Any](), list[Any]()
        self._naps = is_called(model)
        self._calls, self._leaves = Counter[str](), list[Any]()  # in this pass; hooks on tensors that outlive it
        self.entered = True  # whether what goes into the first module of this pass was looked at
        self._soon = True  # there is something to do when the next step begins
        self._pace, self._timing, self._waking = Pace(), Timing(sender), threading.Lock()
        self._hook.count = self._count if self._by_optimizer or step_of is not None else None
        self._differentiates, self.closed, self._process = True, False, os.getpid()

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
        with self._waking:  # threads that count a model's passes may all come to it at once
            self._leave()
            places = [self._model] if is_called(self._model) else list(entrances(self._model))
            self._entries = [place.register_forward_pre_hook(self._hook, prepend=True) for place in places]

    def _sleep(self) -> None:
        """Have something cheaper count them, until the hook's quiet is over."""
        if self._hook.quiet >= _NAP_PASSES and self._naps and Nap.fits(self._model):
            self._leave()
            self._hook.nap = Nap(self._model, self._hook, self._wake, self._hook.count)
            self._until -= 1  # it cannot look at the pass that wakes it

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
        return self._number if self._step_of is not None else self.count - 1 + self._shift

    @property
    def now(self) -> int:
        """The number of the step that began last, or is to begin first."""
        if self.step < 0 and self._step_of is not None:
            self._ask(self._step_of)
        return max(self.step, 0)

    @property
    def count(self) -> int:
        """How many there were."""
        return self._reached - self._hook.quiet + 1

    @property
    def only_training(self) -> bool:
        """Whether passes in evaluation mode are left out: from the first one in training mode on."""
        return not self._hook.in_any_mode

    def called(self, module: nn.Module) -> None:
        """A pass begins, and is not one of those that were foreseen to need nothing."""
        if torch.compiler.is_compiling() or torch._C._is_tracing():
            return
        if self.only_training and not module.training:
            self._timing.spoil()
            return
        if self._by_optimizer:
            if self._begun:
                return
            self._begun = True
        elif self._attached and not self._interrupted():
            return
        self._reached, self._hook.quiet = self.count, 0
        self._be_quiet(0)
        if self._step_of is not None:
            self._ask(self._step_of)
        if not self.closed and self._process == os.getpid():  # a forked worker has the hook, not the ring
            self._boundary(self.step)
            self._naps = self._naps and module is self._model  # not a replica of it on another GPU
            self._sleep()

    def _be_quiet(self, passes: int) -> None:
        """From here on, so many more are only counted."""
        self._reached, self._hook.quiet = self.count - 1 + passes, passes
        self._listen()

    def _listen(self) -> None:
        self._ears = self._listening or self._by_optimizer or self._weights.follows

    def _count(self) -> bool:
        """Count a pass where that is not a step: one of several, or numbered by others; False: it was not foreseen."""
        if self._by_optimizer and self._begun:
            return True
        foreseen, asleep = True, self._hook.nap is not None
        if self._step_of is not None:
            before = self._number
            self._ask(self._step_of)
            self._shift -= self._step_of is None  # it has failed, and this pass is yet to be counted
            foreseen = before <= self._number < self._until
        if foreseen or asleep:  # else the probes do
            self._begun = self._by_optimizer
            self._hook.quiet -= 1
        return foreseen

    def _ask(self, step_of: Callable[[], int]) -> None:
        """Take the number of the step from those who know it."""
        try:
            self._number = int(step_of())
        except Exception as error:
            self._step_of, self._shift = None, max(self._number + 1, 0) - (self.count - 1)
            self._hook.count = self._count if self._by_optimizer else None
            self._sender.report(f"step_of failed, steps are counted from here on: {type(error).__name__}: {error}")

    def _interrupted(self) -> bool:
        """Whether the watched pass ended without a word (Ctrl-C); else this is the model calling itself."""
        calls_itself = calls_of(self._model) > 1
        if not calls_itself:
            self.end_pass()
        return not calls_itself

    def _boundary(self, step: int) -> None:
        """Between two steps, with time for more than counting."""
        now = time.monotonic()
        due = self._schedule.due(step, now)
        if due or self._soon or now - self._pace.asked_at >= Pace.MOMENT_SECS:
            self._on_boundary()  # the only thing that may raise: it was asked to end the run
            self._pace.take(self.count, now)
            with self._sender.guard("a step"), torch._C.DisableTorchFunction():
                self._settle()
                if due:
                    self._begin(step)
            self._soon = due or self._weights.waiting
        self._until = self._schedule.next_step
        self._be_quiet(0 if self._soon else self._pace.quiet(*self._schedule.rest(step, now)))

    def _begin(self, step: int) -> None:
        """Watch a step."""
        self.looks += 1
        self._timing.begin(step, next(self._model.parameters(), _NOTHING).device)
        self._listening, self.watched_step, self._differentiates = True, step, torch.is_grad_enabled()
        self._leave_out_what_is_gone()
        self._attach_outputs()
        self._sender.begin()
        self._weights.begin(step)

    def _leave_out_what_is_gone(self) -> None:
        """A layer or a weight that was replaced has values, but they are no longer the model's."""
        here = set(map(id, self._model.modules()))
        gone = [name for name in self._outputs if id(self._modules[name]) not in here]
        for name in gone:
            del self._outputs[name]
        homeless = {number for number, places in self._places.items() if not any(id(one) in here for one, _ in places)}
        before, self._replaced = self._replaced, replaced(self._places)
        homeless |= before & self._replaced  # others may stand there for one pass (`functional_call`)
        if gone := [*gone, *self._weights.leave_out(homeless)]:
            self._sender.report(
                f"{', '.join(gone[:3])}{', …' if len(gone) > 3 else ''}: no longer part of the model; what is there "
                "instead is not watched. Begin another watch"
            )

    def _settle(self) -> None:
        """Deal with what the last watched step left."""
        self._timing.settle()
        self._let_go()
        self._weights.settle()
        self._sender.harvest()

    # -- a watched pass ----------------------------------------------------------------------------------------------

    def _attach_outputs(self) -> None:
        self._calls.clear()
        self.entered = "output" not in self._what
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

    def enter(self, name: str, arguments: Any) -> None:
        """The first module of a pass was called: what went in is sent where it is not finite, before what it gave."""
        self.entered = True
        for _, tensor in tensors_in(arguments, name)[:1]:  # further ones may be masks, of infinities
            if tensor.is_floating_point() and not refusal(tensor):
                self._sender.send_if_strange(tensor, name, "input", self.watched_step)

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
        idle = self._begun and not self._listening and not self._weights.follows
        if idle and (self._within is None or self._within is optimizer):
            self._within = optimizer
            return  # nearly always, where its steps are counted
        with self._sender.guard("the gradients of the weights"):
            self._within = self._within if self._weights.goes_on() else None  # else that one has failed in its step
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
            self._hook.count = self._count
        if self._hook.quiet <= 0 or not self._count():
            self.called(_ALWAYS if self.only_training else self._model)

    def _counts(self, optimizer: Optimizer) -> bool:
        """Whether a step of this optimizer is one of the model's; what only wraps another has its groups."""
        if self._optimizer is not None:
            return optimizer.param_groups is self._optimizer.param_groups
        return self._weights.concerns(optimizer)

    def _optimizer_stepped(self, optimizer: Optimizer, arguments: Any, keywords: Any) -> None:
        if not self._ears or is_dynamo_compiling():
            return
        with self._sender.guard("the updates of the weights"):
            if self._within is not optimizer and self._weights.goes_on():
                return
            counts, self._within = self._counts(optimizer), None
            if self._listening and (self._weights.stepped(optimizer) or counts):
                self._listening = self._weights.unsent
            self._listen()
            if counts:
                self._begun = False
                self._timing.stepped()
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


_NOTHING = torch.empty(0)
_ALWAYS = nn.Identity()  # stands for a model in training mode


def is_called(model: nn.Module) -> bool:
    """Whether a step goes through the model's own `forward`, as far as one can tell."""
    inner = unwrapped(model)
    if getattr(inner, "_compiled_call_impl", None) is not None or isinstance(inner, torch.jit.ScriptModule):
        return False  # model.compile(): hooks are compiled away with it
    lightning = callable(getattr(inner, "training_step", None)) and inner is model
    return not lightning and type(inner).forward is not nn.Module.forward


def entrances(model: nn.Module) -> Iterator[nn.Module]:
    """Modules of which the first one to be called begins a step: the model and its topmost parts."""
    if isinstance(model, torch.jit.ScriptModule):
        return  # takes no hooks
    yield model
    for part in model.children():
        if isinstance(part, torch.jit.ScriptModule) or type(part).forward is nn.Module.forward:
            yield from entrances(part)
        else:
            yield part
