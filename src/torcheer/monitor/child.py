"""The child: reads the ring, hands each value to its readers, and lives through what they do."""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from torcheer.monitor.child_plan import Plan, Reader
from torcheer.samples import Delivery, SendMessage
from torcheer.wire.ring import RingReader

_TICK_SECS = 0.2
_LOOK_SECS = 0.02  # between two looks at the pipe while there is data
_NAP_SECS = 0.005
_AWAKE_SECS = 1.0  # after the last value
_LAST_SECS = 0.7  # for what waits in the ring when nobody is left to say how long it may take
_ORPHAN_SECS = 10.0
_MOST_LINES = 10_000


def main() -> None:
    """Be the child of the link that started this process."""
    ring_fd, letter_fd, hear, say, parent = map(int, sys.argv[1:6])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for fd in (ring_fd, letter_fd, hear, say):
        os.set_inheritable(fd, False)
    voice = Voice(say)
    orders = Orders(hear, parent)
    signal.signal(signal.SIGTERM, orders.terminate)
    _be_modest()
    plan, path, callbacks = _read(letter_fd)
    sys.path[:] = path  # as the training process has it, for what the callbacks import
    threading.Thread(target=_last_resort, args=(parent,), daemon=True).start()
    watch = Watcher(RingReader(ring_fd), readers_of(plan, callbacks, voice.say), voice, orders)
    watch.run(plan.timeout_secs)
    for stream in filter(None, (sys.stdout, sys.stderr)):  # None where the training process has closed its own
        try:
            stream.flush()
        except (OSError, ValueError):
            continue
    os._exit(0)  # a thread that a callback left behind must not keep this process


def _last_resort(parent: int) -> None:
    """Without a parent, not even a callback that hangs keeps this process for long."""
    while os.getppid() == parent:
        time.sleep(1.0)
    time.sleep(_ORPHAN_SECS)
    os._exit(1)


def _be_modest() -> None:
    try:
        os.nice(5)
    except OSError:
        pass
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(line_buffering=True)  # what callbacks print is there when this process is killed


def _read(letter_fd: int) -> tuple[Plan, list[str], bytes]:
    """What the link wants: the plan, where to import from, the callbacks."""
    os.lseek(letter_fd, 0, os.SEEK_SET)
    with os.fdopen(letter_fd, "rb") as file:
        letter = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        callbacks = file.read()
    letter["plan"]["keep"] = tuple(letter["plan"]["keep"])
    return Plan(**letter["plan"]), letter["path"], callbacks


def readers_of(plan: Plan, callbacks: bytes, say: SendMessage) -> list[Reader]:
    """Those who look at the values; one that cannot begin is reported, the others go on without it."""

    def analysis() -> Reader:
        from torcheer.monitor.analysis import Analysis

        return Analysis(plan, say)

    def videos() -> Reader:
        from torcheer.video.videos import Videos

        return Videos(plan.to, plan.video, say)

    def functions() -> Reader:
        from torcheer.monitor.callbacks import Callbacks

        return Callbacks(callbacks, plan, say)

    found: list[Reader] = []
    wanted: list[tuple[Any, str, Callable[[], Reader]]] = [
        (plan.statistics, "statistics", analysis), (plan.video, "video", videos), (callbacks, "callbacks", functions),
    ]  # fmt: skip
    for asked, what, make in wanted:
        if not asked:
            continue
        try:
            found.append(make())
        except BaseException as error:  # a user's module that is imported here may even leave by sys.exit
            say({"kind": "problem", "text": f"{what}: {_short(error)}", "trace": _trace(error)})
    return found


class Watcher:
    """Values from the ring to the readers."""

    def __init__(self, ring: RingReader, readers: list[Reader], voice: Voice, orders: Orders) -> None:
        self._ring, self._readers, self._voice, self._orders = ring, readers, voice, orders
        self._shut: set[tuple[int, tuple[str, str]]] = set()  # readers and the keys they failed at
        self._failed: set[str] = set()
        self._ticked = self._looked = 0.0

    def run(self, timeout_secs: float) -> None:
        """Until nothing more can come."""
        why = self._follow(timeout_secs)
        self._ring.set_asleep(False)
        for reader in self._readers:
            self._guarded(reader, reader.close, "close")
        self._ring.finish()
        log = next(filter(None, (getattr(reader, "log_facts", None) for reader in self._readers)), None)
        done = {"kind": "done", "why": why, "handled": self._ring.handled, "damaged": self._ring.damaged}
        self._voice.say(done | ({"log": log} if log else {}))
        self._voice.last_words()

    def _follow(self, timeout_secs: float) -> str:
        last = None  # when there was a value; one that waits for its first does not count the seconds
        while True:
            now = time.monotonic()
            orders = self._orders
            if now - self._looked >= _LOOK_SECS:
                self._looked = now
                orders.look(0.0)
            if orders.changes:
                self._change(orders.changes)
            if now - self._ticked >= _TICK_SECS:
                self._tick(now)
            if orders.enough(now):
                return orders.why
            sent = self._ring.take()
            if sent is not None:
                self._hand_out(sent)
                self._ring.done()
                last = time.monotonic()
            elif orders.why:
                return orders.why
            elif timeout_secs > 0 and last is not None and now - last > timeout_secs:
                return "timeout"
            else:
                self._sleep(deep=last is None or now - last > _AWAKE_SECS)

    def _sleep(self, deep: bool) -> None:
        """Until the next tick or a new value: that wakes only who sleeps deep, as being woken costs the writer."""
        if not deep:
            self._orders.look(_NAP_SECS)
            return
        self._ring.set_asleep(True)
        if not self._ring.has_next():  # it came before the writer could know that it has to wake us
            self._orders.look(_TICK_SECS)
        self._ring.set_asleep(False)

    def _hand_out(self, sent: Delivery) -> None:
        for place, reader in enumerate(self._readers):
            if (place, sent.key) in self._shut:
                continue
            try:
                reader.take(sent)
            except BaseException as error:  # also a callback's sys.exit: only its key ends
                self._shut.add((place, sent.key))
                layer, variable = sent.key
                self._voice.say(
                    {"kind": "quarantined", "reader": type(reader).__name__, "layer": layer, "variable": variable,
                     "step": sent.sample.step, "error": _short(error), "trace": _trace(error)}
                )  # fmt: skip

    def _tick(self, now: float) -> None:
        self._ticked = now
        for reader in self._readers:
            self._guarded(reader, reader.tick, "tick")
        self._voice.flush()

    def _change(self, changes: list[dict[str, Any]]) -> None:
        """Hand on what is wanted otherwise from now on, to those who care."""
        while changes:
            change = changes.pop(0)
            for reader in self._readers:
                if (do := getattr(reader, "change", None)) is not None:
                    self._guarded(reader, partial(do, change), "change")

    def _guarded(self, reader: Reader, do: Callable[[], None], what: str) -> None:
        try:
            do()
        except BaseException as error:
            text = f"{type(reader).__name__}.{what}: {_short(error)}"
            if text not in self._failed and len(self._failed) < 100:
                self._failed.add(text)
                self._voice.say({"kind": "problem", "text": text, "trace": _trace(error)})


class Orders:
    """What the parent wants, and whether it lives."""

    def __init__(self, fd: int, parent: int) -> None:
        self._fd, self._parent = fd, parent
        self.why = ""  # why this child is to end
        self.changes: list[dict[str, Any]] = []  # of the plan: {"rules": …}
        self._until, self._rest = 0.0, b""
        os.set_blocking(fd, False)

    def look(self, wait_secs: float) -> None:
        """See what came through the pipe, for so long if nothing has."""
        if os.getppid() != self._parent and not self._until:  # its forks may hold the pipe open
            self._end(self.why or "the training process is gone")
        if self.why:
            return
        if select.select([self._fd], [], [], wait_secs)[0]:
            said = os.read(self._fd, 1 << 16)
            *lines, self._rest = (self._rest + said).split(b"\n")
            self.changes += [json.loads(line) for line in lines if line.startswith(b"{")]
            if b"q" in lines:
                self.why = "stopped"
            elif not said:
                self._end("the training process is gone")

    def terminate(self, *_: Any) -> None:
        """A first SIGTERM: finish. One that comes while we do: no more values, close the files."""
        if self.why:
            self._until = -1.0
        else:
            self._end("terminated")

    def _end(self, why: str) -> None:
        self.why, self._until = why, time.monotonic() + _LAST_SECS

    def enough(self, now: float) -> bool:
        """Whether even what waits in the ring is to be left there."""
        return bool(self.why) and self._until != 0.0 and now > self._until


class Voice:
    """Lines to the parent, which may never read them: they wait here, and the oldest give way."""

    def __init__(self, fd: int) -> None:
        self._fd, self._lines, self._rest = fd, deque[bytes](maxlen=_MOST_LINES), b""
        os.set_blocking(fd, False)

    def say(self, what: dict[str, Any]) -> None:
        """Tell the parent."""
        self._lines.append(json.dumps(what, default=str).encode() + b"\n")
        self.flush()

    def flush(self) -> bool:
        """Write what the pipe takes; True where nothing is left."""
        while self._rest or self._lines:
            self._rest = self._rest or self._lines.popleft()
            try:
                self._rest = self._rest[os.write(self._fd, self._rest) :]
            except BlockingIOError:
                return False
            except OSError:  # nobody is left to hear it
                self._rest = b""
        return True

    def last_words(self) -> None:
        """Give the parent a moment to read the rest."""
        until = time.monotonic() + _LAST_SECS
        while not self.flush() and time.monotonic() < until:
            select.select([], [self._fd], [], 0.05)


def _short(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:2000]


def _trace(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))[-4000:]


if __name__ == "__main__":
    main()
