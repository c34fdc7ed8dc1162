"""What became of a run, in words for its pages: while they stay, and when the server shuts down."""

from __future__ import annotations

import shlex
from typing import Final

from torcheer.studio.connections.messages import Ended, OutcomeCame
from torcheer.studio.sources.source import Source

_CLOSED: Final = "The viewer was closed"
_LIVES: Final = {  # by the status of a connected host
    "running": "Training goes on.",
    "testing": "Training goes on.",
    "paused": "The run is paused, and its process still runs.",
}
_OVER: Final = {"done": "has ended", "failed": "has failed", "lost": "was killed, or has crashed"}
_UNKEPT: Final = "It has no folder of its own: what you see goes when the studio is closed. A recording keeps it."


def outcome_of(source: Source) -> OutcomeCame:
    """How the run ended, at which step, and where it is kept; no heading while it runs."""
    kept = str(source.folder.absolute()) if source.folder is not None else ""
    command = f"torcheer studio {shlex.quote(kept)}" if kept else ""
    if not _is_over(source):
        return OutcomeCame("", "", kept, command)
    return OutcomeCame(_heading(source), _UNKEPT if source.kind == "live" and not kept else "", kept, command)


def closing_message(source: Source) -> Ended:
    """Why no more messages will come, and what became of the run, as far as it is known here."""
    if _is_over(source):
        return Ended(_heading(source), "The viewer was closed.", source.state)
    lives = _LIVES.get(source.state.status, "") if source.kind == "live" else ""
    return Ended(_CLOSED, lives, source.state)


def _is_over(source: Source) -> bool:
    """True for a run that was live here; of those that lie on disk, for one that came to no good end."""
    if source.kind == "run":
        return source.state.status in ("failed", "lost")
    return source.kind == "live" and not source.connected and source.state.status in _OVER


def _heading(source: Source) -> str:
    """Name what ended, how, where it was, and why if that is known."""
    state, step = source.state, source.last_step
    subject = "Training" if state.counters or step >= 0 else "The program"
    place = f" {'after' if state.status == 'lost' else 'at'} step {step:,}" if step >= 0 else ""
    why = f": {state.message.rstrip('.')}" if state.message and state.status != "lost" else ""
    return f"{subject} {_OVER[state.status]}{place}{why}"


def is_alive(source: Source) -> bool:
    """True if a host is connected, as far as is known."""
    return source.kind == "live" and source.state.status in (*_LIVES, "idle")
