"""The command `torcheer sweep`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from torcheer.config import Config, read
from torcheer.disk import explain_write_errors, lock_folder, require_unix
from torcheer.errors import BadArgument
from torcheer.terminal import add_json, plural, tell
from torcheer.terminal.command_parser import CommandParser
from torcheer.training.loop.stop_signals import STOPPED
from torcheer.training.sweep.sweep_folder import ENDED, FAILED, SweepFolder
from torcheer.training.sweep.sweep_grid import Trial, parse_axes, trials_of
from torcheer.training.sweep.trial_process import trial_arguments

ENGINES = ("local", "ray")


def main(command: str, arguments: Sequence[str]) -> int:
    """Train every combination of the given values.

    Exit status 1 where a trial failed, 130 where the sweep, or a trial, was stopped.
    """
    chosen = make_parser(command).parse_intermixed_args(arguments)
    if chosen.jobs is not None and chosen.jobs < 1:
        raise BadArgument(f"--jobs {chosen.jobs}: at least one trial runs at a time")
    if chosen.scheduler != "none" and chosen.engine != "ray":
        raise BadArgument(f"--scheduler {chosen.scheduler} is Ray's: add --engine ray")
    require_unix("a sweep, which trains each trial in a process of its own,")
    config = read(chosen.config)
    trials = trials_of(parse_axes(chosen.values, config))
    _check(config, trials, chosen.trust, chosen.monitor)
    folder = SweepFolder((chosen.to or _default_folder(config)).absolute(), trials)
    print(
        f"{plural(len(trials), 'trial')} under {folder.path}; look at them with: torcheer studio {folder.path}",
        flush=True,
    )
    with explain_write_errors(folder.path):
        lock = lock_folder(folder.path, "swept")
    with closing(lock):
        reason = _run(chosen, folder)
    return _report(chosen, config, folder, reason)


def make_parser(command: str) -> argparse.ArgumentParser:
    """Return the parser of a command."""
    parser = CommandParser(
        prog=f"torcheer {command}",
        description="Train a config once for each combination of values, each in its own run directory.",
        epilog="Run it again to resume: finished trials are skipped, killed ones resume from their checkpoint. "
        "On Ctrl-C, running trials save and exit.",
    )
    parser.add_argument(
        "config", type=Path, metavar="CONFIG", help="a JSON, YAML or TOML file, as torcheer train takes"
    )
    parser.add_argument("values", nargs="+", metavar="KEY=VALUES", help="lr=1e-3,1e-4: the path of a field, or its end")
    parser.add_argument("--to", type=Path, metavar="FOLDER", help="folder of all runs; by default <session_dir>-sweep")
    parser.add_argument("--engine", choices=ENGINES, default="local", help="processes on this machine, or Ray Tune")
    parser.add_argument("--jobs", type=int, metavar="N", help="parallel trials: 1, or on Ray as many as fit")
    parser.add_argument(
        "--monitor",
        default="",
        metavar="COLUMN",
        help="metric that trials are compared by; --monitor=-x: higher is better",
    )
    parser.add_argument(
        "--scheduler", choices=("none", "asha"), default="none", help="Ray scheduler: stop bad trials early"
    )
    parser.add_argument("--trust", action="append", default=[], metavar="PACKAGE", help="allow classes of this package")
    parser.add_argument("--device", default="", metavar="NAME", help="auto, cpu, cuda or cuda:1")
    add_json(parser)
    return parser


def _default_folder(config: Config) -> Path:
    home = config.data.get("session_dir")
    if not isinstance(home, str) or not home:
        raise BadArgument(f"{config.path.name} has no session_dir; say with --to where the runs go")
    return Path(f"{home}-sweep")


def _check(config: Config, trials: Sequence[Trial], trusted: Sequence[str], monitor: str) -> None:
    """Refuse a config, a value in it, or a column that no trial will have, before the first trial begins."""
    from torcheer.training.spec import checked, with_changes

    for trial in trials:
        result = checked(with_changes(config, [*trial.changes, "session_dir=trial"]), trusted=trusted)
        if result.problems:
            raise BadArgument(f"with {', '.join(trial.changes)}:\n" + "\n".join(map(str, result.problems)))
    if monitor:  # the column of a config's `keep_best` is checked as this one is to be
        changes = [*trials[0].changes, "session_dir=trial", f"keep_best={json.dumps(monitor)}"]
        if problems := checked(with_changes(config, changes), trusted=trusted).problems:
            raise BadArgument(f"--monitor {monitor!r}, as keep_best:\n" + "\n".join(map(str, problems)))


def _run(chosen: argparse.Namespace, folder: SweepFolder) -> str:
    """Run the trials; return why it stopped before the end, or ""."""
    config = chosen.config.absolute()

    def arguments_of(trial: Trial) -> list[str]:
        return trial_arguments(config, folder.home(trial), trial.changes, chosen.trust, chosen.device)

    def say(text: str) -> None:
        print(text, flush=True)

    if chosen.engine == "ray":
        from torcheer.training.sweep.ray_tune import run_on_ray

        return run_on_ray(
            folder, arguments_of, jobs=chosen.jobs, scheduler=chosen.scheduler, monitor=chosen.monitor,
            config=read(config).data, say=say,
        )  # fmt: skip
    import torch

    from torcheer.training.sweep.trial_queue import TrialQueue

    jobs = chosen.jobs or 1
    gpu_count = torch.cuda.device_count() if jobs > 1 and not chosen.device else 0
    return TrialQueue(folder, arguments_of, jobs=jobs, gpu_count=gpu_count, say=say).run()


def _report(chosen: argparse.Namespace, config: Config, folder: SweepFolder, reason: str) -> int:
    lines = folder.table(folder.monitor(chosen.monitor, config.data))
    if lines:
        print("\n".join(["", *lines]))
    failed = [trial for trial in folder.trials if folder.status(trial) == FAILED]
    trials = [{"name": each.name, "values": dict(each.values), "state": folder.status(each)} for each in folder.trials]
    tell(folder=folder.path, trials=trials, reason=reason)
    if failed:
        print(f"{plural(len(failed), 'trial')} failed; the same command runs them again")
    if reason:
        print(f"Stopped: {reason}. The same command goes on")
        return STOPPED
    if failed:
        return 1
    if left := [trial for trial in folder.trials if folder.status(trial) not in ENDED]:
        print(f"{plural(len(left), 'trial')} stopped by a signal; the same command goes on")
    return STOPPED if left else 0
