"""W&B's own names, writing to a run folder of ours: `import torcheer.integrations.wandb as wandb`.

Nothing of wandb is loaded or needed, and nothing leaves the machine. `torcheer studio runs` shows the runs.
"""

from __future__ import annotations

import enum
import os
import re
import secrets
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from torcheer.integrations.outside_run import OutsideRun, say
from torcheer.integrations.wandb_parts import wandb_errors as errors
from torcheer.integrations.wandb_parts.wandb_errors import CommError, Error, UsageError
from torcheer.integrations.wandb_parts.wandb_files import Artifact
from torcheer.integrations.wandb_parts.wandb_names import INSTEAD, NO_EFFECT
from torcheer.integrations.wandb_parts.wandb_run import Run, RunFacts
from torcheer.integrations.wandb_parts.wandb_settings import Config
from torcheer.integrations.wandb_parts.wandb_values import Audio, Histogram, Html, Image, Plots, Table, Video
from torcheer.terminal import did_you_mean

__all__ = [
    "AlertLevel", "Artifact", "Audio", "CommError", "Config", "Error", "Histogram", "Html", "Image", "Run", "Settings",
    "Table", "UsageError", "Video", "alert", "config", "define_metric", "errors", "finish", "init", "join", "log",
    "log_artifact", "log_model", "login", "plot", "plot_table", "run", "save", "summary", "termerror", "termlog",
    "termwarn", "unwatch", "use_artifact", "use_model", "watch",
]  # fmt: skip

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")
_MODES: Final = ("online", "offline", "disabled", "shared", "dryrun", "run")
_RESUMES: Final = (True, False, None, "allow", "must", "never", "auto")
_FORBIDDEN: Final = re.compile(r"[:;,#?/']")  # in an id
_UNUSED: Final = {  # options of `init` that a script means, and that have no effect here
    "fork_from": "a run is not forked: copy its folder, and resume the copy",
    "resume_from": "a run is not rewound; SummaryWriter(purge_step=…) is",
    "sync_tensorboard": "torcheer.integrations.tensorboard.SummaryWriter writes runs of its own",
    "tensorboard": "torcheer.integrations.tensorboard.SummaryWriter writes runs of its own",
    "save_code": "run.log_code() keeps the Python files",
    "monitor_gym": "films of environments are not kept",
}

plot = Plots()
plot_table = Plots.plot_table
config: Config
summary: Config
run: Run | None
_RUNS: list[Run] = []  # the one that `log` writes to is the last


class AlertLevel(enum.Enum):
    """How grave an alert is."""

    INFO = "INFO"
    WARN = "WARN"
    ERROR = "ERROR"


class Settings(SimpleNamespace):
    """W&B's settings by name: `mode`, `run_id`, `run_name`, … are heeded by `init`, the others have no effect."""


def init(
    entity: str | None = None, project: str | None = None, dir: str | os.PathLike[str] | None = None,
    id: str | None = None, name: str | None = None, notes: str | None = None, tags: Sequence[str] | None = None,
    config: Any = None, config_exclude_keys: Sequence[str] | None = None,
    config_include_keys: Sequence[str] | None = None, allow_val_change: bool | None = None, group: str | None = None,
    job_type: str | None = None, mode: str | None = None, force: bool | None = None, reinit: bool | str | None = None,
    resume: bool | str | None = None, resume_from: str | None = None, fork_from: str | None = None,
    save_code: bool | None = None, tensorboard: bool | None = None, sync_tensorboard: bool | None = None,
    monitor_gym: bool | None = None, settings: Any = None, anonymous: Any = None,
) -> Run:  # fmt: skip
    """Begin a run in `<dir>/<project>/<name or id>`; `dir` is "runs" where neither it nor WANDB_DIR says otherwise.

    A run that has not ended is returned again, as W&B does, unless `reinit` says otherwise. `resume` goes on with the
    run of the same `id` (or `name`); without it that begins anew. mode="disabled" writes nothing. `tags`, `notes`,
    `group` and `job_type` stand in the list of runs.
    """
    if _RUNS and not _RUNS[-1].finished and reinit in (None, False, "default", "return_previous"):
        return _RUNS[-1]
    if reinit != "create_new":
        finish()
    chosen = vars(settings) if isinstance(settings, Settings) else dict(settings or {})
    mode = mode or chosen.get("mode") or os.environ.get("WANDB_MODE") or "offline"
    id, name = chosen.get("run_id") or id, chosen.get("run_name") or name
    facts = _facts(id, name, project, tags)
    facts.notes, facts.entity = notes or "", entity or ""
    facts.group, facts.job_type, facts.settings = group or "", job_type or "", SimpleNamespace(**chosen)
    _check(mode, resume, facts)
    is_disabled = mode == "disabled"
    kept = _kept_settings(config, config_exclude_keys, config_include_keys)
    home = Path(dir or os.environ.get("WANDB_DIR") or "runs")
    folder = home / _file_name(facts.project) / _folder_name(id or name or facts.id)
    started = _begin(None if is_disabled else folder, facts, kept, resume, bool(allow_val_change))
    unused = {"fork_from": fork_from, "resume_from": resume_from, "save_code": save_code, "monitor_gym": monitor_gym,
              "sync_tensorboard": sync_tensorboard, "tensorboard": tensorboard}  # fmt: skip
    for option, value in unused.items():
        if value:
            started._tell(f"wandb.init: {option}= has no effect: {_UNUSED[option]}")
    if not is_disabled:
        say(f"this run writes to {started.sync_dir}; see it with: torcheer studio {home}")
    if reinit != "create_new" or not _RUNS:
        _RUNS.append(started)
    return started


def _facts(id: str | None, name: str | None, project: str | None, tags: Any) -> RunFacts:
    unique = id or f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"
    words = (tags,) if isinstance(tags, str) else tuple(map(str, tags or ()))
    return RunFacts(name or "", unique, project or "uncategorized", tags=words)


def _check(mode: str, resume: Any, facts: RunFacts) -> None:
    if mode not in _MODES:
        raise Error(f"wandb.init: no mode {mode!r}; there are {', '.join(_MODES)}")
    if resume not in _RESUMES:
        raise Error(f"wandb.init: resume={resume!r}; there are True, 'allow', 'must', 'never', 'auto'")
    if _FORBIDDEN.search(facts.id):
        raise UsageError(f"wandb.init: an id has none of the characters :;,#?/' unlike {facts.id!r}")
    if long := [tag for tag in facts.tags if not 1 <= len(tag) <= 64]:
        raise Error(f"wandb.init: a tag has 1 to 64 characters, and {long[0][:20]!r} {len(long[0])}")


def _kept_settings(config: Any, without: Sequence[str] | None, only: Sequence[str] | None) -> Any:
    if isinstance(config, str | os.PathLike):
        raise Error("wandb.init: config= is a dict here; read the file yourself")
    if not isinstance(config, Mapping) or not (without or only):
        return config
    return {name: value for name, value in config.items() if name not in (without or ()) and (not only or name in only)}


def _folder_name(given: str) -> str:
    if not (name := _file_name(given)):
        raise UsageError(f"wandb.init: a run's id and name have letters or digits, unlike {given!r}")
    return name


def _begin(folder: Path | None, facts: RunFacts, config: Any, resume: Any, allow_val_change: bool) -> Run:
    if folder is None:
        facts.name = facts.name or facts.id
        return Run(None, facts, config, allow_val_change=allow_val_change)
    is_known = (folder / "run.json").is_file()
    if resume == "must" and not is_known:
        raise UsageError(f"wandb.init: resume='must', and there is no run in {folder}")
    if resume == "never" and is_known:
        raise UsageError(f"wandb.init: resume='never', and {folder} has a run of this id")
    goes_on = resume in (True, "allow", "must", "auto")
    if is_known and not goes_on and facts.id != folder.name:  # W&B lets two runs have one name
        folder, is_known = folder.with_name(f"{folder.name}-{facts.id}"), False
    written = OutsideRun(folder, made_by="wandb", keep_until=None if goes_on else -1)
    facts.name, facts.resumed = facts.name or folder.name, is_known and goes_on
    step = written.last_step + 1 if facts.resumed else 0
    return Run(written, facts, config, step=step, allow_val_change=allow_val_change or facts.resumed)


def _file_name(name: str) -> str:
    return re.sub(r"[^\w.-]+", "-", name).strip("-.")[:100]


def finish(exit_code: int | None = None, quiet: bool | None = None) -> None:
    """End the run; without one this does nothing."""
    if _RUNS:
        _RUNS.pop().finish(exit_code)


join = finish


def _of_run(method: Callable[Concatenate[Run, _Parameters], _Result]) -> Callable[_Parameters, _Result]:
    """A method of `Run` as a function: of the run that `init` began."""

    @wraps(method)
    def function(*arguments: _Parameters.args, **options: _Parameters.kwargs) -> _Result:
        return method(_current(method.__name__), *arguments, **options)

    function.__module__ = __name__
    return function


log = _of_run(Run.log)
define_metric = _of_run(Run.define_metric)
watch = _of_run(Run.watch)
unwatch = _of_run(Run.unwatch)
alert = _of_run(Run.alert)
save = _of_run(Run.save)
log_artifact = _of_run(Run.log_artifact)
log_model = _of_run(Run.log_model)
use_artifact = _of_run(Run.use_artifact)
use_model = _of_run(Run.use_model)


def login(*_: Any, **__: Any) -> bool:
    """Accept what W&B needs and we do not: nothing leaves this machine."""
    return True


def termlog(string: str = "", newline: bool = True, repeat: bool = True, prefix: bool = True) -> None:
    """Print a line on stderr."""
    print(string, file=sys.stderr, end="\n" if newline else "")


termwarn = termerror = termlog


def _current(name: str) -> Run:
    if not _RUNS or _RUNS[-1].finished:
        raise Error(f"wandb.{name}: there is no run; wandb.init(project=…) begins one")
    return _RUNS[-1]


class _NoRun:
    """`wandb.config` and `wandb.summary` before `init`: whatever is asked of them says that there is no run."""

    def __init__(self, name: str) -> None:
        object.__setattr__(self, "_name", name)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(_current(self._name), self._name)

    def __getitem__(self, name: str) -> Any:
        return _current(self._name)

    def __setattr__(self, name: str, value: Any) -> None:
        _current(self._name)

    def __setitem__(self, name: str, value: Any) -> None:
        _current(self._name)

    def __repr__(self) -> str:
        return f"<wandb.{self._name}: there is no run; wandb.init(project=…) begins one>"


def __getattr__(name: str) -> Any:
    is_open = bool(_RUNS) and not _RUNS[-1].finished
    if name == "run":
        return _RUNS[-1] if is_open else None
    if name in ("config", "summary"):
        return getattr(_RUNS[-1], name) if is_open else _NoRun(name)
    if name in NO_EFFECT:
        return getattr(_RUNS[-1], name) if is_open else lambda *_, **__: None
    instead = INSTEAD.get(name) or f"there are {', '.join(__all__)}.{did_you_mean(name, __all__)}"
    raise AttributeError(f"torcheer.integrations.wandb has no {name!r}: {instead}")
