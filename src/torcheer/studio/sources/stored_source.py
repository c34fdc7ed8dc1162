"""What all sources have in common that nobody can be asked about anything: recordings, histories, runs at rest."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from torcheer.control.control_records import Order, Parameter, State, Wants
from torcheer.errors import ValueUnavailable
from torcheer.network.network_records import Net
from torcheer.runlog.table_records import TableRows
from torcheer.studio.connections.messages import AlertSeen, Moment, Recording
from torcheer.studio.sources.moment_queries import OF_WEIGHTS, Answers, Value
from torcheer.studio.sources.source import Changes
from torcheer.studio.sources.timeline import Reasons, Values

Names = list[tuple[str, str]]


class Resting(Answers):
    """A source whose values lie on disk; a kind of it says where: `value` and `names`."""

    kind = "run"

    def __init__(self, title: str, home: Path | None) -> None:
        self.title, self.home = title, home
        self.net: Net | None = None
        self.state = State()
        self.parameters: tuple[Parameter, ...] = ()
        self.alerts: list[AlertSeen] = []
        self.tables: dict[str, TableRows] = {}
        self._moments: list[Moment] = []
        self._changes = Changes()
        super().__init__(self, lambda: self.net)

    @property
    def moments(self) -> list[Moment]:
        """The states there are, oldest first."""
        return self._moments

    def value(self, moment: int, name: str, variable: str) -> Value | None:
        """A value of a moment."""
        return None

    def names(self, moment: int) -> Names:
        """Layers, or projections, and variables that a moment has."""
        return []

    def values(self, moment: int) -> Values:
        """All that a moment has."""
        found = {key: self.value(moment, *key) for key in self.names(moment)}
        return {key: value for key, value in found.items() if value is not None}

    def reasons(self, moment: int) -> Reasons:
        """Why layers have no value in a moment, where that is known."""
        layers, variables = (self.net.layers, self.net.variables) if self.net is not None else ((), ())
        there = set(self.names(moment))
        shown = [one.name for one in variables if one.name not in OF_WEIGHTS]
        keys = ((one.layer.name, variable) for one in layers for variable in shown)
        found = {key: self.told_why(moment, *key) for key in keys if key not in there}
        return {key: why for key, why in found.items() if why}

    def saving(self, name: str = "") -> Callable[[], Recording]:
        """What keeps the moments as a recording."""
        from torcheer.studio.sources.recordings import saving

        if self.home is None:
            raise ValueUnavailable("what is shown has no place on disk where a recording could lie")
        return saving(self, list(self._moments), lambda one: (self.values(one), self.reasons(one)), self.home, name)

    def save(self, name: str = "") -> Recording:
        """Do so now."""
        return self.saving(name)()

    def poll(self) -> Changes:
        """What turned out since: values that are damaged, for example."""
        changes, self._changes = self._changes, Changes()
        return changes

    def pin(self, moments: set[int]) -> None:
        """All of them stay."""

    def wants(self, wants: Wants) -> None:
        """Nobody is asked."""

    def order(self, order: Order) -> None:
        """Nobody is asked."""

    def fileno(self) -> int:
        """There is nothing to wait for."""
        return -1

    def close(self) -> None:
        """The files' memory goes when nobody holds a value."""


StateOf = Callable[[int], tuple[Values, Reasons]]
