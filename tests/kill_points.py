"""Kills that prove where they landed: a process writes down where it stands, then SIGKILL comes.

A place is a function of the program. While it runs, the lines of our code that run within it are counted. Armed to
count, a process writes after each call how many there were. Armed to kill, it writes at a line of a call, with its
stack, that it is here, and kills itself there; or, so that the kill comes from outside, it goes on slowly, and writes
when it has left the call, in which case the kill came too late. Armed to wait, it stands there until it may go on.

All processes of a program append to one file, whose bytes a kill does not take back. Nothing but the standard library
is imported here: `kill_hook/sitecustomize.py` does it in every process that a program starts.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

VARIABLE = "KILL_POINTS"
SLOW_SECS = 0.002  # of a line, while a kill from outside is awaited
_OURS = (f"{os.sep}torcheer{os.sep}", f"{os.sep}tests{os.sep}")
_of_thread = threading.local()
_armed: dict[str, Any] = {}


def arm(order: dict[str, Any], *, is_main: bool) -> None:
    """Follow an order: {"file", "mode": one of count, inside, outside, wait or "", "places": […], "call", "line"}.

    A place: "function", as "module:Class.name" where it is looked up; "process", what stands in the command line of the
    process, "main" for the program itself, "fork" for those that it forks; "environment", variables that it must have.
    """
    _armed.update(order, pid=os.getpid())
    os.environ[VARIABLE] = json.dumps(order)
    note(started=os.getpid())
    os.register_at_fork(after_in_child=lambda: note(started=os.getpid()))
    for place in order["places"] if order["mode"] else ():
        if is_main if place["process"] in ("main", "fork") else place["process"] in " ".join(sys.orig_argv):
            module = place["function"].partition(":")[0]
            if module in sys.modules:
                _wrap(place)
            else:
                sys.meta_path.insert(0, _AfterImport(module, place))


def arm_from_environment() -> None:
    """Follow the order that the program's first process was given."""
    arm(json.loads(os.environ[VARIABLE]), is_main=False)


def note(**facts: Any) -> None:
    """Append a line to the file of the program; does nothing in a process that is not armed."""
    if _armed:
        facts |= {"pid": os.getpid(), "thread": threading.current_thread().name}
        file = os.open(_armed["file"], os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.write(file, json.dumps(facts).encode() + b"\n")
        finally:
            os.close(file)


class _AfterImport:
    """Replaces a function as soon as its module was imported."""

    def __init__(self, module: str, place: dict[str, Any]) -> None:
        self._module, self._place = module, place

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != self._module:
            return None
        sys.meta_path.remove(self)  # type: ignore[arg-type]
        spec = importlib.util.find_spec(name)
        assert spec is not None and spec.loader is not None
        execute = spec.loader.exec_module

        def execute_and_wrap(module: Any) -> None:
            execute(module)
            _wrap(self._place)

        spec.loader.exec_module = execute_and_wrap  # type: ignore[method-assign]
        return spec


def _wrap(place: dict[str, Any]) -> None:
    module, _, names = place["function"].partition(":")
    holder: Any = sys.modules[module]
    *holders, name = names.split(".")
    for part in holders:
        holder = getattr(holder, part)
    setattr(holder, name, _watched(getattr(holder, name), place))


def _is_here(place: dict[str, Any]) -> bool:
    is_fork = os.getpid() != _armed["pid"]
    return is_fork == (place["process"] == "fork") and all(
        os.environ.get(name) == value for name, value in place.get("environment", {}).items()
    )


def _watched(function: Callable[..., Any], place: dict[str, Any]) -> Callable[..., Any]:
    calls, counting = 0, threading.Lock()

    @functools.wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        if not _is_here(place):
            return function(*arguments, **options)
        with counting:
            calls += 1
            number = calls
        if _armed["mode"] != "count" and number != _armed["call"]:
            return function(*arguments, **options)
        visit = _Visit(place["function"], number)
        try:
            with visit:
                return function(*arguments, **options)
        finally:
            visit.note_end()

    return call


class _Visit:
    """One call of a place: counts lines, and acts at the one that was asked for."""

    def __init__(self, function: str, call: int) -> None:
        self._function, self._call, self._lines, self._is_held = function, call, 0, False

    def __enter__(self) -> None:
        if not hasattr(_of_thread, "visits"):
            _of_thread.visits = []
        self._before = sys.gettrace()
        _of_thread.visits.append(self)
        sys.settrace(_trace)

    def __exit__(self, *_: Any) -> None:
        sys.settrace(self._before)
        _of_thread.visits.remove(self)

    def note_end(self) -> None:
        if _armed["mode"] == "count":
            note(counted=self._function, call=self._call, lines=self._lines)
        elif self._is_held:
            note(left=self._function, call=self._call)

    def line(self, frame: Any) -> None:
        self._lines += 1
        if self._is_held:
            time.sleep(SLOW_SECS if _armed["mode"] == "outside" else 0.0)
        elif _armed["mode"] != "count" and self._lines == _armed["line"] and _is_first():
            note(here=self._function, call=self._call, line=self._lines, stack=_stack_of(frame))
            if _armed["mode"] == "inside":
                os.kill(os.getpid(), signal.SIGKILL)
            while _armed["mode"] == "wait" and not os.path.exists(_armed["file"] + ".go"):
                time.sleep(SLOW_SECS)
            self._is_held = True


def _trace(frame: Any, event: str, _: Any) -> Any:
    return _trace_lines if any(part in frame.f_code.co_filename for part in _OURS) else None


def _trace_lines(frame: Any, event: str, _: Any) -> Any:
    if event == "line":
        for visit in _of_thread.visits:
            visit.line(frame)
    return _trace_lines


def _is_first() -> bool:
    """Whether no process of the program was here before: one kill for each order."""
    try:
        os.close(os.open(_armed["file"] + ".spent", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        return False
    return True


def _stack_of(frame: Any) -> list[str]:
    stack = []
    while frame is not None:
        code = frame.f_code
        if any(part in code.co_filename for part in _OURS):
            stack.append(f"{os.path.basename(code.co_filename)}:{frame.f_lineno} {code.co_qualname}")
        frame = frame.f_back
    return stack
