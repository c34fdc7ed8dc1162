"""The host's thread: accepts one viewer, sends throttled updates, and queues its orders."""

from __future__ import annotations

import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from torcheer.control.control_records import Act, Change, Order, Wants
from torcheer.control.loop_messages import (
    TO_HOST,
    VERSION,
    AlertsCame,
    AlertSeen,
    Busy,
    Bye,
    Join,
    Moment,
    MomentCame,
    NetworkCame,
    ParametersCame,
    RingCame,
    StateCame,
    Subscribe,
    Welcome,
)  # fmt: skip
from torcheer.errors import BadArgument
from torcheer.host.state_sender import StateSender
from torcheer.wire.json_codec import parse_message, to_message
from torcheer.wire.socket_lines import VIEWER_LINE_BYTES, Wire
from torcheer.wire.socket_path import ListeningSocket
from torcheer.wire.viewer_process import started_urls

FACTS: Final[dict[str, Callable[[Any], Any]]] = {
    "network": NetworkCame, "state": StateCame, "parameters": ParametersCame,
}  # fmt: skip
_PAUSE_SECS: Final = 0.04  # between two sends of urgent updates: a state to show, a loop that paused
_IDLE_SECS: Final = 0.5  # between two sends of the rest: what changes 1000 times a second is sent twice
_SOON_SECS: Final = 0.2  # the rest may be sent so much early, together with an urgent update
_LATE_SECS: Final = 0.005  # between two polls of copies from a device
_HELLO_SECS: Final = 5.0  # handshake timeout
_MOST_PENDING: Final = 8  # connections that have not completed the handshake
_FULL_BYTES: Final = 1 << 20  # of unsent output: above this nothing more is queued
_MOST_ORDERS: Final = 1000
_GOODBYE_SECS: Final = 1.0  # for the viewer to close the connection at the end


@dataclass(slots=True)
class Board:
    """Published state: written by the training thread, read by the host's.

    Single assignments, no lock.
    """

    title: str
    facts: dict[str, Any] = field(default_factory=dict)  # network, state, parameters
    alerts: deque[tuple[int, AlertSeen]] = field(
        default_factory=lambda: deque(maxlen=1000)
    )  # with their serial numbers
    inbox: deque[Order] = field(default_factory=lambda: deque(maxlen=_MOST_ORDERS))
    wakeup: threading.Event = field(default_factory=threading.Event)  # an order arrived, or the viewer disconnected


@dataclass(slots=True)
class _ViewerSession:
    wire: Wire
    url: str
    facts: dict[str, Any] = field(default_factory=dict)  # as last sent
    alerts: int = 0  # number of the next alert to send
    ring: Any = None


class Service:
    """The thread and its sockets, until `stop`.

    A misbehaving viewer loses its connection, nothing else.
    """

    def __init__(self, doorway: ListeningSocket, board: Board, report: Callable[[str], None]) -> None:
        self._doorway, self._board, self._report = doorway, board, report
        self.sender = StateSender(self.notify, report)
        self._viewer: _ViewerSession | None = None
        self._pending: dict[int, tuple[Wire, float]] = {}
        self._wake_read, self._wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK) if hasattr(os, "pipe2") else _pipe()
        self._changed = self._urgent = self._stopping = False  # an update is due; an urgent one is due
        self._next = self._next_all = 0.0  # earliest time of the next send: of urgent updates, of all
        self._why = ""  # reason of an unplanned end
        self._thread = threading.Thread(target=self._run, name="torcheer-host", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """The viewer's URL; "" without a viewer."""
        viewer = self._viewer
        return viewer.url if viewer is not None else ""

    def notify(self, urgent: bool = True) -> None:
        """Note that there is an update; nearly free without a viewer, or when it is not urgent."""
        self._changed = True
        if urgent and not self._urgent and self._viewer is not None:
            self._urgent = True
            self._wake()

    def _wake(self) -> None:
        try:
            os.write(self._wake_write, b".")
        except OSError:  # full: the thread wakes up anyway; closed: it has ended
            return

    def stop(self, why: str = "") -> None:
        """Send the viewer "bye" and end the thread."""
        self._why = why
        self._stopping = True
        self._wake()
        if self._thread is not threading.current_thread():
            self._thread.join(2.0)

    def after_fork(self) -> None:
        """Close the inherited pipe in a forked process."""
        for fd in (self._wake_read, self._wake_write):
            os.close(fd)

    # -- the thread --------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopping:
            try:
                self._poll_once()
            except Exception as error:  # a bug of ours: drop the viewer, go on with training and this thread
                self._report(f"the studio's viewer was sent away: {type(error).__name__}: {error}")
                self._disconnect_viewer()
                time.sleep(0.1)
        self._shut_down()

    def _poll_once(self) -> None:
        ready = self._poll()
        if self._wake_read in ready:
            self._drain_wakeups()
        if self._doorway.socket.fileno() in ready:
            self._accept()
        for number in [number for number in self._pending if number in ready]:
            self._shake_hands(number)
        self._drop_silent_connections()
        if self._viewer is not None:
            self._receive(self._viewer)
            self._send_updates(self._viewer)
        if self._viewer is not None and self._viewer.wire.closed:
            self._disconnect_viewer()

    def _poll(self) -> set[int]:
        """Wait for input, or until the next send is due; the descriptors that are ready."""
        poll = select.poll()
        for fd in (self._wake_read, self._doorway.socket.fileno(), *self._pending):
            poll.register(fd, select.POLLIN)
        viewer = self._viewer
        if viewer is not None and viewer.wire.fileno() >= 0:
            poll.register(viewer.wire.fileno(), select.POLLIN | (select.POLLOUT if viewer.wire.pending_bytes else 0))
        return {fd for fd, _ in poll.poll(self._timeout_ms())}

    def _timeout_ms(self) -> float | None:
        if self._viewer is None:
            return 1000.0 if self._pending else None
        if self.sender.late:
            return 1000 * _LATE_SECS
        if self._viewer.wire.pending_bytes > _FULL_BYTES:
            return None  # poll reports when the socket is writable
        until = min(self._next, self._next_all) if self._urgent else self._next_all
        return 1000 * max(until - time.monotonic(), 0.0) + 0.5  # poll rounds down and would return too early

    def _drain_wakeups(self) -> None:
        try:
            os.read(self._wake_read, 4096)
        except BlockingIOError:
            return

    # -- connections -------------------------------------------------------------------------------------------------

    def _accept(self) -> None:
        try:
            sock, _ = self._doorway.socket.accept()
        except OSError:
            return
        if len(self._pending) >= _MOST_PENDING:  # a viewer says hello at once: the oldest is the least likely one
            oldest, _ = self._pending.pop(next(iter(self._pending)))
            oldest.close()
        wire = Wire(sock, line_bytes=VIEWER_LINE_BYTES)
        self._pending[wire.fileno()] = (wire, time.monotonic())

    def _shake_hands(self, fd_number: int) -> None:
        wire, since = self._pending.pop(fd_number)
        messages = wire.exchange()
        if wire.closed:
            return
        if not messages:
            self._pending[fd_number] = (wire, since)
            return
        try:
            join = parse_message(TO_HOST, messages[0])
        except BadArgument:
            join = None
        if not isinstance(join, Join):
            wire.close("it did not say hello")
        elif self._viewer is not None and not self._viewer.wire.closed and not self._takes_over(join):
            _send_away(wire, self._viewer.url)
        else:
            if self._viewer is not None:
                _send_away(self._viewer.wire, join.url)
                self._disconnect_viewer()
            self._accept_viewer(wire, join, messages[1:])

    def _takes_over(self, join: Join) -> bool:
        """Whether this process has started the viewer, and not the one that is here: its page is of a run before."""
        return join.url in started_urls and self.url not in started_urls

    def _accept_viewer(self, wire: Wire, join: Join, more: list[dict[str, Any]]) -> None:
        wire.send(to_message(Welcome(VERSION, self._board.title)))
        self._viewer, self._changed = _ViewerSession(wire, join.url), True
        self._next = self._next_all = 0.0
        for message in more:
            self._handle_message(self._viewer, message)

    def _drop_silent_connections(self) -> None:
        late = time.monotonic() - _HELLO_SECS
        for number in [number for number, (_, since) in self._pending.items() if since < late]:
            self._pending.pop(number)[0].close("it said nothing")

    def _disconnect_viewer(self) -> None:
        """Close the viewer's connection and cancel its subscription."""
        viewer, self._viewer = self._viewer, None
        if viewer is not None:
            viewer.wire.close()
        self.sender.subscribe(Wants())
        self._board.wakeup.set()

    def _shut_down(self) -> None:
        try:
            if self._viewer is not None:
                self.sender.harvest()
                self._changed, self._next_all = True, 0.0
                self._send_updates(self._viewer)
                self._viewer.wire.send(to_message(Bye(self._why)))
                self._viewer.wire.flush()
                if self._doorway.is_private:
                    self._wait_for_goodbye(self._viewer.wire)
            for wire, _ in self._pending.values():
                wire.close()
        finally:
            self._disconnect_viewer()
            os.close(self._wake_read)
            os.close(self._wake_write)

    @staticmethod
    def _wait_for_goodbye(wire: Wire) -> None:
        """Wait until the viewer has read the log to its end and closed the connection: the folder goes with us."""
        deadline = time.monotonic() + _GOODBYE_SECS
        while not wire.closed and (remaining_secs := deadline - time.monotonic()) > 0:
            wire.exchange(remaining_secs)

    # -- incoming messages -------------------------------------------------------------------------------------------

    def _receive(self, viewer: _ViewerSession) -> None:
        for message in viewer.wire.exchange():
            self._handle_message(viewer, message)

    def _handle_message(self, viewer: _ViewerSession, message: dict[str, Any]) -> None:
        if message["kind"] not in TO_HOST:
            return  # of a later version
        try:
            match parse_message(TO_HOST, message):
                case Subscribe(wants):
                    self.sender.subscribe(wants)
                case Act() | Change() as order:
                    self._board.inbox.append(order)
                    self._board.wakeup.set()
        except BadArgument as error:
            viewer.wire.close(str(error))

    # -- updates -----------------------------------------------------------------------------------------------------

    def _send_updates(self, viewer: _ViewerSession) -> None:
        self.sender.harvest()
        wire = viewer.wire
        if not wire.flush() or wire.pending_bytes > _FULL_BYTES:
            return
        now = time.monotonic()
        if now >= self._next_all - (_SOON_SECS if self._urgent and now >= self._next else 0.0):
            self._next = now + _PAUSE_SECS
            self._next_all = now + _IDLE_SECS
            if self._changed:
                self._changed = self._urgent = False
                self._send_all(viewer)
        elif self._urgent and now >= self._next:
            self._urgent, self._next = False, now + _PAUSE_SECS
            self._send_facts(viewer)
            self._send_moments(viewer)

    def _send_all(self, viewer: _ViewerSession) -> None:
        self._send_facts(viewer)
        alerts = [(number, alert) for number, alert in list(self._board.alerts) if number >= viewer.alerts]
        if alerts:
            viewer.wire.send(to_message(AlertsCame(tuple(alert for _, alert in alerts))))
        viewer.alerts = alerts[-1][0] + 1 if alerts else viewer.alerts
        self._send_moments(viewer)

    def _send_facts(self, viewer: _ViewerSession) -> None:
        for name, message in FACTS.items():
            fact = self._board.facts.get(name)
            if fact is not None and fact is not viewer.facts.get(name):
                viewer.facts[name] = fact
                viewer.wire.send(to_message(message(fact)))

    def _send_moments(self, viewer: _ViewerSession) -> None:
        moments = self.sender.ready()  # before the ring's descriptor: states of a new ring must follow it
        viewer.ring, fd = self.sender.descriptor(viewer.ring)
        if fd >= 0:
            viewer.wire.send(to_message(RingCame()), fd)
            os.close(fd)
        viewer.wire.send_all(
            to_message(MomentCame(Moment(held.id, held.step, held.counters, held.test), tuple(held.absences)))
            for held in moments
        )


def _send_away(wire: Wire, url: str) -> None:
    """Tell a viewer whose page shows this run instead of its own, and close its connection."""
    wire.send(to_message(Busy(url)))
    wire.close("another viewer is there")


def _pipe() -> tuple[int, int]:
    read_end, write_end = os.pipe()
    os.set_blocking(read_end, False)
    os.set_blocking(write_end, False)
    return read_end, write_end
