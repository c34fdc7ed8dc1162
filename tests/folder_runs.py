"""Folders of small runs for tests of the list of runs."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from seams import LogWriter
from studio_serving import serving

from torcheer.archive import Writer


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


def killed(run: Path) -> Path:
    """A run whose process went on with it, and was killed: its log was opened and not closed."""
    archive = Writer(run / "log" / "live")
    archive.step([], opened=time.time(), cut={"step": 40})
    archive.close(seal=False)
    return run


def sweep(folder: Path, count: int = 6) -> Path:
    """A folder of runs that differ in learning rate and seed."""
    for number in range(count):
        config = {"lr": 10.0 ** -(1 + number % 3), "seed": number, "optimizer": "adam" if number % 2 else "sgd"}
        logged(folder / f"sweep-{number}", rate=0.1 * (number + 1), config=config)
    return folder


@contextmanager
def served_folder(folder: Path, patch: pytest.MonkeyPatch) -> Iterator[str]:
    """The studio's server on a folder of runs, in this process; what it keeps of them lies beside the folder."""
    from seams import open_catalog

    patch.setenv("TORCHEER_STATE", str(folder.parent / "state"))
    with serving(open_catalog(folder)) as (url, _, _):
        yield url
