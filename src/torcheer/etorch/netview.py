"""`NetView`: a network's values in the studio. `update` sends what a page looks at, and waits for nobody.

`update` keeps what there is, by reference: values are never written to again. So a page that comes late, or looks at
another variable, is sent the newest state by a thread that wakes a few times a second while the view is open.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

from torcheer.control.control_records import State, Wants
from torcheer.errors import BadArgument
from torcheer.etorch.etorch_network import Network, Projection
from torcheer.host.follow.record_rate import Budget, cost, stamp
from torcheer.host.host import Host
from torcheer.wire.open_viewer import Viewer

WHOLE_BYTES = 4 << 20  # weights up to here travel whole; of larger ones only those of a clicked unit
_WAKE_SECS = 0.1
_MOST_TRIES = 8


class Kept(NamedTuple):
    """A state as `update` found it."""

    step: int
    counters: dict[str, Any]
    test: bool
    units: list[tuple[str, str, Any, int]]  # layer, variable, value, its first batch item
    weights: list[tuple[Projection, Any]]

    @property
    def batch(self) -> int:
        """How many items the largest batch has."""
        return max((first + len(value) for _, _, value, first in self.units), default=0)


class NetView:
    """Shows a network: `NetView(net).open()`, then `update()` whenever there is something new to see."""

    def __init__(self, net: Network, *, host: Host | None = None, title: str = "") -> None:
        """`host` is one that somebody else has opened; else `open` makes one."""
        if not isinstance(net, Network):
            raise BadArgument(f"NetView shows a torcheer.studio.Network, not a {type(net).__name__}: NetView(est.net)")
        self.net, self.host, self.title = net, host, title or net.name
        self.viewer: Any = None  # the process that serves the page, once open
        self._own = host is None
        self._budget = Budget()
        self._step = 0
        self._newest: Kept | None = None
        self._sent: Kept | None = None  # last
        self._wanted: Wants | None = None  # by whom: a viewer that comes, or looks elsewhere, makes another of them
        self._tries, self._dropped = 0, 0  # how often; how many states had found no room before
        self._described = -1
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()
        if host is not None:
            self._attend()

    @property
    def batch(self) -> int:
        """How many items the newest state has."""
        return self._newest.batch if self._newest is not None else 0

    @property
    def url(self) -> str:
        """Where the page is, with its token; "" before `open`."""
        return str(self.viewer.url) if self.viewer is not None else ""

    def open(self, *, port: int = 0, browser: bool | None = None) -> NetView:
        """Start the studio on this network and print its address; again does nothing."""
        if self.viewer is None:
            from torcheer.wire.open_viewer import start

            if self.host is None or self.host.closed:
                self.host = Host(title=self.title)
                self._attend()
            assert self.host.path is not None
            self.viewer = start(self.host.path, port=port, browser=browser)
        return self

    def update(
        self,
        counters: Mapping[str, Any] | str | None = None,
        *,
        test: bool = False,
        epoch: bool = False,
        now: bool = False,
    ) -> None:
        """There is a new state: show it, as often as the page asks for. `now` shows it in any case, as after a step
        by hand; `epoch` says that it ends an epoch, `counters` what stands below the picture."""
        self._step += 1
        host = self.host
        if host is None or host.closed:
            return
        if self._described != self.net.changes:
            self._describe()
        self._newest = self._kept(counters, test)
        if self._own:
            host.state = State(counters=self._newest.counters, batch=self._newest.batch)
        wants = host.wants
        self.net.item = wants.item
        if self._budget.due(time.monotonic(), wants, test, epoch) or now:
            started = stamp()
            self._send(self._newest, wants)
            self._budget.spent(cost(started), time.monotonic())

    def flush(self) -> None:
        """Show the newest state now, if the page has not seen it: nothing follows for a while."""
        if self._newest is not None and self.host is not None and self._sent is not self._newest:
            self._send(self._newest, self.host.wants)

    def record(self, counters: Mapping[str, Any] | str = "") -> None:
        """`update`, as emergent calls it."""
        self.update(counters)

    Record = record

    def GoUpdate(self) -> None:
        """Nothing: `Record` has shown it."""

    def close(self) -> None:
        """End the studio that `open` started; the network stays as it is."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join(5)
            self._thread = None
        if self.viewer is not None:
            self.viewer.close()
            self.viewer = None
        if self._own and self.host is not None:
            self.host.close()
            self.host = None

    def __enter__(self) -> NetView:
        return self.open()

    def __exit__(self, *_: object) -> None:
        self.close()

    def __deepcopy__(self, memo: dict[int, Any]) -> NetView:
        return self  # a model is copied with what it holds, and a copy has no page

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(NetView, title=self.title), (self.net,)  # nor has one that a file holds

    # -- parts -------------------------------------------------------------------------------------------------------

    def _attend(self) -> None:
        self._describe()
        self._closing.clear()
        self._thread = threading.Thread(target=self._watch, name="torcheer netview", daemon=True)
        self._thread.start()

    def _describe(self) -> None:
        assert self.host is not None
        self._described = self.net.changes
        self.host.network = self.net.describe()

    def _kept(self, counters: Mapping[str, Any] | str | None, test: bool) -> Kept:
        said = {"Name": counters} if isinstance(counters, str) else dict(counters or {})
        units = [
            (layer.name, variable, value, layer.States.first.get(variable, 0))
            for layer in self.net
            for variable, value in layer.States.kept.items()
        ]
        weights = [(one, one.States.kept["Wt"]) for one in self.net.projections.values() if "Wt" in one.States.kept]
        return Kept(self._step, {name: value for name, value in said.items() if value != ""}, test, units, weights)

    def _send(self, kept: Kept, wants: Wants) -> None:
        """Into the ring, what is looked at of it."""
        host = self.host
        if host is None:
            return
        with self._lock:
            again = self._sent is kept and self._wanted is wants
            self._tries = self._tries + 1 if again else 1
            self._sent, self._wanted, self._dropped = kept, wants, host.dropped
            id = host.begin(kept.step, kept.counters, kept.test)
            if id < 0:
                return
            for layer, variable, value, first in kept.units:
                if variable in wants.variables:
                    if first and first <= wants.item < first + len(value):
                        host.offer(id, value[wants.item - first], layer, variable, wants.item)
                    else:
                        host.offer(id, value, layer, variable)
            if wants.weights or wants.units:
                for projection, value in kept.weights:
                    _offer_weights(host, id, projection, value, wants)
            host.end(id)

    def _watch(self) -> None:
        """Send the newest state to whoever came after it, and the last one that there was no time for."""
        while not self._closing.wait(_WAKE_SECS):
            host, kept = self.host, self._newest
            if host is None or host.closed or kept is None:
                continue
            wants = host.wants
            self.net.item = wants.item
            looked_at = wants.variables or wants.weights or wants.units
            seen = self._sent is kept and self._wanted is wants and not self._was_dropped(host)
            if looked_at and not seen and not self._moving(kept):
                self._send(kept, host.wants)

    def _was_dropped(self, host: Host) -> bool:
        """Whether the last state found no room; the next one finds more, within limits."""
        return host.dropped != self._dropped and self._tries < _MOST_TRIES

    def _moving(self, kept: Kept) -> bool:
        """Whether newer states come anyway."""
        time.sleep(_WAKE_SECS)
        return self._newest is not kept


def _offer_weights(host: Host, id: int, projection: Projection, value: Any, wants: Wants) -> None:
    if value.nbytes <= WHOLE_BYTES:
        host.offer(id, value, projection.name, "Wt")
        return
    for layer, unit in wants.units:
        if layer == projection.receiver.name:
            host.offer(id, _row(projection, value, unit), projection.name, f"Wt[in:{unit}]")
        if layer == projection.sender.name:
            host.offer(id, _column(projection, value, unit), projection.name, f"Wt[out:{unit}]")


def _row(projection: Projection, weights: Any, unit: int) -> Any:
    """The weights into a unit of the receiver: of a convolution, those of its map."""
    per_map = math.prod(projection.receiver.shape[1:]) if len(weights.shape) > 2 else 1
    return weights[unit // per_map % weights.shape[0]]


def _column(projection: Projection, weights: Any, unit: int) -> Any:
    """The weights out of a unit of the sender."""
    per_map = math.prod(projection.sender.shape[1:]) if len(weights.shape) > 2 else 1
    return weights[:, unit // per_map % weights.shape[1]]


def open_network(net: Network, *, port: int = 0, browser: bool | None = None, title: str = "") -> Viewer:
    """Open a viewer on a network as it is now; closing the viewer closes the view."""
    view = NetView(net, title=title)
    view.open(port=port, browser=browser)
    view.update(now=True)
    assert view.viewer is not None
    viewer: Viewer = view.viewer
    viewer.closes.append(view.close)
    view.viewer = None  # it is not the view that ends the viewer
    return viewer
