"""Sources that become others: a folder in which a run begins, a run at rest that is trained on."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from torcheer.control.control_records import Order, Parameter, State, Wants
from torcheer.network.network_records import Net
from torcheer.runlog.table_records import TableRows
from torcheer.studio.connections.messages import AlertSeen, Moment, Recording
from torcheer.studio.sources.source import Changes, Floats, Source, Unit, alert_key
from torcheer.studio.sources.stored_source import Resting

_LOOK_SECS: Final = 1.0


class Nothing(Resting):
    """There is nothing to show, and the title says what would help."""

    kind = "nothing"

    def __init__(self, path: Path, why: str = "") -> None:
        super().__init__(f"no runs in {path.name or path} yet" if not why else f"{path.name} cannot be shown", None)
        self.path = path
        help = why or f"no runs in {path} yet: `torcheer train CONFIG --studio` makes one, and it shows up here"
        self.state = State("idle", message=help)


class Following:
    """Shows a source until `look` finds a better one; then all of that is new."""

    def __init__(self, source: Source, look: Callable[[Source], Source | None]) -> None:
        self.current = source
        self._find, self._next_look = look, time.monotonic() + _LOOK_SECS
        self._wants = Wants()

    def poll(self) -> Changes:
        """What is new, be it everything."""
        if time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + _LOOK_SECS
            better = self._find(self.current)
            if better is not None:
                return self._become(better)
        return self.current.poll()

    def _become(self, better: Source) -> Changes:
        old, self.current = self.current, better
        changes = better.poll()
        for name, table in better.tables.items():
            if name in old.tables:
                table.restarts += old.tables[name].restarts + 1
        kept = {alert_key(one) for one in old.alerts}
        old.close()
        better.wants(self._wants)
        return Changes(
            True, True, True, set(better.tables) | set(old.tables), better.moments, [one.id for one in old.moments],
            [one for one in better.alerts if alert_key(one) not in kept], changes.problems,
        )  # fmt: skip

    def wants(self, wants: Wants) -> None:
        """Also told to what comes later."""
        self._wants = wants
        self.current.wants(wants)

    @property
    def busy(self) -> str:
        """The address of the viewer that a host has, where that is another."""
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
