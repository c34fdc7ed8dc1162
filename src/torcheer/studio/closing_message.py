"""The last message to pages of a server that shuts down: what became of the run."""

from __future__ import annotations

from typing import Final

from torcheer.studio.connections.messages import Ended
from torcheer.studio.connections.source_pages import Channel
from torcheer.studio.sources.source import Source

_CLOSED: Final = "The viewer was closed"
_LIVES: Final = {  # by the status of a connected host
    "running": "Training goes on.",
    "testing": "Training goes on.",
    "paused": "The run is paused, and its process still runs.",
}


def closing_message(source: Source) -> Ended:
    """Why no more messages will come, and what became of the run, as far as it is known here."""
    state = source.state
    if source.kind != "live":
        return Ended(_CLOSED, "", state)
    if state.status == "done":
        heading = "Training has ended" if state.counters else "The program has ended"
        return Ended(f"{heading}: {state.message.rstrip('.')}" if state.message else heading, "", state)
    if state.status == "lost":
        heading = "The process that trained is gone" if state.counters else "The program is gone"
        return Ended(heading, "It said nothing of its end: it was killed, or has crashed.", state)
    return Ended(_CLOSED, _LIVES.get(state.status, ""), state)


def is_alive(channel: Channel) -> bool:
    """True if a host is connected, as far as is known."""
    return channel.source.kind == "live" and channel.source.state.status in (*_LIVES, "idle")
