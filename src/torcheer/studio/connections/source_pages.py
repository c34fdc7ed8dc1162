"""Channels: each source with its connected pages, one of which may control it."""

from __future__ import annotations

from typing import Protocol

from torcheer.control.control_records import Act, Order, Wants
from torcheer.control.loop_control import check_action
from torcheer.control.parameter_form import check_change
from torcheer.errors import BadArgument
from torcheer.studio.connections.messages import Recording, Run
from torcheer.studio.connections.page_connection import PageConnection
from torcheer.studio.connections.subscriptions import wants_of
from torcheer.studio.runs.run_index import RunIndex
from torcheer.studio.sources.layer_frames import LayerFrames
from torcheer.studio.sources.source import Source


class SourceCatalog(Protocol):
    """The sources that can be opened at a path: a run, a folder of runs, a recording."""

    run: int  # the run shown first; -1 without a choice
    title: str  # its title; "": the source's own
    index: RunIndex | None  # of a folder of runs

    @property
    def runs(self) -> tuple[Run, ...]:
        """The runs of the folder, as of the last `refresh`."""

    def refresh(self) -> bool:
        """Scan for runs; True if they changed. Called in a separate thread."""

    @property
    def recordings(self) -> tuple[Recording, ...]:
        """The recordings that are on disk now."""

    def first(self) -> Source:
        """The source that is shown first."""

    def find_first_run(self) -> Source | None:
        """What has appeared in a folder that was empty; None until then."""

    def open_run(self, id: int) -> Source:
        """Open another run; raises `TorcheerError` if it does not exist."""

    def open_recording(self, id: int) -> Source:
        """Open a recording; raises `TorcheerError` if it does not exist."""


class Channel:
    """A source and the pages that show it."""

    def __init__(self, source: Source, catalog: SourceCatalog, run: int | None = None) -> None:
        """`run` is its number; None for the first source, which may become another run."""
        self.source, self.catalog, self._run = source, catalog, run
        self.pages: list[PageConnection] = []
        self.frames = LayerFrames()
        self.alerts = len(source.alerts)  # total ever received
        self._controller: PageConnection | None = None
        self._wants = Wants()
        self._sent_names = self._names()

    @property
    def run(self) -> int:
        """The number of the run that is shown, -1 without a choice."""
        return self.catalog.run if self._run is None else self._run

    @property
    def title(self) -> str:
        """The page's title."""
        return (self.catalog.title if self._run is None else "") or self.source.title

    def _names(self) -> tuple[str, str, int]:
        return self.title, self.source.kind, self.run

    # -- pages ---------------------------------------------------------------------------------------------------------

    def add(self, page: PageConnection) -> None:
        """Add a page; it will be sent everything."""
        self.pages.append(page)
        page.channel = self
        page.queue("hello")
        self._update_others(page)

    def remove(self, page: PageConnection) -> None:
        """Remove a page that disconnected; it loses control."""
        self.pages.remove(page)
        page.channel = None
        if self._controller is page:
            self._controller = None
        self._update_others(page)
        self.update_wants()

    def _update_others(self, page: PageConnection) -> None:
        for viewer in self.pages:
            if viewer is not page:
                viewer.queue("viewers")

    def update_wants(self) -> None:
        """Send the host the union of all pages' subscriptions, if it changed."""
        looks = [page.subscription.look for page in self.pages if page.subscription.look]
        wants = wants_of(looks, self.source.net)
        self.source.pin({look.moment for look in looks if look.moment >= 0 and look.variable})
        if wants != self._wants:
            self._wants = wants
            self.source.wants(wants)

    def poll(self) -> None:
        """Poll the source and queue its changes for the pages."""
        if self.source.kind == "nothing" and self._run is None:
            self._show_first_run()
        changes = self.source.poll()
        self._check_names()
        if not changes:
            return
        self.alerts += len(changes.alerts)
        if changes.net:
            self.frames.clear()
            self.update_wants()
            for page in self.pages:
                page.subscription.resend()
        updates = [
            name
            for name in ("net", "state", "parameters", "tables", "samples", "alerts", "comparison", "ranks")
            if getattr(changes, name)
        ]
        for page in self.pages:
            if changes.moments_came or changes.moments_gone:
                page.queue_moments(changes.moments_gone)
            page.queue(*updates, *["outcome"] * changes.state, *["look"] * changes.net)
            for problem in changes.problems:
                page.warn(problem)

    def _show_first_run(self) -> None:
        """Show what has appeared in an empty folder."""
        source = self.catalog.find_first_run()
        if source is not None:
            self.source, self.alerts, self._wants = source, len(source.alerts), Wants()
            self.frames.clear()
            self.update_wants()

    def _check_names(self) -> None:
        """Send pages everything again when a run began or ended."""
        if self._sent_names != self._names():
            self._sent_names = self._names()
            for page in self.pages:
                page.queue("hello")

    def recordings(self) -> tuple[Recording, ...]:
        """The recordings that can be opened."""
        return tuple(self.catalog.recordings)

    # -- control -------------------------------------------------------------------------------------------------------

    def controls(self, page: PageConnection) -> str:
        """Who controls the run, from a page's point of view: "you", "other" or "nobody"."""
        if self._controller is None:
            return "nobody"
        return "you" if self._controller is page else "other"

    def control(self, page: PageConnection, take: bool) -> None:
        """Give a page control of the run, whoever has it, or take it away."""
        if take or self._controller is page:
            self._controller = page if take else None
            for viewer in self.pages:
                viewer.queue("viewers")

    def order(self, page: PageConnection, order: Order) -> None:
        """Send an order to the host; the first page that does so gets control."""
        if self.source.kind != "live":
            raise BadArgument("nothing runs here: this is what a run left behind, so there is nothing to control")
        if self._controller not in (None, page):
            raise BadArgument("another page controls this run: take control first")
        if isinstance(order, Act):
            check_action(order.action, self.source.state.can)
        else:
            check_change(self.source.parameters, order.name, order.value)
        if self._controller is None:
            self.control(page, True)
        self.source.order(order)
