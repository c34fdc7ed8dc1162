"""Notify a command or a webhook of a run's alerts, its crash and its end, from a process of its own.

That process also notices that this one was killed. Nothing here waits, except `close`, for a moment.
"""

from __future__ import annotations

import atexit
import os
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from torcheer.errors import CannotWrite, reason_of, uncaught
from torcheer.samples import Alert
from torcheer.wire.child_process import ONE_THREAD, ChildProcess, Program, working_folder
from torcheer.wire.notify.notify_targets import Target, as_message
from torcheer.wire.socket_lines import encode_line

_PROGRAM: Final = Program(
    "torcheer.wire.notify.notifier_process", "notifies of a training run", "the notifying process", ONE_THREAD,
    imports_as_here=False,
)  # fmt: skip
_CLOSE_SECS: Final = 2.0  # for the last notification; the process goes on with it by itself
_LEFT: list[subprocess.Popen[bytes]] = []  # that still notify of runs that have ended


class Notifier:
    """Sends the events of one run; `tell` is called with each target that cannot be reached, once."""

    def __init__(
        self, targets: Sequence[Target], *, title: str, to: Path | None, tell: Callable[[str], object]
    ) -> None:
        _LEFT[:] = [popen for popen in _LEFT if popen.poll() is None]  # reaps those that have ended
        self._tell, self._process, self._child = tell, os.getpid(), None
        self._port: socket.socket | None = None
        self._is_lost = False  # True once the process was found dead
        if not targets:
            return
        try:
            self._child = self._start()
        except (OSError, CannotWrite) as error:
            tell(f"nobody is notified of this run: the process for it cannot be started ({error})")
            return
        about = {"title": title, "run": "" if to is None else str(to.absolute()), "host": socket.gethostname()}
        messages = [as_message(target) for target in targets]
        self._child.wire.send({"kind": "begin", "targets": messages, "about": {**about, "pid": self._process}})
        atexit.register(self._at_exit)

    def _start(self) -> ChildProcess:
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        with there:
            self._port = here
            return ChildProcess(_PROGRAM, fds=(there.fileno(),), folder=working_folder(), captures=True)

    @property
    def fds(self) -> tuple[int, ...]:
        """For another process of the run, which may report alerts by `notify_from`; empty without a target."""
        return () if self._port is None else (self._port.fileno(),)

    @property
    def is_open(self) -> bool:
        """Whether there is a target, and the run goes on in this process."""
        return self._child is not None and self._process == os.getpid()

    def alert(self, alert: Alert) -> None:
        """Notify of an alert."""
        self._send(alert_event(alert))

    def close(self, text: str = "", error: BaseException | str | None = None) -> None:
        """Notify of the run's end, or of the `error` that ended it; a second call does nothing.

        `text` is the closing line. KeyboardInterrupt, and SystemExit without a status, are an end.
        """
        if not self.is_open or self._child is None:
            return
        reason = error if isinstance(error, str) else "" if error is None else reason_of(error)
        is_end = not reason or isinstance(error, KeyboardInterrupt)
        is_end = is_end or (isinstance(error, SystemExit) and error.code in (None, 0))
        self._send({"event": "end" if is_end else "crash", "what": " ".join(filter(None, (reason, text)))})
        self._child.wire.send({"kind": "close"})
        child, self._child = self._child, None
        if not child.wait(time.monotonic() + _CLOSE_SECS, self._receive):
            _LEFT.append(child.popen)  # a slow webhook: it ends by itself
        child.close()
        self._close_port()
        atexit.unregister(self._at_exit)

    def _send(self, event: dict[str, Any]) -> None:
        if self.is_open and self._child is not None:
            is_sent = self._child.wire.send({"kind": "event", "event": {**event, "time": time.time()}})
            self._receive(self._child.wire.exchange())
            if not is_sent and not self._is_lost:
                self._is_lost = True
                self._tell("nobody is notified of this run any more: the process for it has ended")

    def _receive(self, messages: list[dict[str, Any]]) -> None:
        for message in messages:
            if message["kind"] == "problem":
                self._tell(str(message["text"]))

    def _close_port(self) -> None:
        if self._port is not None:
            self._port.close()
            self._port = None

    def _at_exit(self) -> None:
        self.close(error=uncaught())

    def __deepcopy__(self, memo: dict[int, Any]) -> Notifier:
        return self  # copying a model copies the objects that its hooks hold


def alert_event(alert: Alert) -> dict[str, Any]:
    """An alert as a notification has it."""
    return {"event": "alert", **asdict(alert), "what": str(alert)}


def notify_from(fd: int, alert: Alert) -> None:
    """Report an alert from another process of the run, which has a descriptor of `Notifier.fds`."""
    line = encode_line({**alert_event(alert), "time": time.time()})
    with socket.socket(fileno=os.dup(fd)) as port:
        try:
            port.send(line, socket.MSG_DONTWAIT)
        except OSError:  # it is gone, or does not read; the training process reports the alert, too
            return
