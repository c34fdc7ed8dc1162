"""How a run ended, as the last frames of its log say; of one whose process was killed, nothing does."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

from torcheer.archive.format.index_tail import is_sealed, read_backwards
from torcheer.errors import TorcheerError
from torcheer.runlog.log_reader import TRAIN

_WRITERS: Final = (TRAIN, "live", "watch")  # the first that a run has knows best
_MOST_FRAMES: Final = 100  # behind the end of training: tests on a page that stayed
_MOST_TEXT: Final = 500


class RunEnd(NamedTuple):
    """How a run ended."""

    status: str = ""  # "done", "failed", "lost": killed, or crashed; "": unknown, or no log
    why: str = ""


def read_end(run: Path) -> RunEnd:
    """Read how a run ended that no process writes to any more."""
    for writer in _WRITERS:
        path = run / "log" / writer
        if (path / "archive.json").is_file():
            try:
                return _end_of(path)
            except (TorcheerError, OSError, ValueError):  # damaged, or being moved
                return RunEnd()
    return RunEnd()


def _end_of(log: Path) -> RunEnd:
    for frame in islice(read_backwards(log), _MOST_FRAMES):
        about: dict[str, Any] = frame["about"]
        if isinstance(end := about.get("ended"), dict) and end.get("status") in ("done", "failed"):
            return RunEnd(str(end["status"]), str(end.get("why", ""))[:_MOST_TEXT])
        if "account" in about:
            return RunEnd("done")  # of a watch
        if "step" in about.get("cut", {}) or ("opened" in about and "cut" not in about):
            break  # here the last process began: it said nothing of its end
    return RunEnd("lost") if log.name == "watch" or not is_sealed(log) else RunEnd()
