"""Parse the inputs of metrics: predictions and targets of any layout, texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from torcheer.errors import BadArgument
from torcheer.terminal import did_you_mean
from torcheer.training.collators import stacked

TASKS = ("", "binary", "multiclass", "multilabel")


class Reading:
    """Parses predictions and targets of any layout into scores or classes, and target classes."""

    def __init__(
        self,
        task: str = "",
        threshold: float | None = None,
        class_axis: int | None = None,
        axes: tuple[int, ...] = (1, -1),  # candidates of the class axis: 1 as for torch's losses, else the last
    ) -> None:
        if task not in TASKS:
            raise BadArgument(f"task={task!r} is none of {', '.join(TASKS[1:])}.{did_you_mean(task, TASKS)}")
        self._single = task in ("binary", "multilabel")
        self._threshold, self._axis = threshold, class_axis
        self._axes = axes if class_axis is None else (class_axis,)

    def __call__(self, prediction: Any, target: Any) -> tuple[Tensor, Tensor]:
        """Return scores (items × classes) or classes (items), and the target classes (items)."""
        predictions, targets = stacked(prediction), stacked(target)
        if targets.device != predictions.device:
            targets = targets.to(predictions.device, non_blocking=predictions.is_cuda)
        if (
            predictions.ndim == 2
            and targets.ndim == 1
            and predictions.shape[1] > 1
            and len(predictions) == len(targets)
        ):
            if not self._single and predictions.dtype != torch.bool:
                return predictions, targets  # the commonest case needs no conversion
        axis = self._class_axis(predictions, targets)
        if axis is None:
            return self._answers(predictions).reshape(-1), targets.reshape(-1)
        if targets.shape == predictions.shape:
            targets = targets.byte().argmax(axis) if targets.dtype == torch.bool else targets.argmax(axis)
        scores = predictions.byte() if predictions.dtype == torch.bool else predictions  # booleans have no argmax
        return scores.movedim(axis, -1).reshape(-1, predictions.shape[axis]), targets.reshape(-1)

    def _class_axis(self, predictions: Tensor, targets: Tensor) -> int | None:
        """Return the class axis of scores; None where there is one number for each answer."""
        shape, wanted_shape = tuple(predictions.shape), tuple(targets.shape)
        if shape == wanted_shape and self._axis is not None:
            return self._axis
        if squeezed(shape) == squeezed(wanted_shape) and (self._single or is_one_each(predictions)):
            return None
        if shape == wanted_shape and len(shape) == 2:
            return 1
        if shape == wanted_shape:
            raise BadArgument(
                f"predictions and targets both have the shape {shape}: say class_axis=… if the targets are one-hot, "
                f"task='binary' if each number is an answer"
            )
        for axis in self._axes:
            one_each = {without(shape, axis), without(shape, axis, 1)}  # (8,) or (8, 1) for scores of (8, 10)
            if not self._single and len(shape) > 1 and wanted_shape in one_each:
                return axis
        raise BadArgument(f"predictions of shape {shape} do not go with targets of shape {wanted_shape}")

    def _answers(self, predictions: Tensor) -> Tensor:
        if not predictions.is_floating_point():
            return predictions
        if self._threshold is not None:
            return predictions > self._threshold
        are_logits = ((predictions < 0) | (predictions > 1)).any()
        return torch.where(are_logits, predictions.sigmoid(), predictions) > 0.5


def is_one_each(predictions: Tensor) -> bool:
    """Return whether predictions of the targets' shape must be answers, not class scores."""
    return not predictions.is_floating_point() or predictions.ndim < 2 or predictions.shape[1] == 1


def squeezed(shape: Sequence[int]) -> list[int]:
    """Return a shape without its axes of size 1."""
    return [size for size in shape if size != 1]


def without(shape: Sequence[int], axis: int, *instead: int) -> tuple[int, ...]:
    """Return a shape without an axis, or with another size in its place."""
    axis = axis % max(len(shape), 1)
    return (*shape[:axis], *instead, *shape[axis + 1 :])


def share(part: Any, whole: Any) -> float:
    """Return part / whole; NaN where both are 0."""
    part, whole = float(part), float(whole)
    return part / whole if whole else float("nan") if not part else float("inf")


def texts_in(value: Any) -> list[Any]:
    """Return a list of texts or sequences; a single one becomes a list of one."""
    if isinstance(value, Tensor):
        value = value.tolist()
    if isinstance(value, str):
        return [value]
    is_one = len(value) and not isinstance(value[0], (str, list, tuple, Tensor))
    items = [value] if is_one else list(value)
    return [item.tolist() if isinstance(item, Tensor) else item for item in items]


def edit_distance(source: Sequence[Any], target: Sequence[Any]) -> int:
    """Return the Levenshtein distance of two sequences, by Myers' bit-parallel algorithm.

    A column of the table of distances is two integers, `more` and `less`: their bits say where it goes up or down by
    one from row to row. So a column costs a few operations on long integers instead of one for each row.
    """
    if not source:
        return len(target)
    rows: dict[Any, int] = {}  # piece -> bit mask of its rows
    for row, piece in enumerate(source):
        rows[piece] = rows.get(piece, 0) | 1 << row
    full, last = (1 << len(source)) - 1, 1 << len(source) - 1
    more, less, distance = full, 0, len(source)
    for piece in target:
        same = rows.get(piece, 0)
        straight = (((same & more) + more) ^ more) | same | less
        up, down = less | ~(straight | more) & full, more & straight
        distance += bool(up & last) - bool(down & last)
        up, down = (up << 1 | 1) & full, down << 1 & full
        more, less = down | ~(straight | up) & full, up & straight
    return distance
