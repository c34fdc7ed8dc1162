"""One connected page: what it was sent, and which updates are pending.

A page that does not read costs nothing: only the names of pending updates are stored, and a message is built from the
latest state when it can be sent.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, Protocol

from torcheer.control.loop_messages import VERSION, AlertsCame, Moment, ParametersCame, Problem, StateCame
from torcheer.runlog.table_records import TableHead
from torcheer.runlog.tables.long_table import ShownTable
from torcheer.studio.connections import messages
from torcheer.studio.connections.subscriptions import Subscription
from torcheer.studio.run_outcome import outcome_of
from torcheer.wire.json_codec import serialize

if TYPE_CHECKING:
    from torcheer.studio.connections.source_pages import Channel

SLOW_SECS: Final = 60.0  # a page that takes longer to read one message is disconnected
MOST_ANSWERS: Final = 64  # that a page has not read; beyond that its questions wait
_MOST_ALERTS: Final = 1000
_MESSAGE_CELLS: Final = 20_000
_MESSAGE_SAMPLES: Final = 1000
_MENU_RUNS: Final = 200  # that a menu can list


class PageSocket(Protocol):
    """The WebSocket of a page."""

    async def send_text(self, data: str) -> None:
        """Send a message; waits while the page is slow."""

    async def send_bytes(self, data: bytes) -> None:
        """Send a binary message; waits while the page is slow."""


class PageConnection:
    """A connected page."""

    def __init__(self, socket: PageSocket) -> None:
        self._socket = socket
        self.channel: Channel | None = None
        self.subscription = Subscription()
        self._replies: deque[Any] = deque()
        self._pending: set[str] = set()
        self._removed: list[int] = []  # moments that were removed
        self._last_moment = -1
        self._alerts = 0  # number of alerts sent
        self._tables: dict[str, tuple[TableHead, int, int, int]] = {}  # head, `restarts`, `changes`, rows sent
        self._samples = (-1, 0)  # `restarts` of the source's samples, how many were sent
        self._saved = ""
        self._wake, self._has_room = asyncio.Event(), asyncio.Event()
        self.goodbye_sent = asyncio.Event()  # the closing message was sent
        self._has_room.set()

    # -- pending updates -----------------------------------------------------------------------------------------------

    def queue(self, *names: str) -> None:
        """Queue updates by name: "hello", "net", "state", "tables", "look", …"""
        self._pending.update(names)
        self._wake.set()

    def queue_moments(self, removed: list[int]) -> None:
        """Queue added and removed moments."""
        self._removed += [moment for moment in removed if moment <= self._last_moment]
        self.queue("moments", "look")

    def queue_recordings(self, saved: str = "") -> None:
        """Queue the list of recordings; `saved` is the page's own, just saved."""
        self._saved = saved or self._saved  # an earlier one may still be pending
        self.queue("recordings")

    def reply(self, message: Any) -> None:
        """Queue an answer or a problem, or a function that makes one when it is sent; never dropped."""
        self._replies.append(message)
        if len(self._replies) >= MOST_ANSWERS:
            self._has_room.clear()
        self._wake.set()

    def warn(self, text: str) -> None:
        """Queue a problem that is no reply; dropped while many messages are unread."""
        if len(self._replies) < MOST_ANSWERS // 2:
            self.reply(Problem(text))

    async def wait_for_room(self) -> None:
        """Wait until replies fit the queue: a page that does not read is not read from."""
        await self._has_room.wait()

    # -- sending -------------------------------------------------------------------------------------------------------

    async def write(self) -> None:
        """Send pending messages for as long as the page is connected."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self.flush()

    async def flush(self) -> None:
        """Send what is pending now."""
        while self._replies or (self._pending and self.channel is not None):
            await self._write_pending()

    async def _write_pending(self) -> None:
        while self._replies:
            message = self._replies.popleft()
            self._has_room.set()
            message = message() if callable(message) else message
            await self._send(message if isinstance(message, bytes) else serialize(message))
            if isinstance(message, messages.Ended):
                self.goodbye_sent.set()
        for message in self._texts():
            await self._send(serialize(message))
        if self._replies or self.channel is None:
            return
        for message in self._rows():
            await self._send(serialize(message))
        if "look" in self._pending:
            self._pending.discard("look")
            await self._write_state()

    async def _send(self, message: str | bytes) -> None:
        """Send a message; raises `TimeoutError` for a page that does not read it, which ends the connection."""
        async with asyncio.timeout(SLOW_SECS):
            await (self._socket.send_text(message) if isinstance(message, str) else self._socket.send_bytes(message))

    def _texts(self) -> Iterator[Any]:
        """Yield the pending messages except rows and states; each is built just before it is sent."""
        for name, make in _BUILDERS.items():
            if name in self._pending and self.channel is not None:
                self._pending.discard(name)
                message = make(self, self.channel)
                if message is not None:
                    yield message

    def _hello(self, channel: Channel) -> Any:
        """Begin anew: everything is pending."""
        self._pending |= {*_BUILDERS, "tables"} - {"hello"}
        self._tables, self._removed, self._last_moment, self._samples = {}, [], -1, (-1, 0)
        self._alerts = channel.alerts - min(len(channel.source.alerts), _MOST_ALERTS)
        return messages.Hello(VERSION, channel.title, channel.source.kind)

    def _net(self, channel: Channel) -> Any:
        net = channel.source.named_net
        return messages.NetCame(net) if net else None

    def _state(self, channel: Channel) -> Any:
        return StateCame(channel.source.state)

    def _outcome(self, channel: Channel) -> Any:
        return outcome_of(channel.source)

    def _viewers(self, channel: Channel) -> Any:
        return messages.ViewersCame(channel.controls(self), len(channel.pages))

    def _parameters(self, channel: Channel) -> Any:
        return ParametersCame(tuple(channel.source.parameters))

    def _moments(self, channel: Channel) -> Any:
        added: list[Moment] = []
        for moment in reversed(channel.source.moments):
            if moment.id <= self._last_moment:
                break
            added.append(moment)
        self._last_moment = added[0].id if added else self._last_moment
        removed, self._removed = self._removed, []
        return messages.Moments(tuple(reversed(added)), tuple(removed)) if added or removed else None

    def _new_alerts(self, channel: Channel) -> Any:
        new = min(channel.alerts - self._alerts, _MOST_ALERTS)
        self._alerts = channel.alerts
        return AlertsCame(tuple(channel.source.alerts[-new:])) if new > 0 else None

    def _new_samples(self, channel: Channel) -> Any:
        samples, (restarts, sent) = channel.source.samples, self._samples
        first = sent if restarts == samples.restarts else 0
        heads = samples.heads(first, _MESSAGE_SAMPLES)
        self._samples = (samples.restarts, first + len(heads))
        if first + len(heads) < len(samples):
            self.queue("samples")
        return messages.SamplesCame(first, heads) if heads or (not first and sent) else None

    def _ranks(self, channel: Channel) -> Any:
        return channel.source.ranks

    def _recordings(self, channel: Channel) -> Any:
        saved, self._saved = self._saved, ""
        return messages.RecordingsCame(channel.recordings(), saved)

    def _runs(self, channel: Channel) -> Any:
        runs, index = tuple(channel.catalog.runs), channel.catalog.index
        shown = runs if len(runs) <= _MENU_RUNS else tuple(run for run in runs if run.id == channel.run)
        facts = (index.total, index.waiting, index.revision) if index is not None else (0, 0, 0)
        return messages.RunsCame(shown, channel.run, *facts)

    def _backward(self, channel: Channel) -> Any:
        source = channel.source
        return messages.BackwardCame(source.title, source.backward_steps) if source.backward_steps else None

    def _comparison(self, channel: Channel) -> Any:
        return channel.source.comparison

    def _caught_up(self, channel: Channel) -> Any:
        return messages.CaughtUp()

    # -- tables --------------------------------------------------------------------------------------------------------

    def _rows(self) -> Iterator[Any]:
        """Yield a piece of each table that has new rows; the rest stays pending."""
        if "tables" not in self._pending or self.channel is None:
            return
        self._pending.discard("tables")
        for name, table in list(self.channel.source.tables.items()):
            head, restarts, changes, sent = self._tables.get(name, (None, -1, 0, 0))
            continues = (head, restarts) == (table.head, table.restarts)
            if head != table.head:
                yield messages.TableCame(table.head)
            yield from self._piece(name, table, min(sent, table.intact_rows(changes)) if continues else 0, continues)

    def _piece(self, name: str, table: ShownTable, sent: int, continues: bool) -> Iterator[Any]:
        until = min(table.count, sent + _rows_per_message(table))
        self._tables[name] = (table.head, table.restarts, table.changes, until)
        if until < table.count:
            self.queue("tables")
        if until > sent or not continues:  # no rows at 0: the earlier ones are void
            columns = {column: list(cells[sent:until]) for column, cells in table.columns.items()}
            yield messages.Rows(name, sent, columns)

    # -- states --------------------------------------------------------------------------------------------------------

    async def _write_state(self) -> None:
        """Send the frames of one state and `shown`, unless the subscription changes meanwhile."""
        channel, look, missing = self.channel, self.subscription.look, dict[str, str]()
        if channel is None or look is None:
            return
        moment, net = self.subscription.due(channel.source.moments), channel.source.net
        if moment is None:
            return
        self.subscription.mark_sent(look, moment)
        for layer, frame in channel.frames.messages(channel.source, net, look, moment) if net and moment >= 0 else ():
            if frame is None:
                of = (look.layer, look.unit) if look.unit >= 0 else None
                missing[layer] = channel.source.why(moment, layer, look.variable, look.item, of)
            else:
                await self._send(frame)
            if self.subscription.look is not look or self.channel is not channel:
                self.subscription.cancel(look)
                return
        await self._send(serialize(messages.Shown(look.look, moment, tuple(missing), tuple(missing.values()))))


def _rows_per_message(table: ShownTable) -> int:
    """The number of rows that keeps a message below a few hundred KB, tensors included."""
    cells = 0
    for column in table.head.columns:
        size = 1
        for length in column.shape:
            size *= max(1, length)
        cells += size
    return max(1, _MESSAGE_CELLS // max(1, cells))


_BUILDERS: dict[str, Callable[[PageConnection, Channel], Any]] = {
    "hello": PageConnection._hello,
    "net": PageConnection._net,
    "state": PageConnection._state,
    "outcome": PageConnection._outcome,
    "viewers": PageConnection._viewers,
    "parameters": PageConnection._parameters,
    "moments": PageConnection._moments,
    "alerts": PageConnection._new_alerts,
    "samples": PageConnection._new_samples,
    "ranks": PageConnection._ranks,
    "recordings": PageConnection._recordings,
    "runs": PageConnection._runs,
    "backward": PageConnection._backward,
    "comparison": PageConnection._comparison,
    "caught_up": PageConnection._caught_up,
}
