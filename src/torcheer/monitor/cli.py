"""`torcheer watch`: what a watch has written so far, without torch."""

from __future__ import annotations

import argparse
import io
import json
import math
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from torcheer.runlog.watch_reader import Series, Watched, logs_in, open_watch, short
from torcheer.terminal import align, printable, shortened

_DROPPED = ("looks", "min", "max", "last mean", "variable")  # in this order, where there is no room
_LEAST_LAYER = 12


def main(command: str, arguments: Sequence[str]) -> int:
    """Run `torcheer watch …` and return its exit status."""
    chosen = _parser(command).parse_args(arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # names may hold what the terminal cannot show
    found = [open_watch(folder) for folder in logs_in(chosen.path) or [chosen.path]]
    if chosen.json:
        print(json.dumps([_as_json(one) for one in found], indent=1))
    else:
        print("\n".join(line for one in found for line in (_alerts(one) if chosen.alerts else _shown(one))))
    return 0


def _parser(command: str) -> argparse.ArgumentParser:
    about = "Print what a watch has found so far: the last, least and largest of every value, alerts, drops."
    parser = argparse.ArgumentParser(prog=f"torcheer {command}", description=about)
    path = "the folder that a watch writes to, or of a training run"
    parser.add_argument("path", type=Path, metavar="RUN_OR_FOLDER", help=path)
    parser.add_argument("--alerts", action="store_true", help="only what looked wrong, a line each")
    parser.add_argument("--json", action="store_true", help="everything as JSON: a list with an object for each log")
    return parser


def _shown(watched: Watched) -> list[str]:
    lines = [printable(repr(watched)[1:-1]), *(f"lost: {printable(problem)}" for problem in watched.problems)]
    if watched.account is not None and watched.account.missing:
        lines.append(printable(f"of {watched.account.offered:,} values {watched.account.missing}"))
    return [*lines, *_table([watched[key] for key in watched]), *_alerts(watched)]


def _alerts(watched: Watched) -> list[str]:
    return [printable(f"! {alert}") for alert in watched.alerts]


def _table(series: list[Series]) -> list[str]:
    """A line for each key; on a narrow terminal names are shortened and columns left out."""
    if not series:
        return []
    columns: dict[str, list[str]] = {
        "layer": [printable(one.layer) for one in series],
        "variable": [printable(one.variable) for one in series],
        "looks": [f"{len(one):,}" for one in series],
        "last mean": [short(one.mean[-1]) for one in series],
        "min": [short(np.fmin.reduce(one.minimum)) for one in series],
        "max": [short(np.fmax.reduce(one.maximum)) for one in series],
        "NaN, Inf": [f"{one.nans.sum() + one.infs.sum():,}" for one in series],
    }
    room, wide = _room(), {name: max(map(len, (name, *cells))) + 2 for name, cells in columns.items()}
    least = min(wide.pop("layer") - 2, _LEAST_LAYER)
    for name in _DROPPED:
        if sum(wide.values()) + least <= room:
            break
        del columns[name], wide[name]
    columns["layer"] = [shortened(cell, max(room - sum(wide.values()), least)) for cell in columns["layer"]]
    return align([tuple(columns), *zip(*columns.values(), strict=True)], left=1 + ("variable" in columns))


def _room() -> int:
    """How long a line may be: what the terminal has, and anything in a file or pipe."""
    known = sys.stdout.isatty() or "COLUMNS" in os.environ
    return shutil.get_terminal_size().columns if known else 1 << 20


def _as_json(watched: Watched) -> dict[str, Any]:
    account = watched.account
    kept = {} if account is None else asdict(account)
    if account is not None:
        kept["dropped"] = [[*key, count] for key, count in account.dropped.items()]
    return {
        "path": str(watched.path), "ended": watched.sealed, "problems": watched.problems,
        "series": [_series(watched[key]) for key in watched],
        "alerts": [_finite(asdict(alert)) for alert in watched.alerts],
        "account": kept or None,
    }  # fmt: skip


def _series(one: Series) -> dict[str, Any]:
    numbers = {
        "last_mean": one.mean[-1],
        "minimum": np.fmin.reduce(one.minimum),
        "maximum": np.fmax.reduce(one.maximum),
    }
    counts = {"looks": len(one), "first_step": one.steps[0], "last_step": one.steps[-1]}
    counts |= {"nans": one.nans.sum(), "infs": one.infs.sum()}
    found = {name: float(value) for name, value in numbers.items()} | {
        name: int(value) for name, value in counts.items()
    }
    return _finite({"layer": one.layer, "variable": one.variable, **found})  # type: ignore[no-any-return]


def _finite(value: Any) -> Any:
    """What JSON can carry: null for what is no number."""
    if isinstance(value, dict):
        return {name: _finite(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
