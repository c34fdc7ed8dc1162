"""A tape rests while an optimizer steps: nothing there is recorded, and being asked would only take time.

Torch's own hook before every optimizer's `step` tells when. `step` runs inside a `record_function` of torch's profiler,
whose end comes also where a step fails; that is when the tape goes on. Both are there only while some tape is on.
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
_stance: list[Any] = []  # compiled code runs as the Python it was made from
_original_exit = record_function.__exit__
_users = 0
_lock = threading.Lock()
_resting = threading.local()


def start() -> None:
    """One more tape is on."""
    global _users
    with _lock:
        _users += 1
        if not _handles:
            _stance.append(
                torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else nullcontext()
            )
            _stance[-1].__enter__()
            _handles.append(register_optimizer_step_pre_hook(_before))
            record_function.__exit__ = _exit  # type: ignore[method-assign]


def stop() -> None:
    """One tape less; with the last, torch is as it was found."""
    global _users
    wake()
    with _lock:
        _users -= 1
        if not _users:
            while _handles:
                _handles.pop().remove()
            _stance.pop().__exit__(None, None, None)
            record_function.__exit__ = _original_exit  # type: ignore[method-assign]


def _before(optimizer: Any, args: Any, kwargs: Any) -> None:
    from torcheer.autograd.tape.tape import Tape

    if getattr(_resting, "tape", None) is not None:
        return  # a step inside a step
    closure = kwargs.get("closure") or (args[1] if len(args) > 1 else None)
    height = torch._C._len_torch_function_stack()
    if closure is None and height and isinstance(torch._C._get_function_stack_at(height - 1), Tape):
        _resting.tape = _pop()


def _exit(self: Any, *problem: Any) -> Any:
    wake()
    return _original_exit(self, *problem)


def wake() -> None:
    """Go on, also where a step ended in an error."""
    tape = getattr(_resting, "tape", None)
    if tape is not None:
        _resting.tape = None
        _push(tape)
