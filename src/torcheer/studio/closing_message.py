"""What a server that ends has to say of the run that it showed."""

from __future__ import annotations

from typing import Final

from torcheer.studio.connections.messages import Ended
from torcheer.studio.connections.source_pages import Show
from torcheer.studio.sources.source import Source

_CLOSED: Final = "The viewer was closed"
_LIVES: Final = {  # of a host that is connected, by its status
    "running": "Training goes on.",
    "testing": "Training goes on.",
    "paused": "The run is paused, and its process still runs.",
}


def last_words(source: Source) -> Ended:
    """Why a page hears nothing more, and what became of the run, as far as that is known here."""
    state = source.state
    if source.kind != "live":
        return Ended(_CLOSED, "", state)
    if state.status == "done":
        what = "Training has ended" if state.counters else "The program has ended"
        return Ended(f"{what}: {state.message.rstrip('.')}" if state.message else what, "", state)
    if state.status == "lost":
        what = "The process that trained is gone" if state.counters else "The program is gone"
        return Ended(what, "It said nothing of its end: it was killed, or has crashed.", state)
    return Ended(_CLOSED, _LIVES.get(state.status, ""), state)


def is_alive(show: Show) -> bool:
    """Whether a host is there, as far as it is known."""
    return show.source.kind == "live" and show.source.state.status in (*_LIVES, "idle")
