"""The link to the monitor process: start it, send values, receive messages, restart it, stop it."""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any, Final

from torcheer.errors import BadArgument, CannotWrite
from torcheer.monitor.child_plan import LENGTH_BYTES, Plan
from torcheer.samples import Account
from torcheer.terminal import warn_or_print
from torcheer.wire.child_process import ONE_THREAD, ChildProcess, Program, payload_memory, working_folder
from torcheer.wire.ring import Ring

_PROGRAM: Final = Program(
    "torcheer.monitor.child", "watches a training run", "the watching process", ONE_THREAD, imports_as_here=True
)
_POLL_SECS: Final = 0.05  # between two checks that the child lives, while its answer is awaited
_LONGEST_SECS: Final = 1e6  # the longest timeout that a lock accepts


class Link:
    """A child process and the ring to it. Nothing raises into a training step; only `stop` waits for the child.

    Values are offered to its `ring`.
    `fds` are inherited by the child: how it reports alerts to the process that notifies.
    """

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
        fds: Sequence[int] = (),
        tell: Callable[[str], Any] | None = None,
    ) -> None:
        self._plan, self._callbacks, self._payload = plan, callbacks, _payload(plan, callbacks)
        self._folder, self._tell, self._fds = working_folder(), tell or warn_or_print, tuple(fds)
        self.ring = Ring(ring_bytes, policy=policy, block_ms=block_ms, most_records=most_records)
        self._process, self._most_restarts, self._restarts = os.getpid(), restarts, 0
        self._child_lock = threading.RLock()  # held while receiving, starting or stopping the child
        self._inbox: list[dict[str, Any]] = []
        self._asked = self._answered = 0  # number of the last question to the child, and of its last answer
        self._done = ""  # why the current child has ended, as it said itself
        self._open, self._end_reason, self._final = True, "", Account()
        self._lost, self._complained = 0, False
        self._former_children: list[subprocess.Popen[bytes]] = []  # that ended for want of data
        try:
            self._child = self._start()
        except BaseException:
            self.ring.close()
            raise
        self.process = Process(self)
        self.ring.read_by(self)
        atexit.register(self.stop)

    def _start(self) -> ChildProcess:
        payload = payload_memory(self._payload)
        try:  # the script may have changed its folder since the first start
            return ChildProcess(_PROGRAM, fds=(self.ring.fd, payload, *self._fds), folder=self._folder)
        finally:
            os.close(payload)

    # -- the reader of the ring --------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Wake the child."""
        self._child.wire.wake()

    def is_alive(self) -> bool:
        """Whether the child runs."""
        return self.process.is_alive()

    def leave_out(self, error: Exception) -> None:
        """Report, once, a value that cannot be copied: it must not stop the training."""
        if not self._complained:
            self._complained = True
            self._tell(f"a value could not be sent to the watching process and is left out: {error!r}")

    def _end(self, reason: str) -> None:
        """Note why no child reads any more; "" where one does."""
        self._end_reason, self.ring.has_reader = reason, not reason

    # -- its messages ------------------------------------------------------------------------------------------------

    def heard(self) -> list[dict[str, Any]]:
        """Receive the child's new messages; restarts it where it has died."""
        if self._process != os.getpid() or not self._child_lock.acquire(blocking=False):
            return []
        try:
            if self._open:
                self._receive(self._child.wire.exchange())
                self._check_child()
            messages, self._inbox = self._inbox, []
            return messages
        finally:
            self._child_lock.release()

    def _receive(self, messages: list[dict[str, Any]]) -> None:
        self._inbox += messages
        for message in messages:
            if message["kind"] == "done":
                self._done = str(message.get("why"))
            elif message["kind"] == "judged":
                self._answered = message["number"]

    def _check_child(self) -> None:
        """Detect that the child has ended, and restart it."""
        code = self._child.popen.poll()
        if code is None or self._end_reason or not self._open:
            return
        self._receive(self._child.wire.exchange())
        self._lost = max(self.ring.taken - self.ring.handled, 0)
        if self._done == "timeout":
            self._end("it had no data for the time it was given")
        else:
            self._restart(_ending(-signal.SIGTERM if self._done == "terminated" else code))

    def _restart(self, ending: str) -> None:
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
        self._end(ending)
        self._tell(
            f"the watching process {ending} and is not started again (after {self._restarts} restarts): "
            "what comes now is dropped and counted. The training is not touched."
        )

    def _replace(self) -> str:
        """Start a new child on the same ring; returns why that failed, or ""."""
        try:
            self._child.wire.close()
            self.ring.prepare_reader()
            self._plan = replace(self._plan, continues=True)
            self._payload = _payload(self._plan, self._callbacks)
            self._child, self._done = self._start(), ""
        except (OSError, CannotWrite) as error:
            return f"could not be started again ({error})"
        return ""

    def resume(self) -> None:
        """Start another child where the last one ended for want of data; it reads what came meanwhile."""
        with self._child_lock:
            if not self._open or self._done != "timeout":
                return
            self._former_children = [
                popen for popen in (*self._former_children, self._child.popen) if popen.poll() is None
            ]
            self._end(self._replace())
            if self._end_reason:
                self._tell(f"the watching process had left for want of data and {self._end_reason}")

    def change(self, **changes: Any) -> None:
        """Change settings of the plan, for this child and its successors."""
        with self._child_lock:
            if "places" in changes:
                changes = {"places": {**self._plan.places, **changes["places"]}, "awaits_lines": False}
            self._plan = replace(self._plan, **changes)
            self._payload = _payload(self._plan, self._callbacks)
            self._child.wire.send({"kind": "change", "changes": changes})

    def answer(self, **message: Any) -> None:
        """Send the child what it asked for."""
        self._child.wire.send(message)

    def ask(self, patience_secs: float, **question: Any) -> bool:
        """Have the child judge what it was sent so far; False where no answer came in time. Its alerts are `heard`."""
        if self._process != os.getpid() or not self._child_lock.acquire(blocking=False):
            return False
        try:
            self._asked += 1
            number, deadline = self._asked, time.monotonic() + patience_secs
            if self._open:
                self._child.wire.send({"kind": "judge", "number": number, **question})
            while self._open and self._answered < number and not self._end_reason:
                remaining_secs = deadline - time.monotonic()
                if remaining_secs <= 0 or self._child.wire.closed or self._child.popen.poll() is not None:
                    break
                self._receive(self._child.wire.exchange(min(remaining_secs, _POLL_SECS)))
            return self._answered >= number
        finally:
            self._child_lock.release()

    @property
    def waiting(self) -> int:
        """Number of values that the child has not taken yet."""
        return self.ring.waiting if self._open else 0

    def stop(self, timeout_secs: float = 5.0) -> Account:
        """Let the child finish and close its files; kill it after `timeout_secs`."""
        if self._process != os.getpid():
            return self.account
        timeout_secs = min(max(timeout_secs, 0.0), _LONGEST_SECS)
        deadline = time.monotonic() + timeout_secs
        if self._child_lock.acquire(timeout=timeout_secs + 1.0):
            try:
                if self._open:
                    self.ring.stop_accepting()
                    self._finish(deadline, grace_secs=min(1.0, 0.25 * timeout_secs))
                    self._close()
            finally:
                self._child_lock.release()
        return self.account

    def _finish(self, deadline: float, grace_secs: float) -> None:
        """Wait for the child to end; where a value kills it, a successor handles those behind it."""
        while True:
            self._check_child()
            self._child.wire.send({"kind": "stop"})
            if not self._child.wait(deadline - grace_secs, self._receive):
                self._child.terminate(deadline, self._receive)  # no more values, close the files
                return
            if self._done or self._end_reason:
                return

    def _close(self) -> None:
        self._lost = self.ring.unhandled
        self._final = self._count()
        self._open = False
        self._child.wire.close()
        for popen in self._former_children:
            with suppress(subprocess.TimeoutExpired):
                popen.wait(1.0)
        self.ring.close()
        atexit.unregister(self.stop)

    @property
    def account(self) -> Account:
        """Counts of the values so far, by outcome."""
        return self._count() if self._open else self._final

    def _count(self) -> Account:
        ring = self.ring
        return Account(ring.offered, ring.handled, ring.dropped, self._lost, ring.damaged, self._restarts)

    def __deepcopy__(self, memo: dict[int, Any]) -> Link:
        return self  # copying a model copies the hooks that hold the link


class Process:
    """The current child process, in the form of `multiprocessing.Process`."""

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
        """The process id."""
        return self._popen.pid

    @property
    def exitcode(self) -> int | None:
        """None while it runs; minus the signal that ended it."""
        return self._popen.poll()

    def is_alive(self) -> bool:
        """Whether it runs."""
        return self._popen.poll() is None

    def join(self, timeout: float | None = None) -> None:
        """Wait for its end, at most `timeout` seconds."""
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


def _payload(plan: Plan, callbacks: bytes) -> bytes:
    """Serialize the start-up data of a child: the plan after its length, then the callbacks."""
    try:
        text = json.dumps(asdict(plan)).encode()
    except (TypeError, ValueError) as error:
        raise BadArgument(f"the plan of a watch must be text, numbers, lists and tables: {error}") from None
    return len(text).to_bytes(LENGTH_BYTES, "little") + text + callbacks
