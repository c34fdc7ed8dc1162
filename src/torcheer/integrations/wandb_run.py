"""A run as W&B's scripts see it: `log`, `config`, `summary`, `finish`; it is an ordinary run folder of ours."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import Any

from torcheer.errors import BadArgument
from torcheer.integrations.loop_settings import plain_settings
from torcheer.integrations.metric_judge import is_number
from torcheer.integrations.outside_run import OutsideRun
from torcheer.integrations.wandb_values import Histogram, logged_value
from torcheer.terminal import did_you_mean, warn_or_print


class Settings(MutableMapping[str, Any]):
    """`config` and `summary`: items and attributes are the same; what changes them is written at once."""

    def __init__(self, changed: Callable[[Iterable[str]], None]) -> None:
        object.__setattr__(self, "_items", {})
        object.__setattr__(self, "_changed", changed)

    def __getitem__(self, name: str) -> Any:
        return self._items[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self.update({name: value})

    def __delitem__(self, name: str) -> None:
        del self._items[name]
        self._changed((name,))

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __getattr__(self, name: str) -> Any:
        if name in self._items:
            return self._items[name]
        raise AttributeError(f"there is no {name!r} among {', '.join(self) or 'none'}.{did_you_mean(name, self)}")

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def __repr__(self) -> str:
        return repr(self._items)

    def update(self, entries: Any = (), /, allow_val_change: Any = None, **more: Any) -> None:
        """Add or change several at once; a mapping, or a namespace such as argparse's."""
        if not isinstance(entries, Mapping):
            entries = dict(entries or ()) if _is_pairs(entries) else vars(entries)
        changed = {str(name): value for name, value in {**entries, **more}.items()}
        self._items.update(changed)
        self._changed(changed)

    def setdefaults(self, entries: Mapping[str, Any]) -> None:
        """Add those that are not there yet."""
        self.update({name: value for name, value in entries.items() if name not in self})

    def as_dict(self) -> dict[str, Any]:
        """All of them."""
        return dict(self._items)


class Run:
    """A run that logs as W&B's does: one row a step, `commit=False` or the same `step=` adds to it."""

    def __init__(self, run: OutsideRun | None, *, name: str, id: str, project: str, config: Any, step: int = 0) -> None:
        self.name, self.id, self.project, self.step = name, id, project, step
        self.tags: tuple[str, ...] = ()
        self.finished = False
        self._run = run  # None: disabled
        self._bests: list[tuple[str, str]] = []  # patterns of names, and what their summary is
        self.config, self.summary = Settings(self._configured), Settings(self._summarized)
        self._said: set[str] = set()  # what the script itself has put into the summary
        self.config.update(plain_settings(config or {}))

    @property
    def dir(self) -> str:
        """The run's folder."""
        return str(self._run.folder) if self._run is not None else ""

    @property
    def path(self) -> Path | None:
        """The same as a path; None where the run is disabled."""
        return self._run.folder if self._run is not None else None

    @property
    def alerts(self) -> list[Any]:
        """What the rules have found so far."""
        return list(self._run.alerts) if self._run is not None else []

    @property
    def disabled(self) -> bool:
        """True with mode="disabled": nothing is written."""
        return self._run is None

    def log(self, data: Mapping[str, Any], step: int | None = None, commit: bool | None = None) -> None:
        """Log values of a step; without `step`, of the current one, which ends unless `commit=False`."""
        if not isinstance(data, Mapping):
            raise BadArgument(f"wandb.log takes a dict of values, not a {type(data).__name__}")
        if step is not None:
            if step < self.step:
                text = f"wandb.log: step {step} is before {self.step}, and steps only grow: its values are left out"
                warn_or_print(f"torcheer: {text}", stacklevel=3)
                return
            self.step = int(step)
        if self._run is not None:
            self._write({str(name): value for name, value in data.items()}, self._run)
        if commit or (commit is None and step is None):
            self.step += 1

    def _write(self, data: Mapping[str, Any], run: OutsideRun) -> None:
        for name, value in data.items():
            if isinstance(value, Histogram) and value.counted is not None:
                counts, edges = value.counted
                run.histogram_counts(name, [float(edge) for edge in edges], [0.0, *map(float, counts)], self.step)
            elif isinstance(value, Histogram):
                run.histogram(name, value.numbers, self.step)
        values = {name: logged_value(value) for name, value in data.items() if not isinstance(value, Histogram)}
        run.log(values, self.step)
        self._note_bests(values)

    def _note_bests(self, values: Mapping[str, Any]) -> None:
        """Keep the last of each number, or the best where `define_metric` said which that is."""
        for name, value in values.items():
            if not is_number(value) or name in self._said or getattr(value, "is_cuda", False):
                continue
            number = float(value) if not isinstance(value, int) else value
            before, best = self.summary._items.get(name, number), {"min": min, "max": max}.get(self._best_of(name))
            self.summary._items[name] = best(before, number) if best is not None else number

    def _best_of(self, name: str) -> str:
        return next((kind for pattern, kind in self._bests if fnmatch.fnmatchcase(name, pattern)), "")

    def define_metric(
        self, name: str, step_metric: Any = None, step_sync: Any = None, hidden: Any = None, summary: str | None = None,
        goal: str | None = None, **_: Any,
    ) -> None:  # fmt: skip
        """Say what a metric's summary is: "min", "max", "best" (with `goal=`) or "last"; the rest is accepted."""
        wanted = (summary or "").split(",")[0]
        wanted = {"best": {"maximize": "max"}.get(goal or "", "min")}.get(wanted, wanted)
        if wanted in ("min", "max"):
            self._bests.append((name, wanted))

    def watch(self, models: Any, criterion: Any = None, log: Any = "gradients", log_freq: int = 1000, **_: Any) -> Any:
        """Watch a model as `tl.watch` does, every `log_freq` of its steps; rules and statistics are ours."""
        models = models if isinstance(models, list | tuple) else [models]
        if len(models) != 1:
            raise BadArgument("wandb.watch: one model a run; nn.ModuleDict makes one of several")
        what = {"gradients": ("grad", "weight_grad"), "parameters": ("weight", "update")}
        parts = what.get(log, ("output", "grad", "weight", "weight_grad", "update"))
        return None if self._run is None else self._run.watch(models[0], what=parts, every=log_freq)

    def unwatch(self, models: Any = None) -> None:
        """End the watch."""
        if self._run is not None and self._run.watched is not None:
            self._run.watched.close()

    def alert(self, title: str, text: str, level: Any = "WARN", wait_duration: Any = None) -> None:
        """Add an alert to the run's."""
        severity = {"INFO": "info", "ERROR": "error"}.get(str(getattr(level, "value", level)).upper(), "warning")
        if self._run is not None:
            self._run.alert(text, severity, title=title)

    def finish(self, exit_code: int | None = None, quiet: bool | None = None) -> None:
        """End the run; with an exit code other than 0, as failed."""
        self._end(f"exit code {exit_code}" if exit_code else None)

    def _end(self, error: BaseException | str | None) -> None:
        self.finished = True
        if self._run is not None and not self._run.closed:
            self._summarize()
            self._run.finish(error)

    def __enter__(self) -> Run:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, _: Any) -> None:
        self._end(error)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"a run of torcheer has no {name!r}; it has alert, config, define_metric, dir, finish, id, log, name, "
            f"step, summary, watch.{did_you_mean(name, dir(type(self)))}"
        )

    def _configured(self, _: Iterable[str]) -> None:
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


def _is_pairs(entries: Any) -> bool:
    return isinstance(entries, list | tuple) or not hasattr(entries, "__dict__")
