"""A live host as a source: messages from its socket, values from its shared-memory ring.

Until a host answers, and beside it, it shows what lies in the run's folder.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from torcheer.control.control_records import Order, State, Wants
from torcheer.control.loop_messages import (
    FROM_HOST,
    VERSION,
    AlertsCame,
    Busy,
    Bye,
    Join,
    MomentCame,
    NetworkCame,
    ParametersCame,
    Problem,
    RingCame,
    StateCame,
    Subscribe,
    Welcome,
)  # fmt: skip
from torcheer.errors import INTERRUPTED, BadArgument
from torcheer.network.network_records import Network, full_name
from torcheer.network.placement import net_of
from torcheer.studio.sources.log_source import LogSource, holds_run
from torcheer.studio.sources.recordings import home_of, is_temporary
from torcheer.studio.sources.source import Changes, Source
from torcheer.studio.sources.timeline import HOSTILE, MOST_BYTES, MOST_STATES, Timeline
from torcheer.wire.json_codec import parse_message, to_message
from torcheer.wire.socket_lines import Wire, connect

_RECONNECT_SECS: Final = 1.0  # between two attempts to connect
_HANDSHAKE_SECS: Final = 10.0  # timeout for the host's answer; even in a long step its own thread answers
_MOST_ABSENCES: Final = 2000


class LiveSource(Source):
    """A run that may have a host: at rest, live, ended, resumed. Nothing that a host sends or does raises here."""

    def __init__(
        self, path: str | os.PathLike[str], *, url: str = "", title: str = "", most_bytes: int = MOST_BYTES,
        most_states: int = MOST_STATES,
    ) -> None:  # fmt: skip
        """`path` is the host's socket, which need not be there yet; `url` the viewer's, sent to the host."""
        self.path, self.url = Path(path), url
        self.timeline = Timeline(most_bytes, most_states, self._problem)
        super().__init__(title or self.path.parent.name, home_of(self.path), self.timeline)
        self.folder = None if is_temporary(self.path.parent) else self.path.parent
        self.state = State(message=f"waiting for {self.path.parent.name}")
        self._log = LogSource(self.path.parent)
        self.samples = self._log.samples
        self.tables = self._log.tables
        self._wire: Wire | None = None
        self._wants = Wants()
        self._welcomed, self._said_bye, self._why = False, False, ""
        self._next_try, self._connected_at = 0.0, 0.0
        self._last = -1  # id of the newest state
        self._base = 0  # added to a host's ids, so that those of the next host are larger
        self._network: Network | None = None  # as received
        self.kind = "live"
        if not holds_run(self.path.parent):
            self._log.leave_to_host()
            return
        self.kind, self.store, self.title = "run", self._log.store, title or self._log.title
        self._take_from_log(Changes())
        self._connect()

    def _take_from_log(self, changes: Changes) -> None:
        """Show what is on disk; beside a host, only what that does not send."""
        if self.kind == "run":
            log = self._log
            self.ranks = log.ranks
            self.net, self.state, self.parameters, self.alerts = log.net, log.state, log.parameters, list(log.alerts)
            self._changes = changes
            return
        self.ranks, self._changes.ranks = self._log.ranks, self._changes.ranks or changes.ranks
        self._set_state(replace(self.state, watched=self.state.watched or self._log.state.watched))
        self._changes.samples |= changes.samples
        self._changes.tables |= changes.tables
        self._add_alerts(replace(alert, layer=full_name(alert.layer, self._network)) for alert in changes.alerts)
        for text in changes.problems:
            self._problem(text)

    def _go_live(self) -> None:
        """A host listens: its network and states replace those on disk."""
        before = self._log.moments
        self.kind, self.store, self.net, self.parameters = "live", self.timeline, None, ()
        self.state = State(message=f"waiting for {self.path.parent.name}")
        self._last = max((moment.id for moment in before), default=-1)
        self._changes.net = self._changes.state = self._changes.parameters = True
        self._changes.moments_came = []
        self._changes.moments_gone = sorted({*self._changes.moments_gone, *(moment.id for moment in before)})
        self._log.leave_to_host()

    @property
    def connected(self) -> bool:
        """True once the handshake with a host is complete."""
        return self._wire is not None and self._welcomed

    def fileno(self) -> int:
        """The socket's descriptor; -1 while disconnected."""
        return -1 if self._wire is None else self._wire.fileno()

    def pin(self, moments: set[int]) -> None:
        """Protect moments from eviction."""
        self.timeline.pin(moments)

    def wants(self, wants: Wants) -> None:
        """Send the subscription to the host, or later, once one is connected."""
        if wants != self._wants:
            self._wants = wants
            self._send(Subscribe(wants))

    def order(self, order: Order) -> None:
        """Send a request to the host; does nothing while disconnected."""
        self._send(order)

    def _send(self, message: Subscribe | Order) -> None:
        if self._wire is not None and self._welcomed:
            self._wire.send(to_message(message))

    def poll(self) -> Changes:
        """Read all pending messages; connect if no host is connected."""
        if self._wire is None and time.monotonic() >= self._next_try:
            self._connect()
        wire = self._wire
        if wire is not None:
            for message, fd in wire.receive():
                self._handle_message(message, fd)
            self.timeline.drain()
            if wire.closed:
                self._disconnected(wire.why)
            elif not self._welcomed and time.monotonic() > self._connected_at + _HANDSHAKE_SECS:
                self._disconnected("it does not answer")
            elif wire.pending_bytes:
                wire.flush()
        self._take_from_log(self._log.poll())
        return super().poll()

    def close(self) -> None:
        """Disconnect from the host."""
        if self._wire is not None:
            self._wire.close()
            self._wire = None
        self.timeline.close_ring()

    # -- connection --------------------------------------------------------------------------------------------------

    def _connect(self) -> None:
        self._next_try = time.monotonic() + _RECONNECT_SECS
        try:
            self._wire = connect(self.path)
        except (OSError, ValueError):
            return
        if self.kind == "run":
            self._go_live()
        self._welcomed, self._said_bye, self._connected_at = False, False, time.monotonic()
        self._why = ""
        self._wire.send(to_message(Join(VERSION, self.url)))

    def _disconnected(self, why: str) -> None:
        """Handle a disconnect: received data stays, and the host may reconnect."""
        if self._wire is not None:
            self._wire.close()
        self._wire, self._next_try = None, time.monotonic() + _RECONNECT_SECS
        self.timeline.close_ring()
        if self.busy:
            text = f"another viewer has it: {self.busy}"
        elif self._said_bye:
            text = self._why or (self.state.message if self.state.status in ("done", "failed") else "")
        else:
            text = f"the process is gone ({why}); what was seen stays here"
        failed = bool(self._why) and self._why != INTERRUPTED
        ending = "failed" if failed or self.state.status == "failed" else "done"
        status = ending if self._said_bye else "idle" if self.busy or not self._welcomed else "lost"
        self._set_state(replace(self.state, status=status, can=(), message=text))
        self._welcomed, self._changes.state = False, True  # also where only the connection has ended

    # -- messages ----------------------------------------------------------------------------------------------------

    def _handle_message(self, message: dict[str, Any], fd: int | None) -> None:
        """Handle one message; an invalid one is reported and skipped."""
        kind = message["kind"]
        try:
            if fd is not None:
                self.timeline.open_ring(fd)
            if kind in FROM_HOST and (self._welcomed or FROM_HOST[kind] in (Welcome, Busy)):
                parsed = parse_message(FROM_HOST, message)
                _HANDLERS[type(parsed)](self, parsed)
        except HOSTILE as error:
            self._problem(f"the host said something that cannot be understood ({kind[:40]}): {str(error)[:200]}")

    def _on_welcome(self, welcome: Welcome) -> None:
        if welcome.version != VERSION:
            self._problem(
                f"the host speaks version {str(welcome.version)[:20]} of our language and this viewer version "
                f"{VERSION}: install the same torcheer for both"
            )
        self._welcomed, self.busy = True, ""
        self._base = self._last + 1
        self.title = welcome.title[:200] or self.title
        self._set_state(State())
        self._send(Subscribe(self._wants))

    def _on_busy(self, busy: Busy) -> None:
        self.busy = busy.url[:300] or "somewhere else"
        self._disconnected("busy")

    def _on_network(self, message: NetworkCame) -> None:
        if message.network != self._network:
            self.net, self._network = net_of(message.network), message.network
            self._changes.net = True

    def _on_state(self, message: StateCame) -> None:
        self._set_state(replace(message.state, watched=message.state.watched or self._log.state.watched))

    def _on_parameters(self, message: ParametersCame) -> None:
        self.parameters, self._changes.parameters = message.parameters, True

    def _on_alerts(self, message: AlertsCame) -> None:
        self._add_alerts(
            replace(alert, text=alert.text[:2000], severity=alert.severity[:20]) for alert in message.alerts
        )

    def _on_problem(self, problem: Problem) -> None:
        self._problem(problem.text)

    def _on_ring(self, message: RingCame) -> None:
        """Do nothing: its descriptor was opened."""

    def _on_bye(self, bye: Bye) -> None:
        self._said_bye, self._why = True, bye.why[:500]
        self._log.read_to_end()  # the host waits for this before its temporary folder goes
        if self._wire is not None:
            self._wire.close("bye")

    def _on_moment(self, message: MomentCame) -> None:
        """Add a completed state to the timeline."""
        number = message.moment.id
        if not 0 <= number < 2**52 or self._base + number <= self._last:
            raise BadArgument(f"a moment {str(number)[:40]} after {self._last - self._base}")
        moment = replace(message.moment, id=self._base + number)
        self._last = moment.id
        self._changes.moments_came.append(moment)
        absences = message.absences[:_MOST_ABSENCES]
        reasons = {(layer[:500], variable[:100]): why[:300] for layer, variable, why in absences}
        evicted = set(self.timeline.complete(number, moment, reasons))
        unreported = {added.id for added in self._changes.moments_came}
        self._changes.moments_gone += sorted(evicted - unreported)
        self._changes.moments_came = [added for added in self._changes.moments_came if added.id not in evicted]


_HANDLERS: Final[dict[type, Callable[[LiveSource, Any], None]]] = {
    Welcome: LiveSource._on_welcome, Busy: LiveSource._on_busy, NetworkCame: LiveSource._on_network,
    StateCame: LiveSource._on_state, ParametersCame: LiveSource._on_parameters, AlertsCame: LiveSource._on_alerts,
    Problem: LiveSource._on_problem, RingCame: LiveSource._on_ring, MomentCame: LiveSource._on_moment,
    Bye: LiveSource._on_bye,
}  # fmt: skip
