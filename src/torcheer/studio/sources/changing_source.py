"""Sources that are replaced while shown.

An empty folder is replaced by its first run, a finished run by its resumption.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from torcheer.control.control_records import Order, Parameter, State, Wants
from torcheer.network.network_records import Net
from torcheer.runlog.table_records import TableRows
from torcheer.studio.connections.messages import AlertSeen, Moment, Recording
from torcheer.studio.sources.source import Changes, Floats, PageSource, Unit, alert_key
from torcheer.studio.sources.stored_source import StoredSource

_CHECK_SECS: Final = 1.0


class EmptySource(StoredSource):
    """A source without content, with a title that says what would help."""

    kind = "nothing"

    def __init__(self, path: Path, why: str = "") -> None:
        super().__init__(f"no runs in {path.name or path} yet" if not why else f"{path.name} cannot be shown", None)
        self.path = path
        help = why or f"no runs in {path} yet: `torcheer train CONFIG --studio` makes one, and it shows up here"
        self.state = State("idle", message=help)


class ChangingSource:
    """Shows a source until `find(current)` returns a replacement.

    Then everything is reported as new.
    """

    def __init__(self, source: PageSource, find: Callable[[PageSource], PageSource | None]) -> None:
        self.current = source
        self._find, self._next_check = find, time.monotonic() + _CHECK_SECS
        self._wants = Wants()

    def poll(self) -> Changes:
        """Changes since the last call; all of the content after a replacement."""
        if time.monotonic() >= self._next_check:
            self._next_check = time.monotonic() + _CHECK_SECS
            replacement = self._find(self.current)
            if replacement is not None:
                return self._replace(replacement)
        return self.current.poll()

    def _replace(self, replacement: PageSource) -> Changes:
        old, self.current = self.current, replacement
        changes = replacement.poll()
        for name, table in replacement.tables.items():
            if name in old.tables:
                table.restarts += old.tables[name].restarts + 1
        old_alerts = {alert_key(alert) for alert in old.alerts}
        old.close()
        replacement.wants(self._wants)
        return Changes(
            True, True, True, set(replacement.tables) | set(old.tables), replacement.moments,
            [moment.id for moment in old.moments],
            [alert for alert in replacement.alerts if alert_key(alert) not in old_alerts], changes.problems,
        )  # fmt: skip

    def wants(self, wants: Wants) -> None:
        """Forward the subscription, also to later replacements."""
        self._wants = wants
        self.current.wants(wants)

    @property
    def busy(self) -> str:
        """The URL of another viewer that the host is connected to, or ""."""
        return str(getattr(self.current, "busy", ""))

    @property
    def title(self) -> str:
        return self.current.title

    @property
    def kind(self) -> str:
        return self.current.kind

    @property
    def net(self) -> Net | None:
        return self.current.net

    @property
    def state(self) -> State:
        return self.current.state

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return self.current.parameters

    @property
    def alerts(self) -> list[AlertSeen]:
        return self.current.alerts

    @property
    def tables(self) -> dict[str, TableRows]:
        return self.current.tables

    @property
    def home(self) -> Path | None:
        return self.current.home

    @property
    def moments(self) -> list[Moment]:
        return self.current.moments

    def units(self, moment: int, layer: str, variable: str, item: int = 0, of: Unit | None = None) -> Floats | None:
        return self.current.units(moment, layer, variable, item, of)

    def why(self, moment: int, layer: str, variable: str, item: int = 0, of: Unit | None = None) -> str:
        return self.current.why(moment, layer, variable, item, of)

    def exact(self, moment: int, layer: str, variable: str, item: int, unit: int) -> Any:
        return self.current.exact(moment, layer, variable, item, unit)

    def raster(
        self, layer: str, variable: str, item: int, count: int, of: Unit | None = None, moment: int = -1
    ) -> Floats | None:
        return self.current.raster(layer, variable, item, count, of, moment)

    def trace(self, layer: str, unit: int, variables: tuple[str, ...], item: int = 0) -> dict[str, Any]:
        return self.current.trace(layer, unit, variables, item)

    def pin(self, moments: set[int]) -> None:
        self.current.pin(moments)

    def order(self, order: Order) -> None:
        self.current.order(order)

    def fileno(self) -> int:
        return self.current.fileno()

    def saving(self, name: str = "") -> Callable[[], Recording]:
        return self.current.saving(name)

    def close(self) -> None:
        self.current.close()
