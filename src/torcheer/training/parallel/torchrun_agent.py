"""torchrun, as `torcheer train --nproc N` runs it: how ranks ended is said in a sentence, not in a traceback."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from torcheer.disk import noted_number, read_json
from torcheer.terminal import folded
from torcheer.training.checkpoints.saved_steps import newest_text

STATUS_FILE = "TORCHEER_STATUS_FILE"  # where rank 0 leaves its process number, and its exit status at the end
HANG = "hang"  # the file beside it in which the launcher says why it has ended the ranks
LOST_STATUS = 75  # exit status of a rank that ends because another has ended
STOPPED_BY = 128  # plus the number of a signal: the exit status of a process that it ended


def main(arguments: Sequence[str]) -> int:
    """Run torchrun with these arguments; return its exit status."""
    from torch.distributed import run
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    # Not each signal that it sends its ranks; of a rank that failed only where it is news: before a restart.
    level = logging.CRITICAL if "--max-restarts=0" in arguments else logging.ERROR
    for name in logging.root.manager.loggerDict:  # each has its own level
        if name.startswith("torch.distributed.elastic"):
            logging.getLogger(name).setLevel(level)
    try:
        run.main(list(arguments))
    except SignalException as error:
        return STOPPED_BY + int(error.sigval)
    except ChildFailedError as error:
        first, _ = error.get_first_failure()
        statuses = {rank: failure.exitcode for rank, failure in error.failures.items()}
        cause = describe_hang() or describe_cause(statuses, first)
        text = f"torcheer train: all ranks have ended: {cause}{describe_saved()}"
        print(folded(text), file=sys.stderr)
        return 1
    return 0


def describe_saved() -> str:
    """Say what is saved of the session that rank 0 has trained, and how to go on; "" where it has not begun."""
    facts = read_json(Path(os.environ[STATUS_FILE])) if STATUS_FILE in os.environ else None
    if not facts or not (home := facts.get("session_dir")):
        return ""
    newest = newest_text(Path(home) / "checkpoints", noted_number(Path(home)))
    return f". {newest} Go on with: torcheer train {home}"


def describe_hang() -> str:
    """Say who hung, where the launcher has ended the ranks of the last attempt because of that; else ""."""
    file = Path(os.environ[STATUS_FILE]).with_name(HANG) if STATUS_FILE in os.environ else None
    return file.read_text("utf-8") if file is not None and file.exists() else ""


def describe_cause(statuses: Mapping[int, int], first: int) -> str:
    """Say which rank ended, and how, from the exit statuses by rank; `first`: the one that torchrun noticed first.

    A rank that lost its connection to another may end before it, and torchrun ends the rest by SIGTERM.
    """
    causes = [rank for rank, status in statuses.items() if status not in (LOST_STATUS, -signal.SIGTERM)]
    if not causes:
        return "why is above"
    rank = first if first in causes else causes[0]
    return f"rank {rank} {describe_end(statuses[rank])}"


def describe_end(status: int) -> str:
    """Say how a process ended, from its exit status, which is negative after a signal."""
    if status >= 0:
        return f"ended with status {status}, its own message is above"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    memory = " (the system does that when memory runs out)" if name == "SIGKILL" else ""
    return f"was ended by {name}{memory}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
