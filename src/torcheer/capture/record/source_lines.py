"""Source lines: the user code from which an operation was called."""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

import torch

# Code objects by id (hashing one reads all of its instructions), kept alive so that the ids stay valid.
DIRECT: dict[int, CodeType] = {}  # user code and forwards of torch's own modules: no need to walk further
_machinery: dict[int, CodeType] = {}  # torch's and torcheer's internal code
_TORCH = torch.__path__[0] + "/"
_WRAPPERS = (contextlib.__file__, "/typing_extensions.py")  # torch's context managers, and what it deprecates
_OURS = __file__.removesuffix("capture/record/source_lines.py")


def user_frame(frame: FrameType) -> FrameType:
    """Return the nearest frame a user would recognise: user code, or a torch module's forward."""
    current: FrameType | None = frame
    while current is not None:
        key = id(current.f_code)
        if key in DIRECT or (key not in _machinery and _is_recognisable(current.f_code)):
            return current
        current = current.f_back
    return frame


def caller_of(frame: FrameType) -> tuple[CodeType, int]:
    """Return the nearest recognisable code around a call, and the instruction in it."""
    user = user_frame(frame)
    return user.f_code, user.f_lasti


def _is_recognisable(code: CodeType) -> bool:
    file = code.co_filename
    machinery = file.startswith((_TORCH, _OURS, "<frozen")) or file.endswith(_WRAPPERS)
    module_code = file.startswith(_TORCH + "nn/modules/") and not file.endswith("/module.py")
    if machinery and not module_code:
        _machinery[id(code)] = code
        return False
    DIRECT[id(code)] = code
    return True


def at_user_line(show: Callable[..., Any]) -> Callable[..., Any]:
    """Return a `warnings.showwarning` that issues warnings of our frames anew where the user's code called torch.

    The user's filters by module and once for each line hold as they do without a capture.
    """

    def show_at_user_line(message: Any, category: Any, filename: str, lineno: int, *more: Any, **named: Any) -> None:
        frame: FrameType | None = sys._getframe(1) if filename.startswith(_OURS) else None
        while frame is not None and (frame.f_code.co_filename, frame.f_lineno) != (filename, lineno):
            frame = frame.f_back
        user = user_frame(frame) if frame is not None else frame
        if frame is None or user is None or user is frame:
            show(message, category, filename, lineno, *more, **named)
            return
        frame.f_globals.pop("__warningregistry__", None)  # where it counts as shown for every line of the user
        getattr(warnings, "onceregistry", {}).pop((str(message), category), None)
        names = user.f_globals
        registry = names.setdefault("__warningregistry__", {})
        warnings.warn_explicit(
            message, category, user.f_code.co_filename, user.f_lineno, names.get("__name__"), registry
        )  # fmt: skip

    return show_at_user_line


def is_user_code(code: CodeType) -> bool:
    """Whether code is neither torch's nor torcheer's."""
    return not code.co_filename.startswith((_TORCH, _OURS, "<frozen"))


def line_of(code: CodeType, lasti: int) -> int:
    """Return the line number of an instruction."""
    entry = _lines.get(id(code))
    if entry is None:
        entry = _lines[id(code)] = (code, {})
    line = entry[1].get(lasti)
    if line is None:
        lines = (line for start, end, line in code.co_lines() if start <= lasti < end and line)
        line = entry[1][lasti] = next(lines, code.co_firstlineno)
    return line


_lines: dict[int, tuple[CodeType, dict[int, int]]] = {}  # by id, like DIRECT


def capture_caller(frame: Any) -> tuple[CodeType, int]:
    """Return the user code that started a capture, and the instruction in it."""
    while frame.f_back is not None and not (
        is_user_code(frame.f_code) and not frame.f_code.co_filename.endswith("contextlib.py")
    ):
        frame = frame.f_back
    return frame.f_code, frame.f_lasti
