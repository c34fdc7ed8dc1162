"""Pause the tape during an optimizer's step, where seeing each call would only cost time.

Torch's hook before every optimizer's `step` starts the pause. `step` runs inside a `record_function` of torch's
profiler, whose `__exit__` also runs when a step fails; that ends the pause. Both are installed only while a tape is on.
"""

from __future__ import annotations

import sys
import threading
from functools import partial
from typing import Any

from torch.autograd.profiler import record_function
from torch.optim.optimizer import register_optimizer_step_pre_hook

from torcheer.capture.torch_state import EAGER, Swaps, function_modes, pop_function_mode, push_function_mode

_original_exit = record_function.__exit__
_paused = threading.local()


def _pause(optimizer: Any, args: Any, kwargs: Any) -> None:
    from torcheer.autograd.tape.tape import Tape

    if getattr(_paused, "tape", None) is not None:
        return  # a step inside a step
    closure = kwargs.get("closure") or (args[1] if len(args) > 1 else None)
    modes = function_modes()
    if closure is None and modes and isinstance(modes[-1], Tape):
        _paused.tape = pop_function_mode()


def _exit(self: Any, *problem: Any) -> Any:
    resume()
    return _original_exit(self, *problem)


def resume() -> None:
    """End the pause, also after a step that raised."""
    tape = getattr(_paused, "tape", None)
    if tape is not None:
        _paused.tape = None
        push_function_mode(tape)


class _Uncompiled:
    """Compiled code runs eagerly, if there may be any."""

    def __init__(self) -> None:
        self._on = "torch._dynamo" in sys.modules
        if self._on:
            EAGER.start(self)

    def remove(self) -> None:
        if self._on:
            EAGER.stop(self)


PAUSES = Swaps(
    "notice optimizer steps",
    (record_function, "__exit__", lambda _: _exit),
    hooks=[_Uncompiled, partial(register_optimizer_step_pre_hook, _pause)],
)
