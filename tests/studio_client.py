"""A viewer without a page: what the studio's server does with a host, for tests that press buttons and read values."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from seams import Act, Change, LiveSource, Wants
from waiting import wait_until

ALL = Wants(variables=("Act", "Net", "Grad"), weights=True)


class Client:
    """The viewer's end of a host's socket."""

    def __init__(self, path: str | Path, wants: Wants | None = ALL) -> None:
        self.source = LiveSource(path, url="http://127.0.0.1:1/")
        self.until(lambda: self.source.connected)
        if wants is not None:
            self.source.wants(wants)

    def until(self, condition: Callable[[], Any], what: str = "") -> Any:
        """Read what comes until a condition holds; its value."""
        seen = lambda: (self.source.state, self.source.alerts)  # noqa: E731
        return wait_until(condition, what, poll=self.source.poll, seen=seen)

    def press(self, action: str, **about: Any) -> None:
        """Push a button."""
        self.source.order(Act(action, **about))

    def change(self, name: str, value: Any) -> None:
        """Edit a parameter."""
        self.source.order(Change(name, value))

    def status(self, *wanted: str) -> None:
        """Wait for one of these."""
        self.until(lambda: self.source.state.status in wanted)

    def newest(self, layer: str, variable: str, **where: Any) -> Any:
        """The values of a layer in the newest state."""
        item = where.pop("item", 0)
        return self.source.units(self.source.moments[-1].id, layer, variable, item, **where)

    @property
    def parameters(self) -> dict[str, Any]:
        return {one.name: one.value for one in self.source.parameters}

    def rows(self, table: str) -> dict[str, list[Any]]:
        """The columns of a table, as far as they came."""
        found = self.source.tables.get(table)
        return found.columns if found is not None else {}

    def close(self) -> None:
        self.source.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
