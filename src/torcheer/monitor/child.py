"""The monitor process: reads the ring, passes each value to its readers, and survives their errors."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from torcheer.monitor.child_plan import LENGTH_BYTES, Plan, Reader, ranked_folder
from torcheer.runlog.machine.system_rows import SystemRows
from torcheer.samples import Delivery, SendMessage
from torcheer.wire.parent import Parent, map_payload
from torcheer.wire.ring import RingReader
from torcheer.wire.socket_lines import Wire

_TICK_SECS = 0.2
_POLL_SECS = 0.02  # between two polls of the wire while there is data
_SHORT_SLEEP_SECS = 0.005
_AWAKE_SECS = 1.0  # after the last value, before sleeping until woken
_MOST_TOGETHER = 256  # values, after which commands are polled for
_LAST_SECS = 0.7  # for the values left in the ring when the parent is gone
_ORPHAN_SECS = 10.0


def main(_: Sequence[str], parent: Parent) -> None:
    """Run the child of the link that started this process."""
    ring_fd, payload_fd, *notifier_fds = parent.fds
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    commands = CommandReader(parent)
    signal.signal(signal.SIGTERM, commands.terminate)
    _lower_priority()
    plan, callbacks = _read_payload(payload_fd)
    parent.exit_when_gone(grace_secs=_ORPHAN_SECS)  # even if a callback hangs
    readers = readers_of(plan, callbacks, parent.wire.send, notifier_fds)
    loop = DeliveryLoop(RingReader(ring_fd), readers, parent.wire, commands)
    system = SystemRows(
        Path(plan.to) if plan.to else None, plan.system_secs, step_of=lambda: loop.step, memory=commands.ask_memory,
        pid=parent.pid,
    )  # fmt: skip
    loop.run(plan.timeout_secs)
    system.close()
    for stream in filter(None, (sys.stdout, sys.stderr)):  # None where the training process has closed its stream
        try:
            stream.flush()
        except (OSError, ValueError):
            continue
    os._exit(0)  # a thread that a callback started must not keep this process alive


def _lower_priority() -> None:
    try:
        os.nice(5)
    except OSError:
        pass
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(line_buffering=True)  # so that a kill loses nothing that callbacks printed


def _read_payload(fd: int) -> tuple[Plan, bytes]:
    """Read the start-up data from the link: the plan and the callbacks."""
    with map_payload(fd) as payload:
        end = LENGTH_BYTES + int.from_bytes(payload[:LENGTH_BYTES], "little")
        plan, callbacks = json.loads(payload[LENGTH_BYTES:end]), payload[end:]
    return Plan(**{**plan, "keep": tuple(plan["keep"])}), callbacks


def readers_of(
    plan: Plan, callbacks: bytes, send_message: SendMessage, notifier_fds: Sequence[int] = ()
) -> list[Reader]:
    """Create the readers of the values; one that fails is reported, the others go on without it."""

    def analysis() -> Reader:
        from torcheer.monitor.analysis import WatchAnalysis

        return WatchAnalysis(plan, send_message, notifier_fds)

    def videos() -> Reader:
        from torcheer.video.videos import Videos

        return Videos(ranked_folder(plan), plan.video, send_message)

    def functions() -> Reader:
        from torcheer.monitor.callbacks import Callbacks

        return Callbacks(callbacks, plan, send_message)

    readers: list[Reader] = []
    candidates: list[tuple[Any, str, Callable[[], Reader]]] = [
        (plan.statistics, "statistics", analysis), (plan.video, "video", videos), (callbacks, "callbacks", functions),
    ]  # fmt: skip
    for enabled, what, make in candidates:
        if not enabled:
            continue
        try:
            readers.append(make())
        except BaseException as error:  # a user's module that is imported here may even call sys.exit
            send_message({"kind": "problem", "text": f"{what}: {_short(error)}", "trace": _trace(error)})
    return readers


class DeliveryLoop:
    """Passes values from the ring to the readers."""

    def __init__(self, ring: RingReader, readers: list[Reader], wire: Wire, commands: CommandReader) -> None:
        self._ring, self._readers, self._wire, self._commands = ring, readers, wire, commands
        self._quarantined: set[tuple[int, tuple[str, str]]] = set()  # index of a reader, and a key that it failed at
        self._failed: set[str] = set()
        # A value that kills a callback, and this process, takes no other with it.
        self._most_together = _MOST_TOGETHER if all(hasattr(reader, "prepare") for reader in readers) else 1
        self._ticked = self._polled = 0.0
        self.step = 0  # of the last value

    def run(self, timeout_secs: float) -> None:
        """Run until no more values can come, then close the readers."""
        why = self._pass_values(timeout_secs)
        self._ring.set_asleep(False)
        for reader in self._readers:
            self._guarded(reader, reader.close, "close")
        self._ring.finish()
        log = next(filter(None, (getattr(reader, "log_facts", None) for reader in self._readers)), None)
        done = {"kind": "done", "why": why, "handled": self._ring.handled, "damaged": self._ring.damaged}
        self._wire.send(done | ({"log": log} if log else {}))
        self._wire.drain(_LAST_SECS)

    def _pass_values(self, timeout_secs: float) -> str:
        last_value_at = None  # None before the first value: the timeout starts with it
        while True:
            now = time.monotonic()
            commands = self._commands
            if now - self._polled >= _POLL_SECS:
                self._polled = now
                commands.poll(0.0)
            if commands.changes:
                self._change(commands.changes)
            if now - self._ticked >= _TICK_SECS:
                self._tick(now)
            if commands.is_overdue(now):
                return commands.why
            if deliveries := self._ring.take_together(self._most_together):
                self._deliver_together(deliveries)
                last_value_at = time.monotonic()
            elif commands.why:
                return commands.why
            elif commands.questions:
                self._answer(commands.questions.pop(0))
            elif timeout_secs > 0 and last_value_at is not None and now - last_value_at > timeout_secs:
                return "timeout"
            else:
                self._sleep(deep=last_value_at is None or now - last_value_at > _AWAKE_SECS)

    def _sleep(self, deep: bool) -> None:
        """Sleep until the next tick or a new value; the writer ends only a deep sleep, as that costs a system call."""
        if not deep:
            self._commands.poll(_SHORT_SLEEP_SECS)
            return
        self._ring.set_asleep(True)
        if not self._ring.has_next():  # a value came before the writer saw the flag
            self._commands.poll(_TICK_SECS)
        self._ring.set_asleep(False)

    def _deliver_together(self, deliveries: list[Delivery]) -> None:
        if self._most_together > 1:
            for reader in self._readers:
                self._guarded(reader, partial(reader.prepare, deliveries), "prepare")  # type: ignore[attr-defined]
        for delivery in deliveries:
            self._deliver(delivery)
            self._ring.done()

    def _deliver(self, delivery: Delivery) -> None:
        self.step = delivery.sample.step
        for index, reader in enumerate(self._readers):
            if (index, delivery.key) in self._quarantined:
                continue
            try:
                reader.take(delivery)
            except BaseException as error:  # also a callback's sys.exit: disables only this key
                self._quarantined.add((index, delivery.key))
                layer, variable = delivery.key
                self._wire.send(
                    {"kind": "quarantined", "reader": type(reader).__name__, "layer": layer, "variable": variable,
                     "step": delivery.sample.step, "error": _short(error), "trace": _trace(error)}
                )  # fmt: skip

    def _tick(self, now: float) -> None:
        self._ticked = now
        for reader in self._readers:
            self._guarded(reader, reader.tick, "tick")

    def _change(self, changes: list[dict[str, Any]]) -> None:
        """Pass changed settings to the readers that support them."""
        while changes:
            change = changes.pop(0)
            for reader in self._readers:
                if (apply := getattr(reader, "change", None)) is not None:
                    self._guarded(reader, partial(apply, change), "change")

    def _answer(self, question: dict[str, Any]) -> None:
        """Judge what has come so far, and say that this is done: the training process waits for it."""
        for reader in self._readers:
            if (judge := getattr(reader, "judge", None)) is not None:
                self._guarded(reader, partial(judge, question), "judge")
        self._wire.send({"kind": "judged", "number": question["number"]})

    def _guarded(self, reader: Reader, action: Callable[[], None], what: str) -> None:
        try:
            action()
        except BaseException as error:
            text = f"{type(reader).__name__}.{what}: {_short(error)}"
            if text not in self._failed and len(self._failed) < 100:
                self._failed.add(text)
                self._wire.send({"kind": "problem", "text": text, "trace": _trace(error)})


class CommandReader:
    """Reads the parent's commands and checks whether it is alive."""

    def __init__(self, parent: Parent) -> None:
        self._parent = parent
        self.why = ""  # why this child must end
        self.changes: list[dict[str, Any]] = []  # of the plan: {"rules": …}
        self.questions: list[dict[str, Any]] = []  # whether the loop must stop: `WatchAnalysis.judge`
        self._deadline = 0.0
        self._memory: dict[str, float] = {}

    def poll(self, wait_secs: float) -> None:
        """Read the commands that have arrived; wait up to `wait_secs` for the first."""
        if not self.why:
            for message in self._parent.wire.exchange(wait_secs):
                if message["kind"] == "change":
                    self.changes.append(message["changes"])
                elif message["kind"] == "judge":
                    self.questions.append(message)
                elif message["kind"] == "memory":
                    self._memory = message["cells"]
                elif message["kind"] == "stop":
                    self.why = "stopped"
        if self._parent.is_gone and not self._deadline:
            self._end(self.why or "the training process is gone")

    def ask_memory(self) -> dict[str, float]:
        """Ask the parent how much GPU memory torch holds; return its last answer, which comes between two steps."""
        self._parent.wire.send({"kind": "memory"})
        return self._memory

    def terminate(self, *_: Any) -> None:
        """Handle SIGTERM: the first ends after the values in the ring, a second one at once, closing the files."""
        if self.why:
            self._deadline = -1.0
        else:
            self._end("terminated")

    def _end(self, why: str) -> None:
        self.why, self._deadline = why, time.monotonic() + _LAST_SECS

    def is_overdue(self, now: float) -> bool:
        """Whether the values left in the ring must be abandoned."""
        return bool(self.why) and self._deadline != 0.0 and now > self._deadline


def _short(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:2000]


def _trace(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))[-4000:]
