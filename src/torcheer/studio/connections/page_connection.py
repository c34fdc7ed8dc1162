"""One connected page: what it has been told and what it is owed.

A page that does not read costs nothing: it is owed the latest of everything, and a message is made when it can be sent.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from torcheer.runlog.table_records import TableHead, TableRows
from torcheer.studio.connections import messages
from torcheer.studio.connections.message_names import written
from torcheer.studio.connections.subscriptions import Looking

if TYPE_CHECKING:
    from torcheer.studio.connections.source_pages import Show

MOST_ANSWERS: Final = 64  # that a page has not read; then its questions wait
_MOST_ALERTS: Final = 1000
_CELLS_A_MESSAGE: Final = 20_000


class Page:
    """A page, as the server sees it; `send` takes text or bytes and waits while the page is slow."""

    def __init__(self, send: Callable[[str | bytes], Awaitable[None]]) -> None:
        self._send = send
        self.show: Show | None = None
        self.looking = Looking()
        self._answers: deque[Any] = deque()
        self._owed: set[str] = set()
        self._gone: list[int] = []  # moments
        self._last_moment = -1
        self._alerts = 0  # of those ever seen
        self._tables: dict[str, tuple[TableHead, int, int]] = {}  # head, `anew`, rows told
        self._saved = ""
        self._wake, self._room = asyncio.Event(), asyncio.Event()
        self.parted = asyncio.Event()  # it has been told that the server ends
        self._room.set()

    # -- what it is owed -----------------------------------------------------------------------------------------------

    def owe(self, *what: str) -> None:
        """Tell the page about these when it can be told: "hello", "net", "state", "tables", "look", …"""
        self._owed.update(what)
        self._wake.set()

    def owe_moments(self, gone: list[int]) -> None:
        """Moments came or went."""
        self._gone += [moment for moment in gone if moment <= self._last_moment]
        self.owe("moments", "look")

    def owe_recordings(self, saved: str = "") -> None:
        """The list of recordings changed."""
        self._saved = saved or self._saved  # one of its own may wait to be told
        self.owe("recordings")

    def tell(self, message: Any) -> None:
        """An answer, or a problem: never left out."""
        self._answers.append(message)
        if len(self._answers) >= MOST_ANSWERS:
            self._room.clear()
        self._wake.set()

    def warn(self, text: str) -> None:
        """A problem that nobody asked for; left out where many wait to be read."""
        if len(self._answers) < MOST_ANSWERS // 2:
            self.tell(messages.Problem(text))

    async def room(self) -> None:
        """Wait until answers would be read: a page that asks and does not listen is not listened to."""
        await self._room.wait()

    # -- telling it ----------------------------------------------------------------------------------------------------

    async def write(self) -> None:
        """Send what is owed, for as long as the page is there."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._answers or (self._owed and self.show is not None):
                await self._write_some()

    async def _write_some(self) -> None:
        while self._answers:
            message = self._answers.popleft()
            self._room.set()
            await self._send(written(message))
            if isinstance(message, messages.Ended):
                self.parted.set()
        for message in self._texts():
            await self._send(written(message))
        if self._answers or self.show is None:
            return
        for message in self._rows():
            await self._send(written(message))
        if "look" in self._owed:
            self._owed.discard("look")
            await self._write_state()

    def _texts(self) -> Iterator[Any]:
        """Everything that is owed but rows and states; each is made just before it is sent."""
        for what, make in _MAKERS.items():
            if what in self._owed and self.show is not None:
                self._owed.discard(what)
                message = make(self, self.show)
                if message is not None:
                    yield message

    def _hello(self, show: Show) -> Any:
        self._owed -= {"net", "state", "parameters", "moments", "alerts", "runs"}
        self._owed.add("tables")
        self._tables = {name: (rowed.head, -1, 0) for name, rowed in show.source.tables.items()}
        self._gone = []
        self._alerts, moments = show.alerts, tuple(show.source.moments)
        self._last_moment = moments[-1].id if moments else -1
        return show.hello(self, moments, tuple(show.source.alerts[-_MOST_ALERTS:]))

    def _net(self, show: Show) -> Any:
        return messages.NetCame(show.source.net) if show.source.net else None

    def _state(self, show: Show) -> Any:
        return messages.StateCame(show.source.state, show.controls(self), len(show.pages))

    def _parameters(self, show: Show) -> Any:
        return messages.ParametersCame(tuple(show.source.parameters))

    def _moments(self, show: Show) -> Any:
        came: list[messages.Moment] = []
        for moment in reversed(show.source.moments):
            if moment.id <= self._last_moment:
                break
            came.append(moment)
        self._last_moment = came[0].id if came else self._last_moment
        gone, self._gone = self._gone, []
        return messages.Moments(tuple(reversed(came)), tuple(gone)) if came or gone else None

    def _alerted(self, show: Show) -> Any:
        new = min(show.alerts - self._alerts, _MOST_ALERTS)
        self._alerts = show.alerts
        return messages.AlertsCame(tuple(show.source.alerts[-new:])) if new > 0 else None

    def _recordings(self, show: Show) -> Any:
        saved, self._saved = self._saved, ""
        return messages.RecordingsCame(show.recordings(), saved)

    def _runs(self, show: Show) -> Any:
        return messages.RunsCame(tuple(show.place.runs), show.run)

    # -- tables --------------------------------------------------------------------------------------------------------

    def _rows(self) -> Iterator[Any]:
        """A piece of each table that has new rows; the rest stays owed."""
        if "tables" not in self._owed or self.show is None:
            return
        self._owed.discard("tables")
        for name, rowed in list(self.show.source.tables.items()):
            head, anew, told = self._tables.get(name, (None, -1, 0))
            if head != rowed.head:
                yield messages.TableCame(rowed.head)
            if head != rowed.head or anew != rowed.restarts or rowed.count < told:
                told = 0
            yield from self._piece(name, rowed, told, (head, anew) == (rowed.head, rowed.restarts))

    def _piece(self, name: str, rowed: TableRows, told: int, goes_on: bool) -> Iterator[Any]:
        until = min(rowed.count, told + _rows_a_message(rowed))
        self._tables[name] = (rowed.head, rowed.restarts, until)
        if until < rowed.count:
            self.owe("tables")
        if until > told or not goes_on:  # no rows at 0: those there were are void
            columns = {column: list(cells[told:until]) for column, cells in rowed.columns.items()}
            yield messages.Rows(name, told, columns)

    # -- states --------------------------------------------------------------------------------------------------------

    async def _write_state(self) -> None:
        """The frames of one state and `shown`, unless the page looks at something else by then."""
        show, look, missing = self.show, self.looking.look, dict[str, str]()
        if show is None or look is None:
            return
        moment, net = self.looking.due(show.source.moments), show.source.net
        if moment is None:
            return
        self.looking.sent(look, moment)
        for layer, frame in show.pictures.messages(show.source, net, look, moment) if net and moment >= 0 else ():
            if frame is None:
                of = (look.layer, look.unit) if look.unit >= 0 else None
                missing[layer] = show.source.why(moment, layer, look.variable, look.item, of)
            else:
                await self._send(frame)
            if self.looking.look is not look or self.show is not show:
                self.looking.broken_off(look)
                return
        await self._send(written(messages.Shown(look.look, moment, tuple(missing), tuple(missing.values()))))


def _rows_a_message(rowed: TableRows) -> int:
    """So many that a message stays below a few hundred KB, tensors included."""
    cells = 0
    for column in rowed.head.columns:
        size = 1
        for length in column.shape:
            size *= max(1, length)
        cells += size
    return max(1, _CELLS_A_MESSAGE // max(1, cells))


_MAKERS: dict[str, Callable[[Page, Show], Any]] = {
    "hello": Page._hello,
    "net": Page._net,
    "state": Page._state,
    "parameters": Page._parameters,
    "moments": Page._moments,
    "alerts": Page._alerted,
    "recordings": Page._recordings,
    "runs": Page._runs,
}
