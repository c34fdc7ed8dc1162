"""Texts about what a source shows: its drawing (`AskGraph`), drawn once per network, and its backward pass."""

from __future__ import annotations

import asyncio
import zlib
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
        self._drawn: WeakKeyDictionary[Source, tuple[Net | None, asyncio.Task[bytes]]] = WeakKeyDictionary()

    async def answer(self, source: Source, question: int) -> bytes:
        """The binary message that answers a question; raises what the drawing raised."""
        net, task = self._drawn.get(source, (None, None))
        if task is None or net is not source.net or (task.done() and task.exception() is not None):
            if source.net is None:
                raise ValueUnavailable("there is no network yet, so there is nothing to draw")
            task = asyncio.create_task(asyncio.to_thread(compressed_graph, source, source.net))
            self._drawn[source] = (source.net, task)
        return text_message(await asyncio.shield(task), question)


def text_message(text: bytes, question: int) -> bytes:
    """The binary message with a compressed text."""
    payload = np.frombuffer(text, np.uint8)
    return binary_message(asdict(SampleFrame(question, payload.nbytes, payload.shape)), payload)


def backward_answer(source: Source, question: int, compression: int = _COMPRESSION) -> bytes:
    """The binary message with the steps of a backward pass; raises where there was none."""
    text = source.backward_text()
    if not text:
        raise ValueUnavailable("no backward pass was recorded: tl.show(loss) shows one, of torcheer.autograd")
    return text_message(zlib.compress(text.encode(), compression), question)


def compressed_graph(source: Source, net: Net, compression: int = _COMPRESSION) -> bytes:
    """Draw what a source shows, as compressed text."""
    return zlib.compress(source.graph(net).encode(), compression)
