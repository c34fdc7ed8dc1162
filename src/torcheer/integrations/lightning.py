"""Lightning: a callback that watches a `Trainer`'s module, and a logger that keeps what it logs, in one run of ours.

from torcheer.integrations.lightning import TorcheerCallback, TorcheerLogger
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torcheer.errors import BadArgument
from torcheer.integrations.loop_run import LoopHooks, LoopRun, published, published_names
from torcheer.integrations.loop_settings import plain_settings
from torcheer.integrations.outside_run import OutsideRun
from torcheer.ranks import is_main

__all__ = ["TorcheerCallback", "TorcheerLogger"]

TorcheerCallback: Any
TorcheerLogger: Any


class LightningHooks(LoopHooks):
    """Watches the module while `Trainer.fit` trains it, and logs the trainer's metrics; alerts come as they do.

    trainer = Trainer(callbacks=[TorcheerCallback("runs/first", every=20)])

    - `to`: the run's folder; "torcheer" below the trainer's root by default. With a `TorcheerLogger` it is that
      logger's, which logs the metrics then.
    - `watch`: False watches nothing, and only logs
    - the rest are options of `OutsideRun` (`rules`, `stop_on`, …) and of `tl.watch` (`layers`, `every`, …);
      `stop_on` ends the training after its batch
    """

    made_by = "lightning"

    def __init__(self, to: str | os.PathLike[str] | None = None, *, watch: bool = True, **options: Any) -> None:
        super().__init__(to, watch=watch, **options)
        self._owns_run = True
        self._seen: dict[str, tuple[Any, int]] = {}  # what was logged, and its step: the trainer keeps showing it

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        loggers: list[Any] = [logger for logger in trainer.loggers if isinstance(logger, LightningLog)]
        self._owns_run = not loggers
        if loggers and is_main():
            self._loop.run = loggers[0].experiment
            self._loop.folder = loggers[0].experiment.folder
        folder = Path(trainer.default_root_dir) / "torcheer"
        self._loop.open(folder, dict(getattr(pl_module, "hparams", None) or {}))

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self._loop.watch(pl_module, lambda: int(trainer.global_step))

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        self.begin_pass(pl_module)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        should_stop = self.end_pass()
        if self.run is not None and self._owns_run:
            metrics = self._fresh(trainer)
            if not any("loss" in name for name in metrics):
                metrics["loss"] = outputs.get("loss") if isinstance(outputs, Mapping) else outputs
            self.run.log({**metrics, "epoch": trainer.current_epoch}, _step(trainer))
            should_stop |= self.run.should_stop  # a rule may have judged these
        if should_stop:
            trainer.should_stop = True

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        self._log_epoch(trainer)

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        if not trainer.sanity_checking:
            self._log_epoch(trainer)

    def _log_epoch(self, trainer: Any) -> None:
        if self.run is not None and self._owns_run:
            self.run.log(self._fresh(trainer), _step(trainer))

    def _fresh(self, trainer: Any) -> dict[str, Any]:
        """The metrics that have come since the last call."""
        metrics, step, fresh = dict(trainer.callback_metrics), _step(trainer), {}
        for name, value in metrics.items():
            before, logged_at = self._seen.get(name, (None, -1))
            if before is not value and logged_at != step:
                fresh[name], self._seen[name] = value, (value, step)
        return fresh

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self._end(exception)

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        self._end(None)

    def _end(self, error: BaseException | None) -> None:
        run = self.run
        if run is not None and not self._owns_run:
            self._loop.run = None
            if run.watched is not None:
                run.watched.close()
            if error is not None:
                run.finish(error)
            return
        self._loop.finish(error)


class LightningLog:
    """Keeps what a module logs (`self.log`) and its hyperparameters in a run of ours.

    trainer = Trainer(logger=TorcheerLogger("runs/first"))

    - `to`: the run's folder; Lightning writes its checkpoints there, too.
    - `options`: those of `OutsideRun`: `rules`, `system_secs`, …
    """

    def __init__(self, to: str | os.PathLike[str] = "torcheer_run", **options: Any) -> None:
        super().__init__()
        self._to, self._loop = Path(to), LoopRun(to, "lightning", watch=False, **options)

    @property
    def experiment(self) -> OutsideRun:
        """The run; it is opened when it is first asked for."""
        run = self._loop.open(self._to, {})
        if run is None:
            raise BadArgument("TorcheerLogger: rank 0 writes the run; others have none")
        return run

    @property
    def name(self) -> str:
        return ""  # Lightning's own files go to save_dir/name/version: here there is one folder

    @property
    def version(self) -> str:
        return ""

    @property
    def save_dir(self) -> str:
        return str(self._to)

    @property
    def log_dir(self) -> str:
        return str(self._to)

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        if is_main():
            run = self.experiment
            run.log(metrics, run.step if step is None else step)

    def log_hyperparams(self, params: Any, *_: Any, **__: Any) -> None:
        if is_main():
            self.experiment.configure(plain_settings(params))

    def log_graph(self, model: Any, input_array: Any = None) -> None:
        inputs = getattr(model, "example_input_array", None) if input_array is None else input_array
        if is_main() and inputs is not None:
            self.experiment.describe(model, inputs)

    def save(self) -> None:
        if self._loop.run is not None:
            self._loop.run.flush()

    def finalize(self, status: str) -> None:
        self._loop.finish(None if status in ("success", "finished") else f"Lightning says {status}")


@cache
def _callback() -> type:
    return published("TorcheerCallback", LightningHooks, _lightning("callbacks").Callback)


@cache
def _logger() -> type:
    return published("TorcheerLogger", LightningLog, _lightning("loggers").logger.Logger)


def _lightning(part: str) -> Any:
    """A module of Lightning, of the package that the script uses: `lightning` or `pytorch_lightning`."""
    is_old = "pytorch_lightning" in sys.modules and "lightning.pytorch" not in sys.modules
    if not is_old and find_spec("lightning") is not None:
        import lightning.pytorch

        return getattr(lightning.pytorch, part)
    if find_spec("pytorch_lightning") is not None:
        import pytorch_lightning

        return getattr(pytorch_lightning, part)
    raise BadArgument("torcheer.integrations.lightning needs Lightning: pip install lightning")


def _step(trainer: Any) -> int:
    """The step that was taken last, from 0 on."""
    return max(int(trainer.global_step) - 1, 0)


if not TYPE_CHECKING:
    __getattr__, __dir__ = published_names(
        __name__, ("lightning", "pytorch_lightning"), {"TorcheerCallback": _callback, "TorcheerLogger": _logger}
    )
