"""A live host as a source: messages from its socket, values from its shared-memory ring."""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

from torcheer.control.control_records import Order, Parameter, State, Wants
from torcheer.errors import BadArgument, TorcheerError
from torcheer.network.network_records import Net, Network
from torcheer.network.placement import net_of
from torcheer.runlog.incoming_rows import IncomingTables
from torcheer.runlog.table_records import TableHead, TableRows
from torcheer.studio.connections.messages import VERSION, AlertSeen, Moment, Recording
from torcheer.studio.sources.moment_queries import MomentQueries, RecordedValue
from torcheer.studio.sources.recordings import home_of, saving
from torcheer.studio.sources.source import Changes, PageSource, alert_key
from torcheer.studio.sources.timeline import MOST_BYTES, MOST_STATES, Reasons, Timeline, Values
from torcheer.studio.sources.watch_tables import WatchTables, renew
from torcheer.wire.json_codec import from_json
from torcheer.wire.ring import RingReader
from torcheer.wire.shared_memory import check_sealed
from torcheer.wire.socket_lines import Wire, connect

_RECONNECT_SECS: Final = 1.0  # between two attempts to connect
_HANDSHAKE_SECS: Final = 10.0  # timeout for the host's answer; even in a long step its own thread answers
_MOST_ALERTS: Final = 2000
_MOST_ABSENCES: Final = 2000
_MOST_WAITING: Final = 512 << 20  # bytes of unannounced states
_HOSTILE: Final = (
    TorcheerError, LookupError, TypeError, ValueError, ArithmeticError, RecursionError, AttributeError, MemoryError,
    OSError, struct.error,
)  # fmt: skip


class LiveSource(MomentQueries):
    """The viewer's side of a host's connection. Nothing that a host sends or does raises here."""

    kind = "live"

    def __init__(
        self, path: str | os.PathLike[str], *, url: str = "", title: str = "", before: PageSource | None = None,
        most_bytes: int = MOST_BYTES, most_states: int = MOST_STATES,
    ) -> None:  # fmt: skip
        """`before` is the same run's stored source: its rows and alerts stay."""
        self.path, self.url = Path(path), url
        self.title = title or (before.title if before else self.path.parent.name)
        self.home: Path | None = home_of(self.path)
        self.net: Net | None = None
        self.state = State(message=f"waiting for {self.path.parent.name}")
        self.parameters: tuple[Parameter, ...] = ()
        self.alerts: list[AlertSeen] = list(before.alerts) if before else []
        self.timeline = Timeline(most_bytes, most_states)
        super().__init__(self.timeline, lambda: self.net)
        self.tables: dict[str, TableRows] = dict(before.tables) if before else {}
        self._incoming, self._watched = IncomingTables(self.tables), WatchTables(self.path.parent)
        self._wire: Wire | None = None
        self._ring: RingReader | None = None
        self._wants = Wants()
        self._waiting: dict[int, Values] = {}
        self.busy = ""  # the URL of another viewer that the host is connected to, or ""
        self._welcomed, self._said_bye, self._why = False, False, ""
        self._next_try, self._connected_at = 0.0, 0.0
        self._last = max((moment.id for moment in before.moments), default=-1) if before else -1
        self._base = self._last + 1  # added to a host's ids, so that those of the next host are larger
        self._network: Any = NotImplemented  # as received; initially equal to nothing
        self._changes = Changes()

    @property
    def moments(self) -> list[Moment]:
        """The buffered states, oldest first."""
        return self.timeline.moments

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
            self._send({"kind": "wants", "wants": asdict(wants)})

    def order(self, order: Order) -> None:
        """Send a request to the host; does nothing while disconnected."""
        if order.kind == "act":
            self._send({"kind": "act", "action": order.action, "count": order.count, "item": order.item})
        else:
            self._send({"kind": "change", "name": order.name, "value": order.value})

    def _send(self, message: dict[str, Any]) -> None:
        if self._wire is not None and self._welcomed:
            self._wire.send(message)

    def poll(self) -> Changes:
        """Read all pending messages; reconnect if the host has disconnected."""
        if self._wire is None and time.monotonic() >= self._next_try:
            self._connect()
        wire = self._wire
        if wire is not None:
            for message, fd in wire.receive():
                self._handle_message(message, fd)
            self._drain()  # even unannounced values: the host needs the room
            if wire.closed:
                self._disconnected(wire.why)
            elif not self._welcomed and time.monotonic() > self._connected_at + _HANDSHAKE_SECS:
                self._disconnected("it does not answer")
            elif wire.pending_bytes:
                wire.flush()
        for name, table in self._watched.changes().items():
            if name not in self._incoming.announced:
                renew(self.tables, name, table)
                self._changes.tables.add(name)
        changes, self._changes = self._changes, Changes()
        return changes

    def saving(self, name: str = "") -> Callable[[], Recording]:
        """A function that saves the current moments to disk."""
        assert self.home is not None
        moments = self.moments
        states = {  # copied, as some may be evicted meanwhile
            moment.id: (self.timeline.values(moment.id), self.timeline.reasons(moment.id)) for moment in moments
        }
        return saving(self, moments, states.__getitem__, self.home, name)

    def save(self, name: str = "") -> Recording:
        """Save the current moments to disk now."""
        return self.saving(name)()

    def close(self) -> None:
        """Disconnect from the host."""
        if self._wire is not None:
            self._wire.close()
            self._wire = None
        self._close_ring()

    # -- connection --------------------------------------------------------------------------------------------------

    def _connect(self) -> None:
        self._next_try = time.monotonic() + _RECONNECT_SECS
        try:
            self._wire = connect(self.path)
        except (OSError, ValueError):
            return
        self._welcomed, self._said_bye, self._connected_at = False, False, time.monotonic()
        self._why = ""
        self._waiting.clear()
        self._wire.send({"kind": "hello", "version": VERSION, "url": self.url})

    def _disconnected(self, why: str) -> None:
        """Handle a disconnect: received data stays, and the host may reconnect."""
        if self._wire is not None:
            self._wire.close()
        self._wire, self._next_try = None, time.monotonic() + _RECONNECT_SECS
        self._close_ring()
        if self.busy:
            text = f"another viewer has it: {self.busy}"
        elif self._said_bye:
            text = self._why or (self.state.message if self.state.status == "done" else "")
        else:
            text = f"the process is gone ({why}); what was seen stays here"
        status = "done" if self._said_bye else "idle" if self.busy or not self._welcomed else "lost"
        self._set_state(replace(self.state, status=status, can=(), message=text))
        self._welcomed = False

    def _close_ring(self) -> None:
        if self._ring is not None:
            ring, self._ring = self._ring, None
            try:
                ring.close()
            except (OSError, ValueError, BufferError):
                pass
        self._waiting.clear()

    def _set_state(self, state: State) -> None:
        if state != self.state:
            self.state, self._changes.state = state, True

    # -- messages ----------------------------------------------------------------------------------------------------

    def _handle_message(self, message: dict[str, Any], fd: int | None) -> None:
        """Handle one message; an invalid one is reported and skipped."""
        kind = message["kind"]
        try:
            if fd is not None:
                self._open_ring(fd)
            if (handle := _HANDLERS.get(kind)) is not None and (self._welcomed or kind in ("welcome", "busy")):
                handle(self, message)
        except _HOSTILE as error:
            self._problem(f"the host said something that cannot be understood ({kind[:40]}): {str(error)[:200]}")

    def _problem(self, text: str) -> None:
        if len(self._changes.problems) < 20:
            self._changes.problems.append(text)

    def _on_welcome(self, message: dict[str, Any]) -> None:
        if message.get("version") != VERSION:
            self._problem(
                f"the host speaks version {str(message.get('version'))[:20]} of our language and this viewer version "
                f"{VERSION}: install the same torcheer for both"
            )
        self._welcomed, self.busy = True, ""
        self._base = self._last + 1
        self._incoming.start_new_host()
        if isinstance(title := message.get("title"), str) and title:
            self.title = title[:200]
        self._set_state(State())
        self._send({"kind": "wants", "wants": asdict(self._wants)})

    def _on_busy(self, message: dict[str, Any]) -> None:
        self.busy = str(message.get("url", ""))[:300] or "somewhere else"
        self._disconnected("busy")

    def _on_network(self, message: dict[str, Any]) -> None:
        network = message["network"]
        if network != self._network:
            self.net, self._network = net_of(from_json(Network, network)), network
            self._changes.net = True

    def _on_state(self, message: dict[str, Any]) -> None:
        self._set_state(from_json(State, message["state"]))

    def _on_parameters(self, message: dict[str, Any]) -> None:
        self.parameters = tuple(from_json(Parameter, parameter) for parameter in _checked_list(message["parameters"]))
        self._changes.parameters = True

    def _on_table(self, message: dict[str, Any]) -> None:
        head = from_json(TableHead, message["table"])
        self._incoming.head(head)
        self._changes.tables.add(head.name)

    def _on_rows(self, message: dict[str, Any]) -> None:
        self._incoming.rows(message["table"], message["first"], message["columns"])
        self._changes.tables.add(message["table"])

    def _on_alert(self, message: dict[str, Any]) -> None:
        alert = from_json(AlertSeen, message)
        alert = replace(alert, text=alert.text[:2000], severity=alert.severity[:20])
        key = alert_key(alert)
        if not any(alert_key(known) == key for known in self.alerts):  # a reconnected host sends all of them again
            self.alerts.append(alert)
            del self.alerts[:-_MOST_ALERTS]
            self._changes.alerts.append(alert)

    def _on_problem(self, message: dict[str, Any]) -> None:
        self._problem(str(message["text"])[:2000])

    def _on_bye(self, message: dict[str, Any]) -> None:
        self._said_bye, self._why = True, str(message.get("why", ""))[:500]

    # -- values ------------------------------------------------------------------------------------------------------

    def recorded_reason(self, moment: int, layer: str, variable: str) -> str:
        """The reason that the host gave for a missing value."""
        return self.timeline.why(moment, layer, variable)

    def _open_ring(self, fd: int) -> None:
        """Switch to another ring, after draining the one before."""
        self._drain()
        waiting = self._waiting
        self._waiting = {}
        self._close_ring()
        self._waiting = waiting
        try:
            check_sealed(fd)
            self._ring = RingReader(fd)
        except _HOSTILE as error:
            os.close(fd)
            raise BadArgument(f"a ring that cannot be read: {error}") from None

    def _drain(self) -> None:
        """Read the ring's values, at most one ring size of them."""
        if self._ring is None:
            return
        ring, taken = self._ring, 0
        try:
            while taken <= ring.memory.size and (sent := ring.take()) is not None:
                sample = sent.sample
                taken += sample.array.nbytes + 256
                values = self._waiting.setdefault(sample.step, {})
                name = sample.variable
                if (sample.layer, name) in values and sample.item >= 0:  # a further item, for another page
                    name = f"{name}[{sample.item}]"
                values[sample.layer, name] = RecordedValue(sample.item, sample.array)
                ring.done()
        except _HOSTILE as error:
            self._problem(f"the values of the host cannot be read: {str(error)[:200]}")
            self._close_ring()
        self._drop_unannounced()

    def _drop_unannounced(self) -> None:
        """Drop the oldest unannounced values, so that a faulty host cannot fill the memory."""
        if len(self._waiting) > 16:
            sizes = {
                number: sum(value.array.nbytes for value in values.values()) for number, values in self._waiting.items()
            }
            while sum(sizes.values()) > _MOST_WAITING:
                oldest = min(sizes)
                del sizes[oldest], self._waiting[oldest]

    def _on_moment(self, message: dict[str, Any]) -> None:
        """Add a completed state to the timeline."""
        number = message["id"]
        if type(number) is not int or not 0 <= number < 2**52 or self._base + number <= self._last:
            raise BadArgument(f"a moment {str(number)[:40]!r} after {self._last - self._base}")
        self._drain()
        values = self._waiting.pop(number, {})
        for old in [waiting for waiting in self._waiting if waiting < number]:
            del self._waiting[old]
        moment = from_json(Moment, {**message, "id": self._base + number})
        self._last = moment.id
        self._changes.moments_came.append(moment)
        evicted = set(self.timeline.add(moment, values, _reasons(message.get("absences", []))))
        unreported = {added.id for added in self._changes.moments_came}
        self._changes.moments_gone += sorted(evicted - unreported)
        self._changes.moments_came = [added for added in self._changes.moments_came if added.id not in evicted]


def _reasons(absences: Any) -> Reasons:
    """Parse a host's reasons for missing values."""
    entries = _checked_list(absences)[:_MOST_ABSENCES]
    valid = [entry for entry in entries if isinstance(entry, list) and len(entry) == 3]
    return {(str(layer)[:500], str(variable)[:100]): str(why)[:300] for layer, variable, why in valid}


def _checked_list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise BadArgument(f"a {type(value).__name__} where a list is needed")
    return value


_HANDLERS: Final[dict[str, Callable[[LiveSource, dict[str, Any]], None]]] = {
    "welcome": LiveSource._on_welcome, "busy": LiveSource._on_busy, "network": LiveSource._on_network,
    "state": LiveSource._on_state, "parameters": LiveSource._on_parameters, "table": LiveSource._on_table,
    "rows": LiveSource._on_rows, "alert": LiveSource._on_alert, "problem": LiveSource._on_problem,
    "bye": LiveSource._on_bye, "moment": LiveSource._on_moment,
}  # fmt: skip
