"""Which optimizers step a model's weights."""

from __future__ import annotations

import sys
import weakref
from typing import Any

from torch import nn
from torch.optim import Optimizer


class ModelOptimizers:
    """The optimizers of a model, as they are seen to step; `counted` is the one whose steps are the model's."""

    def __init__(self, model: nn.Module) -> None:
        self.counted: Optimizer | None = None  # None: any that updates weights of the model
        self._parameters = tuple(model.parameters())  # keeps their ids from being used again
        self._ids = set(map(id, self._parameters))
        self._seen: weakref.WeakSet[Optimizer] = weakref.WeakSet()

    def counts(self, optimizer: Optimizer) -> bool:
        """Whether a step of this optimizer is a step of the model; a wrapper shares the wrapped one's groups."""
        if self.counted is not None:
            return optimizer.param_groups is self.counted.param_groups
        return self.trains_model(optimizer)

    def trains_model(self, optimizer: Optimizer) -> bool:
        """Whether an optimizer updates any of the model's weights."""
        if optimizer in self._seen:
            return True
        is_ours = any(id(parameter) in self._ids for group in optimizer.param_groups for parameter in group["params"])
        if is_ours:  # where it is not, parameters may still be added to it
            self._seen.add(optimizer)
        return is_ours

    def trained_ids(self) -> set[int]:
        """The ids of all parameters of the optimizers seen so far."""
        return {id(p) for optimizer in self._seen for group in optimizer.param_groups for p in group["params"]}

    def is_nested_step(self) -> bool:
        """Whether the current optimizer step runs inside another's, which may update the weights too (Lookahead)."""
        frame, steps = sys._getframe(), list[Optimizer]()
        while frame is not None:
            if frame.f_code is _STEP and isinstance(optimizer := frame.f_locals.get("self"), Optimizer):
                steps.append(optimizer)
            frame = frame.f_back  # type: ignore[assignment]
        return any(map(self.trains_model, steps[1:]))


_STEP = Optimizer.profile_hook_step(lambda: None).__code__  # the wrapper that torch puts around every optimizer's step


def has_closure(arguments: Any, keywords: Any) -> bool:
    """Whether an optimizer's step received a closure that computes the gradients."""
    return any(argument is not None for argument in arguments[1:]) or keywords.get("closure") is not None
