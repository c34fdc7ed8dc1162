"""How connections begin: a request has so long to come, and who shows no key cannot take the room of who has one."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from torcheer.studio.connections.auth import Guard

REQUEST_SECS: Final = 10.0  # from its first byte, or from the connection's beginning, to its last
MOST_UNKNOWN: Final = 256  # connections that have shown no key; one more ends the oldest of them


def protocol_of(guard: Guard) -> type[asyncio.Protocol]:
    """Uvicorn's HTTP protocol with these limits, which it has not itself."""
    import h11
    from uvicorn.protocols.http.h11_impl import H11Protocol

    unknown: dict[Any, None] = {}  # in the order in which they came

    class Connection(H11Protocol):
        """A connection, until it becomes a socket's."""

        _deadline: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._begin()
            unknown[self] = None
            if len(unknown) > MOST_UNKNOWN:
                next(iter(unknown))._end()

        def data_received(self, data: bytes) -> None:
            if self.conn.their_state is h11.IDLE:
                self._begin()
            super().data_received(data)
            if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
                self._came()

        def handle_events(self) -> None:
            before = self.scope
            super().handle_events()
            if self.scope is not before and guard.knows(self.scope):
                unknown.pop(self, None)

        def handle_websocket_upgrade(self, event: Any) -> None:
            self._came()
            unknown.pop(self, None)  # the guard answers it, and ends it where there is no key
            super().handle_websocket_upgrade(event)

        def connection_lost(self, exc: Exception | None) -> None:
            self._came()
            unknown.pop(self, None)
            super().connection_lost(exc)

        def _begin(self) -> None:
            if self._deadline is None:
                self._deadline = self.loop.call_later(REQUEST_SECS, self._end)

        def _came(self) -> None:
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None

        def _end(self) -> None:
            unknown.pop(self, None)
            self.transport.abort()

    return Connection
