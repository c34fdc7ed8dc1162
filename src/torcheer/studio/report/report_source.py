"""A source reduced to what a report keeps: chosen moments, the first item of the batch, no weights of a unit."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Final

from torcheer.control.loop_messages import Moment
from torcheer.errors import UnknownLayer
from torcheer.network.network_records import Net
from torcheer.studio.connections.messages import Recording, ReportCame, Run
from torcheer.studio.connections.page_connection import PageConnection
from torcheer.studio.connections.source_pages import Channel
from torcheer.studio.runs.run_index import RunIndex
from torcheer.studio.sources.moment_queries import RecordedValue, Store, Values
from torcheer.studio.sources.source import Source
from torcheer.studio.tensors.numpy_code import Opening
from torcheer.wire.json_codec import serialize

_FOLDER: Final = "session_dir"  # of the machine that trained: nothing to who gets a report


class ChosenMoments:
    """Some of a store's moments."""

    def __init__(self, store: Store, moments: list[Moment]) -> None:
        self._store, self._moments = store, moments

    @property
    def moments(self) -> list[Moment]:
        """The chosen ones, oldest first."""
        return self._moments

    def value(self, moment: int, name: str, variable: str) -> RecordedValue | None:
        """A value, as it is in the store."""
        return self._store.value(moment, name, variable)

    def values(self, moment: int) -> Values:
        """All values of a moment."""
        return self._store.values(moment)

    def parameter_names(self, moment: int) -> list[str]:
        """None: a report has no parameters."""
        return []

    def opening(self, moment: int, name: str, variable: str) -> Opening:
        """None: who gets a report has not the files."""
        return Opening(note="a report has no files to open")

    def why(self, moment: int, layer: str, variable: str) -> str:
        """Why a value is missing."""
        return self._store.why(moment, layer, variable)

    def frozen(self) -> Store:
        """The same: nothing is added to a report's moments."""
        return self


class ReportSource(Source):
    """What a report shows of a source."""

    def __init__(self, source: Source, title: str, moments: list[Moment]) -> None:
        super().__init__(title or source.title, None, ChosenMoments(source.store, moments))
        self.kind = "run" if source.kind == "live" else source.kind
        self.net = None if source.net is None else _without_weights(source.net)
        self.state = replace(source.state, can=(), batch=min(source.state.batch, 1))
        self.parameters = tuple(
            replace(parameter, editable=False) for parameter in source.parameters if parameter.name != _FOLDER
        )
        self.alerts, self.tables = list(source.alerts), dict(source.tables)
        self.samples = source.samples
        self.ranks = source.ranks
        self.backward_steps = source.backward_steps


def _without_weights(net: Net) -> Net:
    return replace(net, variables=tuple(variable for variable in net.variables if variable.of == "unit"))


def messages_to_a_page(source: Source, report: ReportCame) -> list[str]:
    """What a server would say to a page that opens this source, and then the report's own message."""
    page = _ListeningPage()
    with ThreadPoolExecutor(1) as thread:  # a notebook has a loop of its own in this one
        thread.submit(asyncio.run, page.listen(source)).result()
    return [*page.texts[:1], serialize(report), *page.texts[1:]]


class _ListeningPage:
    """A page's socket that keeps all it is sent."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    async def send_text(self, data: str) -> None:
        self.texts.append(data)

    async def send_bytes(self, data: bytes) -> None:
        """States are asked for by looks, and this page has none."""

    async def listen(self, source: Source) -> None:
        page = PageConnection(self)
        Channel(source, _NoOthers(), -1).add(page)
        await page.flush()


class _NoOthers:
    """A catalog of nothing: a report has no other runs or recordings."""

    run, title = -1, ""
    index: RunIndex | None = None
    runs: tuple[Run, ...] = ()
    recordings: tuple[Recording, ...] = ()

    def refresh(self) -> bool:
        return False

    def first(self) -> Source:
        raise UnknownLayer("a report has one source")

    def find_first_run(self) -> Source | None:
        return None

    def open_run(self, id: int) -> Source:
        raise UnknownLayer(f"a report has no run {id}")

    def open_recording(self, id: int) -> Source:
        raise UnknownLayer(f"a report has no recording {id}")
