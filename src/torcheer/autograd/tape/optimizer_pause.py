"""Pause the tape during an optimizer's step, where seeing each call would only cost time.

Torch's hook before every optimizer's `step` starts the pause. `step` runs inside a `record_function` of torch's
profiler, whose `__exit__` also runs when a step fails; that ends the pause. Both are installed only while a tape is on.
"""

from __future__ import annotations

import sys
import threading
from contextlib import nullcontext
from typing import Any

import torch
from torch.autograd.profiler import record_function
from torch.optim.optimizer import register_optimizer_step_pre_hook

_push, _pop = torch._C._push_on_torch_function_stack, torch._C._pop_torch_function_stack
_handles: list[Any] = []
_stance: list[Any] = []  # compiled code runs eagerly
_original_exit = record_function.__exit__
_users = 0
_lock = threading.Lock()
_paused = threading.local()


def start() -> None:
    """Count one more tape, and install the hooks for the first."""
    global _users
    with _lock:
        _users += 1
        if not _handles:
            _stance.append(
                torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else nullcontext()
            )
            _stance[-1].__enter__()
            _handles.append(register_optimizer_step_pre_hook(_pause))
            record_function.__exit__ = _exit  # type: ignore[method-assign]


def stop() -> None:
    """Count one tape less; after the last, torch is restored."""
    global _users
    resume()
    with _lock:
        _users -= 1
        if not _users:
            while _handles:
                _handles.pop().remove()
            _stance.pop().__exit__(None, None, None)
            record_function.__exit__ = _original_exit  # type: ignore[method-assign]


def _pause(optimizer: Any, args: Any, kwargs: Any) -> None:
    from torcheer.autograd.tape.tape import Tape

    if getattr(_paused, "tape", None) is not None:
        return  # a step inside a step
    closure = kwargs.get("closure") or (args[1] if len(args) > 1 else None)
    height = torch._C._len_torch_function_stack()
    if closure is None and height and isinstance(torch._C._get_function_stack_at(height - 1), Tape):
        _paused.tape = _pop()


def _exit(self: Any, *problem: Any) -> Any:
    resume()
    return _original_exit(self, *problem)


def resume() -> None:
    """End the pause, also after a step that raised."""
    tape = getattr(_paused, "tape", None)
    if tape is not None:
        _paused.tape = None
        _push(tape)
