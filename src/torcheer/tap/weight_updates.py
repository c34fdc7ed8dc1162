"""Sample the weights around an optimizer's step: value before, gradient, and update."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer

from torcheer.tap.counting.model_optimizers import ModelOptimizers, has_closure
from torcheer.tap.probe_hooks import CarriedGradientHook
from torcheer.tap.sample_sender import Sender
from torcheer.tap.tensor_copies import local_shard

_COMPARED_NUMBERS = 256  # numbers of a weight compared to detect writes that torch's version counter misses
_COMPARED_WEIGHTS = 4  # weights that are compared
_PATIENCE = 20  # steps after which a weight that no optimizer has stepped counts as untrained


@dataclass(slots=True)
class _Snapshot:
    """A weight at the beginning of a step."""

    step: int
    value: Tensor | None  # the numbers that are sent of it, where its update is watched
    version: int


@dataclass(slots=True)
class _CarryCheck:
    """Checks on one parameter whether its gradient is cleared between two steps of its optimizer."""

    optimizer: weakref.ref[Optimizer]
    label: str
    step: int  # the watched one
    hook: CarriedGradientHook
    handle: Any

    def remove(self) -> None:
        """Remove the hook, and torch's call of an empty list of hooks: it would cost 2 µs at every later step."""
        self.handle.remove()
        parameter = self.hook.parameter
        if parameter._backward_hooks is not None and not parameter._backward_hooks:
            parameter._backward_hooks = None

    def end(self) -> Tensor | None:
        """The smallest magnitude carried into a backward pass; None where the gradient had been cleared."""
        self.remove()
        sums = [carried_sum for carried_sum in self.hook.sums if carried_sum is not None]
        return torch.stack(sums).min() if sums and len(sums) == len(self.hook.sums) else None


class WeightTracker:
    """Sends weights, gradients and updates of the parameters around the optimizer's step."""

    def __init__(
        self,
        parameters: dict[str, nn.Parameter],
        what: Collection[str],
        sender: Sender,
        optimizers: ModelOptimizers,
        gradient_names: Collection[str] = (),
    ) -> None:
        """The gradients of the parameters `gradient_names` are sent even if `what` does not include them."""
        self._parameters, self._what, self._sender = dict(parameters), what, sender
        self._gradient_names = set(parameters if "weight_grad" in what else gradient_names)
        self._snapshots: dict[int, _Snapshot] = {}  # by the parameter's id
        self._step, self._gradients = 0, set[int]()  # ids of the parameters whose gradient is still to be sent
        self._torch_steps = False  # whether a torch.optim optimizer updates the weights
        self._carry_check: _CarryCheck | None = None
        self._carried_steps = 0  # consecutive steps into which gradients were carried over
        self.awaits_step = False  # whether another optimizer step is needed after a watched one
        self._hidden = set(gradient_names)
        self._optimizers = optimizers
        self._untrained, self._steps_waited = set[int](), 0  # ids of weights without an optimizer; steps since `begin`
        self._names = {id(parameter): name for name, parameter in parameters.items()}

    def begin(self, step: int) -> None:
        """Begin a watched step: send the weights, take the snapshots for their updates."""
        if self._carry_check is not None and self._carry_check.step != step and self._steps_waited > _PATIENCE:
            self._drop_carry_check()  # its optimizer no longer steps
        self._step, self._steps_waited = step, 0
        if self._untrained:
            self._untrained -= self._optimizers.trained_ids()
        if self._gradient_names:
            named = self._parameters.items()
            self._gradients = {id(p) for name, p in named if name in self._gradient_names and self._is_trained(p)}
        if "weight" not in self._what and "update" not in self._what:
            return
        labelled = [
            (parameter, name)
            for name, parameter in self._parameters.items()
            if type(parameter) is nn.Parameter or not isinstance(parameter, nn.parameter.UninitializedParameter)
        ]
        if "weight" in self._what:
            self._sender.send_together([(parameter, label, None) for parameter, label in labelled], "weight", step)
        if "update" in self._what:
            self._take_snapshots([(parameter, label) for parameter, label in labelled if self._is_trained(parameter)])

    def _is_trained(self, parameter: nn.Parameter) -> bool:
        return parameter.requires_grad and id(parameter) not in self._untrained

    def forget(self, parameter_ids: Collection[int]) -> list[str]:
        """Stop watching the parameters with these ids; returns the names of those that were watched."""
        names = [name for name, parameter in self._parameters.items() if id(parameter) in parameter_ids]
        for name in names:
            self._snapshots.pop(id(self._parameters.pop(name)), None)
        return names

    def _take_snapshots(self, labelled: list[tuple[nn.Parameter, str]]) -> None:
        """Copy weights; an unused snapshot (its step was skipped) is assigned to this step."""
        missing = []
        for parameter, label in labelled:
            snapshot = self._snapshots.get(id(parameter))
            if snapshot is None:
                missing.append((parameter, label))
            elif snapshot.version == _version(parameter):  # else an optimizer with a closure is in the middle of a step
                snapshot.step = self._step
        for (parameter, _), value in zip(missing, self._sender.snapshots(missing, "update")):
            self._snapshots[id(parameter)] = _Snapshot(self._step, value, _version(parameter))

    def before_step(self, optimizer: Optimizer, arguments: Any, keywords: Any) -> None:
        """Handle an optimizer that is about to step: send the gradients."""
        if self._carry_check is not None:
            self._finish_carry_check(optimizer)
        if self._snapshots:
            self._sender.scaled = _by_scaler()
        is_ours = self._optimizers.trains_model(optimizer)
        if not self._torch_steps and is_ours:  # now, as a closure's passes run inside the step
            self._torch_steps = any(id(p) in self._names for group in optimizer.param_groups for p in group["params"])
        if self._gradients and is_ours and not has_closure(arguments, keywords):
            self._send_gradients(_parameters_of(optimizer))

    def after_step(self, optimizer: Optimizer) -> bool:
        """Handle an optimizer that has stepped: send the updates; returns whether it is one of the model's."""
        if not self._optimizers.trains_model(optimizer):
            return False
        if self._gradients:
            self._send_gradients(_parameters_of(optimizer))  # those that a closure computed
            self._gradients -= set(map(id, _parameters_of(optimizer)))
        if self._snapshots:
            self._send_updates(_parameters_of(optimizer))
        self._start_carry_check(optimizer)
        self._steps_waited += 1
        if self._steps_waited == _PATIENCE and self.has_pending:
            self._drop_untrained()
        return True

    def _start_carry_check(self, optimizer: Optimizer) -> None:
        """Start checking whether the gradients that this step used are cleared before its next."""
        if self._carry_check is not None or "grad" not in self._what:
            return
        watched = [p for group in optimizer.param_groups for p in group["params"] if id(p) in self._names]
        for parameter in reversed(watched):  # those of the last layer are small, and seldom zero
            label = self._names[id(parameter)]
            dense = parameter.grad is not None and parameter.grad.layout is torch.strided
            if dense and parameter.requires_grad and local_shard(parameter) is parameter and label not in self._hidden:
                hook, register = CarriedGradientHook(parameter), cast(Any, parameter.register_hook)
                self._carry_check = _CarryCheck(weakref.ref(optimizer), label, self._step, hook, register(hook))
                self.awaits_step = True
                return

    def _finish_carry_check(self, optimizer: Optimizer) -> None:
        """Send the magnitude that was carried over from the last step of the optimizer, if any."""
        check = self._carry_check
        if check is None or check.optimizer() is not optimizer:
            return
        self._carry_check, self.awaits_step = None, False
        least = check.end()
        is_carried = least is not None and (least.is_cuda or bool(least > 0))
        self._carried_steps = self._carried_steps + 1 if is_carried else 0
        if least is not None and self._carried_steps > 1:  # once may be intended: two losses, two optimizers
            self._sender.send(least, check.label, "carried", self._step)

    def _drop_untrained(self) -> None:
        """Stop waiting for weights that no optimizer updates (only a head is trained), until one does."""
        untrained = ({*self._snapshots} | self._gradients) - self._optimizers.trained_ids()
        self._untrained |= untrained
        self._gradients -= untrained
        for number in untrained:
            self._snapshots.pop(number, None)

    def _send_gradients(self, parameters: Iterable[Tensor]) -> None:
        gradients: list[tuple[Tensor, str, Tensor | None]] = []
        for parameter in parameters:
            if id(parameter) in self._gradients and parameter.grad is not None:
                self._gradients.discard(id(parameter))  # another optimizer may still step the others
                gradients.append((parameter.grad, self._names[id(parameter)], None))
        self._sender.send_together(gradients, "weight_grad", self._step)

    def _send_updates(self, parameters: Iterable[Tensor]) -> None:
        by_step: dict[int, list[tuple[Tensor, str, Tensor | None]]] = {}
        for parameter in parameters:
            snapshot = self._snapshots.pop(id(parameter), None)
            if snapshot is not None and snapshot.value is not None:
                label = self._names[id(parameter)]
                by_step.setdefault(snapshot.step, []).append((parameter, label, snapshot.value))
        for step, updates in by_step.items():
            self._sender.send_together(updates, "update", step)

    def settle(self) -> None:
        """Send gradients and updates that no torch.optim optimizer announced, as another step begins."""
        if not self.needs_settling or not self._changed():
            return
        if self._gradients and all(_is_cleared(p.grad) for p in self._parameters.values() if id(p) in self._gradients):
            self._sender.report(
                "the gradients of the weights are gone before they can be looked at: no optimizer of torch's steps, "
                "and they are cleared before the next pass"
            )
            self._gradients.clear()
        self._send_gradients(self._parameters.values())
        self._send_updates(self._parameters.values())
        self._gradients.clear()

    def _changed(self) -> bool:
        """Whether any weight was written; also through `.data`, which leaves the version counter alone."""
        pending = [p for p in self._parameters.values() if id(p) in self._snapshots]
        if any(_version(parameter) != self._snapshots[id(parameter)].version for parameter in pending):
            return True
        compared = [parameter for parameter in pending[:_COMPARED_WEIGHTS] if not local_shard(parameter).is_cuda]
        return any(map(self._differs, compared))

    def _differs(self, parameter: nn.Parameter) -> bool:
        value = self._snapshots[id(parameter)].value
        if value is None or value.dim() == 0 or value.shape != parameter.shape:
            return False
        with torch.no_grad():
            return not torch.equal(_corner(parameter), _corner(value))

    @property
    def needs_settling(self) -> bool:
        """Whether `settle` must be called before the next watched step: no optimizer hook will fire."""
        return bool(self._snapshots) and not self._torch_steps

    @property
    def has_pending(self) -> bool:
        """Whether weights still wait for an optimizer's step."""
        return bool(self._snapshots or self._gradients)

    def _drop_carry_check(self) -> None:
        if self._carry_check is not None:
            self._carry_check.remove()
        self._carry_check, self.awaits_step = None, False

    def release(self) -> None:
        """Release all copies and hooks."""
        self._drop_carry_check()
        self._snapshots.clear()
        self._gradients.clear()


def _parameters_of(optimizer: Optimizer) -> list[Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


_SCALED = GradScaler.step.__code__


def _by_scaler() -> bool:
    """Whether a GradScaler calls the optimizer's step that is about to begin."""
    frame = sys._getframe()
    while frame is not None:
        if frame.f_code is _SCALED:
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


def _version(parameter: Tensor) -> int:
    try:
        return parameter._version
    except (RuntimeError, NotImplementedError):  # an inference tensor has no version counter
        return 0


def _is_cleared(gradient: Tensor | None) -> bool:
    """Whether there is no gradient; zeros on a GPU count as a gradient, as checking would synchronize."""
    return gradient is None or not (
        gradient.is_sparse or local_shard(gradient).is_cuda or bool(local_shard(gradient).any())
    )


def _corner(tensor: Tensor) -> Tensor:
    """The first numbers of a tensor, without a copy."""
    while tensor.dim() > 1:
        tensor = tensor[0]
    return tensor[:_COMPARED_NUMBERS]
