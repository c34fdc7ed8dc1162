"""How fast a folder of 10,000 runs of 1,000 series is listed, filtered and drawn; rows of `make bench-studio`.

The runs are real folders with real logs, of which 100 are distinct: the others are hard links to their files. What is
timed is what a person waits for, as CPU time: a viewer with an index opens the folder and answers a page with the list;
the page filters and sorts it (by the page's own code, in Node); the curves of 100 runs are read, then made into lines.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

SERIES, POINTS, DISTINCT = 1000, 20, 100
FULL = 10_000  # runs
ROOT = Path(__file__).resolve().parents[1]
LIMITS_SECS = {"list": 1.0, "filter": 0.1, "curves": 0.5}


def generate(folder: Path, runs: int) -> None:
    """Make a folder of runs."""
    from torcheer.runlog.log_writer import LogWriter

    rng, steps = np.random.default_rng(0), np.arange(POINTS)
    names = ["loss", *(f"layer{number // 10}/metric{number % 10}" for number in range(SERIES - 1))]
    for number in range(min(DISTINCT, runs)):
        log = LogWriter(folder / ".prototypes" / str(number), "live", tell=None, is_temporary=True)
        values = np.exp(-steps[:, None] / POINTS * rng.random(SERIES)) + 0.01 * rng.normal(size=(POINTS, SERIES))
        for step in range(POINTS):
            log.row("metric", dict(zip(names, values[step].tolist(), strict=True)), step * 10)
        log.close()
    for number in range(runs):
        run, log_folder = folder / f"run-{number:05d}", folder / ".prototypes" / str(number % DISTINCT) / "log" / "live"
        (run / "log" / "live").mkdir(parents=True)
        for file in log_folder.iterdir():
            os.link(file, run / "log" / "live" / file.name)
        (run / "run.json").write_text('{"format": "torcheer run", "version": 1, "made_by": "benchmark"}')
        config = {"lr": 10.0 ** -(1 + number % 4), "batch_size": 2 ** (3 + number % 5), "seed": number}
        (run / "spec.json").write_text(json.dumps({"train": config}))


def measure(folder: Path, runs: int) -> dict[str, float]:
    """Seconds of each part; `index` is the first reading of all runs, which later starts spare."""
    os.environ["TORCHEER_STATE"] = str(folder / ".state")
    generate(folder, runs)
    from torcheer.studio.connections.messages import Answer
    from torcheer.studio.runs.run_curves import RunCurves
    from torcheer.studio.runs.run_table import list_cells, list_columns
    from torcheer.studio.sources.open_source import open_catalog
    from torcheer.wire.json_codec import serialize

    began = time.process_time()
    index: Any = open_catalog(folder).index
    while index.waiting:
        index.refresh(index._paths, 60.0)
    took = {"index": time.process_time() - began}
    began = time.process_time()
    index = open_catalog(folder).index
    columns = list_columns(index)
    shown = ["Name", "Status", "Tags", "Folder", "Changed", "train.lr", "train.batch_size", "train.seed", "loss"]
    shown += ["layer0/metric0", "layer0/metric1"]
    answers = [serialize(Answer(1, columns)), serialize(Answer(2, list_cells(index, shown)))]
    took["list"] = time.process_time() - began
    began = time.process_time()
    answers.append(serialize(Answer(3, RunCurves(index).answer(range(min(100, runs)), ["loss"]))))
    took["curves"] = time.process_time() - began
    page = page_part(folder, answers)
    return took | {
        "filter": page["filter"],
        "list": took["list"] + page["list"],
        "curves": took["curves"] + page["curves"],
    }


def page_part(folder: Path, answers: list[str]) -> dict[str, float]:
    """The page's share, measured by its own code in Node: what it makes of the answers, in seconds."""
    for number, answer in enumerate(answers):
        (folder / f".answer{number}.json").write_text(answer)
    done = subprocess.run(
        ["node", str(ROOT / "web" / "bench.mjs"), *(str(folder / f".answer{number}.json") for number in range(3))],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    seconds: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return seconds


def rows(runs: int) -> list[list[str]]:
    """The parts of a folder of so many runs, as rows of a table."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, __file__, folder, str(runs)], capture_output=True, text=True, check=True
        )  # a process of its own: it begins without caches
    took: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    titles = {
        "index": "read all runs, once", "list": "list them", "filter": "filter and sort, the slowest of 5",
        "curves": "100 curves",
    }  # fmt: skip
    return [[f"{runs:,} runs × {SERIES:,} series", title, f"{took[part]:.2f} s", _judged(part, took[part], runs)]
            for part, title in titles.items()]  # fmt: skip


def _judged(part: str, secs: float, runs: int) -> str:
    limit = LIMITS_SECS.get(part)
    if limit is None or runs < FULL:
        return ""
    return f"≤{limit:g} s {'floor met' if secs <= limit else 'FLOOR MISSED'}"


if __name__ == "__main__":
    print(json.dumps(measure(Path(sys.argv[1]), int(sys.argv[2]))))
