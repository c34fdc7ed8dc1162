"""A run as W&B's scripts see it: `log`, `config`, `summary`, `finish`; it is an ordinary run folder of ours."""

from __future__ import annotations

import fnmatch
import operator
import os
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from torch import nn

from torcheer.integrations.loop_settings import plain_settings
from torcheer.integrations.metric_judge import is_number
from torcheer.integrations.outside_run import OutsideRun, flat_names
from torcheer.integrations.wandb_parts.wandb_errors import Error, UsageError, WrongType
from torcheer.integrations.wandb_parts.wandb_files import Artifact, SavedFiles, find_artifact
from torcheer.integrations.wandb_parts.wandb_names import NO_EFFECT, RUN_INSTEAD
from torcheer.integrations.wandb_parts.wandb_settings import Config, Summary
from torcheer.integrations.wandb_parts.wandb_values import Histogram, Value, logged_value
from torcheer.studio.runs.run_notes import RunNotes, write_notes
from torcheer.terminal import did_you_mean, warn_or_print
from torcheer.vocabulary.variables import GRADIENTS, WATCHED

_SUMMARIES: Final = ("min", "max", "mean", "best", "last", "first", "copy", "none")
_WATCHED: Final = {
    "gradients": GRADIENTS, "parameters": ("weight", "update"),
    "all": WATCHED, None: ("output",),
}  # fmt: skip


@dataclass
class RunFacts:
    """What is said of a run as a whole."""

    name: str
    id: str
    project: str
    entity: str = ""
    group: str = ""
    job_type: str = ""
    notes: str = ""
    tags: tuple[str, ...] = ()
    resumed: bool = False
    settings: Any = field(default_factory=SimpleNamespace)


class Run:
    """A run that logs as W&B's does: one row a step, `commit=False` or the same `step=` adds to it."""

    name: str  # these are `RunFacts`; name, notes and tags can be set
    id: str
    project: str
    entity: str
    group: str
    job_type: str
    notes: str
    tags: tuple[str, ...]
    resumed: bool
    settings: Any
    url = project_url = sweep_id = sweep_url = None  # of a server

    def __init__(
        self, run: OutsideRun | None, facts: RunFacts, config: Any, *, step: int = 0, allow_val_change: bool = False
    ) -> None:
        self._run, self._facts = run, facts  # without a run: disabled
        self.step = self.starting_step = step
        self.start_time = time.time()
        self.finished = False
        self._bests: list[tuple[str, str]] = []  # patterns of names, and what their summary is
        self._said: set[str] = set()  # what the script itself has put into the summary
        self._files = SavedFiles(Path(self.dir)) if run is not None else None
        self.config = Config(self._configured, allow_val_change)
        self.summary = Summary(self._summarized)
        self.config.update(plain_settings(config or {}))
        self._write_notes()

    # -- what is said of it --------------------------------------------------------------------------------------------

    @property
    def dir(self) -> str:
        """The folder for the script's own files, below the run's."""
        if self._run is None:
            return ""
        folder = self._run.folder / "files"
        folder.mkdir(exist_ok=True)
        return str(folder)

    @property
    def sync_dir(self) -> str:
        """The run's folder."""
        return str(self._run.folder) if self._run is not None else ""

    @property
    def path(self) -> str:
        """Its project and id."""
        return "/".join(filter(None, (self._facts.entity, self.project, self.id)))

    @property
    def alerts(self) -> list[Any]:
        """What the rules have found so far."""
        return list(self._run.alerts) if self._run is not None else []

    @property
    def disabled(self) -> bool:
        """True with mode="disabled": nothing is written."""
        return self._run is None

    @property
    def config_static(self) -> Config:
        """The settings."""
        return self.config

    @property
    def offline(self) -> bool:
        """Always: nothing leaves the machine."""
        return True

    def _write_notes(self) -> None:
        """Keep name, tags and notes where the list of runs shows them; group and job type are tags there."""
        facts = self._facts
        words = [re.sub(r"[\s,]+", "-", str(tag))[:60] for tag in (*facts.tags, facts.group, facts.job_type) if tag]
        tags = tuple(dict.fromkeys(filter(None, words)))[:32]
        if self._run is not None:
            name = facts.name if facts.name != self._run.folder.name else ""
            notes = RunNotes(name[:200].replace("\n", " "), tags, facts.notes[:4000])
            if notes != RunNotes() or self._facts.resumed:
                write_notes(self._run.folder, notes)

    # -- logging -------------------------------------------------------------------------------------------------------

    def log(self, data: Mapping[str, Any], step: int | None = None, commit: bool | None = None) -> None:
        """Log values of a step; without `step`, of the current one, which ends unless `commit=False`."""
        self._check_open("log")
        if not isinstance(data, Mapping):
            raise WrongType(f"wandb.log takes a dict of values, not a {type(data).__name__}")
        if wrong := [name for name in data if not isinstance(name, str)]:
            raise WrongType(f"wandb.log: names are texts, unlike {wrong[0]!r}")
        if step is not None:
            step = operator.index(step)
            if step < self.step:
                text = f"wandb.log: step {step} is before {self.step}, and steps only grow: its values are left out"
                warn_or_print(f"torcheer: {text}")
                return
            self.step = step
        if self._run is not None:
            self._write(dict(data), self._run)
        if commit or (commit is None and step is None):
            self.step += 1

    def _write(self, data: Mapping[str, Any], run: OutsideRun) -> None:
        data = flat_names(data)
        for name, value in data.items():
            if isinstance(value, Histogram) and value.counted is not None:
                run.histogram_counts(name, value.bins, [0.0, *value.histogram], self.step)
            elif isinstance(value, Histogram):
                run.histogram(name, value.numbers, self.step)
            for part in value if isinstance(value, list | tuple) else [value]:
                for text in part.left_out if isinstance(part, Value) else ():
                    run.report(text)
        values = {name: logged_value(value) for name, value in data.items() if not isinstance(value, Histogram)}
        run.log(values, self.step)
        self._note_last(values)

    def _note_last(self, values: Mapping[str, Any]) -> None:
        """Keep the last of each value, or the best where `define_metric` said which that is."""
        for name, value in values.items():
            if name in self._said or getattr(value, "is_cuda", False):
                continue
            elif isinstance(value, str | bool):
                self.summary._items[name] = value
            elif is_number(value):
                value = value.detach() if hasattr(value, "detach") else value  # torch warns of a gradient otherwise
                number = float(value) if not isinstance(value, int) else value
                before, best = self.summary._items.get(name, number), {"min": min, "max": max}.get(self._best_of(name))
                self.summary._items[name] = best(before, number) if best is not None else number

    def _best_of(self, name: str) -> str:
        return next((kind for pattern, kind in self._bests if fnmatch.fnmatchcase(name, pattern)), "")

    def define_metric(
        self, name: str, step_metric: Any = None, step_sync: Any = None, hidden: Any = None, summary: str | None = None,
        goal: str | None = None, overwrite: bool | None = None,
    ) -> SimpleNamespace:  # fmt: skip
        """Say what a metric's summary is: "min", "max", "best" (with `goal=`), "last". The x axis is the step."""
        self._check_open("define_metric")
        if not isinstance(name, str) or "*" in name.removesuffix("*"):
            raise Error(f"wandb.define_metric: a name, or the beginning of one and '*', unlike {name!r}")
        kinds = [kind.strip() for kind in (summary or "").split(",") if kind.strip()]
        if wrong := [kind for kind in kinds if kind not in _SUMMARIES]:
            raise Error(f"wandb.define_metric: no summary {wrong[0]!r}; there are {', '.join(_SUMMARIES)}")
        for kind in kinds[:1]:
            kind = {"best": {"maximize": "max"}.get(goal or "", "min")}.get(kind, kind)
            if kind in ("min", "max"):
                self._bests.append((name, kind))
            elif kind not in ("last", "none", "copy"):
                self._tell(f"wandb.define_metric: summary={kind!r} is not kept: that of {name} is its last value")
        if step_metric is not None:
            self._tell(
                "wandb.define_metric: step_metric= has no effect; the studio's Plots tab has an x axis to choose"
            )
        return SimpleNamespace(name=name, step_metric=step_metric, summary=summary, hidden=hidden, goal=goal)

    def alert(self, title: str, text: str, level: Any = "WARN", wait_duration: Any = None) -> None:
        """Add an alert to the run's."""
        self._check_open("alert")
        wanted = str(getattr(level, "value", level) or "INFO").upper()
        if wanted not in (severities := {"INFO": "info", "WARN": "warning", "ERROR": "error"}):
            raise Error(f"wandb.alert: no level {level!r}; there are INFO, WARN, ERROR")
        if self._run is not None:
            self._run.alert(text, severities[wanted], title=title)

    # -- the model -----------------------------------------------------------------------------------------------------

    def watch(
        self, models: Any, criterion: Any = None, log: str | None = "gradients", log_freq: int = 1000,
        idx: int | None = None, log_graph: bool = False,
    ) -> Any:  # fmt: skip
        """Watch a model as `tl.watch` does, every `log_freq` of its steps; rules and statistics are ours."""
        self._check_open("watch")
        models = list(models) if isinstance(models, list | tuple) else [models]
        for model in models:
            if not isinstance(model, nn.Module):
                raise WrongType(f"wandb.watch: a model of torch, not a {type(model).__name__}")
        if log not in _WATCHED:
            raise Error(f"wandb.watch: log={log!r}; there are 'gradients', 'parameters', 'all', None")
        if self._run is None or not models:
            return None
        is_watching = self._run.watched is not None and not self._run.watched.closed
        if is_watching or len(models) > 1:
            self._tell("wandb.watch: a run watches one model, the first; of others nothing is kept. A module that "
                       "calls both is watched as one")  # fmt: skip
        return self._run.watched if is_watching else self._run.watch(models[0], what=_WATCHED[log], every=log_freq)

    def unwatch(self, models: Any = None) -> None:
        """End the watch."""
        if self._run is not None and self._run.watched is not None:
            self._run.watched.close()

    # -- files ---------------------------------------------------------------------------------------------------------

    def save(
        self, glob_str: str | os.PathLike[str], base_path: str | os.PathLike[str] | None = None, policy: str = "live",
        glob: bool = True,
    ) -> list[str]:  # fmt: skip
        """Copy files to `run.dir`, and again at the run's end unless `policy="now"`."""
        self._check_open("save")
        return self._files.save(glob_str, base_path, policy) if self._files is not None else []

    def log_artifact(
        self, artifact_or_path: Any, name: str | None = None, type: str | None = None,
        aliases: Sequence[str] | None = None, tags: Any = None,
        distributed_id: str | None = None,
    ) -> Artifact:  # fmt: skip
        """Copy an artifact, a file or a folder to the run's folder, as the next version of its name."""
        self._check_open("log_artifact")
        artifact = artifact_or_path
        if not isinstance(artifact, Artifact):
            path = Path(artifact_or_path)
            artifact = Artifact(name or f"run-{self.id}-{path.name}", type or "unspecified")
            (artifact.add_dir if path.is_dir() else artifact.add_file)(path)
        if self._run is not None:
            artifact.log_into(self._run.folder, aliases)
        return artifact

    upsert_artifact = finish_artifact = log_artifact

    def log_model(self, path: str | os.PathLike[str], name: str | None = None, aliases: Any = None) -> None:
        """Keep a model's file or folder as an artifact of the type "model"."""
        self.log_artifact(path, name, "model", aliases)

    def log_code(self, root: str | None = ".", name: str | None = None, include_fn: Any = None, **_: Any) -> Artifact:
        """Keep the Python files below a folder as an artifact of the type "code"."""
        artifact = Artifact(name or re.sub(r"[^\w.-]+", "-", f"source-{self.project}"), "code")
        home = Path(self.sync_dir).resolve()
        for file in sorted(Path(root or ".").rglob("*")):
            is_code = file.suffix == ".py" if include_fn is None else include_fn(str(file))
            if is_code and file.is_file() and not file.resolve().is_relative_to(home):
                artifact.add_file(file, str(file.relative_to(root or ".")))
        return self.log_artifact(artifact)

    def use_artifact(self, artifact_or_name: Any, *_: Any, **__: Any) -> Artifact:
        """Find an artifact that a run of this project has logged: "name", "name:latest", "name:v3"."""
        if isinstance(artifact_or_name, Artifact):
            return artifact_or_name
        if self._run is None:
            raise Error("wandb.use_artifact: a disabled run keeps none, and finds none")
        return find_artifact(self._run.folder.parent, str(artifact_or_name))

    def use_model(self, name: str) -> str:
        """The path of a model that `log_model` kept."""
        artifact = self.use_artifact(name)
        return artifact.file() if len(artifact.files()) == 1 else artifact.download()

    # -- the end -------------------------------------------------------------------------------------------------------

    def finish(self, exit_code: int | None = None, quiet: bool | None = None) -> None:
        """End the run; with an exit code other than 0, as failed."""
        self._end(f"exit code {exit_code}" if exit_code else None)

    def _end(self, error: BaseException | str | None) -> None:
        if self._run is not None and not self._run.closed:
            if self._files is not None and not self.finished:
                self._files.close()
            self._summarize()
            self._run.finish(error)
        self.finished = True

    def __enter__(self) -> Run:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, _: Any) -> None:
        self._end(error)

    def _check_open(self, name: str) -> None:
        if self.finished:
            raise UsageError(f"wandb.{name}: the run {self.id} has ended; wandb.init(…) begins another")

    def _tell(self, text: str) -> None:
        if self._run is not None:
            self._run.report(text)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"a run of torcheer has no {name!r}")
        if name in NO_EFFECT:
            self._tell(f"run.{name} has no effect: {NO_EFFECT[name]}")
            return lambda *_, **__: None
        if name in vars(self._facts):
            return getattr(self._facts, name)
        names = [each for each in (*dir(type(self)), *vars(self._facts)) if not each.startswith("_")]
        there = f"it has {', '.join(names)}.{did_you_mean(name, names)}"
        raise AttributeError(f"a run of torcheer has no {name!r}: {RUN_INSTEAD.get(name) or there}")

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("name", "notes", "tags"):  # W&B's own setters
            setattr(self._facts, name, tuple(map(str, value)) if name == "tags" else str(value or ""))
            self._write_notes()
            return
        object.__setattr__(self, name, value)

    def _configured(self, _: Iterable[str]) -> None:
        if "config" in vars(self):
            self._check_open("config")
        if self._run is not None and "config" in vars(self):
            self._run.configure(self.config.as_dict())

    def _summarized(self, names: Iterable[str]) -> None:
        self._said |= set(names)
        self._summarize()

    def _summarize(self) -> None:
        """Write what is not simply the last number of its column."""
        kept = {name: value for name, value in self.summary.items() if name in self._said or self._best_of(name)}
        if self._run is not None:
            self._run.summarize(kept)
