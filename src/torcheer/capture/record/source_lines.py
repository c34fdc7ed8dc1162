"""Where in the code an operation was called from."""

from __future__ import annotations

import contextlib
from types import CodeType, FrameType
from typing import Any

import torch

# Code objects by id, and held so that the id stays theirs: hashing one reads all of its instructions.
DIRECT: dict[int, CodeType] = {}  # frames that need no walk: the user's, and forwards of torch's own modules
_passing: dict[int, CodeType] = {}  # torch's and our own machinery
_TORCH = torch.__path__[0] + "/"
_WRAPPERS = (contextlib.__file__, "/typing_extensions.py")  # torch's context managers, and what it deprecates
_OURS = __file__.removesuffix("capture/record/source_lines.py")


def user_frame(frame: FrameType) -> FrameType:
    """The nearest frame a person would recognise: their own code, or a torch module's forward."""
    found: FrameType | None = frame
    while found is not None:
        key = id(found.f_code)
        if key in DIRECT or (key not in _passing and _judge(found.f_code)):
            return found
        found = found.f_back
    return frame


def caller_of(frame: FrameType) -> tuple[CodeType, int]:
    """The user's code around a call, and at which instruction."""
    found = user_frame(frame)
    return found.f_code, found.f_lasti


def _judge(code: CodeType) -> bool:
    file = code.co_filename
    machinery = file.startswith((_TORCH, _OURS, "<frozen")) or file.endswith(_WRAPPERS)
    module_code = file.startswith(_TORCH + "nn/modules/") and not file.endswith("/module.py")
    if machinery and not module_code:
        _passing[id(code)] = code
        return False
    DIRECT[id(code)] = code
    return True


def is_users(code: CodeType) -> bool:
    """Whether code is neither torch's nor ours."""
    return not code.co_filename.startswith((_TORCH, _OURS, "<frozen"))


def line_of(code: CodeType, lasti: int) -> int:
    """The line an instruction stands on."""
    known = _lines.get(id(code))
    if known is None:
        known = _lines[id(code)] = (code, {})
    line = known[1].get(lasti)
    if line is None:
        lines = (line for start, end, line in code.co_lines() if start <= lasti < end and line)
        line = known[1][lasti] = next(lines, code.co_firstlineno)
    return line


_lines: dict[int, tuple[CodeType, dict[int, int]]] = {}  # by id, like DIRECT


def asked_by(frame: Any) -> tuple[CodeType, int]:
    """The user's code that started a capture, and at which instruction."""
    while frame.f_back is not None and not (
        is_users(frame.f_code) and not frame.f_code.co_filename.endswith("contextlib.py")
    ):
        frame = frame.f_back
    return frame.f_code, frame.f_lasti
