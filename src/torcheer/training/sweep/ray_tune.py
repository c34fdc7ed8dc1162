"""Run the trials of a sweep on a Ray cluster, by Ray Tune and its schedulers."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from torcheer.disk import lock_holder
from torcheer.errors import BadArgument
from torcheer.ray_cluster import joined_cluster
from torcheer.training.loop.stop_signals import STOPPED as STOPPED_BY_SIGNAL
from torcheer.training.loop.stop_signals import stop_on_signals
from torcheer.training.parallel.torchrun_agent import describe_end
from torcheer.training.sweep.sweep_folder import DONE, ENDED, FAILED, INTERRUPTED, STOPPED, Monitor, SweepFolder
from torcheer.training.sweep.sweep_grid import Trial
from torcheer.training.sweep.trial_process import last_words, start_trial

_POLL_SECS: Final = 0.25
_SAVE_SECS: Final = 120.0


@dataclass(slots=True)
class _Sweep:
    """The sweep that Ray runs."""

    stop_reason: str = ""
    running: list[Trial] = field(default_factory=list)


def run_on_ray(
    folder: SweepFolder,
    arguments_of: Callable[[Trial], list[str]],
    *,
    jobs: int | None,
    scheduler: str,
    monitor: str,
    config: Mapping[str, Any],
    say: Callable[[str], object] = print,
) -> str:
    """Run what has not ended as trials of Ray Tune; return why it stopped before the end, or "".

    A trial is the same process as in a local queue, started by an actor of Ray, in the same folder: on a cluster that
    folder is one that all nodes see. Ray's dashboard is off.
    """
    try:
        import ray
        import ray.tune
    except ImportError as error:
        raise BadArgument(
            f"--engine ray needs Ray Tune ({error}): pip install 'ray[tune]', or --engine local"
        ) from None
    waiting = [trial for trial in folder.trials if folder.status(trial) not in ENDED]
    chosen = _monitor(folder, monitor, config)
    if scheduler == "asha" and chosen is None:
        raise BadArgument("--scheduler asha compares trials while they run: say by which column with --monitor")
    if not waiting:
        return ""
    os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")  # the run directories have it all
    os.environ["TUNE_DISABLE_SIGINT_HANDLER"] = "1"  # signals are handled here, as in a local queue
    sweep = _Sweep()
    with joined_cluster(ray), stop_on_signals(sweep):
        _fit(sweep, folder, waiting, arguments_of, jobs=jobs, asha=scheduler == "asha", monitor=chosen, say=say)
    if sweep.stop_reason:
        _wait_for(folder, sweep, say)
    return sweep.stop_reason


def _fit(
    sweep: _Sweep,
    folder: SweepFolder,
    waiting: list[Trial],
    arguments_of: Callable[[Trial], list[str]],
    *,
    jobs: int | None,
    asha: bool,
    monitor: Monitor | None,
    say: Callable[[str], object],
) -> None:
    import ray
    from ray import tune
    from ray.tune.schedulers import ASHAScheduler

    named = {trial.name: trial for trial in waiting}

    class Lines(tune.Callback):  # type: ignore[misc]
        """A line for each trial that begins or ends."""

        def on_trial_start(self, iteration: int, trials: Any, trial: Any, **_: Any) -> None:
            begun = named[trial.config["trial"]["name"]]
            folder.begin(begun)
            sweep.running.append(begun)
            say(f"{begun.name}: {'goes on' if (folder.home(begun) / 'checkpoints').is_dir() else 'begins'}")

        def on_trial_complete(self, iteration: int, trials: Any, trial: Any, **_: Any) -> None:
            ended = named[trial.config["trial"]["name"]]
            if sweep.stop_reason:
                return  # its process saves and ends while Ray lets it go
            sweep.running.remove(ended)
            if folder.status(ended) not in (DONE, FAILED, INTERRUPTED):
                folder.end(ended, STOPPED, float(trial.last_result.get("time_total_s", 0.0)))
            _say_end(folder, ended, say)

        def on_trial_error(self, iteration: int, trials: Any, trial: Any, **_: Any) -> None:
            lost = named[trial.config["trial"]["name"]]
            sweep.running.remove(lost)
            folder.end(lost, FAILED, 0.0, "Ray lost the actor that ran it")
            _say_end(folder, lost, say)

    class StopAll(tune.Stopper):  # type: ignore[misc]
        """Ends all trials once the sweep was told to stop."""

        def __call__(self, trial_id: str, result: Any) -> bool:
            return False

        def stop_all(self) -> bool:
            return bool(sweep.stop_reason)

    gpus = 1 if ray.cluster_resources().get("GPU", 0) else 0
    trainable = tune.with_resources(
        tune.with_parameters(_train, sweep=folder.path, cwd=str(Path.cwd())), {"cpu": 1, "gpu": gpus}
    )
    space = {"trial": tune.grid_search([_plain(trial, arguments_of(trial)) for trial in waiting])}
    compared: dict[str, Any] = {} if monitor is None else {"metric": monitor.column, "mode": monitor.mode}
    tuned = tune.TuneConfig(
        max_concurrent_trials=jobs,
        scheduler=ASHAScheduler(max_t=10**6) if asha else None,
        trial_dirname_creator=lambda trial: str(trial.trial_id),
        **compared,
    )
    reporting = tune.RunConfig(
        name="ray", storage_path=str(folder.path / ".ray"), verbose=0, callbacks=[Lines()], stop=StopAll()
    )
    tune.Tuner(trainable, param_space=space, tune_config=tuned, run_config=reporting).fit()


def _wait_for(folder: SweepFolder, sweep: _Sweep, say: Callable[[str], object]) -> None:
    """Wait until the trials that ran have saved and ended."""
    deadline = time.monotonic() + _SAVE_SECS
    for trial in sweep.running:
        while lock_holder(folder.home(trial)) and time.monotonic() < deadline:
            time.sleep(_POLL_SECS)
        _say_end(folder, trial, say)


def _say_end(folder: SweepFolder, trial: Trial, say: Callable[[str], object]) -> None:
    """Say how a trial has ended; one that was interrupted has not."""
    status = folder.status(trial)
    if status not in (*ENDED, FAILED):
        folder.begin(trial)
    words = {DONE: "done", STOPPED: "ended by the scheduler", FAILED: f"failed:\n{folder.problem(trial)}"}
    say(f"{trial.name}: {words.get(status) or folder.interruption(trial)}")


def _monitor(folder: SweepFolder, asked: str, config: Mapping[str, Any]) -> Monitor | None:
    text = asked or str(config.get("keep_best") or "")
    return Monitor.parse(text) if text else None


def _plain(trial: Trial, arguments: list[str]) -> dict[str, Any]:
    """A trial as Ray sends it."""
    return {"name": trial.name, "values": dict(trial.values), "changes": list(trial.changes), "arguments": arguments}


def _train(config: Mapping[str, Any], sweep: Path, cwd: str) -> None:
    """Run one trial in an actor of Ray, and report each epoch; Ray ends this where a scheduler says so."""
    from ray import tune

    told = config["trial"]
    trial = Trial(told["name"], told["values"], tuple(told["changes"]))
    folder = SweepFolder(sweep, [trial])
    began, reported = time.monotonic(), 0
    child = start_trial(told["arguments"], folder=cwd)
    try:
        while True:
            has_ended = child.popen.poll() is not None
            rows = folder.rows(trial)
            for row in rows[reported:]:
                reported += 1
                tune.report({name: value for name, value in row.items() if isinstance(value, int | float)})
            if has_ended:
                break
            child.wire.exchange()
            time.sleep(_POLL_SECS)
        status, secs = child.popen.returncode, time.monotonic() - began
        if status == STOPPED_BY_SIGNAL:
            folder.end(trial, INTERRUPTED, secs)
        elif status:
            folder.end(trial, FAILED, secs, last_words(child) or describe_end(status))
        else:
            folder.end(trial, DONE, secs)
    finally:
        if child.popen.poll() is None:
            child.terminate(time.monotonic() + _SAVE_SECS)
        child.close()
