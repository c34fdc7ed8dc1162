"""Texts about what a source shows: its drawing (`AskGraph`), drawn once per network, and its backward pass."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable
from dataclasses import asdict
from weakref import WeakKeyDictionary

import numpy as np

from torcheer.errors import ValueUnavailable
from torcheer.network.network_records import Net
from torcheer.studio.connections.messages import SampleFrame
from torcheer.studio.sources.layer_frames import binary_message
from torcheer.studio.sources.source import Source

_COMPRESSION = 1  # a text of megabytes is sent over a tunnel, too; more would take longer than it saves


class Graphs:
    """The compressed drawings of sources; pages that ask while one is drawn wait for it."""

    def __init__(self) -> None:
        self._drawn: WeakKeyDictionary[Source, DrawnGraph] = WeakKeyDictionary()

    async def answer(self, source: Source, question: int, part: str) -> bytes:
        """The binary message that answers a question; raises what the drawing raised."""
        if source.net is None:
            raise ValueUnavailable("there is no network yet, so there is nothing to draw")
        graph = self._graph(source, source.net)
        return text_message(await (graph.details() if part == "details" else graph.drawing()), question)

    def draw_ahead(self, source: Source) -> None:
        """Draw a pass before anyone asks: it does not change, and 100,000 operations take seconds."""
        if source.kind == "pass" and source.net is not None:
            self._graph(source, source.net)

    def _graph(self, source: Source, net: Net) -> DrawnGraph:
        graph = self._drawn.get(source)
        if graph is None or graph.net is not net or graph.has_failed:
            graph = self._drawn[source] = DrawnGraph(source, net)
        return graph


class DrawnGraph:
    """The drawing of one network, and its details once somebody has asked for them."""

    def __init__(self, source: Source, net: Net) -> None:
        self.net = net
        self._write_details: Callable[[], str] | None = None  # until they are written: it holds all operations
        self._drawing = asyncio.create_task(self._draw(source, net))
        self._drawing.add_done_callback(lambda task: task.cancelled() or task.exception())  # said to who asks
        self._details: asyncio.Task[bytes] | None = None

    @property
    def has_failed(self) -> bool:
        """Whether it must be drawn anew."""
        tasks = [task for task in (self._drawing, self._details) if task is not None and task.done()]
        return any(task.cancelled() or task.exception() is not None for task in tasks)

    async def drawing(self) -> bytes:
        """What the page draws, compressed."""
        return await asyncio.shield(self._drawing)

    async def details(self) -> bytes:
        """What it shows of each operation, compressed."""
        await self.drawing()
        self._details = self._details or asyncio.create_task(self._detail())
        return await asyncio.shield(self._details)

    async def _draw(self, source: Source, net: Net) -> bytes:
        text = await asyncio.to_thread(source.graph, net)
        self._write_details = text.details
        return compressed(text.drawing)

    async def _detail(self) -> bytes:
        assert self._write_details is not None
        text = await asyncio.to_thread(self._write_details)
        self._write_details = None
        return await asyncio.to_thread(compressed, text)


def compressed(text: str, compression: int = _COMPRESSION) -> bytes:
    """A text as the page unpacks it."""
    return zlib.compress(text.encode(), compression)


def text_message(text: bytes, question: int) -> bytes:
    """The binary message with a compressed text."""
    payload = np.frombuffer(text, np.uint8)
    return binary_message(asdict(SampleFrame(question, payload.nbytes, payload.shape)), payload)


def backward_answer(source: Source, question: int, compression: int = _COMPRESSION) -> bytes:
    """The binary message with the steps of a backward pass; raises where there was none."""
    text = source.backward_text()
    if not text:
        raise ValueUnavailable("no backward pass was recorded: tl.show(loss) shows one, of torcheer.autograd")
    return text_message(compressed(text, compression), question)
