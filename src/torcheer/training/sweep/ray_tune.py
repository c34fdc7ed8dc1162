"""Run the trials of a sweep on a Ray cluster, by Ray Tune and its schedulers."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from torcheer.errors import BadArgument
from torcheer.ray_cluster import joined_cluster
from torcheer.training.sweep.sweep_folder import DONE, ENDED, FAILED, STOPPED, Monitor, SweepFolder
from torcheer.training.sweep.sweep_grid import Trial
from torcheer.training.sweep.trial_process import last_words, start_trial

_POLL_SECS: Final = 0.25
_SAVE_SECS: Final = 120.0


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
    with joined_cluster(ray):
        _fit(folder, waiting, arguments_of, jobs=jobs, asha=scheduler == "asha", monitor=chosen, say=say)
    return ""


def _fit(
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

    class Lines(tune.Callback):  # type: ignore[misc]
        """A line for each trial that begins, ends or fails."""

        def on_trial_start(self, iteration: int, trials: Any, trial: Any, **_: Any) -> None:
            say(f"{trial.config['trial']['name']}: begins")

        def on_trial_complete(self, iteration: int, trials: Any, trial: Any, **_: Any) -> None:
            told = Trial(trial.config["trial"]["name"], {}, ())
            say(f"{told.name}: {'done' if folder.status(told) == DONE else 'ended by the scheduler'}")

        def on_trial_error(self, iteration: int, trials: Any, trial: Any, **_: Any) -> None:
            say(f"{trial.config['trial']['name']}: failed")

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
    reporting = tune.RunConfig(name="ray", storage_path=str(folder.path / ".ray"), verbose=0, callbacks=[Lines()])
    results = tune.Tuner(trainable, param_space=space, tune_config=tuned, run_config=reporting).fit()
    _write_stopped(folder, results)


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
        if child.popen.returncode:
            folder.end(trial, FAILED, time.monotonic() - began, last_words(child))
            raise RuntimeError(f"{trial.name} failed with status {child.popen.returncode}: {last_words(child)}")
        folder.end(trial, DONE, time.monotonic() - began)
    finally:
        if child.popen.poll() is None:
            child.terminate(time.monotonic() + _SAVE_SECS)
        child.close()


def _write_stopped(folder: SweepFolder, results: Any) -> None:
    """Write down which trials the scheduler has ended: they are not run again."""
    for result in results:
        name = result.config["trial"]["name"]
        trial = next(trial for trial in folder.trials if trial.name == name)
        if result.error is None and folder.status(trial) not in (*ENDED, FAILED):
            folder.end(trial, STOPPED, float((result.metrics or {}).get("time_total_s", 0.0)))
