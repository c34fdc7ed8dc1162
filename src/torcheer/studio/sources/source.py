"""What a page shows: a live host, what a run left behind, or a recorded pass; this is their common part."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torcheer.control.control_records import Order, Parameter, State, Wants
from torcheer.control.loop_messages import AlertSeen, Moment
from torcheer.errors import ValueUnavailable
from torcheer.network.heads.token_names import TokenNames
from torcheer.network.network_records import Net, Network
from torcheer.runlog.tables.long_table import ShownTable
from torcheer.studio.connections.comparison_messages import ComparisonCame
from torcheer.studio.connections.messages import RanksCame, Recording
from torcheer.studio.sources.moment_queries import MomentQueries, Store, Values
from torcheer.studio.sources.sample_index import SampleIndex

if TYPE_CHECKING:
    from torcheer.drawing.writers.graph_text import GraphText

_MOST_ALERTS = 2000


@dataclass(slots=True)
class Changes:
    """The changes of a source since the last poll."""

    net: bool = False
    state: bool = False
    parameters: bool = False
    samples: bool = False
    comparison: bool = False
    ranks: bool = False
    tables: set[str] = field(default_factory=set)  # names of those with changed rows or columns
    moments_came: list[Moment] = field(default_factory=list)
    moments_gone: list[int] = field(default_factory=list)  # their ids
    alerts: list[AlertSeen] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)  # sentences for people

    def __bool__(self) -> bool:
        lists = self.tables or self.moments_came or self.moments_gone or self.alerts or self.problems
        parts = self.net or self.state or self.parameters or self.samples or self.comparison or self.ranks
        return bool(parts or lists)


class Source(MomentQueries):
    """The content of a channel; by itself it is empty. No method blocks, or raises for a page's request."""

    kind = "nothing"  # or "live", "run", "recording", "pass", "file", "comparison"
    busy = ""  # the URL of another viewer that the host is connected to
    backward_steps = 0  # of a pass of the readable autograd; 0: it is none
    folder: Path | None = None  # where what is shown lies; None if it is temporary
    ranks: RanksCame | None = None  # of a run of several processes
    token_names: TokenNames = ()  # that the viewer was started with; its network's own, where there are none

    def __init__(self, title: str, home: Path | None, store: Store) -> None:
        """`home` is the folder for its recordings, None if it has none; `store` has the values of its moments."""
        self.title, self.home = title, home
        self.net: Net | None = None  # None until it has been described
        self.state = State()
        self.parameters: tuple[Parameter, ...] = ()
        self.alerts: list[AlertSeen] = []  # oldest first
        self.tables: dict[str, ShownTable] = {}
        self.samples = SampleIndex()  # what people logged beside numbers
        self.comparison: ComparisonCame | None = None  # of two side by side
        self._changes = Changes()
        super().__init__(store, lambda: self.net)

    @property
    def named_net(self) -> Net | None:
        """The network, with the names of tokens that the viewer was started with."""
        return replace(self.net, token_names=self.token_names) if self.net and self.token_names else self.net

    @property
    def connected(self) -> bool:
        """True while a host is connected."""
        return False

    @property
    def moments(self) -> list[Moment]:
        """The available states, oldest first."""
        return self.store.moments

    @property
    def last_step(self) -> int:
        """The last step that anything tells of, a counter, a state or a row; -1 without steps."""
        steps = [self.state.counters.get("Step"), *(moment.step for moment in self.moments[-1:])]
        columns = [table.columns["Step"] for table in self.tables.values() if table.count and "Step" in table.columns]
        steps += [column[-1] for column in columns]
        return max((int(step) for step in steps if isinstance(step, int | float) and step >= 0), default=-1)

    def values(self, moment: int) -> Values:
        """All values of a moment."""
        return self.store.values(moment)

    def poll(self) -> Changes:
        """The changes since the last call."""
        changes, self._changes = self._changes, Changes()
        return changes

    def saving(self, name: str = "") -> Callable[[], Recording]:
        """A function, for any thread, that writes the current moments to disk; raises if that is impossible."""
        from torcheer.studio.sources.recordings import saving

        if self.home is None:
            raise ValueUnavailable("what is shown has no place on disk where a recording could lie")
        return saving(self, self.store.frozen(), self.home, name)

    def save(self, name: str = "") -> Recording:
        """Save the moments as a recording now."""
        return self.saving(name)()

    def graph(self, net: Net) -> GraphText:
        """The drawing of its network, for the page; called in a thread, takes long for large ones."""
        from torcheer.drawing.network_drawing import draw_network

        layers = tuple(placed.layer for placed in net.layers)
        return draw_network(Network(net.name, layers, net.projections, net.variables, net.modules))

    def backward_text(self) -> str:
        """The steps of a pass of the readable autograd, as text for the page; "" if it is none."""
        return ""

    # -- for hosts; without one these do nothing ---------------------------------------------------------------------

    def pin(self, moments: set[int]) -> None:
        """Set the moments that pages show; they are kept when older ones are thinned out."""

    def wants(self, wants: Wants) -> None:
        """Send the subscription to the host."""

    def order(self, order: Order) -> None:
        """Send a request to the host."""

    def fileno(self) -> int:
        """A descriptor that is readable when `poll` has changes; -1 if there is none: poll every 100 ms."""
        return -1

    def close(self) -> None:
        """Release what was opened."""

    # -- for subclasses ----------------------------------------------------------------------------------------------

    def _set_net(self, net: Net | None) -> None:
        if net != self.net:
            self.net, self._changes.net = net, True

    def _set_state(self, state: State) -> None:
        if state != self.state:
            self.state, self._changes.state = state, True

    def _add_alerts(self, alerts: Iterable[AlertSeen]) -> None:
        """Add the alerts that are not known yet; a log that is read again, and a new host, have all of them again."""
        known = {alert_key(alert) for alert in self.alerts}
        new = [alert for alert in alerts if alert_key(alert) not in known]
        self.alerts += new
        self._changes.alerts += new
        del self.alerts[:-_MOST_ALERTS]

    def _problem(self, text: Any) -> None:
        if len(self._changes.problems) < 20:
            self._changes.problems.append(str(text)[:2000])


def alert_key(alert: AlertSeen) -> tuple[Any, ...]:
    """The key of an alert, for deduplication: its id.

    Without one, all but the layer, which may be named more exactly later.
    """
    return (alert.id,) if alert.id else (alert.text, alert.step, alert.rule)
