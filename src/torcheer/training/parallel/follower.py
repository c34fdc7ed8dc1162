"""`torcheer train` on a rank other than the first: it trains along, and writes nothing into the run directory."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from torcheer.training.loop.stop_signals import stop_on_signals
from torcheer.training.parallel.torchrun_agent import LOST_STATUS

if TYPE_CHECKING:
    from torcheer.training.session import Session
    from torcheer.training.spec import Built

_LOST = ("Connection closed by peer", "Connection reset by peer", "Broken pipe", "Connection refused", "NCCL", "Socket")


def follow(built: Built, chosen: argparse.Namespace) -> None:
    """Train along with rank 0, as often as it starts another run."""
    from torcheer.training.spec import reopen

    session = built.session
    session.resume()
    while True:
        _train_along(session, chosen)
        assert session.ranks is not None and session.directory is not None
        changes = session.ranks.from_main()
        if changes is None:
            return
        session = reopen(session.directory, changes=changes, trusted=chosen.trust).session


def _train_along(session: Session, chosen: argparse.Namespace) -> None:
    session.options = replace(session.options, limit_secs=chosen.limit_secs or session.options.limit_secs)
    with stop_on_signals(session):
        for _ in session.run(progress=False):
            pass


def is_lost_rank(error: BaseException) -> bool:
    """Whether an error says that another rank has ended, as far as its text tells."""
    return isinstance(error, RuntimeError) and any(text in str(error) for text in _LOST)


def end_after_loss(rank: int, leave: Callable[[int], object]) -> None:
    """Say that another rank is gone, and end: torchrun starts all of them again, if it was told to."""
    print(f"torcheer train: rank {rank} ends, as another rank has ended", file=sys.stderr, flush=True)
    leave(LOST_STATUS)
