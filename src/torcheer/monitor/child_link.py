"""The child as the training process sees it: start it, send to it, hear what it says, start it again, stop it."""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from torcheer.errors import CannotWrite
from torcheer.monitor.child_plan import Plan
from torcheer.monitor.child_process import Child, letter_of, working_folder
from torcheer.samples import Account, Key
from torcheer.wire.ring import Ring

_LONGEST_SECS: Final = 1e6  # more is more than a lock can wait


class Link:
    """A child and the ring to it. Nothing here raises into a training step, or waits for the child but `stop`."""

    def __init__(
        self,
        plan: Plan,
        *,
        callbacks: bytes = b"",
        ring_bytes: int = 64 << 20,
        policy: str = "drop",
        block_ms: float = 0.0,
        most_records: int = 0,
        restarts: int = 3,
        tell: Callable[[str], Any] | None = None,
    ) -> None:
        self._plan, self._callbacks, self._letter = plan, callbacks, letter_of(plan, callbacks)
        self._folder, self._tell = working_folder(), tell or _warn
        self.ring = Ring(ring_bytes, policy=policy, block_ms=block_ms, most_records=most_records)
        self._process, self._most_restarts, self._restarts = os.getpid(), restarts, 0
        self._looking = threading.RLock()  # held by who reads the pipe, starts or stops the child
        self._inbox: list[dict[str, Any]] = []
        self._open, self._ended, self._final = True, "", Account()
        self._lost, self._mute = 0, False
        self._past: list[subprocess.Popen[bytes]] = []  # children that have said their last word
        try:
            self._child = Child(self._letter, self.ring.fd, self._folder)
        except BaseException:
            self.ring.close()
            raise
        self.process = Process(self)
        _LINKS.add(self)
        atexit.register(self.stop)

    def offer(self, about: Mapping[str, Any], size_bytes: int, fill: Callable[[memoryview], None]) -> bool:
        """Send a value, if there is room for it; see `Ring.offer`. Safe from any thread."""
        if not self._open:
            return False
        try:  # the ring knows a forked process
            if self._ended or (self.ring.blocks and not self.process.is_alive()):
                return self.ring.refuse(about)
            sent = self.ring.offer(about, size_bytes, fill)
            if sent and self.ring.needs_wakeup():
                self._child.tell(b".")
            return sent
        except Exception as error:  # a value that cannot be copied is no reason to stop a training run
            self._complain(f"a value could not be sent to the watching process and is left out: {error!r}")
            return False

    def refuse(self, about: Mapping[str, Any]) -> bool:
        """Count a value that is not even tried as dropped."""
        return self._open and self.ring.refuse(about)

    def heard(self) -> list[dict[str, Any]]:
        """What the child has said since; starts it again where it has died."""
        if self._process != os.getpid() or not self._looking.acquire(blocking=False):
            return []
        try:
            if self._open:
                self._child.listen(self._inbox)
                self._look_after()
            found, self._inbox = self._inbox, []
            return found
        finally:
            self._looking.release()

    def _look_after(self) -> None:
        """Notice a child that has ended."""
        code = self._child.popen.poll()
        if code is None or self._ended or not self._open:
            return
        self._child.listen(self._inbox)
        self._lost = max(self.ring.taken - self.ring.handled, 0)
        if self._child.why == "timeout":
            self._ended = "it had no data for the time it was given"
        else:
            self._start_again(_ending(-signal.SIGTERM if self._child.why == "terminated" else code))

    def _start_again(self, ending: str) -> None:
        self._inbox.append({"kind": "died", "how": ending, "restarts": self._restarts})
        if self._restarts < self._most_restarts:
            self._restarts += 1
            if problem := self._replace():
                ending = f"{ending}, and {problem}"
            else:
                if self._restarts == 1:
                    self._tell(
                        f"the watching process {ending} and was started again; {self._lost} of its values are lost. "
                        f"Up to {self._most_restarts} such deaths are made good, without another word. "
                        "The training is not touched."
                    )
                return
        self._ended = ending
        self._tell(
            f"the watching process {ending} and is not started again (after {self._restarts} restarts): "
            "what comes now is dropped and counted. The training is not touched."
        )

    def _replace(self) -> str:
        """Give the ring to a new child; says why that cannot be."""
        try:
            self._child.close()
            self.ring.prepare_reader()
            self._child = Child(self._letter, self.ring.fd, self._folder)
        except (OSError, CannotWrite) as error:
            return f"could not be started again ({error})"
        return ""

    def resume(self) -> None:
        """Where the child had no data for too long and has left, start another; it gets what came meanwhile."""
        with self._looking:
            if not self._open or self._child.why != "timeout":
                return
            self._past = [one for one in (*self._past, self._child.popen) if one.poll() is None]
            self._ended = self._replace()
            if self._ended:
                self._tell(f"the watching process had left for want of data and {self._ended}")

    def change(self, **changes: Any) -> None:
        """Have the child, and whoever takes its place, go by other settings of its plan from now on."""
        with self._looking:
            self._plan = replace(self._plan, **changes)
            self._letter = letter_of(self._plan, self._callbacks)
            self._child.tell(json.dumps(changes).encode())

    @property
    def waiting(self) -> int:
        """How many values the child has still to take."""
        ring = self.ring
        return max(ring.offered - sum(ring.dropped.values()) - ring.taken - ring.damaged, 0) if self._open else 0

    def stop(self, timeout_secs: float = 5.0) -> Account:
        """Let the child finish what it was sent and close its files; end it where it takes longer than that."""
        if self._process != os.getpid():
            return self.account
        timeout_secs = min(max(timeout_secs, 0.0), _LONGEST_SECS)
        until = time.monotonic() + timeout_secs
        if self._looking.acquire(timeout=timeout_secs + 1.0):
            try:
                if self._open:
                    self.ring.stop_accepting()
                    self._finish(until, grace_secs=min(1.0, 0.25 * timeout_secs))
                    self._close()
            finally:
                self._looking.release()
        return self.account

    def _finish(self, until: float, grace_secs: float) -> None:
        """Wait for the child's own end; where it dies of a value, another may take what waits behind that."""
        while True:
            self._look_after()
            self._child.tell(b"q")
            if not self._child.wait(until - grace_secs, self._inbox):
                break
            if self._child.why or self._ended:
                return
        self._child.popen.send_signal(signal.SIGTERM)  # no more values, close the files
        if not self._child.wait(until, self._inbox):
            self._child.popen.kill()  # also ends one that is stopped
            self._child.wait(time.monotonic() + 5.0, self._inbox)

    def _close(self) -> None:
        dropped = self.ring.dropped
        known = self.ring.handled + self.ring.damaged + sum(dropped.values())
        self._lost = max(self.ring.offered - known, 0)
        self._final = self._count(dropped)
        self._open = False
        self._child.close()
        for one in self._past:
            with suppress(subprocess.TimeoutExpired):
                one.wait(1.0)
        self.ring.close()
        atexit.unregister(self.stop)

    @property
    def account(self) -> Account:
        """What became of the values so far."""
        return self._count(self.ring.dropped) if self._open else self._final

    def _count(self, dropped: dict[Key, int]) -> Account:
        ring = self.ring
        return Account(ring.offered, ring.handled, dropped, self._lost, ring.damaged, self._restarts)

    def _complain(self, text: str) -> None:
        if not self._mute:
            self._mute = True
            self._tell(text)

    def __deepcopy__(self, memo: dict[int, Any]) -> Link:
        return self  # a model is copied with the hooks that hold it


class Process:
    """The child, as far as a caller may touch it."""

    def __init__(self, link: Link) -> None:
        self._link = weakref.ref(link)
        self._last = link._child.popen

    @property
    def _popen(self) -> subprocess.Popen[bytes]:
        link = self._link()
        if link is not None:
            self._last = link._child.popen
        return self._last

    @property
    def pid(self) -> int:
        """Its number."""
        return self._popen.pid

    @property
    def exitcode(self) -> int | None:
        """None while it runs; minus the signal that ended it."""
        return self._popen.poll()

    def is_alive(self) -> bool:
        """Whether it runs."""
        return self._popen.poll() is None

    def join(self, timeout: float | None = None) -> None:
        """Wait for its end, or so many seconds."""
        try:
            self._popen.wait(timeout)
        except subprocess.TimeoutExpired:
            return


def _ending(code: int) -> str:
    if code >= 0:
        return f"ended with code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"


def _warn(text: str) -> None:
    try:
        warnings.warn(text, RuntimeWarning, stacklevel=4)
    except RuntimeWarning:  # where warnings are errors, these are still none of the model's
        print(f"torcheer: {text}", file=sys.stderr)


_LINKS: weakref.WeakSet[Link] = weakref.WeakSet()


def _forget() -> None:
    """In a forked process (a DataLoader's worker): let go of the pipes, or the child would never see their end."""
    for link in list(_LINKS):
        if link._open:
            link._child.let_go()


os.register_at_fork(after_in_child=_forget)
