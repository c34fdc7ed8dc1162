"""Count the steps of a model and, at watched steps only, attach hooks to the selected layers.

Between watched steps a single cheap hook on the model counts passes.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.compiler import is_dynamo_compiling
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from torcheer.models import unwrapped
from torcheer.tap.module_selection import ModuleSelection, parameter_places, replaced_parameters
from torcheer.tap.pass_counter import PassCounter
from torcheer.tap.pass_tap import PassTap
from torcheer.tap.probe_hooks import ModuleOutput, PassEndHook, PassHook, calls_of
from torcheer.tap.sample_sender import Sender
from torcheer.tap.step_schedule import Pace, Schedule
from torcheer.tap.step_timing import Timing
from torcheer.tap.tensor_copies import refusal, tensors_in
from torcheer.tap.weight_updates import WeightTracker, has_closure
from torcheer.terminal import first_names

_LEAST_IDLE_PASSES = 4  # for fewer, exchanging the hook for a counter does not pay


class Probes:
    """Counts the steps of a model and samples those that are due.

    A step is a pass through the model; where the model itself is never called (Lightning's `training_step`, a
    ModuleDict), or an optimizer was passed, it is a step of the optimizer, and only its first pass is watched.
    """

    def __init__(
        self,
        model: nn.Module,
        selection: ModuleSelection,
        what: Collection[str],
        sender: Sender,
        *,
        schedule: Schedule,
        on_boundary: Callable[[], None],
        optimizer: Optimizer | None = None,
        step_of: Callable[[], int] | None = None,
    ) -> None:
        self._step_of = step_of  # supplies the step number; None: steps are counted here
        self._hook = PassHook(self, model.training)
        self._reached = -1  # the step at which the hook's idle passes end
        self._step_offset, self._external_step = 0, -1  # step number less counted steps; last result of `step_of`
        self._next_watched = -math.inf  # the next step number to be watched
        self.watched_step, self.watched_count = -1, 0
        self._model, self._sender, self._schedule, self._on_boundary = model, sender, schedule, on_boundary
        gradient_names = selection.hidden_parameters if "grad" in what else ()
        self._weights = WeightTracker(selection.parameters, what, sender, model.parameters(), gradient_names)
        self._places = parameter_places(model)
        self._replaced = set[int]()  # ids of the parameters that others had replaced at the last watched step
        self._outputs, self._what, self._optimizer = dict(selection.modules), frozenset(what), optimizer
        self._modules, self._tap = dict(selection.modules), PassTap(self.output, self.drop_layer)
        self._by_optimizer = optimizer is not None or not is_called(model)
        self._awaits_optimizer = False  # whether the optimizer's next step has values to send
        self._uses_optimizer_hooks = True  # whether the optimizer hooks have anything to do
        self._step_begun = False  # where optimizer steps are counted: whether this step has had its first pass
        self._running_optimizer: Optimizer | None = None  # whose step is in progress, with nothing to do but count it
        self._optimizer_hooks, self._entry_hooks = list[Any](), list[Any]()
        self._may_use_counter = is_called(model)
        self._input_checked = True  # whether the input of this pass's first module was checked
        self._settle_next = True  # there is work to do when the next step begins
        self._pace, self._timing, self._hook_lock = Pace(), Timing(sender), threading.Lock()
        self._hook.count = self._count if self._by_optimizer or step_of is not None else None
        self._differentiates, self.closed, self._process = True, False, os.getpid()

    def attach(self) -> None:
        """Start counting."""
        self._use_hook()
        # They stay as long as the watch: torch does not allow hooks to be added or removed while it calls them.
        # And on all optimizers: besides the one whose steps count, others may update weights of the model.
        self._optimizer_hooks = [
            register_optimizer_step_pre_hook(self._optimizer_steps),
            register_optimizer_step_post_hook(self._optimizer_stepped),
        ]

    def _use_hook(self) -> None:
        """Let the hook count the passes."""
        with self._hook_lock:  # several threads that count a model's passes may get here at once
            self._stop_counting()
            places = [self._model] if is_called(self._model) else list(entrances(self._model))
            self._entry_hooks = [place.register_forward_pre_hook(self._hook, prepend=True) for place in places]

    def _use_counter(self) -> None:
        """Let a cheaper counter replace the hook for the hook's idle passes."""
        if self._hook.idle_passes >= _LEAST_IDLE_PASSES and self._may_use_counter and PassCounter.fits(self._model):
            self._stop_counting()
            self._hook.counter = PassCounter(self._model, self._hook, self._use_hook, self._hook.count)
            self._next_watched -= 1  # the counter cannot watch the pass at which it hands over to the hook

    def _stop_counting(self) -> None:
        counter, self._hook.counter = self._hook.counter, None
        if counter is not None:
            counter.end()
        entries, self._entry_hooks = self._entry_hooks, []
        for handle in entries:
            handle.remove()

    # -- counting ----------------------------------------------------------------------------------------------------

    @property
    def step(self) -> int:
        """The step that began last; -1 before the first."""
        return self._external_step if self._step_of is not None else self.count - 1 + self._step_offset

    @property
    def current_step(self) -> int:
        """The step that began last, or the number of the first one where none has begun."""
        if self.step < 0 and self._step_of is not None:
            self._read_step(self._step_of)
        return max(self.step, 0)

    @property
    def count(self) -> int:
        """Number of steps so far."""
        return self._reached - self._hook.idle_passes + 1

    @property
    def only_training(self) -> bool:
        """Whether passes in evaluation mode are ignored: from the first pass in training mode on."""
        return not self._hook.in_any_mode

    def begin_pass(self, module: nn.Module) -> None:
        """Handle a pass that is not one of the idle passes, which need no work."""
        if torch.compiler.is_compiling() or torch._C._is_tracing():
            return
        if self.only_training and not module.training:
            self._timing.discard()
            return
        if self._by_optimizer:
            if self._step_begun:
                return
            self._step_begun = True
        elif self._tap.is_open and not self._interrupted():
            return
        self._reached, self._hook.idle_passes = self.count, 0
        self._set_idle(0)
        if self._step_of is not None:
            self._read_step(self._step_of)
        if not self.closed and self._process == os.getpid():  # a forked worker has the hook, not the ring
            self._boundary(self.step)
            self._may_use_counter = self._may_use_counter and module is self._model  # not a replica on another GPU
            self._use_counter()

    def _set_idle(self, passes: int) -> None:
        """Only count the next `passes` passes."""
        self._reached, self._hook.idle_passes = self.count - 1 + passes, passes
        self._update_optimizer_hooks()

    def _update_optimizer_hooks(self) -> None:
        self._uses_optimizer_hooks = self._awaits_optimizer or self._by_optimizer or self._weights.awaits_step

    def _count(self) -> bool:
        """Count a pass that is not by itself a step (several per step, or `step_of`); False: it was not an idle one."""
        if self._by_optimizer and self._step_begun:
            return True
        is_idle, has_counter = True, self._hook.counter is not None
        if self._step_of is not None:
            previous = self._external_step
            self._read_step(self._step_of)
            self._step_offset -= self._step_of is None  # step_of failed, and this pass is not counted yet
            is_idle = previous <= self._external_step < self._next_watched
        if is_idle or has_counter:  # else `begin_pass` counts it
            self._step_begun = self._by_optimizer
            self._hook.idle_passes -= 1
        return is_idle

    def _read_step(self, step_of: Callable[[], int]) -> None:
        """Read the step number from `step_of`; where it fails, count from here on."""
        try:
            self._external_step = int(step_of())
        except Exception as error:
            self._step_of, self._step_offset = None, max(self._external_step + 1, 0) - (self.count - 1)
            self._hook.count = self._count if self._by_optimizer else None
            self._sender.report(f"step_of failed, steps are counted from here on: {type(error).__name__}: {error}")

    def _interrupted(self) -> bool:
        """Whether the watched pass was aborted (Ctrl-C); else this is the model calling itself."""
        calls_itself = calls_of(self._model) > 1
        if not calls_itself:
            self.end_pass()
        return not calls_itself

    def _boundary(self, step: int) -> None:
        """Do the work between two steps: callbacks, settling the last watched step, beginning the next."""
        now_secs = time.monotonic()
        due = self._schedule.due(step, now_secs)
        if due or self._settle_next or now_secs - self._pace.measured_at >= Pace.MOMENT_SECS:
            self._on_boundary()  # the only call that may raise: the user asked to stop the run
            self._pace.measure(self.count, now_secs)
            with self._sender.guard("a step"), torch._C.DisableTorchFunction():
                self._settle()
                if due:
                    self._begin(step)
            self._settle_next = due or self._weights.needs_settling
        self._next_watched = self._schedule.next_step
        self._set_idle(0 if self._settle_next else self._pace.idle_steps(*self._schedule.idle_for(step, now_secs)))

    def _begin(self, step: int) -> None:
        """Begin to watch a step."""
        self.watched_count += 1
        self._timing.begin(step, next(self._model.parameters(), _NO_PARAMETER).device)
        self._awaits_optimizer, self.watched_step, self._differentiates = True, step, torch.is_grad_enabled()
        self._drop_replaced()
        self._attach_outputs()
        self._sender.begin()
        self._weights.begin(step)

    def _drop_replaced(self) -> None:
        """Stop watching layers and weights that were replaced: their values are no longer the model's."""
        module_ids = set(map(id, self._model.modules()))
        removed = [name for name in self._outputs if id(self._modules[name]) not in module_ids]
        for name in removed:
            del self._outputs[name]
        orphans = {
            number
            for number, places in self._places.items()
            if not any(id(module) in module_ids for module, _ in places)
        }
        previous, self._replaced = self._replaced, replaced_parameters(self._places)
        orphans |= previous & self._replaced  # in both: `functional_call` substitutes parameters for one pass
        if removed := [*removed, *self._weights.forget(orphans)]:
            self._sender.report(
                f"{first_names(removed, 3)}: no longer part of the model; what is "
                "there instead is not watched. Begin another watch"
            )

    def _settle(self) -> None:
        """Send what the last watched step left to be sent, and remove its hooks."""
        self._timing.settle()
        self._tap.release()
        self._weights.settle()
        self._sender.harvest()

    # -- a watched pass ----------------------------------------------------------------------------------------------

    def _attach_outputs(self) -> None:
        self._input_checked = "output" not in self._what
        if {"output", "grad"} & self._what:
            self._tap.attach(self._outputs)
            if is_called(self._model):
                self._tap.add(self._model.register_forward_hook(PassEndHook(self.end_pass), always_call=True))

    @property
    def is_watching(self) -> bool:
        """Whether the step that began last is watched."""
        return self.step >= 0 and self.step == self.watched_step

    def end_pass(self) -> None:
        """Remove the hooks of the watched pass from the modules."""
        self._tap.end()

    def _check_input(self, name: str, arguments: Any) -> None:
        """Send the input of a pass's first module where it is not finite, before its output is sent."""
        self._input_checked = True
        for _, tensor in tensors_in(arguments, name)[:1]:  # further ones may be masks, which hold infinities
            if tensor.is_floating_point() and not refusal(tensor):
                self._sender.send_if_nonfinite(tensor, name, "input", self.watched_step)

    def output(self, name: str, call: int, output: ModuleOutput) -> None:
        """Send the output of a selected module and follow its gradient."""
        if not self._input_checked:
            self._check_input(name, output.arguments)
        label = name if call == 1 else f"{name}:{call}"
        for place, tensor in output.tensors:
            where = label + place
            if place and where in self._modules:  # a submodule of that name has its own values
                where = f"{label}[{place[1:]}]"
            if "output" in self._what:
                self._sender.send(tensor, where, "output", self.watched_step)
            if tensor.requires_grad and ("grad" in self._what or self._by_optimizer):
                self._tap.follow(tensor, partial(self.gradient, where, self.watched_step))
            elif self._differentiates and "grad" in self._what and not torch.is_grad_enabled():
                self._report_no_gradient(name)

    def _report_no_gradient(self, name: str) -> None:
        """Report a trained layer whose output carries no gradient."""
        if any(parameter.requires_grad for parameter in self._modules[name].parameters()):
            self._differentiates = False  # once is enough
            self._sender.report(
                f"{name} runs without gradients inside the model (checkpoint with use_reentrant=True, or no_grad): "
                "its own are not seen; use_reentrant=False shows them"
            )

    def gradient(self, where: str, step: int, gradient: Tensor) -> None:
        """Send a gradient; may be called in one of autograd's threads."""
        if self.closed:
            return
        if self._by_optimizer and self._tap.is_open:
            self.end_pass()  # further passes of the step are not watched
        if "grad" in self._what:
            self._sender.send(gradient, where, "grad", step)

    def drop_layer(self, name: str, error: Exception) -> None:
        """Stop watching one layer after an error; the others are kept."""
        self._outputs.pop(name, None)
        self._sender.report(f"{name} is no longer watched: {type(error).__name__}: {error}")

    # -- the optimizer -----------------------------------------------------------------------------------------------

    def _optimizer_steps(self, optimizer: Optimizer, arguments: Any, keywords: Any) -> None:
        if not self._uses_optimizer_hooks or is_dynamo_compiling():
            return  # nearly always
        idle = self._step_begun and not self._awaits_optimizer and not self._weights.awaits_step
        if idle and (self._running_optimizer is None or self._running_optimizer is optimizer):
            self._running_optimizer = optimizer
            return  # nearly always, where its steps are counted
        with self._sender.guard("the gradients of the weights"):
            if not self._weights.is_nested_step():
                self._running_optimizer = None  # its step raised
            if self._by_optimizer or self.step < 0:
                self._count_step(optimizer, arguments, keywords)
            self._weights.before_step(optimizer, arguments, keywords)

    def _count_step(self, optimizer: Optimizer, arguments: Any, keywords: Any) -> None:
        """Begin a step if none has begun: its pass was not seen, or is yet to come in a closure."""
        if self._step_begun or not self._counts(optimizer):
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
        if self._hook.idle_passes <= 0 or not self._count():
            self.begin_pass(_IN_TRAINING if self.only_training else self._model)

    def _counts(self, optimizer: Optimizer) -> bool:
        """Whether a step of this optimizer is a step of the model; a wrapper shares the wrapped one's groups."""
        if self._optimizer is not None:
            return optimizer.param_groups is self._optimizer.param_groups
        return self._weights.trains_model(optimizer)

    def _optimizer_stepped(self, optimizer: Optimizer, arguments: Any, keywords: Any) -> None:
        if not self._uses_optimizer_hooks or is_dynamo_compiling():
            return
        with self._sender.guard("the updates of the weights"):
            if self._running_optimizer is not optimizer and self._weights.is_nested_step():
                return
            counts, self._running_optimizer = self._counts(optimizer), None
            if self._awaits_optimizer and (self._weights.after_step(optimizer) or counts):
                self._awaits_optimizer = self._weights.has_pending
            self._update_optimizer_hooks()
            if counts:
                self._step_begun = False
                self._timing.stepped()
                if self._by_optimizer:
                    self.end_pass()

    def close(self) -> None:
        """Remove every hook; send what is pending."""
        with self._sender.guard("the last step"):
            self.end_pass()
            self._stop_counting()
            for handle in self._optimizer_hooks:
                handle.remove()
            if self._process == os.getpid() and not self.closed:
                self._weights.settle()
                self._sender.harvest(wait=True)
            self._tap.release()
            self._weights.release()
        self.closed = True


_NO_PARAMETER = torch.empty(0)
_IN_TRAINING = nn.Identity()  # stands for a model in training mode


def is_called(model: nn.Module) -> bool:
    """Whether a step calls the model's own `forward`, as far as can be told."""
    inner = unwrapped(model)
    if getattr(inner, "_compiled_call_impl", None) is not None or isinstance(inner, torch.jit.ScriptModule):
        return False  # model.compile(): hooks are compiled away with it
    lightning = callable(getattr(inner, "training_step", None)) and inner is model
    return not lightning and type(inner).forward is not nn.Module.forward


def entrances(model: nn.Module) -> Iterator[nn.Module]:
    """Yield the modules whose first call begins a step: the model and its topmost parts."""
    if isinstance(model, torch.jit.ScriptModule):
        return  # accepts no hooks
    yield model
    for part in model.children():
        if isinstance(part, torch.jit.ScriptModule) or type(part).forward is nn.Module.forward:
            yield from entrances(part)
        else:
            yield part
