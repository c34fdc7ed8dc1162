"""What the callbacks of others' trainers share: a run that begins with training, sees its passes, and ends with it.

The hooks of each trainer stand in a class of their own, without the trainer's package; `published` joins them to its
base class when that is first asked for.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from torch import nn

from torcheer.errors import BadArgument
from torcheer.integrations.outside_run import OutsideRun
from torcheer.monitor.watch_settings import OPTIONS, SAID_BY_LOOPS
from torcheer.ranks import is_main
from torcheer.terminal import did_you_mean

_RUN_OPTIONS = tuple(OutsideRun.__init__.__kwdefaults__ or ())
_WATCH_OPTIONS = ("layers", *(name for name in OPTIONS if name not in {*SAID_BY_LOOPS, *_RUN_OPTIONS}))


class LoopRun:
    """A run and the watch of its model, opened on rank 0 when training begins.

    `options` are those of `OutsideRun` and of `tl.watch`; with `watch=False` the model is not watched.
    """

    def __init__(self, to: str | os.PathLike[str] | None, made_by: str, *, watch: bool = True, **options: Any) -> None:
        known = (*_RUN_OPTIONS, *_WATCH_OPTIONS)
        for name in options:
            if name not in known:
                raise BadArgument(
                    f"{made_by}: there is no option {name!r}; there are {', '.join(known)}.{did_you_mean(name, known)}"
                )
        self.to, self._made_by, self._watches = to, made_by, watch
        self._run_options = {name: value for name, value in options.items() if name in _RUN_OPTIONS}
        self._watch_options = {name: value for name, value in options.items() if name in _WATCH_OPTIONS}
        self.run: OutsideRun | None = None  # while training runs on this rank
        self.folder: Path | None = None  # of the run, also afterwards

    def open(self, folder: str | os.PathLike[str], config: Mapping[str, Any]) -> OutsideRun | None:
        """Open the run, in `to` or in this folder; None on other ranks than 0."""
        if self.run is None and is_main():
            settings = {**config, **self._run_options.get("config", {})}
            options = {name: value for name, value in self._run_options.items() if name != "config"}
            self.run = OutsideRun(self.to or folder, made_by=self._made_by, config=settings, **options)
            self.folder = self.run.folder
        return self.run

    def watch(self, model: nn.Module, step_of: Callable[[], int]) -> None:
        """Watch the model, whose trainer counts its steps."""
        if self.run is not None and self._watches and self.run.watched is None:
            self.run.watch(model, step_of=step_of, **self._watch_options)

    def finish(self, error: BaseException | str | None = None) -> None:
        """End the run."""
        run, self.run = self.run, None
        if run is not None:
            run.finish(error)


class LoopHooks:
    """The part of a callback that no trainer needs to be known for: its options, its run, the passes of its model."""

    made_by = ""

    def __init__(self, to: str | os.PathLike[str] | None = None, *, watch: bool = True, **options: Any) -> None:
        super().__init__()
        self._loop = LoopRun(to, self.made_by, watch=watch, **options)

    @property
    def folder(self) -> Path | None:
        """The run's folder."""
        return self._loop.folder

    @property
    def run(self) -> OutsideRun | None:
        """The run, while the trainer trains on this rank."""
        return self._loop.run

    def begin_pass(self, model: nn.Module | None) -> None:
        """Draw the model's network, as the pass shows it that begins now; only the first time."""
        if self.run is not None and model is not None:
            self.run.begin_pass(model)

    def end_pass(self) -> bool:
        """End the pass; True if an alert asks the training to stop."""
        if self.run is None:
            return False
        self.run.end_pass()
        return self.run.should_stop


def published(name: str, hooks: type, base: type) -> type:
    """Join hooks to a trainer's base class under a public name, by which copies of an object find it."""
    return type(name, (hooks, base), {"__module__": hooks.__module__, "__doc__": hooks.__doc__})


def published_names(
    module: str, packages: Sequence[str], makers: Mapping[str, Callable[[], type]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a module whose classes are made by `makers` when first asked for.

    `dir` and `help` show them where one of `packages`, which they need, is installed.
    """

    def find(name: str) -> Any:
        if name not in makers:
            raise AttributeError(f"module {module!r} has no attribute {name!r}; it has {', '.join(makers)}")
        return makers[name]()

    def names() -> list[str]:
        return sorted({*vars(sys.modules[module]), *(makers if any(map(find_spec, packages)) else ())})

    return find, names
