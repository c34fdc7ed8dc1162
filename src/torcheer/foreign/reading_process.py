"""The process in which others' formats are read: it may crash, hang or swell, and is then replaced by another."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from torcheer.errors import ArchiveDamaged, BadArgument, TorcheerError
from torcheer.foreign.request import Answer, Request
from torcheer.wire import fork_registry
from torcheer.wire.child_process import ONE_THREAD, ChildProcess, Program

_PROGRAM: Final = Program(
    "torcheer.foreign.readers.service", "reads files of other programs", "the reading process", ONE_THREAD, False
)
CPU_SECS: Final = 30.0  # of one file
_MOST_SECS: Final = 120.0  # by the clock, on a machine with other things to do
_START_SECS: Final = 60.0
_MOST_ANSWER_BYTES: Final = 1 << 30
_ERRORS: Final[dict[str, type[Exception]]] = {
    "ArchiveDamaged": ArchiveDamaged, "BadArgument": BadArgument, "FileNotFoundError": FileNotFoundError,
}  # fmt: skip


class Lost(ArchiveDamaged):
    """The process died of a file, or was ended because of it."""


class ReadingProcess:
    """Readers in a process of their own: started when something is to be read, and used again."""

    def __init__(self, *readers: str, cpu_secs: float = CPU_SECS) -> None:
        self.readers, self._cpu_secs = readers, cpu_secs
        self._child: ChildProcess | None = None
        self._inbox: list[tuple[dict[str, Any], int | None]] = []
        self._asking = threading.Lock()
        self.limits: tuple[str, ...] = ()  # that hold there: "memory", "calls"
        fork_registry.register(self)

    def start(self) -> None:
        """Start it, without waiting for it: the first file is read sooner then."""
        if self._child is not None and self._child.popen.poll() is not None:
            self._end()
        if self._child is None:
            self._child, self._inbox = ChildProcess(_PROGRAM, self.readers), []

    def ask(self, request: Request, open_file: Callable[[str], int]) -> Answer:
        """Have something read.

        - `open_file`: gives a descriptor, which is closed here, of a file that the process names.

        Raises what the reader raised; `Lost` where the process died of it.
        """
        with self._asking:
            self.start()
            try:
                return self._answer(request, open_file)
            except BaseException as error:
                if not isinstance(error, tuple(_ERRORS.values())) or isinstance(error, Lost):
                    self._end()  # it may still be at work
                raise

    def after_fork(self) -> None:
        """Leave it to the process that started it; a fork starts its own."""
        self._child, self._inbox, self._asking = None, [], threading.Lock()

    def close(self) -> None:
        """End it."""
        with self._asking:
            self._end()

    # -- one request -------------------------------------------------------------------------------------------------

    def _answer(self, request: Request, open_file: Callable[[str], int]) -> Answer:
        asked = {"reader": request.reader, "name": request.name, "names": request.names, "part": request.part}
        self._send({"kind": "read", **asked, "cpu_secs": self._cpu_secs})
        deadline = time.monotonic() + _MOST_SECS
        while True:
            message, descriptor = self._next(deadline)
            try:
                if message["kind"] == "answer" and descriptor is not None:
                    return _received(message, descriptor)
            finally:
                if descriptor is not None:
                    os.close(descriptor)
            if message["kind"] == "ready":
                self.limits = tuple(message["limits"])
            elif message["kind"] == "open":
                self._send_file(str(message["name"]), open_file)
            elif message["kind"] == "error":
                raise _ERRORS.get(message["error"], ArchiveDamaged)(message["text"])
            else:
                raise Lost("the reading process answered otherwise than it should")

    def _send_file(self, name: str, open_file: Callable[[str], int]) -> None:
        try:
            descriptor = open_file(name)
        except (TorcheerError, OSError, ValueError) as error:
            kind = "FileNotFoundError" if isinstance(error, FileNotFoundError) else "BadArgument"
            self._send({"kind": "refused", "error": kind, "text": str(error)})
            return
        try:
            self._send({"kind": "file"}, descriptor)
        finally:
            os.close(descriptor)

    def _send(self, message: dict[str, Any], descriptor: int | None = None) -> None:
        assert self._child is not None
        if not self._child.wire.send(message, descriptor):
            raise self._lost()

    def _next(self, deadline: float) -> tuple[dict[str, Any], int | None]:
        assert self._child is not None
        wire = self._child.wire
        while not self._inbox:
            if time.monotonic() > deadline:
                raise Lost(f"reading it took more than {_MOST_SECS:.0f} s")
            self._inbox += wire.receive_within(1.0)
            if wire.closed and not self._inbox:
                raise self._lost()
        return self._inbox.pop(0)

    def _lost(self) -> Lost:
        """Why the process is no more."""
        assert self._child is not None
        popen = self._child.popen
        try:
            status = popen.wait(5)
        except Exception:
            return Lost("the process that read it answers no more")
        if status == -signal.SIGPROF:
            return Lost(f"reading it took more than {self._cpu_secs:.0f} s of processor time")
        if status == -signal.SIGKILL:
            return Lost("the process that read it was killed, as it is where memory runs out")
        name = signal.Signals(-status).name if status < 0 else f"status {status}"
        return Lost(f"the process that read it crashed ({name})")

    def _end(self) -> None:
        child, self._child, self._inbox = self._child, None, []
        if child is not None:
            child.popen.kill()
            child.popen.wait()
            child.close()


def _received(message: dict[str, Any], descriptor: int) -> Answer:
    """An answer, copied: the memory that it came in may become smaller while it is read."""
    json_bytes, blob_bytes = int(message["json_bytes"]), int(message["blob_bytes"])
    total = json_bytes + blob_bytes
    if total > _MOST_ANSWER_BYTES or min(json_bytes, blob_bytes) < 0:
        raise ArchiveDamaged(f"what is in it takes {total:,} bytes; at most {_MOST_ANSWER_BYTES:,} fit")
    text = _bytes_at(descriptor, 0, json_bytes)
    body = json.loads(text)
    return Answer(body, _bytes_at(descriptor, json_bytes, blob_bytes), tuple(map(str, message["files"])))


def _bytes_at(descriptor: int, begin: int, count: int) -> bytes:
    parts, end = [], begin + count
    while begin < end and (part := os.pread(descriptor, min(end - begin, 1 << 26), begin)):
        parts.append(part)
        begin += len(part)
    return b"".join(parts)
