"""TensorBoard's `SummaryWriter`, writing to a run folder of ours; nothing of tensorboard is loaded or needed."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from torcheer.integrations.outside_run import OutsideRun
from torcheer.integrations.wandb_values import channels_first, figure_pixels
from torcheer.runlog.media.media_types import Audio, Image, Text
from torcheer.terminal import did_you_mean

__all__ = ["SummaryWriter"]

_INSTEAD = {
    "add_video": "tl.watch(model, video=True) films layers; add_images keeps single frames",
    "add_embedding": "tl.extract keeps a layer's values of a whole dataset; add_figure keeps a picture of them",
    "add_pr_curve": "add_figure keeps a picture of it, add_scalars its numbers",
    "add_mesh": "add_figure keeps a picture of it",
    "add_custom_scalars": "the studio's Plots tab arranges columns",
}


class SummaryWriter:
    """Writes what TensorBoard's `SummaryWriter` does, to a run that `torcheer studio` shows.

    - `log_dir`: the run's folder; "runs/<date>_<host><comment>" by default
    - `comment`: the end of that name
    - `purge_step`: of what an earlier writer logged here, steps from this one on no longer hold
    - the rest of TensorBoard's options is accepted without effect: rows reach the disk within a quarter of a second

    Without `global_step` a tag's values are counted: 0, 1, 2, …
    """

    def __init__(
        self, log_dir: str | os.PathLike[str] | None = None, comment: str = "", purge_step: int | None = None,
        max_queue: int = 10, flush_secs: float = 120, filename_suffix: str = "", **options: Any,
    ) -> None:  # fmt: skip
        started = time.strftime("%b%d_%H-%M-%S")
        self.log_dir = str(log_dir or Path("runs") / f"{started}_{platform.node()}{comment}")
        keep_until = None if purge_step is None else purge_step - 1
        self.run = OutsideRun(self.log_dir, made_by="tensorboard", keep_until=keep_until, **options)
        self._counts: dict[str, int] = {}  # by tag, of values without a step

    def add_scalar(
        self, tag: str, scalar_value: Any, global_step: int | None = None, walltime: float | None = None, **_: Any
    ) -> None:
        """Add a number."""
        self._log({tag: scalar_value}, global_step)

    def add_scalars(
        self, main_tag: str, tag_scalar_dict: Mapping[str, Any], global_step: int | None = None,
        walltime: float | None = None,
    ) -> None:  # fmt: skip
        """Add several numbers, as `main_tag/tag`."""
        self._log({f"{main_tag}/{tag}": value for tag, value in tag_scalar_dict.items()}, global_step)

    def add_histogram(
        self, tag: str, values: Any, global_step: int | None = None, bins: Any = None, walltime: float | None = None,
        max_bins: int | None = None,
    ) -> None:  # fmt: skip
        """Add a distribution; the bins are always a watch's own, so that steps can be compared."""
        self.run.histogram(tag, values, self._step(tag, global_step))

    def add_histogram_raw(
        self, tag: str, min: float, max: float, num: int, sum: float, sum_squares: float, bucket_limits: Any,
        bucket_counts: Any, global_step: int | None = None, walltime: float | None = None,
    ) -> None:  # fmt: skip
        """Add a histogram that was made elsewhere."""
        limits, counts = [float(limit) for limit in bucket_limits], [float(count) for count in bucket_counts]
        self.run.histogram_counts(tag, limits, counts, self._step(tag, global_step))

    def add_image(
        self, tag: str, img_tensor: Any, global_step: int | None = None, walltime: float | None = None,
        dataformats: str = "CHW",
    ) -> None:  # fmt: skip
        """Add an image."""
        self._log({tag: Image(_plain(img_tensor), layout=dataformats)}, global_step)

    def add_images(
        self, tag: str, img_tensor: Any, global_step: int | None = None, walltime: float | None = None,
        dataformats: str = "NCHW",
    ) -> None:  # fmt: skip
        """Add a batch of images, drawn as a grid."""
        self._log({tag: Image(_plain(img_tensor), layout=dataformats)}, global_step)

    def add_figure(
        self, tag: str, figure: Any, global_step: int | None = None, close: bool = True, walltime: float | None = None
    ) -> None:
        """Add a figure of matplotlib, or several, as images."""
        figures = figure if isinstance(figure, list) else [figure]
        images = [Image(figure_pixels(each), layout="HWC") for each in figures]
        self._log({tag: images if isinstance(figure, list) else images[0]}, global_step)
        if close:
            from matplotlib import pyplot

            for each in figures:
                pyplot.close(each)

    def add_text(
        self, tag: str, text_string: str, global_step: int | None = None, walltime: float | None = None
    ) -> None:
        """Add a text."""
        self._log({tag: Text(text_string)}, global_step)

    def add_audio(
        self, tag: str, snd_tensor: Any, global_step: int | None = None, sample_rate: int = 44100,
        walltime: float | None = None,
    ) -> None:  # fmt: skip
        """Add sound: numbers from -1 to 1, of one channel or numbers × channels."""
        self._log({tag: Audio(channels_first(_plain(snd_tensor)), sample_rate)}, global_step)

    def add_hparams(
        self, hparam_dict: Mapping[str, Any], metric_dict: Mapping[str, Any], hparam_domain_discrete: Any = None,
        run_name: str | None = None, global_step: int | None = None,
    ) -> None:  # fmt: skip
        """Add settings to the run's config, and results to its last step."""
        self.run.configure(hparam_dict)
        if metric_dict:
            self.run.log(metric_dict, self.run.step if global_step is None else global_step)

    def add_graph(
        self, model: Any, input_to_model: Any = None, verbose: bool = False, use_strict_trace: bool = True
    ) -> None:
        """Add a model's network, as a pass of `input_to_model` shows it."""
        self.run.describe(model, () if input_to_model is None else input_to_model)

    def get_logdir(self) -> str:
        """The run's folder."""
        return self.log_dir

    def flush(self) -> None:
        """Write what was added so far: other processes see it then."""
        self.run.flush()

    def close(self) -> None:
        """End the run."""
        self.run.finish()

    def __enter__(self) -> SummaryWriter:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, _: Any) -> None:
        self.run.finish(error)

    def __getattr__(self, name: str) -> Any:
        names = [each for each in dir(type(self)) if each.startswith("add_")]
        instead = _INSTEAD.get(name) or f"there are {', '.join(names)}.{did_you_mean(name, names)}"
        raise AttributeError(f"torcheer's SummaryWriter has no {name!r}: {instead}")

    def _log(self, entries: Mapping[str, Any], step: int | None) -> None:
        self.run.log(entries, self._step(next(iter(entries), ""), step))

    def _step(self, tag: str, step: int | None) -> int:
        if step is not None:
            return int(step)
        self._counts[tag] = self._counts.get(tag, -1) + 1
        return self._counts[tag]


def _plain(value: Any) -> Any:
    return value if hasattr(value, "detach") else np.asarray(value)
