"""The interface of a source: a live host, a recording, or a run directory."""

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
Unit = tuple[str, int]  # a layer, and the number of a unit


def alert_key(alert: AlertSeen) -> tuple[Any, ...]:
    """The key of an alert, for deduplication: its id.

    Without one, all but the layer, which may be named more exactly later.
    """
    return (alert.id,) if alert.id else (alert.text, alert.step, alert.rule)


@dataclass(slots=True)
class Changes:
    """The changes of a source since the last poll."""

    net: bool = False
    state: bool = False
    parameters: bool = False
    tables: set[str] = field(default_factory=set)  # names of those with changed rows or columns
    moments_came: list[Moment] = field(default_factory=list)
    moments_gone: list[int] = field(default_factory=list)  # their ids
    alerts: list[AlertSeen] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)  # sentences for people

    def __bool__(self) -> bool:
        lists = self.tables or self.moments_came or self.moments_gone or self.alerts or self.problems
        return bool(self.net or self.state or self.parameters or lists)


class PageSource(Protocol):
    """The content of a channel.

    No method blocks, or raises for a page's request: it returns None or nothing.
    """

    @property
    def title(self) -> str:
        """The page's title."""

    @property
    def kind(self) -> str:
        """ "live", "recording", "run" or "nothing"."""

    @property
    def net(self) -> Net | None:
        """The network; None until it has been described."""

    @property
    def state(self) -> State:
        """The run's status, counters and allowed actions."""

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The parameters of the form."""

    @property
    def alerts(self) -> list[AlertSeen]:
        """The alerts, oldest first."""

    @property
    def tables(self) -> dict[str, TableRows]:
        """The tables, by name."""

    @property
    def home(self) -> Path | None:
        """The folder for its recordings; None if it has none."""

    @property
    def moments(self) -> list[Moment]:
        """The available states, oldest first."""

    def units(self, moment: int, layer: str, variable: str, item: int = 0, of: Unit | None = None) -> Floats | None:
        """A value for each unit of a layer, `GAP` where missing.

        `of` is the clicked unit, for "r.Wt" and the like.
        """

    def why(self, moment: int, layer: str, variable: str, item: int = 0, of: Unit | None = None) -> str:
        """Why `units` returns None, in half a sentence."""

    def exact(self, moment: int, layer: str, variable: str, item: int, unit: int) -> Any:
        """A unit's exact number as a numpy scalar.

        None if there is none, or for variables of weights.
        """

    def raster(
        self, layer: str, variable: str, item: int, count: int, of: Unit | None = None, moment: int = -1
    ) -> Floats | None:
        """The values of `count` moments up to `moment` (-1: the newest).

        A row per unit, a column per moment.
        """

    def trace(self, layer: str, unit: int, variables: tuple[str, ...], item: int = 0) -> dict[str, Any]:
        """A unit's values over all moments, as the answer to `AskTrace`."""

    def pin(self, moments: set[int]) -> None:
        """Set the moments that pages show; they are kept when older ones are thinned out."""

    def wants(self, wants: Wants) -> None:
        """Send the subscription to the host."""

    def order(self, order: Order) -> None:
        """Send a request to the host."""

    def poll(self) -> Changes:
        """The changes since the last call."""

    def fileno(self) -> int:
        """A descriptor that is readable when `poll` has changes.

        -1 if there is none: poll every 100 ms.
        """

    def saving(self, name: str = "") -> Callable[[], Recording]:
        """A function, for any thread, that writes the current moments to disk.

        Raises if that is impossible.
        """

    def close(self) -> None:
        """Release what was opened."""
