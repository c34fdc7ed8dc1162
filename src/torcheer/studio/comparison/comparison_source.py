"""A comparison as a source with one moment: the first, the second and their difference are its variables."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Protocol

from numpy.typing import NDArray

from torcheer.control.control_records import Parameter, State
from torcheer.control.loop_messages import Moment
from torcheer.errors import TorcheerError
from torcheer.network.network_records import Layer, Net, Network, Projection, Variable
from torcheer.network.placement import net_of
from torcheer.runlog.table_records import TableRows
from torcheer.studio.comparison.comparison_rows import HEAD, Row
from torcheer.studio.comparison.tensor_pairs import DIFFERENCE, FIRST, SECOND
from torcheer.studio.connections.comparison_messages import ComparisonCame
from torcheer.studio.sources.moment_queries import RecordedValue, Store, Values
from torcheer.studio.sources.source import Changes, Source
from torcheer.studio.tensors.numpy_code import Opening

if TYPE_CHECKING:
    from torcheer.drawing.writers.graph_text import GraphText

_VARIABLES: Final = (
    Variable(DIFFERENCE, doc="the second less the first"),
    Variable(FIRST, doc="the first of the two"),
    Variable(SECOND, doc="the second of the two"),
)


class Compared(Protocol):
    """Two things side by side: files, checkpoints or recorded passes."""

    titles: tuple[str, str]
    network: Network  # of the first
    batch: int
    total: int  # rows that there will be; 0 while that is not known
    first_difference: str  # the name of the first row that differs; "" so far
    summary: tuple[str, ...]  # sentences

    def layer(self, name: str) -> Layer | None:
        """What a row shows, as a layer."""

    def array(self, name: str, variable: str) -> Any:
        """A tensor, lazily; None where there is none."""

    def sample(self, name: str, variable: str) -> NDArray[Any] | None:
        """The same for the 3D view."""

    def why(self, name: str, variable: str) -> str:
        """Why there is none; "" if there is one."""

    def rows(self) -> Iterator[Row]:
        """Compare; called once, in a thread."""

    def graph(self) -> GraphText | None:
        """Their drawing; None draws the network."""


class ComparisonSource(Source):
    """Two of a kind side by side; what differs is found in a thread, from the first poll on."""

    kind = "comparison"

    def __init__(self, compared: Compared) -> None:
        title = " → ".join(compared.titles)
        super().__init__(title, None, ComparedMoments(compared))
        self._compared = compared
        self._measured: list[Row] = []
        self._is_done, self._stop = False, threading.Event()
        self._thread: threading.Thread | None = None
        self.net = _net(compared.network) if compared.network.layers else None
        self.state = State("idle", {"Name": title}, batch=compared.batch, message="two side by side: nothing runs")
        self.parameters = tuple(
            Parameter(name, text, "text", group="compared") for name, text in zip(("first", "second"), compared.titles)
        )
        self._rows = TableRows(HEAD, {column.name: [] for column in HEAD.columns})
        self.tables[HEAD.name] = self._rows
        self.comparison = self._message()

    def layer(self, name: str) -> Layer | None:
        """A row of the table, also where the picture does not show it."""
        return self._compared.layer(name)

    def _item(self, moment: int, layer: Layer, variable: str, item: int) -> NDArray[Any] | None:
        value = self._compared.sample(layer.name, variable)
        if value is None or value.ndim != len(layer.shape) + 1:
            return value
        return value[item] if 0 <= item < len(value) else None

    def graph(self, net: Net) -> GraphText:
        """The drawing of the first."""
        return self._compared.graph() or super().graph(net)

    def poll(self) -> Changes:
        """The rows that were measured since."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._compare, name="torcheer-comparison", daemon=True)
            self._thread.start()
        new = self._measured[self._rows.count :]
        for name, cells in self._rows.columns.items() if new else ():
            cells += [row.columns[name] for row in new]
            self._changes.tables.add(HEAD.name)
        self._rows.count += len(new)
        if (message := self._message()) != self.comparison:
            self.comparison, self._changes.comparison = message, True
        return super().poll()

    def close(self) -> None:
        """End the thread."""
        self._stop.set()

    def _compare(self) -> None:
        try:
            for row in self._compared.rows():
                self._measured.append(row)
                if self._stop.is_set():
                    return
        except (TorcheerError, OSError, ValueError, MemoryError) as error:
            self._problem(f"they could not be compared: {error}")
        self._is_done = True

    def _message(self) -> ComparisonCame:
        compared = self._compared
        return ComparisonCame(
            *compared.titles, compared.summary, compared.first_difference, len(self._measured), compared.total,
            self._is_done,
        )  # fmt: skip


class ComparedMoments:
    """The values of both, at their only moment; nothing is kept in memory."""

    def __init__(self, compared: Compared) -> None:
        self._compared = compared
        self.moments = [Moment(0, 0, {"Name": " → ".join(compared.titles)})]

    def value(self, moment: int, name: str, variable: str) -> RecordedValue | None:
        """A tensor of either side, or their difference."""
        array = self._compared.array(name, variable) if moment == 0 else None
        return None if array is None else RecordedValue(0 if self._compared.batch else -1, array)

    def values(self, moment: int) -> Values:
        """None: a comparison is not recorded."""
        return {}

    def parameter_names(self, moment: int) -> list[str]:
        """None: each is a row of its own."""
        return []

    def why(self, moment: int, layer: str, variable: str) -> str:
        """Why a tensor cannot be shown."""
        return self._compared.why(layer, variable)

    def opening(self, moment: int, name: str, variable: str) -> Opening:
        """The two are opened one by one."""
        return Opening(note="open each of the two with tl.load; a history's compare() tells the same differences")

    def frozen(self) -> Store:
        """The same: files do not change."""
        return self


def _net(network: Network) -> Net:
    """The network with the variables of a comparison; weights are rows, so nothing is known of projections' weights."""
    projections = tuple(
        Projection(each.name, each.sender, each.receiver, "", type=each.type) for each in network.projections
    )
    return net_of(replace(network, projections=projections, variables=_VARIABLES))
