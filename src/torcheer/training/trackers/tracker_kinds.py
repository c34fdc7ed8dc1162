"""The trackers of others that a run can be written to: TensorBoard, W&B and MLflow."""

from __future__ import annotations

import json
import os
import re
import tempfile
import time
import uuid
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Protocol

from torcheer.disk import write_once
from torcheer.errors import BadArgument
from torcheer.runlog.media.logged_samples import LoggedSample
from torcheer.terminal import did_you_mean

_MLFLOW_BATCH: Final = 1000  # metrics that it takes at once
_FILES: Final = {"image": ".png", "audio": ".wav", "text": ".txt", "table": ".csv", "confusion": ".csv"}


class TrackerWriter(Protocol):
    """A destination of metrics and samples; made for a run's folder, from a step on, in a folder of its own."""

    def write(self, values: Mapping[str, float], step: int) -> None: ...

    def sample(self, sample: LoggedSample) -> None: ...

    def close(self) -> None: ...


class TensorBoard:
    """Event files in `<run>/tensorboard`, or in `to`, indexed by step."""

    def __init__(self, folder: Path, step: int, to: Path | None = None) -> None:
        from torch.utils.tensorboard import SummaryWriter

        # Hide what a killed run wrote after the checkpoint: it comes again. The checkpoint's own step does not.
        self._writer: Any = SummaryWriter(to or folder / "tensorboard", purge_step=step + 1 if step else None)
        if to is not None and (config := _config(folder)):
            self._writer.add_text("config", f"```json\n{json.dumps(config, indent=1)}\n```")

    def write(self, values: Mapping[str, float], step: int) -> None:
        for name, value in values.items():
            self._writer.add_scalar(_tag(name), value, step)

    def sample(self, sample: LoggedSample) -> None:
        name, step = _tag(sample.name), sample.step
        if sample.kind == "image":
            self._writer.add_image(name, sample.pixels, step, dataformats="HWC")
        elif sample.kind == "audio":
            sound = sample.array.reshape(-1, sample.array.shape[-1])[0]  # TensorBoard plays one channel
            largest = {"i": 2.0 ** (8 * sound.itemsize - 1)}.get(sound.dtype.kind, 1.0)
            self._writer.add_audio(name, sound / largest, step, sample_rate=sample.rate)
        else:
            text = sample.text if sample.kind == "text" else f"```\n{_lines(sample)}\n```"
            self._writer.add_text(name, text, step)

    def close(self) -> None:
        self._writer.close()


class WeightsAndBiases:
    """A W&B run; a resumed session continues it."""

    def __init__(self, folder: Path, step: int, to: Path | None = None) -> None:
        import wandb  # type: ignore[import-not-found,unused-ignore]

        home = to or folder
        file = home / "wandb" / "id"
        file.parent.mkdir(parents=True, exist_ok=True)
        write_once(file, uuid.uuid4().hex)
        self._wandb: Any = wandb
        self._files = tempfile.TemporaryDirectory()
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "torcheer"),
            name=folder.resolve().name,
            id=file.read_text(encoding="utf-8"),
            resume="allow",
            mode=None if "WANDB_MODE" in os.environ or _is_signed_in(wandb) else "offline",
            dir=home,
            config=_config(folder),
            settings=wandb.Settings(console="off"),  # we print to the screen ourselves
        )

    def write(self, values: Mapping[str, float], step: int) -> None:
        self._run.log(dict(values), step=step)

    def sample(self, sample: LoggedSample) -> None:
        if sample.kind == "image":
            value = self._wandb.Image(sample.pixels, caption=sample.caption or None)
        elif sample.kind == "audio":
            file = sample.save(Path(self._files.name) / f"{uuid.uuid4().hex}.wav")  # of arrays it asks for soundfile
            value = self._wandb.Audio(str(file), sample_rate=sample.rate)
        elif sample.kind == "table":
            columns = sample.cells
            value = self._wandb.Table(columns=list(columns), data=[list(row) for row in zip(*columns.values())])
        else:
            text = sample.text if sample.kind == "text" else _lines(sample)
            value = self._wandb.Table(columns=["text"], data=[[text]])
        self._run.log({sample.name: value}, step=sample.step)

    def close(self) -> None:
        self._run.finish()
        self._files.cleanup()


class MLflow:
    """An MLflow run in `<run>/mlflow`, or in `to`: a database and a folder of files, without a server."""

    def __init__(self, folder: Path, step: int, to: Path | None = None) -> None:
        import mlflow

        home = (to or folder / "mlflow").resolve()
        home.mkdir(parents=True, exist_ok=True)
        uri = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{home}/mlflow.db"
        self._client: Any = mlflow.MlflowClient(tracking_uri=uri)
        experiment = self._client.get_experiment_by_name("torcheer")
        number = (
            experiment.experiment_id
            if experiment is not None
            else self._client.create_experiment("torcheer", artifact_location=f"file://{home}/artifacts")
        )
        file = home / "run-id"
        if not file.exists():
            run = self._client.create_run(number, run_name=folder.resolve().name)
            write_once(file, run.info.run_id)
            for name, value in _flat("", _config(folder)):
                self._client.log_param(run.info.run_id, _tag(name)[:250], str(value)[:6000])
        self._run = file.read_text(encoding="utf-8")

    def write(self, values: Mapping[str, float], step: int) -> None:
        from mlflow.entities import Metric

        now_ms, names = int(time.time() * 1000), list(values)
        for start in range(0, len(names), _MLFLOW_BATCH):
            metrics = [Metric(_tag(name), values[name], now_ms, step) for name in names[start : start + _MLFLOW_BATCH]]
            self._client.log_batch(self._run, metrics=metrics)

    def sample(self, sample: LoggedSample) -> None:
        with tempfile.TemporaryDirectory() as folder:
            item = f"-{sample.item}" if sample.item >= 0 else ""
            file = sample.save(Path(folder) / f"{sample.step}{item}{_FILES[sample.kind]}")
            self._client.log_artifact(self._run, str(file), _tag(sample.name))

    def close(self) -> None:
        self._client.set_terminated(self._run)


def _tag(name: str) -> str:
    """A name with the letters that trackers take."""
    return re.sub(r"[^\w./-]", "_", name)


def _lines(sample: LoggedSample) -> str:
    """A table or a matrix as text."""
    if sample.kind == "table":
        columns = sample.cells
        rows = [list(columns), *map(list, zip(*columns.values()))]
    else:
        rows = sample.array.tolist()
    return "\n".join("\t".join(map(str, row)) for row in rows)


def _config(folder: Path) -> dict[str, Any]:
    spec = folder / "spec.json"
    config: dict[str, Any] = json.loads(spec.read_text(encoding="utf-8")) if spec.exists() else {}
    return config


def _flat(prefix: str, value: Any) -> list[tuple[str, Any]]:
    if not isinstance(value, Mapping):
        return [(prefix, value)]
    return [pair for name, part in value.items() for pair in _flat(f"{prefix}.{name}" if prefix else str(name), part)]


def _is_signed_in(wandb: Any) -> bool:
    """Return whether W&B has a login.

    Else offline mode is better than a prompt in the middle of the screen.
    """
    try:
        return bool(wandb.login(prompt=False))
    except TypeError:  # a version without `prompt`
        return True


# name in the options -> (required package, writer class)
WRITERS: dict[str, tuple[str, Any]] = {
    "tensorboard": ("tensorboard", TensorBoard),
    "wandb": ("wandb", WeightsAndBiases),
    "mlflow": ("mlflow", MLflow),
}


def check_writer(name: str, writers: Mapping[str, tuple[str, Any]]) -> None:
    """Raise for an unknown or unavailable writer."""
    if name not in writers:
        raise BadArgument(f"there is no writer {name!r}; there are {', '.join(writers)}.{did_you_mean(name, writers)}")
    package = writers[name][0]
    if find_spec(package) is None:
        raise BadArgument(f"the writer {name!r} needs {package}, which is not installed: pip install {package}")
