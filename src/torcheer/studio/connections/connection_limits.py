"""Limits on new connections: a request timeout, and a cap on unauthenticated ones."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from torcheer.studio.connections.auth import RequestGuard

REQUEST_SECS: Final = 10.0  # from the connection's start, or a request's first byte, to its last byte
MOST_UNAUTHENTICATED: Final = 256  # unauthenticated connections; one more closes the oldest of them


def protocol_of(guard: RequestGuard) -> type[asyncio.Protocol]:
    """Uvicorn's HTTP protocol with these limits, which it lacks."""
    import h11
    from uvicorn.protocols.http.h11_impl import H11Protocol

    unauthenticated: dict[Any, None] = {}  # oldest first

    class Connection(H11Protocol):
        """An HTTP connection, until it is upgraded to a WebSocket."""

        _deadline: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._start_timer()
            unauthenticated[self] = None
            if len(unauthenticated) > MOST_UNAUTHENTICATED:
                next(iter(unauthenticated))._end()

        def data_received(self, data: bytes) -> None:
            if self.conn.their_state is h11.IDLE:
                self._start_timer()
            super().data_received(data)
            if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
                self._stop_timer()

        def handle_events(self) -> None:
            before = self.scope
            super().handle_events()
            if self.scope is not before and guard.has_key(self.scope):
                unauthenticated.pop(self, None)

        def handle_websocket_upgrade(self, event: Any) -> None:
            self._stop_timer()
            unauthenticated.pop(self, None)  # the guard rejects it if it has no key
            super().handle_websocket_upgrade(event)

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_timer()
            unauthenticated.pop(self, None)
            super().connection_lost(exc)

        def _start_timer(self) -> None:
            if self._deadline is None:
                self._deadline = self.loop.call_later(REQUEST_SECS, self._end)

        def _stop_timer(self) -> None:
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None

        def _end(self) -> None:
            unauthenticated.pop(self, None)
            self.transport.abort()

    return Connection
