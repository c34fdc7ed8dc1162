"""Folders of small runs for tests of the list of runs."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from torcheer.runlog.log_writer import LogWriter


def logged(run: Path, *, steps: int = 5, rate: float = 0.5, config: dict[str, Any] | None = None) -> Path:
    """A run that logged a loss that falls, and its accuracy."""
    run.mkdir(parents=True)
    (run / "run.json").write_text(json.dumps({"format": "torcheer run", "version": 1, "made_by": "a test"}))
    if config is not None:
        (run / "spec.json").write_text(json.dumps({"train": config}))
    log = LogWriter(run, "live", tell=None, is_temporary=True)
    for step in range(steps):
        loss = math.exp(-rate * step)
        log.row("metric", {"loss": loss, "accuracy": 1 - loss / 2}, step * 10)
    log.close()
    return run


def sweep(folder: Path, count: int = 6) -> Path:
    """A folder of runs that differ in learning rate and seed."""
    for number in range(count):
        config = {"lr": 10.0 ** -(1 + number % 3), "seed": number, "optimizer": "adam" if number % 2 else "sgd"}
        logged(folder / f"sweep-{number}", rate=0.1 * (number + 1), config=config)
    return folder
