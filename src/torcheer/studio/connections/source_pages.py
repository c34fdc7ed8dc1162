"""What is shown, and to whom: each source with its pages, one of which may control it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from torcheer.control.control_records import Order, Parameter, Wants
from torcheer.errors import BadArgument
from torcheer.studio.connections import messages
from torcheer.studio.connections.message_parsing import meant
from torcheer.studio.connections.messages import AlertSeen, Hello, Moment, Recording, Run
from torcheer.studio.connections.page_connection import Page
from torcheer.studio.connections.subscriptions import Pictures, wants_of
from torcheer.studio.sources.source import Source


class Place(Protocol):
    """Where sources come from: a run, a folder of runs, a recording."""

    run: int  # which run is shown first; -1 where there is no choice
    title: str  # what that is called; "" leaves it to the source

    @property
    def runs(self) -> tuple[Run, ...]:
        """The runs of the folder, as they were at the last look."""

    def look(self) -> bool:
        """See which there are now; whether they are others. Called in a thread of its own."""

    @property
    def recordings(self) -> tuple[Recording, ...]:
        """What can be opened, as it is on disk now."""

    def first(self) -> Source:
        """What is shown at first."""

    def open_run(self, id: int) -> Source:
        """Another run; raises `TorcheerError` where there is none such."""

    def open_recording(self, id: int) -> Source:
        """A recording; raises `TorcheerError` where there is none such."""


class Show:
    """A source and the pages that look at it."""

    def __init__(self, source: Source, place: Place, run: int | None = None) -> None:
        """`run` is its number; None for what is shown first, which may become another one."""
        self.source, self.place, self._run = source, place, run
        self.pages: list[Page] = []
        self.pictures = Pictures()
        self.alerts = len(source.alerts)  # ever seen
        self._controller: Page | None = None
        self._wants = Wants()
        self._called = self._names()

    @property
    def run(self) -> int:
        """The number of the run that is shown, -1 where there is no choice."""
        return self.place.run if self._run is None else self._run

    @property
    def title(self) -> str:
        """What the page is called."""
        return (self.place.title if self._run is None else "") or self.source.title

    def _names(self) -> tuple[str, str, int]:
        return self.title, self.source.kind, self.run

    # -- who looks -----------------------------------------------------------------------------------------------------

    def add(self, page: Page) -> None:
        """Another page; it is owed everything."""
        self.pages.append(page)
        page.show = self
        page.owe("hello")
        self._to_others(page)

    def remove(self, page: Page) -> None:
        """A page went away; it controls nothing any more."""
        self.pages.remove(page)
        page.show = None
        if self._controller is page:
            self._controller = None
        self._to_others(page)
        self.ask()

    def _to_others(self, page: Page) -> None:
        for other in self.pages:
            if other is not page:
                other.owe("state")

    def ask(self) -> None:
        """Tell the host what all pages together look at, if that changed."""
        looks = [page.looking.look for page in self.pages if page.looking.look]
        wants = wants_of(looks, self.source.net)
        self.source.pin({look.moment for look in looks if look.moment >= 0 and look.variable})
        if wants != self._wants:
            self._wants = wants
            self.source.wants(wants)

    def poll(self) -> None:
        """Pass on what is new."""
        changes = self.source.poll()
        self._rename()
        if not changes:
            return
        self.alerts += len(changes.alerts)
        if changes.net:
            self.pictures.clear()
            self.ask()
            for page in self.pages:
                page.looking.again()
        news = [what for what in ("net", "state", "parameters", "tables", "alerts") if getattr(changes, what)]
        for page in self.pages:
            if changes.moments_came or changes.moments_gone:
                page.owe_moments(changes.moments_gone)
            page.owe(*news, *["look"] * changes.net)
            for problem in changes.problems:
                page.warn(problem)

    def _rename(self) -> None:
        """A run began, or ended: pages are told everything again."""
        if self._called != self._names():
            self._called = self._names()
            for page in self.pages:
                page.owe("hello")

    # -- what is said --------------------------------------------------------------------------------------------------

    def hello(self, page: Page, moments: tuple[Moment, ...], alerts: tuple[AlertSeen, ...]) -> Hello:
        """Everything there is to know; the rows follow."""
        source = self.source
        heads = tuple(rowed.head for rowed in source.tables.values())
        return Hello(
            messages.VERSION, self.title, source.kind, source.net, moments, source.state, tuple(source.parameters),
            heads, alerts, self.recordings(), tuple(self.place.runs), self.run, self.controls(page), len(self.pages),
        )  # fmt: skip

    def recordings(self) -> tuple[Recording, ...]:
        """What can be opened."""
        return tuple(self.place.recordings)

    # -- who controls --------------------------------------------------------------------------------------------------

    def controls(self, page: Page) -> str:
        """Who controls, from a page's point of view."""
        if self._controller is None:
            return "nobody"
        return "you" if self._controller is page else "other"

    def control(self, page: Page, take: bool) -> None:
        """A page takes control from whoever has it, or gives it up."""
        if take or self._controller is page:
            self._controller = page if take else None
            for one in self.pages:
                one.owe("state")

    def order(self, page: Page, order: Order) -> None:
        """Pass an order on; the first page that gives one has control from then on."""
        if self.source.kind != "live":
            raise BadArgument("nothing runs here: this is what a run left behind, so there is nothing to control")
        if self._controller not in (None, page):
            raise BadArgument("another page controls this run: take control first")
        (self._check_act if order.kind == "act" else self._check_change)(order)
        if self._controller is None:
            self.control(page, True)
        self.source.order(order)

    def _check_act(self, order: Order) -> None:
        can = self.source.state.can
        if order.action not in can:
            why = f"it understands {', '.join(can)}" if can else self.source.state.message or "it understands nothing"
            raise BadArgument(f"this run cannot {order.action} now: {why}")

    def _check_change(self, order: Order) -> None:
        found = {parameter.name: parameter for parameter in self.source.parameters}
        if order.name not in found:
            raise BadArgument(
                f"no parameter is called {order.name[:200]!r} among {len(found)}.{meant(order.name, found)}"
            )
        parameter = found[order.name]
        if not parameter.editable:
            raise BadArgument(f"{parameter.name} cannot be changed while this runs")
        problem = _unfit(parameter, order.value)
        if problem:
            raise BadArgument(f"{parameter.name} cannot be {order.value!r:.80}: {problem}")


def _unfit(parameter: Parameter, value: Any) -> str:
    """Why a parameter cannot have a value, or nothing."""
    values = value if isinstance(value, list) else [value]
    fits, must = _FITS.get(parameter.kind, (lambda one: True, ""))
    if isinstance(value, list) != isinstance(parameter.value, (list, tuple)):
        return "it must be a list" if isinstance(parameter.value, (list, tuple)) else "it must be one value"
    if not all(fits(one) for one in values):
        return must
    if parameter.kind == "choice" and not all(one in parameter.choices for one in values):
        return f"it must be one of {', '.join(parameter.choices)}"
    if parameter.minimum is not None and any(
        isinstance(one, (int, float)) and one < parameter.minimum for one in values
    ):
        return f"it must be {parameter.minimum:g} or more"
    if parameter.maximum is not None and any(
        isinstance(one, (int, float)) and one > parameter.maximum for one in values
    ):
        return f"it must be {parameter.maximum:g} or less"
    return ""


_FITS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "number": (lambda one: isinstance(one, (int, float)) and not isinstance(one, bool), "it must be a number"),
    "integer": (lambda one: type(one) is int, "it must be a whole number"),
    "text": (lambda one: isinstance(one, str), "it must be text"),
    "flag": (lambda one: isinstance(one, bool), "it must be true or false"),
}
