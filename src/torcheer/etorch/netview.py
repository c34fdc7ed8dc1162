"""`NetView`: shows a network's values in the studio.

`update` sends what a page is subscribed to, and never blocks.

`update` keeps the values by reference: they are never written to again. So a page that connects late, or subscribes to
another variable, is sent the newest state by a thread that polls a few times a second while the view is open.
"""

from __future__ import annotations

import math
import re
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
from torcheer.public_names import PublicClass
from torcheer.wire.open_viewer import Viewer
from torcheer.wire.page_address import PageAddress, address_of

WHOLE_BYTES = 4 << 20  # of a weight that is sent whole; of larger ones only the clicked unit's
_POLL_SECS = 0.1
_MOST_TRIES = 8


class NetworkState(NamedTuple):
    """A snapshot of the network's values, made by `update`."""

    step: int
    counters: dict[str, Any]
    test: bool
    units: list[tuple[str, str, Any, int]]  # layer, variable, value, its first batch item
    weights: list[tuple[Projection, Any]]

    @property
    def batch(self) -> int:
        """The size of the largest batch."""
        return max((first + len(value) for _, _, value, first in self.units), default=0)


class NetView(metaclass=PublicClass):
    """Shows a network: `NetView(net).open()`, then `update()` whenever its values have changed.

    - `net`: the network to show.
    - `title`: of the page; by default the network's name.
    """

    def __init__(self, net: Network, *, host: Host | None = None, title: str = "") -> None:
        """`host` is an existing one to show the network on; None: `open` creates one."""
        if not isinstance(net, Network):
            raise BadArgument(f"NetView shows a torcheer.studio.Network, not a {type(net).__name__}: NetView(est.net)")
        self.net, self.title = net, title or net.name
        self.host: Host | None = None
        self.viewer: Any = None  # the process that serves the page, once open
        self._owns_host = True
        self._budget = Budget()
        self._step = 0
        self._newest: NetworkState | None = None
        self._sent: NetworkState | None = None  # the last one sent
        self._sent_wants: Wants | None = (
            None  # the subscription it was sent for: a new or changed one is another object
        )
        self._tries, self._dropped = 0, 0  # attempts; the host's count of dropped states before
        self._described = -1
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()
        if host is not None:
            self.show_on(host)

    def show_on(self, host: Host) -> None:
        """Show the network on an existing host, which somebody else closes."""
        self.host, self._owns_host = host, False
        self._start()

    @property
    def batch(self) -> int:
        """The batch size of the newest state."""
        return self._newest.batch if self._newest is not None else 0

    @property
    def url(self) -> str:
        """The page's URL, with its token; "" before `open`."""
        return str(self.viewer.url) if self.viewer is not None else ""

    def open(self, *, port: int = 0, browser: bool | None = None, **where: Any) -> NetView:
        """Start the studio on this network and print its address; a second call does nothing.

        `where` may be `host`, `base_path` and `allowed_hosts`, as for `tl.show`.
        """
        return self._open(address_of(port, **where), browser)

    def _open(self, address: PageAddress | None, browser: bool | None) -> NetView:
        if self.viewer is None:
            from torcheer.wire.open_viewer import start

            if self.host is None or self.host.closed:
                self.host = Host(title=self.title)
                self._start()
            assert self.host.path is not None
            self.viewer = start(self.host.path, address, browser=browser, folder=self.host.folder, outlives=True)
        return self

    def update(
        self,
        counters: Mapping[str, Any] | str | None = None,
        *,
        test: bool = False,
        epoch: bool = False,
        now: bool = False,
    ) -> None:
        """Show a new state, as often as the page subscribed to.

        `now` shows it in any case, as after a manual step; `epoch`: it ends an epoch; `test`: it is a test's;
        `counters` (or a name) are shown below the picture.
        """
        self._step += 1
        host = self.host
        if host is None or host.closed:
            return
        if self._described != self.net.changes:
            self._describe()
        self._newest = self._snapshot(counters, test)
        if self._owns_host:
            host.state = State(counters=self._newest.counters, batch=self._newest.batch)
        wants = host.wants
        self.net.item = wants.item
        if self._budget.due(time.monotonic(), wants, test, epoch) or now:
            started = stamp()
            self._send(self._newest, wants)
            self._budget.spent(cost(started), time.monotonic())

    def flush(self) -> None:
        """Send the newest state now, if it was not sent yet: none follows for a while."""
        if self._newest is not None and self.host is not None and self._sent is not self._newest:
            self._send(self._newest, self.host.wants)

    def record(self, counters: Mapping[str, Any] | str = "") -> None:
        """Call `update`; emergent's name for it. Counters may be separated by tabs: "Run:\\t0\\tEpoch:\\t58"."""
        self.update(counters)

    Record = record

    def GoUpdate(self) -> None:
        """Do nothing: `Record` has already shown the state."""

    def close(self) -> None:
        """Close the studio that `open` started; the network stays as it is."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join(5)
            self._thread = None
        if self.viewer is not None:
            self.viewer.close()
            self.viewer = None
        if self._owns_host and self.host is not None:
            self.host.close()
            self.host = None

    def __enter__(self) -> NetView:
        return self.open()

    def __exit__(self, *_: object) -> None:
        self.close()

    def __deepcopy__(self, memo: dict[int, Any]) -> NetView:
        return self  # copying a model copies the objects it holds; a copy has no page

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(NetView, title=self.title), (self.net,)  # nor has an unpickled one

    # -- parts -------------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        self._describe()
        self._closing.clear()
        self._thread = threading.Thread(target=self._watch, name="torcheer netview", daemon=True)
        self._thread.start()

    def _describe(self) -> None:
        assert self.host is not None
        self._described = self.net.changes
        self.host.network = self.net.describe()

    def _snapshot(self, counters: Mapping[str, Any] | str | None, test: bool) -> NetworkState:
        named = counters_of(counters) if isinstance(counters, str) else dict(counters or {})
        units = [
            (layer.name, variable, value, layer.States.first.get(variable, 0))
            for layer in self.net
            for variable, value in layer.States.kept.items()
        ]
        projections = self.net.projections.values()
        weights = [(each, each.States.kept["Wt"]) for each in projections if "Wt" in each.States.kept]
        return NetworkState(
            self._step, {name: value for name, value in named.items() if value != ""}, test, units, weights
        )

    def _send(self, state: NetworkState, wants: Wants) -> None:
        """Write the subscribed part of a state into the ring."""
        host = self.host
        if host is None:
            return
        with self._lock:
            repeated = self._sent is state and self._sent_wants is wants
            self._tries = self._tries + 1 if repeated else 1
            self._sent, self._sent_wants, self._dropped = state, wants, host.values.dropped
            id = host.values.begin(state.step, state.counters, state.test)
            if id < 0:
                return
            for layer, variable, value, first in state.units:
                if variable in wants.variables:
                    if first and first <= wants.item < first + len(value):
                        host.values.offer(id, value[wants.item - first], layer, variable, wants.item)
                    else:
                        host.values.offer(id, value, layer, variable)
            if wants.weights or wants.units or wants.inspected:
                for projection, value in state.weights:
                    _offer_weights(host, id, projection, value, wants)
            host.values.end(id)

    def _watch(self) -> None:
        """Send the newest state to later subscribers, or if it was skipped or dropped before."""
        while not self._closing.wait(_POLL_SECS):
            host, state = self.host, self._newest
            if host is None or host.closed or state is None:
                continue
            wants = host.wants
            self.net.item = wants.item
            subscribed = wants.variables or wants.weights or wants.units
            is_sent = self._sent is state and self._sent_wants is wants and not self._was_dropped(host)
            if subscribed and not is_sent and not self._is_changing(state):
                self._send(state, host.wants)

    def _was_dropped(self, host: Host) -> bool:
        """True if the last state was dropped and may be retried: the ring grows meanwhile."""
        return host.values.dropped != self._dropped and self._tries < _MOST_TRIES

    def _is_changing(self, state: NetworkState) -> bool:
        """True if a newer state arrives within a moment."""
        time.sleep(_POLL_SECS)
        return self._newest is not state


def counters_of(text: str) -> dict[str, Any]:
    """The counters in a text: a name, or emergent's "Run:\\t0\\tEpoch:\\t58\\tName:\\tcat".

    >>> counters_of("Run:\\t0\\tName:\\tcat")
    {'Run': 0, 'Name': 'cat'}
    """
    if "\t" not in text:
        return {"Name": text}
    parts = text.split("\t")
    pairs = zip(parts[::2], parts[1::2])
    return {
        name.strip().removesuffix(":"): int(value) if re.fullmatch(r"\s*-?\d+\s*", value) else value.strip()
        for name, value in pairs
        if name.strip()
    }


def _offer_weights(host: Host, id: int, projection: Projection, value: Any, wants: Wants) -> None:
    if value.nbytes <= WHOLE_BYTES:
        host.values.offer(id, value, projection.name, "Wt")
        return
    for layer, unit in wants.units:
        if layer == projection.receiver.name:
            host.values.offer(id, _row(projection, value, unit), projection.name, f"Wt[in:{unit}]")
        if layer == projection.sender.name:
            host.values.offer(id, _column(projection, value, unit), projection.name, f"Wt[out:{unit}]")


def _row(projection: Projection, weights: Any, unit: int) -> Any:
    """The weights into a unit of the receiver: of a convolution, those of its channel."""
    per_map = math.prod(projection.receiver.shape[1:]) if len(weights.shape) > 2 else 1
    return weights[unit // per_map % weights.shape[0]]


def _column(projection: Projection, weights: Any, unit: int) -> Any:
    """The weights out of a unit of the sender."""
    per_map = math.prod(projection.sender.shape[1:]) if len(weights.shape) > 2 else 1
    return weights[:, unit // per_map % weights.shape[1]]


def open_network(
    net: Network, address: PageAddress | None = None, *, browser: bool | None = None, title: str = ""
) -> Viewer:
    """Open a viewer on a network's current values; closing the viewer closes the view."""
    view = NetView(net, title=title)
    view._open(address, browser)
    view.update(now=True)
    assert view.viewer is not None
    viewer: Viewer = view.viewer
    viewer.closes.append(view.close)
    view.viewer = None  # the viewer closes the view, not the other way round
    return viewer
