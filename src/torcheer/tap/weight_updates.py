"""What an optimizer does to the weights: each before, its gradient, and by how much it changed."""

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

from torcheer.tap.probe_hooks import Carried
from torcheer.tap.sample_sender import Sender
from torcheer.tap.tensor_copies import local, rank_of

_LOOKED_AT = 256  # numbers of a weight that tell whether it was written behind torch's back
_ASKED = 4  # weights that are asked
_PATIENCE = 20  # steps for which a weight is waited for that no optimizer has shown to be its own


@dataclass(slots=True)
class _Before:
    """A weight as it was when a step began."""

    step: int
    value: Tensor | None  # what is sent of it, where its update is wanted
    version: int


@dataclass(slots=True)
class _Follow:
    """A parameter on its way from one step of its optimizer to the next: is its gradient cleared in between?"""

    optimizer: weakref.ref[Optimizer]
    label: str
    step: int  # that was watched
    hook: Carried
    handle: Any

    def end(self) -> Tensor | None:
        """The least that any backward pass found; None where one found a gradient that was cleared."""
        self.handle.remove()
        sums = [one for one in self.hook.sums if one is not None]
        return torch.stack(sums).min() if sums and len(sums) == len(self.hook.sums) else None


class Weights:
    """Looks at the parameters around the optimizer's step."""

    def __init__(
        self,
        parameters: dict[str, nn.Parameter],
        what: Collection[str],
        sender: Sender,
        others: Iterable[nn.Parameter] = (),
        graded: Collection[str] = (),
    ) -> None:
        """`others` are not looked at; an optimizer that moves them is the model's all the same.

        Of the parameters `graded` the gradients are sent, though `what` may not ask for them.
        """
        self._parameters, self._what, self._sender = dict(parameters), what, sender
        self._graded = set(parameters if "weight_grad" in what else graded)
        self._before: dict[int, _Before] = {}  # by the parameter's id
        self._step, self._gradients = 0, set[int]()  # of which parameters a gradient is still wanted, by their ids
        self._by_torch = False  # whether an optimizer of torch's was seen to move the weights
        self._follow: _Follow | None = None
        self._carried = 0  # steps in a row to which gradients were carried on
        self.follows = False  # whether another step of an optimizer is waited for, after a watched one
        self._hidden = set(graded)
        self._owned: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        self._unclaimed, self._waited = set[int](), 0  # weights that no optimizer moves; steps since this look began
        self._names = {id(parameter): name for name, parameter in parameters.items()}
        self._others = tuple(others)
        self._models = {*self._names, *map(id, self._others)}

    def begin(self, step: int) -> None:
        """A step begins that is watched."""
        if self._follow is not None and self._follow.step != step and self._waited > _PATIENCE:
            self._let_go()  # that optimizer does not step any more
        self._step, self._waited = step, 0
        if self._unclaimed:
            self._unclaimed -= self._claimed()
        if self._graded:
            named = self._parameters.items()
            self._gradients = {id(one) for name, one in named if name in self._graded and self._is_trained(one)}
        for name, parameter in self._parameters.items():
            if isinstance(parameter, nn.parameter.UninitializedParameter):
                continue
            label = label_of(name, parameter)
            if "weight" in self._what:
                self._sender.send(parameter, label, "weight", step)
            if "update" in self._what and self._is_trained(parameter):
                self._keep(parameter, label)

    def _is_trained(self, parameter: nn.Parameter) -> bool:
        return parameter.requires_grad and id(parameter) not in self._unclaimed

    def _claimed(self) -> set[int]:
        """What the optimizers that were seen hold, by their ids."""
        return {id(one) for optimizer in self._owned for group in optimizer.param_groups for one in group["params"]}

    def leave_out(self, those: Collection[int]) -> list[str]:
        """Forget the parameters with these ids; the names of those that were looked at."""
        gone = [name for name, parameter in self._parameters.items() if id(parameter) in those]
        for name in gone:
            self._before.pop(id(self._parameters.pop(name)), None)
        return gone

    def _keep(self, parameter: nn.Parameter, label: str) -> None:
        """Remember a weight; one that waited in vain for its update (a skipped step) is this step's from now on."""
        before, version = self._before.get(id(parameter)), _version(parameter)
        if before is None:
            value = self._sender.kept(parameter, label, "update")
            self._before[id(parameter)] = _Before(self._step, value, version)
        elif before.version == version:  # else an optimizer is in the middle of it, with a closure
            before.step = self._step

    def stepping(self, optimizer: Optimizer, arguments: Any, keywords: Any) -> None:
        """An optimizer is about to step."""
        if self._follow is not None:
            self._follow_on(optimizer)
        if self._before:
            self._sender.scaled = _by_scaler()
        if not self._by_torch and self.concerns(optimizer):  # before a closure's passes, which are within its step
            self._by_torch = any(id(one) in self._names for group in optimizer.param_groups for one in group["params"])
        if self._gradients and self.concerns(optimizer) and not has_closure(arguments, keywords):
            self._send_gradients(optimizer)

    def stepped(self, optimizer: Optimizer) -> bool:
        """An optimizer has stepped; whether it moved any of our weights."""
        if not self.concerns(optimizer):
            return False
        if self._gradients:
            self._send_gradients(optimizer)  # of a closure
            self._gradients -= {id(one) for group in optimizer.param_groups for one in group["params"]}
        if self._before:
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    self._send_update(parameter)
        self._follow_from(optimizer)
        self._waited += 1
        if self._waited == _PATIENCE and self.unsent:
            self._leave_the_unclaimed()
        return True

    def _follow_from(self, optimizer: Optimizer) -> None:
        """See whether the gradients that this step has used are cleared before its next."""
        if self._follow is not None or "grad" not in self._what:
            return
        ours = [one for group in optimizer.param_groups for one in group["params"] if id(one) in self._names]
        for parameter in reversed(ours):  # those of the last layer are small, and seldom zero
            label = self._names[id(parameter)]
            dense = parameter.grad is not None and parameter.grad.layout is torch.strided
            if dense and parameter.requires_grad and local(parameter) is parameter and label not in self._hidden:
                hook, register = Carried(parameter), cast(Any, parameter.register_hook)
                self._follow = _Follow(weakref.ref(optimizer), label, self._step, hook, register(hook))
                self.follows = True
                return

    def _follow_on(self, optimizer: Optimizer) -> None:
        """The optimizer steps again: send what its gradients had in them all the time, if anything."""
        follow = self._follow
        if follow is None or follow.optimizer() is not optimizer:
            return
        self._follow, self.follows = None, False
        least = follow.end()
        carried = least is not None and (least.is_cuda or bool(least > 0))
        self._carried = self._carried + 1 if carried else 0
        if least is not None and self._carried > 1:  # once may be by chance: two losses, two optimizers
            self._sender.send(least, follow.label, "carried", self._step)

    def _leave_the_unclaimed(self) -> None:
        """Who trains only a head need not wait for the rest at every step; until another optimizer has it."""
        left = ({*self._before} | self._gradients) - self._claimed()
        self._unclaimed |= left
        self._gradients -= left
        for number in left:
            self._before.pop(number, None)

    def concerns(self, optimizer: Optimizer) -> bool:
        """Whether an optimizer moves any of the model's weights."""
        if optimizer in self._owned:
            return True
        groups = optimizer.param_groups
        found = any(id(parameter) in self._models for group in groups for parameter in group["params"])
        if found:  # where it does not, it may still be given some
            self._owned.add(optimizer)
        return found

    def goes_on(self) -> bool:
        """Whether the step that has ended is a part of another's, which may change the weights further (Lookahead)."""
        frame, steps = sys._getframe(), list[Optimizer]()
        while frame is not None:
            if frame.f_code is _STEP and isinstance(one := frame.f_locals.get("self"), Optimizer):
                steps.append(one)
            frame = frame.f_back  # type: ignore[assignment]
        return any(map(self.concerns, steps[1:]))

    def _send_gradients(self, optimizer: Optimizer) -> None:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                self._send_gradient(parameter)

    def _send_gradient(self, parameter: Tensor) -> None:
        if id(parameter) in self._gradients and parameter.grad is not None:
            self._gradients.discard(id(parameter))  # another optimizer may still come to the others
            label = label_of(self._names[id(parameter)], parameter)
            self._sender.send(parameter.grad, label, "weight_grad", self._step)

    def _send_update(self, parameter: Tensor) -> None:
        before = self._before.pop(id(parameter), None)
        if before is None or before.value is None:
            return
        label = label_of(self._names[id(parameter)], parameter)
        self._sender.send(parameter, label, "update", before.step, before.value)

    def settle(self) -> None:
        """Another step begins: send what changed without an optimizer of torch's."""
        if not self.waiting or not self._changed():
            return
        if self._gradients and all(_is_cleared(p.grad) for p in self._parameters.values() if id(p) in self._gradients):
            self._sender.report(
                "the gradients of the weights are gone before they can be looked at: no optimizer of torch's steps, "
                "and they are cleared before the next pass"
            )
            self._gradients.clear()
        for parameter in self._parameters.values():
            self._send_gradient(parameter)
            if id(parameter) in self._before:
                self._send_update(parameter)
        self._gradients.clear()

    def _changed(self) -> bool:
        """Whether any weight was written; by `.data` too, which leaves no trace but the numbers."""
        waiting = [p for p in self._parameters.values() if id(p) in self._before]
        if any(_version(parameter) != self._before[id(parameter)].version for parameter in waiting):
            return True
        return any(self._differs(parameter) for parameter in waiting[:_ASKED] if not local(parameter).is_cuda)

    def _differs(self, parameter: nn.Parameter) -> bool:
        kept = self._before[id(parameter)].value
        if kept is None or kept.dim() == 0 or kept.shape != parameter.shape:
            return False
        with torch.no_grad():
            return not torch.equal(_corner(parameter), _corner(kept))

    @property
    def waiting(self) -> bool:
        """Whether `settle` should be asked before the next watched step: no optimizer will tell us."""
        return bool(self._before) and not self._by_torch

    @property
    def unsent(self) -> bool:
        """Whether there is something that another optimizer may still do."""
        return bool(self._before or self._gradients)

    def _let_go(self) -> None:
        if self._follow is not None:
            self._follow.handle.remove()
        self._follow, self.follows = None, False

    def rest(self) -> None:
        """Keep no copies."""
        self._let_go()
        self._before.clear()
        self._gradients.clear()


_STEP = Optimizer.profile_hook_step(lambda: None).__code__  # what torch puts around the step of every optimizer


_SCALED = GradScaler.step.__code__


def _by_scaler() -> bool:
    """Whether the step of an optimizer that is about to begin is a GradScaler's."""
    frame = sys._getframe()
    while frame is not None:
        if frame.f_code is _SCALED:
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


def has_closure(arguments: Any, keywords: Any) -> bool:
    """Whether an optimizer's step will compute the gradients itself."""
    return any(one is not None for one in arguments[1:]) or keywords.get("closure") is not None


def label_of(name: str, parameter: Tensor) -> str:
    """A parameter's name; of a shard also whose it is."""
    return f"{name}@rank{rank_of()[0]}" if hasattr(parameter, "_local_tensor") else name


def _version(parameter: Tensor) -> int:
    try:
        return parameter._version
    except (RuntimeError, NotImplementedError):  # made in inference mode: nobody counts
        return 0


def _is_cleared(gradient: Tensor | None) -> bool:
    """Whether there is no gradient; one of zeros on a GPU counts as one, for nobody is to wait for an answer."""
    return gradient is None or not (gradient.is_sparse or local(gradient).is_cuda or bool(local(gradient).any()))


def _corner(tensor: Tensor) -> Tensor:
    """A few of its numbers, without a copy."""
    while tensor.dim() > 1:
        tensor = tensor[0]
    return tensor[:_LOOKED_AT]
