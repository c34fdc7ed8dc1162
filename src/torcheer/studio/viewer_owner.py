"""Who ends a viewer: the process that started it, a page; after that process its terminal, or an hour alone."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from torcheer.wire.page_lifetime import hold_port, is_hung_up
from torcheer.wire.parent import Parent
from torcheer.wire.temporary_folders import TemporaryFolder

_CHECK_SECS: Final = 0.5


class Owner:
    """The process that started the viewer, and what becomes of the viewer after it."""

    def __init__(self, parent: Parent, *, stays_secs: float = 0.0, terminal: int = -1) -> None:
        """`stays_secs` is how long the viewer stays without pages after its parent; 0.0: it ends with it.

        It also ends when `terminal`, a descriptor, is closed.
        """
        self.parent, self._stays_secs, self._terminal = parent, stays_secs, terminal
        self._is_alone = False  # the parent has gone, and the viewer stayed
        self._held: TemporaryFolder | None = None  # says so to those who want the port

    def watch(self, server: Any) -> None:
        """End the server when it is time to: the wire is watched; where forks hold it open, the parent's pid."""
        loop, wire_fd = asyncio.get_running_loop(), self.parent.wire.fileno()

        def end(is_orphan: bool) -> None:
            server.is_orphan = is_orphan
            server.should_exit = True

        def parent_gone() -> None:
            self._is_alone = True
            loop.remove_reader(wire_fd)
            if self._may_stay(server):
                self._held = hold_port(server.port)
            else:
                end(is_orphan=True)

        def readable() -> None:
            if self.parent.wire.exchange():  # it asks to close
                loop.remove_reader(wire_fd)
                end(is_orphan=False)
            elif self.parent.is_gone:
                parent_gone()

        def check() -> None:
            if self._is_alone and not self._may_stay(server):
                end(is_orphan=False)
            elif not self._is_alone and self.parent.is_gone and not server.should_exit:
                parent_gone()
            if not server.should_exit:
                loop.call_later(_CHECK_SECS, check)

        loop.add_reader(wire_fd, readable)
        check()

    def close(self) -> None:
        """Leave the port."""
        if self._held is not None:
            self._held.remove()

    def _may_stay(self, server: Any) -> bool:
        if self._stays_secs <= 0 or (self._terminal >= 0 and is_hung_up(self._terminal)):
            return False
        return bool(server.hub.alone_secs < self._stays_secs)
