"""What the server shows: a live host, a recording, or a run directory at rest, all asked in the same way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from torcheer.control.control_records import Order, Parameter, State, Wants
from torcheer.network.network_records import Net
from torcheer.runlog.table_records import TableRows
from torcheer.studio.connections.messages import AlertSeen, Moment, Recording

Array = NDArray[Any]
Floats = NDArray[np.float32]
Unit = tuple[str, int]  # a layer, and which of its units


def alert_key(alert: AlertSeen) -> tuple[Any, ...]:
    """What two tellings of one alert share; which layer it is may be known better by now."""
    return alert.text, alert.step, alert.rule


@dataclass(slots=True)
class Changes:
    """What is new since the last time somebody asked."""

    net: bool = False
    state: bool = False
    parameters: bool = False
    tables: set[str] = field(default_factory=set)  # names of those with other rows or columns
    moments_came: list[Moment] = field(default_factory=list)
    moments_gone: list[int] = field(default_factory=list)  # their ids
    alerts: list[AlertSeen] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)  # sentences for people

    def __bool__(self) -> bool:
        came = self.tables or self.moments_came or self.moments_gone or self.alerts or self.problems
        return bool(self.net or self.state or self.parameters or came)


class Source(Protocol):
    """What is shown. Nothing here waits, and nothing raises for what a page may ask: there is None, or nothing."""

    @property
    def title(self) -> str:
        """What the page is called."""

    @property
    def kind(self) -> str:
        """ "live", "recording", "run" or "nothing"."""

    @property
    def net(self) -> Net | None:
        """The network, None as long as nobody has described one."""

    @property
    def state(self) -> State:
        """Where the run is."""

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The lines of the form."""

    @property
    def alerts(self) -> list[AlertSeen]:
        """What looked wrong, oldest first."""

    @property
    def tables(self) -> dict[str, TableRows]:
        """The tables, by name."""

    @property
    def home(self) -> Path | None:
        """Where recordings of it lie; None where it has no place."""

    @property
    def moments(self) -> list[Moment]:
        """The states there are, oldest first."""

    def units(self, moment: int, layer: str, variable: str, item: int = 0, of: Unit | None = None) -> Floats | None:
        """A value for each unit of a layer; `of` is the clicked unit for "r.Wt" and its like, `GAP` where none goes."""

    def why(self, moment: int, layer: str, variable: str, item: int = 0, of: Unit | None = None) -> str:
        """Why `units` has nothing, in half a sentence."""

    def exact(self, moment: int, layer: str, variable: str, item: int, unit: int) -> Any:
        """One number of a unit as it came, a numpy scalar; None where there is none, or it is one of weights."""

    def raster(
        self, layer: str, variable: str, item: int, count: int, of: Unit | None = None, moment: int = -1
    ) -> Floats | None:
        """The same for the `count` moments up to one (-1: the newest): a row per unit, a column per moment."""

    def trace(self, layer: str, unit: int, variables: tuple[str, ...], item: int = 0) -> dict[str, Any]:
        """A unit over all moments, as the answer to `AskTrace`."""

    def pin(self, moments: set[int]) -> None:
        """Moments that somebody looks at; they stay when older ones are thinned out."""

    def wants(self, wants: Wants) -> None:
        """Tell the host what is looked at."""

    def order(self, order: Order) -> None:
        """Ask something of the host."""

    def poll(self) -> Changes:
        """What is new."""

    def fileno(self) -> int:
        """Readable when `poll` may have something; -1 where there is no such thing: poll every 100 ms."""

    def saving(self, name: str = "") -> Callable[[], Recording]:
        """What writes the moments there are now to disk, in any thread; raises where it cannot."""

    def close(self) -> None:
        """Give back what was opened."""
