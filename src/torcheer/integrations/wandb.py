"""W&B's own names, writing to a run folder of ours: `import torcheer.integrations.wandb as wandb`.

Nothing of wandb is loaded or needed, and nothing leaves the machine. `torcheer studio runs` shows the runs.
"""

from __future__ import annotations

import os
import re
import secrets
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torcheer.errors import BadArgument
from torcheer.integrations.outside_run import OutsideRun, say
from torcheer.integrations.wandb_run import Run, Settings
from torcheer.integrations.wandb_values import Audio, Histogram, Html, Image, Plots, Table
from torcheer.studio.runs.run_notes import RunNotes, write_notes
from torcheer.terminal import did_you_mean

__all__ = [
    "Audio", "Histogram", "Html", "Image", "Run", "Table", "alert", "config", "define_metric", "finish", "init", "log",
    "login", "plot", "run", "summary", "unwatch", "watch",
]  # fmt: skip

plot = Plots()
config: Settings
summary: Settings
run: Run | None
_RUNS: list[Run] = []  # the one that `log` writes to is the last
_INSTEAD = {
    "Artifact": "files stay where they are: note their path in wandb.config, or in summary",
    "save": "copy the file to wandb.run.dir",
    "Video": "tl.watch(model, video=True) films layers; wandb.Image keeps single frames",
    "sweep": "torcheer sweep CONFIG runs a grid", "agent": "torcheer sweep CONFIG runs a grid",
    "Api": "tl.load(folder) opens a run, torcheer.studio's list of runs compares many",
    "Object3D": "wandb.Image(figure) keeps a picture of it", "Molecule": "wandb.Image(figure) keeps a picture of it",
}  # fmt: skip


def init(
    entity: str | None = None, project: str | None = None, dir: str | os.PathLike[str] | None = None,
    id: str | None = None, name: str | None = None, notes: str | None = None, tags: Sequence[str] | None = None,
    config: Any = None, group: str | None = None, job_type: str | None = None, mode: str | None = None,
    resume: bool | str | None = None, **other: Any,
) -> Run:  # fmt: skip
    """Begin a run in `<dir>/<project>/<name or id>`; `dir` is "runs" where neither it nor WANDB_DIR says otherwise.

    `resume` goes on with the run of the same `id` (or `name`); without it that begins anew. mode="disabled" writes
    nothing. `tags`, `notes` and `group` stand in the list of runs; what else W&B takes is accepted without effect.
    """
    finish()
    unique = id or f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"
    home = Path(dir or os.environ.get("WANDB_DIR") or "runs") / _file_name(project or "uncategorized")
    folder = home / _file_name(id or name or unique)
    if mode == "disabled" or os.environ.get("WANDB_MODE") == "disabled":
        started = Run(None, name=name or unique, id=unique, project=project or "", config=config)
    else:
        started = _begin(folder, unique, name, project or "uncategorized", config, bool(resume))
        _note(folder, name if name and folder.name != name else "", tags or (), notes or "", group, job_type)
        say(f"this run writes to {folder}; see it with: torcheer studio {home.parent}")
    started.tags = tuple(tags or ())
    _RUNS.append(started)
    return started


def _begin(folder: Path, id: str, name: str | None, project: str, config: Any, resume: bool) -> Run:
    if not id or not folder.name:
        raise BadArgument(f"wandb.init: a run's id and name have letters or digits, unlike {id!r}")
    is_known = (folder / "run.json").is_file()
    if is_known and not resume and not (id == folder.name):  # W&B lets two runs have one name
        folder = folder.with_name(f"{folder.name}-{id}")
        is_known = False
    written = OutsideRun(folder, made_by="wandb", keep_until=None if resume else -1)
    step = written.last_step + 1 if is_known and resume else 0
    return Run(written, name=name or folder.name, id=id, project=project, config=config, step=step)


def _note(folder: Path, name: str, tags: Sequence[str], notes: str, group: str | None, job_type: str | None) -> None:
    words = [re.sub(r"[\s,]+", "-", str(tag))[:60] for tag in (*tags, *filter(None, (group, job_type)))]
    if (name or words or notes) and folder.is_dir():
        write_notes(folder, RunNotes(name[:200], tuple(dict.fromkeys(filter(None, words)))[:32], notes[:4000]))


def _file_name(name: str) -> str:
    return re.sub(r"[^\w.-]+", "-", name).strip("-.")[:100]


def log(data: Mapping[str, Any], step: int | None = None, commit: bool | None = None) -> None:
    """Log to the run that `init` began; see `Run.log`."""
    _current("log").log(data, step, commit)


def finish(exit_code: int | None = None, quiet: bool | None = None) -> None:
    """End the run; without one this does nothing."""
    if _RUNS:
        _RUNS.pop().finish(exit_code)


def define_metric(name: str, *arguments: Any, **options: Any) -> None:
    """Say what a metric's summary is; see `Run.define_metric`."""
    _current("define_metric").define_metric(name, *arguments, **options)


def watch(models: Any, *arguments: Any, **options: Any) -> Any:
    """Watch a model; see `Run.watch`."""
    return _current("watch").watch(models, *arguments, **options)


def unwatch(models: Any = None) -> None:
    """End the watch of a model."""
    _current("unwatch").unwatch(models)


def alert(title: str, text: str, *arguments: Any, **options: Any) -> None:
    """Add an alert to the run's; see `Run.alert`."""
    _current("alert").alert(title, text, *arguments, **options)


def login(*_: Any, **__: Any) -> bool:
    """Accept what W&B needs and we do not: nothing leaves this machine."""
    return True


def _current(name: str) -> Run:
    if not _RUNS or _RUNS[-1].finished:
        raise BadArgument(f"wandb.{name}: there is no run; wandb.init(project=…) begins one")
    return _RUNS[-1]


def __getattr__(name: str) -> Any:
    if name == "run":
        return _RUNS[-1] if _RUNS and not _RUNS[-1].finished else None
    if name in ("config", "summary"):
        return getattr(_current(name), name)
    instead = _INSTEAD.get(name) or f"there are {', '.join(__all__)}.{did_you_mean(name, __all__)}"
    raise AttributeError(f"torcheer.integrations.wandb has no {name!r}: {instead}")
