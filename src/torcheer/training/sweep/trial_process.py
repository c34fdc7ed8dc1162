"""The process of one trial: `torcheer train`, which saves and ends when the sweep that started it is gone."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from torcheer.errors import TorcheerError
from torcheer.training.loop.stop_signals import STOPPED, ending_on_signals
from torcheer.wire.child_process import ChildProcess, Program
from torcheer.wire.parent import Parent

_PROGRAM: Final = Program("torcheer.training.sweep.trial_process", "trains a trial of a sweep", "a trial", {}, True)
_POLL_SECS: Final = 0.5
_TRACEBACK: Final = "Traceback (most recent call last):"  # also that of a loader's worker, which a message quotes


def start_trial(arguments: Sequence[str], *, folder: str, environment: dict[str, str] | None = None) -> ChildProcess:
    """Start `torcheer train` with these arguments in a process of its own, in a working folder."""
    before = {key: os.environ.get(key) for key in environment or {}}
    os.environ.update(environment or {})
    try:
        return ChildProcess(_PROGRAM, arguments, folder=folder, captures=True)
    finally:
        for key, value in before.items():
            if value is None:
                del os.environ[key]
            else:
                os.environ[key] = value


def main(arguments: Sequence[str], parent: Parent) -> int:
    """Train; as `torcheer train` would from a terminal."""
    from torcheer.training.cli import main as run

    threading.Thread(target=_stop_when_gone, args=(parent,), daemon=True).start()
    try:
        with ending_on_signals():
            return run("train", [*arguments, "--plain", "--no-control"])
    except KeyboardInterrupt as error:
        print(error, file=sys.stderr)
        return STOPPED
    except TorcheerError as error:
        print(error, file=sys.stderr)
        return 1


def _stop_when_gone(parent: Parent) -> None:
    """Ask training to save and end, as a terminal that is closed would."""
    while not parent.is_gone:
        parent.wire.exchange(_POLL_SECS)
        time.sleep(_POLL_SECS)
    os.kill(os.getpid(), signal.SIGTERM)


def last_words(child: ChildProcess, most: int = 5) -> str:
    """Return why a trial failed: the exception after its last traceback and what is known of it, or its last lines."""
    lines = child.printed.splitlines()
    tracebacks = [place for place, line in enumerate(lines) if line.endswith(_TRACEBACK)]
    after = lines[tracebacks[-1] + 1 :] if tracebacks else []
    raised = next((place for place, line in enumerate(after) if line and not line[0].isspace()), None)
    return "\n".join(lines[-most:] if raised is None else after[raised:])


def trial_arguments(config: Path, home: Path, changes: Sequence[str], trusted: Sequence[str], device: str) -> list[str]:
    """Return the arguments of `torcheer train` for a trial in the folder `home`."""
    options = [part for name in trusted for part in ("--trust", name)] + (["--device", device] if device else [])
    return [str(config), *changes, f"session_dir={home}", *options]
