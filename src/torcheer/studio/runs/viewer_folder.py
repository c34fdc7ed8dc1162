"""Where the viewer keeps what it remembers: the index of a folder of runs, notes on runs that it may only read."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path


def viewer_folder() -> Path | None:
    """`$TORCHEER_STATE`, or torcheer's part of `$XDG_STATE_HOME` or `~/.local/state`; None without a home."""
    if own := os.environ.get("TORCHEER_STATE"):
        return Path(own)
    try:
        return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "torcheer"
    except RuntimeError:
        return None


def place_for(path: Path, suffix: str) -> Path | None:
    """The file that is kept for a folder, wherever it is seen from."""
    home = viewer_folder()
    name = hashlib.sha256(os.fsencode(path.resolve())).hexdigest()[:24]
    return None if home is None else home / "runs" / f"{name}{suffix}"
