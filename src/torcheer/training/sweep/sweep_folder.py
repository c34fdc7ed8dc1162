"""What a sweep leaves behind: a run directory for each trial, how each has ended, and its results."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from torcheer.disk import read_json, write_file
from torcheer.errors import BadArgument
from torcheer.runlog.run_tables import logs
from torcheer.runlog.tables.metric_direction import better
from torcheer.terminal import did_you_mean, format_table, human_number, human_secs, line_width
from torcheer.training.sweep.sweep_grid import Trial

DONE: Final = "done"
STOPPED: Final = "stopped"  # by a scheduler, as not worth going on with
FAILED: Final = "failed"
INTERRUPTED: Final = "interrupted"  # by a signal to its process, or to the sweep; what it saved is where it resumes
BEGUN: Final = "not finished"
WAITING: Final = "not begun"
ENDED: Final = (DONE, STOPPED)  # not run again
_STATES: Final = ".sweep"  # a file for each trial that has ended


@dataclass(frozen=True, slots=True)
class Monitor:
    """The column by which trials are compared."""

    column: str
    mode: str  # "min" or "max"

    @classmethod
    def parse(cls, text: str) -> Monitor:
        """Parse "val loss", or "-x" where more of x is better and its name does not say so."""
        column = text.removeprefix("-")
        return cls(column, "max" if text.startswith("-") else better(column))

    def best(self, rows: Iterable[Mapping[str, Any]]) -> float:
        """Return the best value of any epoch; NaN where there is none."""
        values = [float(row[self.column]) for row in rows if isinstance(row.get(self.column), int | float)]
        numbers = [value for value in values if not math.isnan(value)]
        return (max if self.mode == "max" else min)(numbers, default=math.nan)


class SweepFolder:
    """The folder of a sweep."""

    def __init__(self, path: Path, trials: Sequence[Trial]) -> None:
        self.path, self.trials = path, list(trials)

    def home(self, trial: Trial) -> Path:
        """Return the run directory of a trial."""
        return self.path / trial.name

    def status(self, trial: Trial) -> str:
        """Return how a trial has ended, or how far it is."""
        state = read_json(self._state(trial))
        status = "" if state is None else str(state.get("status", ""))
        if status in (FAILED, INTERRUPTED) or (
            status and self.home(trial).is_dir()
        ):  # a folder that was removed is run again
            return status
        return BEGUN if (self.home(trial) / "spec.json").is_file() else WAITING

    def begin(self, trial: Trial) -> None:
        """Forget how a trial has ended before, as it runs again."""
        self._state(trial).unlink(missing_ok=True)

    def interruption(self, trial: Trial) -> str:
        """Return the words of a trial that a signal has stopped."""
        has_trained = (self.home(trial) / "checkpoints").is_dir()
        return f"stopped, {'with everything saved' if has_trained else 'before it trained'}"

    def end(self, trial: Trial, status: str, secs: float, problem: str = "") -> None:
        """Write down how a trial has ended."""
        state = {"status": status, "secs": round(secs, 1), "problem": problem, "values": dict(trial.values)}
        write_file(self._state(trial), json.dumps(state, indent=1) + "\n")

    def _state(self, trial: Trial) -> Path:
        return self.path / _STATES / f"{trial.name}.json"

    def problem(self, trial: Trial) -> str:
        """Return why a trial failed."""
        state = read_json(self._state(trial))
        return "" if state is None else str(state.get("problem", ""))

    def secs(self, trial: Trial) -> float:
        """Return how long the last run of a trial took; NaN where that is not known."""
        state = read_json(self._state(trial))
        return math.nan if state is None else float(state.get("secs", math.nan))

    def rows(self, trial: Trial) -> list[dict[str, Any]]:
        """Return the epochs of a trial so far."""
        home = self.home(trial)
        table = logs(home).get("train_epoch") if (home / "spec.json").is_file() else None
        return [] if table is None else list(table)

    def monitor(self, asked: str, config: Mapping[str, Any]) -> Monitor | None:
        """Return what trials are compared by: what was asked for, `keep_best`, or a loss; None without any column."""
        columns = list(dict.fromkeys(name for trial in self.trials for row in self.rows(trial)[:1] for name in row))
        numbers = [name for name in columns if name not in ("Epoch", "Step", "epoch")]
        if asked or config.get("keep_best"):
            found = Monitor.parse(asked or str(config["keep_best"]))
            if numbers and found.column not in numbers:
                hint = did_you_mean(found.column, numbers)
                raise BadArgument(
                    f"sweep: no trial has a column {found.column!r}; there are {', '.join(numbers)}.{hint}"
                )
            return found
        losses = [name for name in numbers if "loss" in name.lower()]
        validated = [name for name in losses if name.lower().startswith(("val", "test"))]
        chosen = [*validated, *losses, *numbers]
        return Monitor(chosen[0], better(chosen[0])) if chosen else None

    def table(self, monitor: Monitor | None) -> list[str]:
        """Return a line for each trial, the best first."""
        if monitor is None:
            return []
        results = [(trial, monitor.best(self.rows(trial))) for trial in self.trials]
        sign = -1 if monitor.mode == "max" else 1
        results.sort(key=lambda result: (math.isnan(result[1]), sign * result[1]))
        rows = [[*self.trials[0].values, f"best {monitor.column}", "epochs", "took", "status", "folder"]]
        for trial, value in results:
            secs = self.secs(trial)
            took = "–" if math.isnan(secs) else human_secs(secs)
            counted = [human_number(value), str(len(self.rows(trial))), took, self.status(trial), trial.name]
            rows.append([*trial.values.values(), *counted])
        left = len(self.trials[0].values)
        return format_table(rows, left, width=line_width(), shorten="folder", drop=("folder", "took"))
