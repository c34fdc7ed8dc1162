"""The command `torcheer watch`: print what a watch has written so far, without torch."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from torcheer.runlog.media.logged_samples import LoggedSample
from torcheer.runlog.watch_reader import Series, Watched, logs_in, open_watch
from torcheer.terminal import folded, format_table, human_number, line_width, printable
from torcheer.terminal.command_parser import CommandParser

_DROPPED = ("looks", "min", "max", "last mean", "variable")  # left out in this order on a narrow terminal


def main(command: str, arguments: Sequence[str]) -> int:
    """Run `torcheer watch …` and return its exit status."""
    options = make_parser(command).parse_args(arguments)
    watches = [open_watch(folder) for folder in logs_in(options.path) or [options.path]]
    if options.json:
        print(json.dumps([_as_json(watched) for watched in watches], indent=1))
    else:
        print(
            "\n".join(
                line for watched in watches for line in (_alerts(watched) if options.alerts else _overview(watched))
            )
        )
    return 0


def make_parser(command: str) -> argparse.ArgumentParser:
    """Return the parser of a command."""
    description = "Print the log of a watch: last, minimum and maximum of every value, alerts, drops."
    parser = CommandParser(prog=f"torcheer {command}", description=description)
    path = "folder of a watch or a training run"
    parser.add_argument("path", type=Path, metavar="RUN_OR_FOLDER", help=path)
    parser.add_argument("--alerts", action="store_true", help="only alerts, one per line")
    parser.add_argument("--json", action="store_true", help="print JSON: a list with one object per log")
    return parser


def _overview(watched: Watched) -> list[str]:
    lines = [printable(repr(watched)[1:-1]), *(f"lost: {printable(problem)}" for problem in watched.problems)]
    if watched.account is not None and watched.account.missing:
        lines.append(printable(f"of {watched.account.offered:,} values {watched.account.missing}"))
    logged = watched.samples().lines()
    lines += _table([watched[key] for key in watched])
    if logged:
        lines += ["logged", *(f"  {printable(line)}" for line in format_table(logged, left=3, width=line_width() - 2))]
    return [*lines, *_ranks(watched), *_alerts(watched)]


def _ranks(watched: Watched) -> list[str]:
    """A line for each rank of a run of several processes."""
    rows: list[tuple[str, ...]] = [("rank", "step", "a step", "forward", "between", "")]
    for row in watched.board.rows:
        times = (
            "–" if secs is None else f"{human_number(secs)} s"
            for secs in (row.step_secs, row.forward_secs, row.wait_secs)
        )
        note = ", ".join(filter(None, (row.differs, "the others wait for it" if row.is_slow else "")))
        rows.append((str(row.rank), f"{row.step:,}" if row.step >= 0 else "–", *times, printable(note)))
    return format_table(rows, left=0, width=line_width()) if len(rows) > 1 else []


def _alerts(watched: Watched) -> list[str]:
    return [folded(printable(f"! {alert}"), sys.stdout) for alert in watched.alerts]


def _table(series: list[Series]) -> list[str]:
    """One line per key; on a narrow terminal names are shortened and columns left out."""
    if not series:
        return []
    columns: dict[str, list[str]] = {
        "layer": [entry.layer for entry in series],
        "variable": [entry.variable for entry in series],
        "looks": [f"{len(entry):,}" for entry in series],
        "last mean": [human_number(entry.mean[-1]) for entry in series],
        "min": [human_number(np.fmin.reduce(entry.minimum)) for entry in series],
        "max": [human_number(np.fmax.reduce(entry.maximum)) for entry in series],
        "NaN, Inf": [f"{entry.nans.sum() + entry.infs.sum():,}" for entry in series],
    }
    rows = [tuple(columns), *zip(*columns.values(), strict=True)]
    return format_table(rows, left=2, width=line_width(), shorten="layer", drop=_DROPPED)


def _as_json(watched: Watched) -> dict[str, Any]:
    account = watched.account
    counts = {} if account is None else asdict(account)
    if account is not None:
        counts["dropped"] = [[*key, count] for key, count in account.dropped.items()]
    return {
        "path": str(watched.path), "ended": watched.sealed, "problems": watched.problems,
        "series": [_series(watched[key]) for key in watched],
        "samples": [_sample(sample) for sample in watched.samples()],
        "alerts": [_finite(asdict(alert)) for alert in watched.alerts],
        "ranks": [_finite(asdict(row)) for row in watched.board.rows],
        "account": counts or None,
    }  # fmt: skip


def _sample(sample: LoggedSample) -> dict[str, Any]:
    facts = {name: getattr(sample, name) for name in ("name", "kind", "step", "item", "time_secs", "caption")}
    return facts | {"shape": list(sample.shape)}


def _series(series: Series) -> dict[str, Any]:
    numbers = {
        "last_mean": series.mean[-1],
        "minimum": np.fmin.reduce(series.minimum),
        "maximum": np.fmax.reduce(series.maximum),
    }
    counts = {"looks": len(series), "first_step": series.steps[0], "last_step": series.steps[-1]}
    counts |= {"nans": series.nans.sum(), "infs": series.infs.sum()}
    values = {name: float(value) for name, value in numbers.items()} | {
        name: int(value) for name, value in counts.items()
    }
    return _finite({"layer": series.layer, "variable": series.variable, **values})  # type: ignore[no-any-return]


def _finite(value: Any) -> Any:
    """Replace NaN and infinities by None, as JSON has no such numbers."""
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
