"""Handles pages' messages and polls the sources for changes; all of it in one thread."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from typing import Any, Final

import numpy as np

from torcheer.control.control_records import Act, Change, Order
from torcheer.control.loop_messages import Problem
from torcheer.errors import BadArgument, TorcheerError
from torcheer.network.network_records import PlacedLayer
from torcheer.runlog.media.logged_samples import LoggedSample
from torcheer.studio.comparison.open_comparison import open_comparison
from torcheer.studio.connections import messages
from torcheer.studio.connections.comparison_messages import OpenComparison
from torcheer.studio.connections.message_parsing import InvalidMessage, parse
from torcheer.studio.connections.messages import Answer
from torcheer.studio.connections.page_connection import PageConnection
from torcheer.studio.connections.run_messages import RUN_REQUESTS
from torcheer.studio.connections.run_requests import RunRequests, compared_path
from torcheer.studio.connections.source_pages import Channel, SourceCatalog
from torcheer.studio.connections.subscriptions import Subscription
from torcheer.studio.graph_answers import Graphs, backward_answer
from torcheer.studio.run_outcome import closing_message, is_alive
from torcheer.studio.server_errors import report, report_error
from torcheer.studio.sources.layer_frames import is_gap
from torcheer.studio.sources.sample_index import answer_of
from torcheer.studio.sources.source import Source
from torcheer.studio.sources.table_queries import analyse_column
from torcheer.studio.tensors.layer_tensors import answer_slice, answer_statistics, tensors_of
from torcheer.terminal import did_you_mean

TICK_SECS: Final = 0.1
RUNS_SECS: Final = 2.0  # between two scans for runs
_BETWEEN_SECS: Final = 0.05  # the same while runs wait to be read: other threads have their turn
MOST_PAGES: Final = 256
_HOST_END_SECS: Final = 2.0  # for the host's socket to close after the parent's pipe has
_GOODBYE_SECS: Final = 1.0  # for the last messages to be sent
_MOST_TASKS: Final = 4  # recordings being written, or queued
_MOST_CUTS: Final = 256  # slices of tensors that pages wait for
_MOST_CALLS: Final = 200  # reader callbacks between two ticks
FIRST = ("first", -1)


class Hub:
    """All channels and all pages."""

    def __init__(self, catalog: SourceCatalog) -> None:
        self.catalog = catalog
        self.channels: dict[tuple[str | int, ...], Channel] = {FIRST: Channel(catalog.first(), catalog)}
        self._readers: dict[int, Channel] = {}  # descriptors registered with the event loop
        self._ticks = self._called = 0
        self._alone_since = time.monotonic()
        self.end: Callable[[], None] = lambda: None  # ends the server
        self._saving, self._tasks = asyncio.Lock(), set[asyncio.Task[None]]()
        self._run_requests = RunRequests(self, _reporting_errors)
        self._graphs = Graphs()
        self._cutting, self._counting, self._decoding = asyncio.Lock(), asyncio.Lock(), asyncio.Lock()
        self._cuts = set[asyncio.Task[None]]()

    # -- pages ---------------------------------------------------------------------------------------------------------

    @property
    def pages(self) -> list[PageConnection]:
        """All connected pages."""
        return [page for channel in self.channels.values() for page in channel.pages]

    def join(self, page: PageConnection) -> None:
        """Add a page that has connected, to the first channel."""
        self.channels[FIRST].add(page)

    def leave(self, page: PageConnection) -> None:
        """Remove a page; a channel without pages is closed, except the first."""
        channel = page.channel
        if channel is None:
            return
        channel.remove(page)
        self._alone_since = time.monotonic()
        for key, candidate in list(self.channels.items()):
            if candidate is channel and not channel.pages and key != FIRST:
                del self.channels[key]
                self._unwatch(channel)
                _close(channel.source)

    @property
    def alone_secs(self) -> float:
        """Seconds since the last page disconnected; 0.0 while there is one."""
        return 0.0 if self.pages else time.monotonic() - self._alone_since

    def handle(self, page: PageConnection, text: str | bytes) -> None:
        """Handle one message; an error is reported to its page."""
        try:
            message = parse(text)
        except InvalidMessage as error:
            page.reply(Problem(str(error), error.question))
            return
        with _reporting_errors(page, getattr(message, "question", -1)):
            _HANDLERS[type(message)](self, page, message)

    # -- polling -------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Poll the sources for changes until cancelled."""
        self._start(self._scan_for_runs())
        self._graphs.draw_ahead(self.channels[FIRST].source)
        try:
            while True:
                self._tick()
                await asyncio.sleep(TICK_SECS)
        finally:
            self.close()

    def _start(self, work: Coroutine[Any, Any, None], tasks: set[asyncio.Task[None]] | None = None) -> None:
        """Run a coroutine as a background task, one of `tasks` while it runs."""
        tasks, task = self._tasks if tasks is None else tasks, asyncio.create_task(work)
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    async def _scan_for_runs(self) -> None:
        """Send pages the folder's runs whenever they change.

        Scanning may be slow, so it runs in a thread.
        """
        pause_secs = RUNS_SECS
        while True:
            index = self.catalog.index
            await asyncio.sleep(_BETWEEN_SECS if index is not None and index.waiting else pause_secs)
            began = time.monotonic()
            try:
                is_watched = self.pages or self.channels[FIRST].source.kind == "nothing"
                changed = is_watched and await asyncio.to_thread(self.catalog.refresh)
            except Exception as error:  # pages keep what they have
                report_error(error)
                continue
            pause_secs = max(RUNS_SECS, 20 * (time.monotonic() - began))  # at most 5% of the time
            for page in self.pages if changed else ():
                page.queue("runs")

    def _tick(self) -> None:
        self._ticks, self._called = self._ticks + 1, 0
        for channel in list(self.channels.values()):
            self._poll(channel)
            for page in channel.pages:  # retries a page whose `seen` is overdue
                page.queue(*["look"] * (self._ticks % 5 == 0))

    def _poll(self, channel: Channel) -> None:
        try:
            channel.poll()
            self._watch(channel)
        except Exception as error:  # pages keep what they have
            report_error(error)
        if channel.source.busy:
            report(f"another viewer shows this run: {channel.source.busy}")

    def _watch(self, channel: Channel) -> None:
        """Register the source's descriptor, which may change, with the event loop."""
        number = channel.source.fileno()
        if number >= 0 and self._readers.get(number) is channel:
            return
        self._unwatch(channel)
        if number >= 0:
            asyncio.get_running_loop().add_reader(number, self._readable, channel)
            self._readers[number] = channel

    def _readable(self, channel: Channel) -> None:
        self._called += 1
        if self._called > _MOST_CALLS:  # a descriptor that is always readable must not starve the rest
            self._unwatch(channel)
        else:
            self._poll(channel)

    def _unwatch(self, channel: Channel) -> None:
        for number in [number for number, reader in self._readers.items() if reader is channel]:
            del self._readers[number]
            with suppress(OSError, ValueError):  # closed already
                asyncio.get_running_loop().remove_reader(number)

    async def shut_down(self, *, expects_death: bool) -> None:
        """Send all pages the closing message.

        With `expects_death`, wait a little for the host's own end.
        """
        deadline = time.monotonic() + _HOST_END_SECS
        channels = list(self.channels.values())
        for channel in channels:
            self._poll(channel)
        while expects_death and any(is_alive(channel.source) for channel in channels) and time.monotonic() < deadline:
            await asyncio.sleep(0.02)
            for channel in channels:
                self._poll(channel)
        for channel in channels:
            for page in channel.pages:
                page.reply(closing_message(channel.source))
        goodbyes = [asyncio.create_task(page.goodbye_sent.wait()) for page in self.pages]
        if goodbyes:
            await asyncio.wait(goodbyes, timeout=_GOODBYE_SECS)

    def close(self) -> None:
        """Cancel the tasks and close every source."""
        for task in (*self._tasks, *self._cuts):
            task.cancel()
        for channel in self.channels.values():
            self._unwatch(channel)
            _close(channel.source)

    # -- handlers ------------------------------------------------------------------------------------------------------

    def _handle_look(self, page: PageConnection, look: messages.Look) -> None:
        channel = _channel(page)
        page.subscription.begin(look)
        channel.update_wants()
        page.queue("look")

    def _handle_seen(self, page: PageConnection, seen: messages.Seen) -> None:
        page.subscription.acknowledge(seen)
        page.queue("look")

    def _handle_order(self, page: PageConnection, order: Order) -> None:
        _channel(page).order(page, order)

    def _handle_control(self, page: PageConnection, control: messages.Control) -> None:
        _channel(page).control(page, control.take)

    def _answer_value(self, page: PageConnection, request: messages.AskValue) -> None:
        source, layer = _channel(page).source, _layer(page, request.layer)
        _check_unit(layer, request.unit)
        of = (request.of_layer, request.of_unit) if request.of_unit >= 0 else None
        moment = source.moments[-1].id if request.moment < 0 and source.moments else request.moment
        value = source.exact(moment, request.layer, request.variable, request.item, request.unit)
        if value is None:  # a weight variable, or a value of another shape than the layer's
            values = source.units(moment, request.layer, request.variable, request.item, of)
            value = values[request.unit] if values is not None and request.unit < len(values) else None
        answer = _value_answer(value)
        if value is not None and is_gap(value):  # for example outside a kernel
            answer["text"] = "no value" if of is None else "no weight"
        index = [int(position) for position in np.unravel_index(request.unit, layer.layer.shape or (1,))]
        page.reply(Answer(request.question, {**answer, "index": index}))

    def _answer_trace(self, page: PageConnection, request: messages.AskTrace) -> None:
        _check_unit(_layer(page, request.layer), request.unit)
        trace = _channel(page).source.trace(request.layer, request.unit, request.variables, request.item)
        page.reply(Answer(request.question, trace))

    def _answer_analysis(self, page: PageConnection, request: messages.AskAnalysis) -> None:
        page.reply(Answer(request.question, analyse_column(_channel(page).source.tables, request)))

    def _answer_sample(self, page: PageConnection, request: messages.AskSample) -> None:
        sample = _channel(page).source.samples.find(request.id)
        # A picture of another program is decoded in another process, which may be at work on a log of gigabytes.
        self._answer_in_thread(page, request.question, lambda: _sample_answer(sample, request.question), self._decoding)

    def _answer_graph(self, page: PageConnection, request: messages.AskGraph) -> None:
        self._start(self._send_graph(page, _channel(page).source, request))

    async def _send_graph(self, page: PageConnection, source: Source, request: messages.AskGraph) -> None:
        """Draw, which may take seconds, and send it."""
        with _reporting_errors(page, request.question):
            page.reply(await self._graphs.answer(source, request.question, request.part))

    def _answer_backward(self, page: PageConnection, request: messages.AskBackward) -> None:
        source = _channel(page).source
        self._answer_in_thread(page, request.question, lambda: backward_answer(source, request.question), self._cutting)

    def _answer_tensors(self, page: PageConnection, request: messages.AskTensors) -> None:
        tensors = tensors_of(_channel(page).source, request.layer, request.moment)
        page.reply(Answer(request.question, asdict(tensors)))

    def _answer_slice(self, page: PageConnection, request: messages.AskSlice) -> None:
        self._answer_in_thread(page, request.question, answer_slice(_channel(page).source, request), self._cutting)

    def _answer_statistics(self, page: PageConnection, request: messages.AskStatistics) -> None:
        describe = answer_statistics(_channel(page).source, request)

        def make() -> Answer:
            return Answer(request.question, asdict(describe()))

        self._answer_in_thread(page, request.question, make, self._counting)  # slices do not wait for statistics

    def _answer_in_thread(
        self, page: PageConnection, question: int, make: Callable[[], Answer | Problem | bytes], turn: asyncio.Lock
    ) -> None:
        """Make an answer in a thread, one at a time: a tensor may have a billion numbers."""
        if len(self._cuts) >= _MOST_CUTS:
            raise BadArgument("many parts of tensors are asked for at once; ask for this one again")

        async def work() -> None:
            with _reporting_errors(page, question):
                async with turn:
                    page.reply(await asyncio.to_thread(make))

        self._start(work(), self._cuts)

    def _save_recording(self, page: PageConnection, save: messages.SaveRecording) -> None:
        source = _channel(page).source
        if len(self._tasks) > _MOST_TASKS:
            raise BadArgument("other recordings are still being written; save this one when they are there")
        self._start(self._write_recording(page, source, source.saving(save.name)))

    async def _write_recording(
        self, page: PageConnection, source: Source, write: Callable[[], messages.Recording]
    ) -> None:
        """Write a recording in a thread, one at a time."""
        with _reporting_errors(page):
            async with self._saving:
                saved = await asyncio.to_thread(write)
            text = f"{saved.name}: {saved.states} states" + (f", in {source.home}" if source.home else "")
            for viewer in self.pages:
                viewer.queue_recordings(text if viewer is page else "")

    def _open_recording(self, page: PageConnection, request: messages.OpenRecording) -> None:
        key = FIRST if request.id < 0 else ("recording", request.id)
        self._move(page, key, lambda: Channel(self.catalog.open_recording(request.id), self.catalog, -1))

    def _open_run(self, page: PageConnection, request: messages.OpenRun) -> None:
        key = FIRST if request.id in (-1, self.catalog.run) else ("run", request.id)
        self._move(page, key, lambda: Channel(self.catalog.open_run(request.id), self.catalog, request.id))

    def _open_comparison(self, page: PageConnection, request: OpenComparison) -> None:
        chosen = (request.first, request.first_step), (request.second, request.second_step)
        first, second = (compared_path(self.catalog.index, run, step) for run, step in chosen)
        key = ("comparison", *chosen[0], *chosen[1])
        self._move(page, key, lambda: Channel(open_comparison(first, second), self.catalog, -1))

    def _handle_run_request(self, page: PageConnection, request: Any) -> None:
        self._run_requests.handle(page, request)

    def _close_studio(self, page: PageConnection, request: messages.CloseStudio) -> None:
        self.end()

    def _move(self, page: PageConnection, key: tuple[str | int, ...], make: Callable[[], Channel]) -> None:
        """Move a page to another channel; a `hello` follows."""
        channel = self.channels.get(key) or make()
        if page.channel is not channel:
            self.channels[key] = channel
            self.leave(page)
            page.subscription = Subscription()
            channel.add(page)
        page.queue("hello")


@contextmanager
def _reporting_errors(page: PageConnection, question: int = -1) -> Iterator[None]:
    """Report errors to the page whose request failed; a bug of ours must not end other pages."""
    try:
        yield
    except (TorcheerError, OSError) as error:
        page.reply(Problem(str(error), question))
    except Exception as error:
        report_error(error)
        page.reply(Problem("the server could not do this; what went wrong stands where it was started", question))


def _close(source: Source) -> None:
    """Close a source; an error is only printed."""
    try:
        source.close()
    except Exception as error:
        report_error(error)


def _channel(page: PageConnection) -> Channel:
    if page.channel is None:
        raise BadArgument("nothing is shown")
    return page.channel


def _layer(page: PageConnection, name: str) -> PlacedLayer:
    net = _channel(page).source.net
    layers = {placed.layer.name: placed for placed in net.layers} if net else {}
    if name not in layers:
        raise BadArgument(f"no layer named {name[:200]!r} among {len(layers)}.{did_you_mean(name, layers)}")
    return layers[name]


def _check_unit(placed: PlacedLayer, unit: int) -> None:
    if not 0 <= unit < placed.units:
        raise BadArgument(f"{placed.layer.name} has units 0 to {placed.units - 1}; there is no {unit}")


def _sample_answer(sample: LoggedSample, question: int) -> Answer | Problem | bytes:
    """A sample's content; of one that cannot be read, what is wrong with it."""
    try:
        return answer_of(sample, question)
    except (TorcheerError, OSError, ValueError, OverflowError, MemoryError) as error:
        return Problem(f"{sample.kind} {sample.name[:200]!r} of step {sample.step} cannot be shown: {error}", question)


def _value_answer(value: Any) -> dict[str, Any]:
    """An exact value as a number and as text; None if it is missing or not finite."""
    if value is None:
        return {"value": None, "text": ""}
    names = {"nan": "NaN", "inf": "∞", "-inf": "−∞"}
    return {"value": value.item() if np.isfinite(value) else None, "text": names.get(str(value), str(value))}


_HANDLERS: dict[type, Callable[[Hub, PageConnection, Any], None]] = {
    messages.Look: Hub._handle_look,
    messages.Seen: Hub._handle_seen,
    Act: Hub._handle_order,
    Change: Hub._handle_order,
    messages.Control: Hub._handle_control,
    messages.AskValue: Hub._answer_value,
    messages.AskTrace: Hub._answer_trace,
    messages.AskAnalysis: Hub._answer_analysis,
    messages.AskSample: Hub._answer_sample,
    messages.AskGraph: Hub._answer_graph,
    messages.AskBackward: Hub._answer_backward,
    messages.AskTensors: Hub._answer_tensors,
    messages.AskSlice: Hub._answer_slice,
    messages.AskStatistics: Hub._answer_statistics,
    messages.SaveRecording: Hub._save_recording,
    messages.OpenRecording: Hub._open_recording,
    messages.OpenRun: Hub._open_run,
    OpenComparison: Hub._open_comparison,
    messages.CloseStudio: Hub._close_studio,
    **dict.fromkeys(RUN_REQUESTS, Hub._handle_run_request),
}
