"""TensorBoard's `SummaryWriter`, writing to a run folder of ours; nothing of tensorboard is loaded or needed."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from torcheer.errors import BadArgument, WrongInputs
from torcheer.integrations.outside_run import OutsideRun
from torcheer.integrations.wandb_parts.wandb_values import VIDEO_NOTE, channels_first, figure_pixels, frame_grid
from torcheer.runlog.media.media_types import Audio, Image, TableOf, Text
from torcheer.terminal import did_you_mean, human_shape, short_repr

__all__ = ["SummaryWriter"]

_BOX_COLOUR = (255, 0, 0)


class SummaryWriter:
    """Writes what TensorBoard's `SummaryWriter` does, to a run that `torcheer studio` shows.

    - `log_dir`: the run's folder; "runs/<date>_<host><comment>" by default
    - `comment`: the end of that name
    - `purge_step`: of what an earlier writer logged here, steps from this one on no longer hold
    - `max_queue`, `flush_secs`: without effect, rows reach the disk within a quarter of a second
    - `filename_suffix`: without effect, there are no event files

    Without `global_step` a tag's values are counted: 0, 1, 2, … What is added after `close` opens the run again.
    """

    def __init__(
        self, log_dir: str | os.PathLike[str] | None = None, comment: str = "", purge_step: int | None = None,
        max_queue: int = 10, flush_secs: float = 120, filename_suffix: str = "", **options: Any,
    ) -> None:  # fmt: skip
        started = time.strftime("%b%d_%H-%M-%S")
        self.log_dir = str(log_dir or Path("runs") / f"{started}_{platform.node()}{comment}")
        self._options = options
        self._run = self._opened(None if purge_step is None else purge_step - 1)
        self._counts: dict[str, int] = {}  # by tag, of values without a step
        if filename_suffix:
            self._run.report("SummaryWriter: filename_suffix= has no effect: there are no event files")

    def _opened(self, keep_until: int | None) -> OutsideRun:
        return OutsideRun(self.log_dir, made_by="tensorboard", keep_until=keep_until, **self._options)

    @property
    def run(self) -> OutsideRun:
        """The run that is written to; after `close` it is opened again."""
        if self._run.is_finished:
            self._run = self._opened(None)
        return self._run

    def add_scalar(
        self, tag: str, scalar_value: Any, global_step: int | None = None, walltime: float | None = None,
        new_style: bool = False, double_precision: bool = False,
    ) -> None:  # fmt: skip
        """Add a number; all are kept in double precision."""
        self._log({tag: _number(tag, scalar_value)}, global_step, walltime)

    def add_scalars(
        self, main_tag: str, tag_scalar_dict: Mapping[str, Any], global_step: int | None = None,
        walltime: float | None = None,
    ) -> None:  # fmt: skip
        """Add several numbers, as `main_tag/tag`."""
        numbers = {f"{main_tag}/{tag}": _number(tag, value) for tag, value in tag_scalar_dict.items()}
        self._log(numbers, global_step, walltime)

    def add_histogram(
        self, tag: str, values: Any, global_step: int | None = None, bins: Any = None, walltime: float | None = None,
        max_bins: int | None = None,
    ) -> None:  # fmt: skip
        """Add a distribution; the bins are always a watch's own, so that steps can be compared."""
        if not np.prod(np.shape(values)):
            raise BadArgument(f"add_histogram: {tag!r} has no numbers")
        self._note_time(walltime)
        self.run.histogram(tag, values, self._step(tag, global_step))

    def add_histogram_raw(
        self, tag: str, min: float, max: float, num: int, sum: float, sum_squares: float, bucket_limits: Any,
        bucket_counts: Any, global_step: int | None = None, walltime: float | None = None,
    ) -> None:  # fmt: skip
        """Add a histogram that was made elsewhere."""
        self._note_time(walltime)
        limits, counts = [float(limit) for limit in bucket_limits], [float(count) for count in bucket_counts]
        self.run.histogram_counts(tag, limits, counts, self._step(tag, global_step))

    def add_image(
        self, tag: str, img_tensor: Any, global_step: int | None = None, walltime: float | None = None,
        dataformats: str = "CHW",
    ) -> None:  # fmt: skip
        """Add an image."""
        self._log({tag: Image(_plain(img_tensor), layout=dataformats)}, global_step, walltime)

    def add_images(
        self, tag: str, img_tensor: Any, global_step: int | None = None, walltime: float | None = None,
        dataformats: str = "NCHW",
    ) -> None:  # fmt: skip
        """Add a batch of images, drawn as a grid."""
        self._log({tag: Image(_plain(img_tensor), layout=dataformats)}, global_step, walltime)

    def add_figure(
        self, tag: str, figure: Any, global_step: int | None = None, close: bool = True, walltime: float | None = None
    ) -> None:
        """Add a figure of matplotlib, or several, as images."""
        figures = figure if isinstance(figure, list) else [figure]
        images = [Image(figure_pixels(each), layout="HWC") for each in figures]
        self._log({tag: images if isinstance(figure, list) else images[0]}, global_step, walltime)
        if close:
            from matplotlib import pyplot

            for each in figures:
                pyplot.close(each)

    def add_text(
        self, tag: str, text_string: str, global_step: int | None = None, walltime: float | None = None
    ) -> None:
        """Add a text."""
        self._log({tag: Text(text_string)}, global_step, walltime)

    def add_audio(
        self, tag: str, snd_tensor: Any, global_step: int | None = None, sample_rate: int = 44100,
        walltime: float | None = None,
    ) -> None:  # fmt: skip
        """Add sound: numbers from -1 to 1, of one channel or numbers × channels."""
        self._log({tag: Audio(channels_first(_plain(snd_tensor)), sample_rate)}, global_step, walltime)

    def add_image_with_boxes(
        self, tag: str, img_tensor: Any, box_tensor: Any, global_step: int | None = None,
        walltime: float | None = None, rescale: float = 1, dataformats: str = "CHW", labels: Any = None,
    ) -> None:  # fmt: skip
        """Add an image with boxes (left, top, right, bottom) drawn into it; labels stand in its caption."""
        if rescale != 1:
            self.run.report("SummaryWriter.add_image_with_boxes: rescale= has no effect: pictures keep their size")
        names = [labels] if isinstance(labels, str) else list(labels or ())
        picture = _boxed(_array(img_tensor), _array(box_tensor), dataformats)
        self._log({tag: Image(picture, ", ".join(map(str, names)), "HWC")}, global_step, walltime)

    def add_video(
        self, tag: str, vid_tensor: Any, global_step: int | None = None, fps: float = 4, walltime: float | None = None
    ) -> None:
        """Add a film (batch, time, channels, height, width): up to sixteen frames of each, as one picture."""
        films = _plain(vid_tensor)
        if films.ndim != 5:
            raise BadArgument(
                f"add_video: {tag!r} has {films.ndim} axes; it is batch × time × channels × height × width"
            )
        self.run.report(VIDEO_NOTE.format("SummaryWriter.add_video"))
        pictures = [frame_grid(film, fps, "") for film in films]
        self._log({tag: pictures[0] if len(pictures) == 1 else pictures}, global_step, walltime)

    def add_tensor(self, tag: str, tensor: Any, global_step: int | None = None, walltime: float | None = None) -> None:
        """Add a tensor, as a table of its numbers."""
        numbers = _array(tensor)
        self._log(
            {tag: TableOf({"value": numbers.ravel()}, f"shape {human_shape(numbers.shape)}")}, global_step, walltime
        )

    def add_embedding(
        self, mat: Any, metadata: Any = None, label_img: Any = None, global_step: int | None = None,
        tag: str = "default", metadata_header: Any = None,
    ) -> None:  # fmt: skip
        """Add points of many dimensions, as a table with their metadata; their pictures (`label_img`) are left out."""
        points = _array(mat)
        if points.ndim != 2 or (metadata is not None and len(metadata) != len(points)):
            raise BadArgument(f"add_embedding: {human_shape(points.shape)} numbers and {len(metadata or ())} rows of "
                              "metadata; it is points × dimensions, and a row of metadata for each")  # fmt: skip
        names = list(metadata_header or ["metadata"])
        rows = [row if isinstance(row, list | tuple) else [row] for row in (() if metadata is None else metadata)]
        columns = {name: [row[place] for row in rows] for place, name in enumerate(names) if rows}
        dimensions = {str(place): points[:, place] for place in range(points.shape[1])}
        self.run.report("SummaryWriter.add_embedding: points are kept as a table, without a projector and label_img")
        self._log({tag: TableOf({**columns, **dimensions})}, global_step)

    def add_pr_curve(
        self, tag: str, labels: Any, predictions: Any, global_step: int | None = None, num_thresholds: int = 127,
        weights: Any = None, walltime: float | None = None,
    ) -> None:  # fmt: skip
        """Add precision and recall of binary predictions at evenly spaced thresholds, as a table."""
        self._log({tag: TableOf(_pr_curve(labels, predictions, num_thresholds, weights))}, global_step, walltime)

    def add_pr_curve_raw(
        self, tag: str, true_positive_counts: Any, false_positive_counts: Any, true_negative_counts: Any,
        false_negative_counts: Any, precision: Any, recall: Any, global_step: int | None = None,
        num_thresholds: int = 127, weights: Any = None, walltime: float | None = None,
    ) -> None:  # fmt: skip
        """Add a curve of precision and recall that was made elsewhere, as a table."""
        counts = (true_positive_counts, false_positive_counts, true_negative_counts, false_negative_counts)
        columns = dict(zip(_PR_COLUMNS, map(_array, (*counts, precision, recall))))
        self._log({tag: TableOf(columns)}, global_step, walltime)

    def add_mesh(
        self, tag: str, vertices: Any, colors: Any = None, faces: Any = None, config_dict: Any = None,
        global_step: int | None = None, walltime: float | None = None,
    ) -> None:  # fmt: skip
        """Add the vertices of a mesh or point cloud (batch, points, 3), as a table; faces and colours are left out."""
        points = _array(vertices).reshape(-1, 3)
        self.run.report("SummaryWriter.add_mesh: vertices are kept as a table; add_figure keeps a picture of a mesh")
        self._log({tag: TableOf(dict(zip("xyz", points.T)))}, global_step, walltime)

    def add_custom_scalars(self, layout: Any) -> None:
        """Nothing: the studio's Plots tab arranges columns."""
        self.run.report("SummaryWriter.add_custom_scalars has no effect: the studio's Plots tab arranges columns")

    def add_custom_scalars_multilinechart(self, tags: Any, category: str = "default", title: str = "untitled") -> None:
        """Nothing: the studio's Plots tab arranges columns."""
        self.add_custom_scalars(tags)

    add_custom_scalars_marginchart = add_custom_scalars_multilinechart

    def add_onnx_graph(self, prototxt: Any) -> None:
        """Nothing: `torcheer studio FILE` shows the network of an ONNX file."""
        self.run.report(f"SummaryWriter.add_onnx_graph has no effect: torcheer studio {prototxt} shows its network")

    def add_hparams(
        self, hparam_dict: Mapping[str, Any], metric_dict: Mapping[str, Any], hparam_domain_discrete: Any = None,
        run_name: str | None = None, global_step: int | None = None,
    ) -> None:  # fmt: skip
        """Add settings to the run's config, and results to its last step."""
        if not isinstance(hparam_dict, Mapping) or not isinstance(metric_dict, Mapping):
            raise WrongInputs("add_hparams: settings and results are dicts")
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
        self._run.flush()

    def close(self) -> None:
        """End the run; what is added later opens it again."""
        self._run.finish()

    def __enter__(self) -> SummaryWriter:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, _: Any) -> None:
        self._run.finish(error)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"torcheer's SummaryWriter has no {name!r}")
        names = [each for each in dir(type(self)) if not each.startswith("_")]
        there = f"there are {', '.join(names)}.{did_you_mean(name, names)}"
        is_file = name in ("file_writer", "all_writers", "default_bins")
        raise AttributeError(f"torcheer's SummaryWriter has no {name!r}: "
                             f"{'there are no event files; writer.run is the run' if is_file else there}")  # fmt: skip

    def _log(self, entries: Mapping[str, Any], step: int | None, walltime: float | None = None) -> None:
        self._note_time(walltime)
        self.run.log(entries, self._step(next(iter(entries), ""), step))

    def _note_time(self, walltime: float | None) -> None:
        if walltime is not None:
            self.run.report("SummaryWriter: walltime= has no effect: what is added has the time at which it comes")

    def _step(self, tag: str, step: int | None) -> int:
        if step is not None:
            return int(step)
        self._counts[tag] = self._counts.get(tag, -1) + 1
        return self._counts[tag]


_PR_COLUMNS = ("true positives", "false positives", "true negatives", "false negatives", "precision", "recall")


def _pr_curve(labels: Any, predictions: Any, count: int, weights: Any) -> dict[str, Any]:
    """Counts at thresholds from 0 to 1: a prediction is positive from its threshold on."""
    true, predicted = _array(labels).ravel().astype(bool), _array(predictions).ravel().astype(float)
    weighs = np.ones(len(true)) if weights is None else np.broadcast_to(_array(weights).ravel(), true.shape)
    thresholds = np.arange(count) / (count - 1)
    places = np.minimum(np.floor(predicted * (count - 1)).astype(int), count - 1)  # the last threshold it reaches
    positives, negatives = (np.bincount(places[kind], weighs[kind], count) for kind in (true, ~true))
    tp, fp = positives[::-1].cumsum()[::-1], negatives[::-1].cumsum()[::-1]
    precision, recall = tp / np.maximum(tp + fp, 1e-7), tp / np.maximum(tp[0], 1e-7)
    columns = (tp, fp, fp[0] - fp, tp[0] - tp, precision, recall)
    return {"threshold": thresholds, **dict(zip(_PR_COLUMNS, columns))}


def _boxed(image: Any, boxes: Any, layout: str) -> Any:
    """An image H×W×3 of bytes with boxes drawn into it, two pixels wide."""
    image = image[..., None] if layout == "HW" else image.transpose(1, 2, 0) if layout == "CHW" else image
    picture = image if image.dtype == np.uint8 else (image.clip(0, 1) * 255).astype(np.uint8)
    picture = np.repeat(picture, 3, 2) if picture.shape[2] == 1 else picture[..., :3].copy()
    for left, top, right, bottom in boxes.reshape(-1, 4).astype(int):
        rows, columns = slice(max(top, 0), bottom + 1), slice(max(left, 0), right + 1)
        for edge in ((slice(max(top, 0), top + 2), columns), (slice(max(bottom - 1, 0), bottom + 1), columns),
                     (rows, slice(max(left, 0), left + 2)), (rows, slice(max(right - 1, 0), right + 1))):  # fmt: skip
            picture[edge] = _BOX_COLOUR
    return picture


def _number(tag: str, value: Any) -> Any:
    """A single number as it is, also on a GPU."""
    count = value.numel() if hasattr(value, "numel") else np.size(value)
    if value is None or isinstance(value, list | tuple | dict) or count != 1:
        raise WrongInputs(f"add_scalar: {tag!r} is {short_repr(value)}, not one number; add_scalars takes several")
    return float(value) if isinstance(value, str) else value


def _plain(value: Any) -> Any:
    return value if hasattr(value, "detach") else np.asarray(value)


def _array(value: Any) -> Any:
    return value.detach().float().cpu().numpy() if hasattr(value, "detach") else np.asarray(value)
