"""The common part of sources without a host: recordings, histories, finished runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from torcheer.control.control_records import Order, Parameter, State, Wants
from torcheer.errors import ValueUnavailable
from torcheer.network.network_records import Net
from torcheer.runlog.table_records import TableRows
from torcheer.studio.connections.messages import AlertSeen, Moment, Recording
from torcheer.studio.sources.moment_queries import OF_WEIGHTS, MomentQueries, RecordedValue
from torcheer.studio.sources.source import Changes
from torcheer.studio.sources.timeline import Reasons, Values

Names = list[tuple[str, str]]


class StoredSource(MomentQueries):
    """A source whose values are stored on disk; subclasses implement `value` and `names`."""

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
        """The stored states, oldest first."""
        return self._moments

    def value(self, moment: int, name: str, variable: str) -> RecordedValue | None:
        """A layer's or projection's value at a moment; None if there is none."""
        return None

    def names(self, moment: int) -> Names:
        """The (layer or projection, variable) pairs of a moment."""
        return []

    def values(self, moment: int) -> Values:
        """All values of a moment."""
        values = {key: self.value(moment, *key) for key in self.names(moment)}
        return {key: value for key, value in values.items() if value is not None}

    def reasons(self, moment: int) -> Reasons:
        """Why layers have no value at a moment, where that is known."""
        layers, variables = (self.net.layers, self.net.variables) if self.net is not None else ((), ())
        present = set(self.names(moment))
        names = [variable.name for variable in variables if variable.name not in OF_WEIGHTS]
        keys = ((placed.layer.name, name) for placed in layers for name in names)
        reasons = {key: self.recorded_reason(moment, *key) for key in keys if key not in present}
        return {key: why for key, why in reasons.items() if why}

    def saving(self, name: str = "") -> Callable[[], Recording]:
        """A function that saves the moments as a recording."""
        from torcheer.studio.sources.recordings import saving

        if self.home is None:
            raise ValueUnavailable("what is shown has no place on disk where a recording could lie")
        moments = list(self._moments)
        return saving(self, moments, lambda moment: (self.values(moment), self.reasons(moment)), self.home, name)

    def save(self, name: str = "") -> Recording:
        """Save the moments as a recording now."""
        return self.saving(name)()

    def poll(self) -> Changes:
        """Changes since the last call: damaged values, for example."""
        changes, self._changes = self._changes, Changes()
        return changes

    def pin(self, moments: set[int]) -> None:
        """Do nothing: all moments stay."""

    def wants(self, wants: Wants) -> None:
        """Do nothing: there is no host."""

    def order(self, order: Order) -> None:
        """Do nothing: there is no host."""

    def fileno(self) -> int:
        """Return -1: there is no descriptor."""
        return -1

    def close(self) -> None:
        """Do nothing: memory maps are freed with their last value."""


StateOf = Callable[[int], tuple[Values, Reasons]]
