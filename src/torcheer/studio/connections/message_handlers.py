"""Where pages' messages are answered, and where the sources are asked for news; all of it in one thread."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import numpy as np

from torcheer.control.control_records import Order
from torcheer.errors import BadArgument, TorcheerError
from torcheer.network.network_records import PlacedLayer
from torcheer.studio.closing_message import is_alive, last_words
from torcheer.studio.connections import messages
from torcheer.studio.connections.message_parsing import Unreadable, meant, parse
from torcheer.studio.connections.messages import Answer, Problem
from torcheer.studio.connections.page_connection import Page
from torcheer.studio.connections.source_pages import Place, Show
from torcheer.studio.connections.subscriptions import Looking
from torcheer.studio.server_errors import report, report_error
from torcheer.studio.sources.layer_frames import is_gap
from torcheer.studio.sources.source import Source
from torcheer.studio.sources.table_queries import analysed

TICK_SECS: Final = 0.1
RUNS_SECS: Final = 2.0  # between two looks at which runs there are
MOST_PAGES: Final = 256
_DEATH_SECS: Final = 2.0  # between the end of the parent's pipe and that of its socket
_PARTING_SECS: Final = 1.0  # for pages to be told
_MOST_TASKS: Final = 4  # recordings that are being written, or wait for it
_MOST_CALLS: Final = 200  # of a descriptor between two ticks
FIRST = ("first", -1)


class Desk:
    """All that is shown, and all pages."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.shows: dict[tuple[str, int], Show] = {FIRST: Show(place.first(), place)}
        self._readers: dict[int, Show] = {}  # descriptors that the loop watches
        self._ticks = self._called = 0
        self._saving, self._tasks = asyncio.Lock(), set[asyncio.Task[None]]()

    # -- pages ---------------------------------------------------------------------------------------------------------

    @property
    def pages(self) -> list[Page]:
        """Everyone who looks at anything."""
        return [page for show in self.shows.values() for page in show.pages]

    def join(self, page: Page) -> None:
        """A page has connected."""
        self.shows[FIRST].add(page)

    def leave(self, page: Page) -> None:
        """A page is gone; what nobody looks at any more is closed, but for what was shown first."""
        show = page.show
        if show is None:
            return
        show.remove(page)
        for key, one in list(self.shows.items()):
            if one is show and not show.pages and key != FIRST:
                del self.shows[key]
                self._unwatch(show)
                _close(show.source)

    def hear(self, page: Page, text: str | bytes) -> None:
        """Answer one message; whatever is wrong with it is told to its page."""
        try:
            message = parse(text)
        except Unreadable as error:
            page.tell(Problem(str(error), error.question))
            return
        with _answering(page, getattr(message, "question", -1)):
            _ANSWERS[type(message)](self, page, message)

    # -- news ----------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Ask the sources for news until cancelled."""
        self._begin(self._look_for_runs())
        try:
            while True:
                self._tick()
                await asyncio.sleep(TICK_SECS)
        finally:
            self.close()

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Have something done beside the rest."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _look_for_runs(self) -> None:
        """Tell pages which runs the folder has, where that changes; to find out may take long, so it is a thread's."""
        while True:
            await asyncio.sleep(RUNS_SECS)
            try:
                changed = bool(self.pages) and await asyncio.to_thread(self.place.look)
            except Exception as error:  # the pages keep what they have
                report_error(error)
                continue
            for page in self.pages if changed else ():
                page.owe("runs")

    def _tick(self) -> None:
        self._ticks, self._called = self._ticks + 1, 0
        for show in list(self.shows.values()):
            self._poll(show)
            for page in show.pages:  # one that waited long for a `seen` is sent what it looks at now
                page.owe(*["look"] * (self._ticks % 5 == 0))

    def _poll(self, show: Show) -> None:
        try:
            show.poll()
            self._watch(show)
        except Exception as error:  # the pages keep what they have
            report_error(error)
        if busy := str(getattr(show.source, "busy", "")):
            report(f"another viewer shows this run: {busy}")

    def _watch(self, show: Show) -> None:
        """Let the loop call when the source's descriptor, which may become another one, has something."""
        number = show.source.fileno()
        if number >= 0 and self._readers.get(number) is show:
            return
        self._unwatch(show)
        if number >= 0:
            asyncio.get_running_loop().add_reader(number, self._readable, show)
            self._readers[number] = show

    def _readable(self, show: Show) -> None:
        self._called += 1
        if self._called > _MOST_CALLS:  # one that is always readable must not take all the time
            self._unwatch(show)
        else:
            self._poll(show)

    def _unwatch(self, show: Show) -> None:
        for number in [number for number, one in self._readers.items() if one is show]:
            del self._readers[number]
            with suppress(OSError, ValueError):  # closed already
                asyncio.get_running_loop().remove_reader(number)

    async def part(self, *, expects_death: bool) -> None:
        """Tell all pages that the server ends, and what became of the run; `expects_death` waits to see that."""
        deadline = time.monotonic() + _DEATH_SECS
        shows = list(self.shows.values())
        for show in shows:
            self._poll(show)
        while expects_death and any(map(is_alive, shows)) and time.monotonic() < deadline:
            await asyncio.sleep(0.02)
            for show in shows:
                self._poll(show)
        for show in shows:
            for page in show.pages:
                page.tell(last_words(show.source))
        partings = [asyncio.create_task(page.parted.wait()) for page in self.pages]
        if partings:
            await asyncio.wait(partings, timeout=_PARTING_SECS)

    def close(self) -> None:
        """Close everything that was opened."""
        for task in self._tasks:
            task.cancel()
        for show in self.shows.values():
            self._unwatch(show)
            _close(show.source)

    # -- answers -------------------------------------------------------------------------------------------------------

    def _look(self, page: Page, look: messages.Look) -> None:
        show = _show(page)
        page.looking.begin(look)
        show.ask()
        page.owe("look")

    def _seen(self, page: Page, seen: messages.Seen) -> None:
        page.looking.seen(seen)
        page.owe("look")

    def _act(self, page: Page, act: messages.Act) -> None:
        _show(page).order(page, Order("act", act.action, act.count, act.item))

    def _change(self, page: Page, change: messages.Change) -> None:
        _show(page).order(page, Order("change", name=change.name, value=change.value))

    def _control(self, page: Page, control: messages.Control) -> None:
        _show(page).control(page, control.take)

    def _value(self, page: Page, asked: messages.AskValue) -> None:
        source, layer = _show(page).source, _layer(page, asked.layer)
        _check_unit(layer, asked.unit)
        of = (asked.of_layer, asked.of_unit) if asked.of_unit >= 0 else None
        moment = source.moments[-1].id if asked.moment < 0 and source.moments else asked.moment
        value = source.exact(moment, asked.layer, asked.variable, asked.item, asked.unit)
        if value is None:  # one of weights, or of a value that has not the layer's shape
            values = source.units(moment, asked.layer, asked.variable, asked.item, of)
            value = values[asked.unit] if values is not None and asked.unit < len(values) else None
        said = _said(value)
        if value is not None and is_gap(value):  # outside of a kernel, say
            said["text"] = "no value" if of is None else "no weight"
        index = [int(one) for one in np.unravel_index(asked.unit, layer.layer.shape or (1,))]
        page.tell(Answer(asked.question, {**said, "index": index}))

    def _trace(self, page: Page, asked: messages.AskTrace) -> None:
        _check_unit(_layer(page, asked.layer), asked.unit)
        found = _show(page).source.trace(asked.layer, asked.unit, asked.variables, asked.item)
        page.tell(Answer(asked.question, found))

    def _analysis(self, page: Page, asked: messages.AskAnalysis) -> None:
        page.tell(Answer(asked.question, analysed(_show(page).source.tables, asked)))

    def _save(self, page: Page, save: messages.SaveRecording) -> None:
        source = _show(page).source
        if len(self._tasks) > _MOST_TASKS:
            raise BadArgument("other recordings are still being written; save this one when they are there")
        self._begin(self._saved(page, source, source.saving(save.name)))

    async def _saved(self, page: Page, source: Source, write: Callable[[], messages.Recording]) -> None:
        """Write a recording, one at a time, while everything goes on."""
        with _answering(page):
            async with self._saving:
                saved = await asyncio.to_thread(write)
            text = f"{saved.name}: {saved.states} states" + (f", in {source.home}" if source.home else "")
            for one in self.pages:
                one.owe_recordings(text if one is page else "")

    def _open_recording(self, page: Page, wanted: messages.OpenRecording) -> None:
        key = FIRST if wanted.id < 0 else ("recording", wanted.id)
        self._move(page, key, lambda: Show(self.place.open_recording(wanted.id), self.place, -1))

    def _open_run(self, page: Page, wanted: messages.OpenRun) -> None:
        key = FIRST if wanted.id in (-1, self.place.run) else ("run", wanted.id)
        self._move(page, key, lambda: Show(self.place.open_run(wanted.id), self.place, wanted.id))

    def _move(self, page: Page, key: tuple[str, int], make: Callable[[], Show]) -> None:
        """Show a page something else; a `hello` follows."""
        show = self.shows.get(key) or make()
        if page.show is not show:
            self.shows[key] = show
            self.leave(page)
            page.looking = Looking()
            show.add(page)
        page.owe("hello")


@contextmanager
def _answering(page: Page, question: int = -1) -> Iterator[None]:
    """Tell a page what goes wrong with what it asked for; a mistake of ours must not end what others look at."""
    try:
        yield
    except (TorcheerError, OSError) as error:
        page.tell(Problem(str(error), question))
    except Exception as error:
        report_error(error)
        page.tell(Problem("the server could not do this; what went wrong stands where it was started", question))


def _close(source: Source) -> None:
    """Close a source; what goes wrong with that concerns no page."""
    try:
        source.close()
    except Exception as error:
        report_error(error)


def _show(page: Page) -> Show:
    if page.show is None:
        raise BadArgument("nothing is shown")
    return page.show


def _layer(page: Page, name: str) -> PlacedLayer:
    net = _show(page).source.net
    found = {placed.layer.name: placed for placed in net.layers} if net else {}
    if name not in found:
        raise BadArgument(f"no layer named {name[:200]!r} among {len(found)}.{meant(name, found)}")
    return found[name]


def _check_unit(placed: PlacedLayer, unit: int) -> None:
    if not 0 <= unit < placed.units:
        raise BadArgument(f"{placed.layer.name} has units 0 to {placed.units - 1}; there is no {unit}")


def _said(value: Any) -> dict[str, Any]:
    """An exact value, for a machine and for people; None where there is none."""
    if value is None:
        return {"value": None, "text": ""}
    names = {"nan": "NaN", "inf": "∞", "-inf": "−∞"}
    return {"value": value.item() if np.isfinite(value) else None, "text": names.get(str(value), str(value))}


_ANSWERS: dict[type, Callable[[Desk, Page, Any], None]] = {
    messages.Look: Desk._look,
    messages.Seen: Desk._seen,
    messages.Act: Desk._act,
    messages.Change: Desk._change,
    messages.Control: Desk._control,
    messages.AskValue: Desk._value,
    messages.AskTrace: Desk._trace,
    messages.AskAnalysis: Desk._analysis,
    messages.SaveRecording: Desk._save,
    messages.OpenRecording: Desk._open_recording,
    messages.OpenRun: Desk._open_run,
}
