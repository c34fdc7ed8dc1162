"""The host's own thread: lets one viewer in, tells it what is new, puts what it asks for into the inbox."""

from __future__ import annotations

import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from torcheer.control.control_records import Order, Wants
from torcheer.errors import BadArgument
from torcheer.host.state_sender import Values
from torcheer.runlog.kept_rows import Tables, Told
from torcheer.wire.json_codec import plain, read
from torcheer.wire.socket_lines import VIEWER_LINE_BYTES, Wire
from torcheer.wire.socket_path import Doorway

VERSION: Final = 1
FACTS: Final = ("network", "state", "parameters")
_PAUSE_SECS: Final = 0.04  # between two tellings of what is urgent: a state to be shown, a loop that was paused
_IDLE_SECS: Final = 0.5  # between two tellings of the rest: what changes a thousand times a second is told twice
_SOON_SECS: Final = 0.2  # that the rest may come before its time, together with what is urgent
_LATE_SECS: Final = 0.005  # between two looks at what comes from a device
_HELLO_SECS: Final = 5.0  # for a connection to say who it is
_MOST_GUESTS: Final = 8
_FULL_BYTES: Final = 1 << 20  # that wait on the wire: then nothing more is put onto it
_MOST_ORDERS: Final = 1000


@dataclass(slots=True)
class Board:
    """What a host has to say; written by the training thread, read by this one. Single assignments, no lock."""

    title: str
    facts: dict[str, Any] = field(default_factory=dict)  # network, state, parameters
    alerts: deque[tuple[int, dict[str, Any]]] = field(default_factory=lambda: deque(maxlen=1000))  # by their number
    tables: Tables = field(default_factory=Tables)
    wants: Wants = field(default_factory=Wants)
    inbox: deque[Order] = field(default_factory=lambda: deque(maxlen=_MOST_ORDERS))
    came: threading.Event = field(default_factory=threading.Event)  # an order, or the viewer went


@dataclass(slots=True)
class _Viewer:
    wire: Wire
    url: str
    facts: dict[str, Any] = field(default_factory=dict)  # as they were told
    tables: dict[str, Told] = field(default_factory=dict)
    alerts: int = 0  # the number of the next
    ring: Any = None


class Service:
    """Runs until `stop`; whatever a viewer does, or does not do, ends at most its connection."""

    def __init__(self, doorway: Doorway, board: Board, report: Callable[[str], None]) -> None:
        self._doorway, self._board, self._report = doorway, board, report
        self.values = Values(self.poke, report)
        self._viewer: _Viewer | None = None
        self._guests: dict[int, tuple[Wire, float]] = {}
        self._ear, self._bell = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK) if hasattr(os, "pipe2") else _pipe()
        self._changed = self._urgent = self._stopping = False  # there is something to tell; it cannot wait
        self._next = self._next_all = 0.0  # when there may be told again: what is urgent, and all
        self._why = ""  # it ended, where it did not end as planned
        self._thread = threading.Thread(target=self._run, name="torcheer-host", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Where the viewer is; "" where there is none."""
        viewer = self._viewer
        return viewer.url if viewer is not None else ""

    def poke(self, urgent: bool = True) -> None:
        """There is something new; costs next to nothing where nobody is there, or it is not urgent."""
        self._changed = True
        if urgent and not self._urgent and self._viewer is not None:
            self._urgent = True
            self._ring_bell()

    def _ring_bell(self) -> None:
        try:
            os.write(self._bell, b".")
        except OSError:  # full: it will be heard; closed: there is nobody
            return

    def stop(self, why: str = "") -> None:
        """Say goodbye, end the thread."""
        self._why = why
        self._stopping = True
        self._ring_bell()
        if self._thread is not threading.current_thread():
            self._thread.join(2.0)

    def let_go(self) -> None:
        """In a forked process: close what was inherited."""
        wires = [wire for wire, _ in self._guests.values()] + ([self._viewer.wire] if self._viewer else [])
        for wire in wires:
            wire.abandon()
        for fd in (self._ear, self._bell):
            os.close(fd)

    # -- the thread --------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopping:
            try:
                self._round()
            except Exception as error:  # ours, as it were: the viewer goes, training and this thread go on
                self._report(f"the studio's viewer was sent away: {type(error).__name__}: {error}")
                self._leave()
                time.sleep(0.1)
        self._farewell()

    def _round(self) -> None:
        ready = self._wait()
        if self._ear in ready:
            self._hear_bell()
        if self._doorway.socket.fileno() in ready:
            self._let_in()
        for number in [number for number in self._guests if number in ready]:
            self._meet(number)
        self._send_away_the_silent()
        if self._viewer is not None:
            self._listen(self._viewer)
            self._tell(self._viewer)
        if self._viewer is not None and self._viewer.wire.closed:
            self._leave()

    def _wait(self) -> set[int]:
        """Until somebody says something, or it is time to tell something."""
        poll = select.poll()
        for fd in (self._ear, self._doorway.socket.fileno(), *self._guests):
            poll.register(fd, select.POLLIN)
        viewer = self._viewer
        if viewer is not None and viewer.wire.fileno() >= 0:
            poll.register(viewer.wire.fileno(), select.POLLIN | (select.POLLOUT if viewer.wire.pending_bytes else 0))
        return {fd for fd, _ in poll.poll(self._timeout_ms())}

    def _timeout_ms(self) -> float | None:
        if self._viewer is None:
            return 1000.0 if self._guests else None
        if self.values.late:
            return 1000 * _LATE_SECS
        if self._viewer.wire.pending_bytes > _FULL_BYTES:
            return None  # the wire will say when there is room
        until = min(self._next, self._next_all) if self._urgent else self._next_all
        return 1000 * max(until - time.monotonic(), 0.0) + 0.5  # it rounds down, and would come too early

    def _hear_bell(self) -> None:
        try:
            os.read(self._ear, 4096)
        except BlockingIOError:
            return

    # -- who comes and goes ------------------------------------------------------------------------------------------

    def _let_in(self) -> None:
        try:
            sock, _ = self._doorway.socket.accept()
        except OSError:
            return
        wire = Wire(sock, line_bytes=VIEWER_LINE_BYTES)
        if len(self._guests) >= _MOST_GUESTS:
            wire.close()
            return
        self._guests[wire.fileno()] = (wire, time.monotonic())

    def _meet(self, number: int) -> None:
        wire, since = self._guests.pop(number)
        messages = wire.receive()
        for _, fd in messages:
            _drop(fd)
        if wire.closed:
            return
        if not messages:
            self._guests[number] = (wire, since)
            return
        hello = messages[0][0]
        if hello["kind"] != "hello" or not isinstance(hello.get("url"), str):
            wire.close("it did not say hello")
        elif self._viewer is not None and not self._viewer.wire.closed:
            wire.send({"kind": "busy", "url": self._viewer.url})
            wire.close("another viewer is there")
        else:
            self._welcome(wire, hello, [message for message, _ in messages[1:]])

    def _welcome(self, wire: Wire, hello: dict[str, Any], more: list[dict[str, Any]]) -> None:
        wire.send({"kind": "welcome", "version": VERSION, "title": self._board.title, "pid": os.getpid()})
        self._viewer, self._changed = _Viewer(wire, hello["url"]), True
        self._next = self._next_all = 0.0
        for message in more:
            self._take(self._viewer, message)

    def _send_away_the_silent(self) -> None:
        late = time.monotonic() - _HELLO_SECS
        for number in [number for number, (_, since) in self._guests.items() if since < late]:
            self._guests.pop(number)[0].close("it said nothing")

    def _leave(self) -> None:
        """The viewer is gone: nobody looks."""
        viewer, self._viewer = self._viewer, None
        if viewer is not None:
            viewer.wire.close()
        self._board.wants = Wants()
        self.values.want(self._board.wants)
        self._board.came.set()

    def _farewell(self) -> None:
        try:
            if self._viewer is not None:
                self.values.harvest()
                self._changed, self._next_all = True, 0.0
                self._tell(self._viewer)
                self._viewer.wire.send({"kind": "bye", "why": self._why})
                self._viewer.wire.flush()
            for wire, _ in self._guests.values():
                wire.close()
        finally:
            self._leave()
            os.close(self._ear)
            os.close(self._bell)

    # -- what it says ------------------------------------------------------------------------------------------------

    def _listen(self, viewer: _Viewer) -> None:
        for message, fd in viewer.wire.receive():
            _drop(fd)
            self._take(viewer, message)

    def _take(self, viewer: _Viewer, message: dict[str, Any]) -> None:
        try:
            match message.pop("kind"):
                case "wants":
                    wants = read(Wants, message.get("wants"))
                    self.values.want(wants)
                    self._board.wants = wants
                case "act" | "change" as kind:
                    self._board.inbox.append(read(Order, {**message, "kind": kind}))
                    self._board.came.set()
        except BadArgument as error:
            viewer.wire.close(str(error))

    # -- what it is told ---------------------------------------------------------------------------------------------

    def _tell(self, viewer: _Viewer) -> None:
        self.values.harvest()
        wire = viewer.wire
        if not wire.flush() or wire.pending_bytes > _FULL_BYTES:
            return
        now = time.monotonic()
        if now >= self._next_all - (_SOON_SECS if self._urgent and now >= self._next else 0.0):
            self._next = now + _PAUSE_SECS
            self._next_all = now + _IDLE_SECS
            if self._changed:
                self._changed = self._urgent = False
                self._tell_all(viewer)
        elif self._urgent and now >= self._next:
            self._urgent, self._next = False, now + _PAUSE_SECS
            self._tell_facts(viewer)
            self._tell_moments(viewer)

    def _tell_all(self, viewer: _Viewer) -> None:
        self._tell_facts(viewer)
        self._tell_rows(viewer)
        alerts = [(number, alert) for number, alert in list(self._board.alerts) if number >= viewer.alerts]
        viewer.wire.send_all({"kind": "alert", **alert} for _, alert in alerts)
        viewer.alerts = alerts[-1][0] + 1 if alerts else viewer.alerts
        self._tell_moments(viewer)

    def _tell_facts(self, viewer: _Viewer) -> None:
        for name in FACTS:
            fact = self._board.facts.get(name)
            if fact is not None and fact is not viewer.facts.get(name):
                viewer.facts[name] = fact
                viewer.wire.send(
                    {"kind": name, name: [plain(one) for one in fact] if name == "parameters" else plain(fact)}
                )

    def _tell_rows(self, viewer: _Viewer) -> None:
        news = self._board.tables.news(viewer.tables)
        viewer.wire.send_all({**one, "table": plain(one["table"])} if one["kind"] == "table" else one for one in news)
        if self._board.tables.waiting(viewer.tables):
            self._changed, self._next_all = True, 0.0  # the rest of a long table

    def _tell_moments(self, viewer: _Viewer) -> None:
        moments = self.values.ready()  # first, as those of a ring may not come before it
        viewer.ring, fd = self.values.descriptor(viewer.ring)
        if fd >= 0:
            viewer.wire.send({"kind": "ring"}, fd)
            os.close(fd)
        viewer.wire.send_all(
            {
                "kind": "moment",
                "id": one.id,
                "step": one.step,
                "counters": one.counters,
                "test": one.test,
                **({"absences": one.absences} if one.absences else {}),
            }
            for one in moments
        )


def _drop(fd: int | None) -> None:
    """A viewer has no descriptors to give."""
    if fd is not None:
        os.close(fd)


def _pipe() -> tuple[int, int]:
    ear, bell = os.pipe()
    os.set_blocking(ear, False)
    os.set_blocking(bell, False)
    return ear, bell
