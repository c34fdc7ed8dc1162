"""Metrics of our own, and metrics and losses by their short names.

A metric gathers over batches: `update` takes one in, `compute` tells the number, `reset` forgets. What is gathered
stands in the attributes that `STATE` names, as numbers at first and then as tensors where the batches are, so that
checkpoints can keep it and no update waits for a GPU.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torcheer.config import bind, find, nearest
from torcheer.errors import BadArgument, BadConfig
from torcheer.training.collators import stacked

IGNORED = -100  # the target that torch's cross entropy passes over
TASKS = ("", "binary", "multiclass", "multilabel")


class Metric(ABC):
    """A number that is gathered over batches."""

    STATE: ClassVar[tuple[str, ...]] = ()

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget what was gathered."""
        for name in self.STATE:
            setattr(self, name, 0)

    @abstractmethod
    def update(self, *args: Any, **kwargs: Any) -> None:
        """Take a batch in."""

    @abstractmethod
    def compute(self) -> float:
        """The number; not a number where nothing was gathered."""


class Accuracy(Metric):
    """The share of predictions that are right, or among the `top_k` best.

    Predictions are scores of classes (the classes on axis 1 or the last), one score each, or classes; targets are
    classes or one-hot. `task` is needed only where shapes leave it open: "multilabel" for several answers to a sample.
    A single score means yes above `threshold`; without one, above 0.5 as a probability, and a batch in which some are
    none is taken for logits.
    """

    STATE = ("correct", "total")
    correct: Any
    total: Any

    def __init__(
        self,
        task: str = "",
        num_classes: int | None = None,
        *,
        top_k: int = 1,
        threshold: float | None = None,
        class_axis: int | None = None,
        ignore_index: int | None = IGNORED,
    ) -> None:
        super().__init__()
        self._read = Reading(task, threshold, class_axis)
        self.num_classes, self.top_k, self.ignore_index = num_classes, top_k, ignore_index

    def update(self, prediction: Any, target: Any) -> None:
        found, wanted = self._read(prediction, target)
        are_scores = found.ndim > wanted.ndim
        hits = self._among_best(found, wanted) if are_scores or self.top_k > 1 else found == wanted
        if self.ignore_index is None:
            self.total = self.total + hits.numel()
        else:
            counted = wanted != self.ignore_index
            self.total = self.total + counted.sum()
            if self.ignore_index >= 0 or not are_scores:  # no score is of a class below 0
                hits = hits & counted
        self.correct = self.correct + hits.sum()

    def _among_best(self, scores: Tensor, wanted: Tensor) -> Tensor:
        if self.top_k == 1:
            return scores.argmax(-1) == wanted
        classes = scores.shape[-1] if scores.ndim > 1 else 1
        if self.top_k > classes:
            raise BadArgument(
                f"top_k={self.top_k} of {classes}: predictions are the scores of at least so many classes"
            )
        return (scores.topk(self.top_k).indices == wanted[:, None]).any(-1)

    def compute(self) -> float:
        return share(self.correct, self.total)


class AccuracyPercent(Accuracy):
    """Accuracy, of a hundred."""

    def compute(self) -> float:
        return 100 * super().compute()


class ClassScore(Metric):
    """A score of each class from how often it was predicted, was the target, and was both; and a mean of them.

    `average` is "macro" (the mean over the classes that occur), "weighted" (by how often each is the target), "micro"
    (one score of all counts) or "binary" (that of class 1). `num_classes` is needed where predictions are classes.
    """

    STATE = ("hits", "predicted", "actual")  # of each class
    AVERAGE = "micro"
    hits: Any
    predicted: Any
    actual: Any

    def __init__(
        self,
        task: str = "",
        num_classes: int | None = None,
        *,
        average: str = "",
        threshold: float | None = None,
        class_axis: int | None = None,
        ignore_index: int | None = IGNORED,
    ) -> None:
        super().__init__()
        self.average = average or ("binary" if task == "binary" else self.AVERAGE)
        if self.average not in AVERAGES:
            raise BadArgument(f"average={average!r} is none of {', '.join(AVERAGES)}.{nearest(average, AVERAGES)}")
        if task == "multilabel":
            raise BadArgument(f"{type(self).__name__} counts one class to a sample; torchmetrics does multilabel")
        self._read = Reading(task, threshold, class_axis)
        self.num_classes, self.ignore_index = num_classes, ignore_index

    @abstractmethod
    def shares(self, hits: Tensor, predicted: Tensor, actual: Tensor) -> tuple[Tensor, Tensor]:
        """Of what the score is a share: numerators and denominators."""

    def update(self, prediction: Any, target: Any) -> None:
        found, wanted = self._read(prediction, target)
        count = self._classes(found, wanted)
        found = (found.argmax(-1) if found.ndim > wanted.ndim else found).long()
        wanted = wanted.long()
        counted = torch.ones_like(wanted) if self.ignore_index is None else (wanted != self.ignore_index).long()
        wanted = wanted * counted  # what is ignored adds nothing to class 0

        self.hits = self._times(wanted, counted * (found == wanted), count, self.hits)
        self.predicted = self._times(found, counted, count, self.predicted)
        self.actual = self._times(wanted, counted, count, self.actual)

    def _times(self, classes: Tensor, amounts: Tensor, count: int, before: Any) -> Tensor:
        """How often each class occurred, with this batch; bincount would wait for the GPU."""
        held: Tensor = torch.zeros(count, dtype=torch.long) if isinstance(before, int) else before
        try:  # moved: it may come from a checkpoint
            return held.to(classes.device, non_blocking=True).scatter_add(0, classes, amounts)
        except RuntimeError as error:
            raise BadArgument(f"{type(self).__name__} counts {count} classes: {error}") from None

    def _classes(self, found: Tensor, wanted: Tensor) -> int:
        if self.num_classes is not None:
            return self.num_classes
        if found.ndim > wanted.ndim:
            return found.shape[-1]
        if self.average == "binary" or found.dtype == torch.bool:
            return 2
        raise BadArgument(f"{type(self).__name__} of predicted classes needs to know how many there are: num_classes=…")

    def compute(self) -> float:
        if isinstance(self.actual, int):  # nothing yet
            return float("nan")
        counts = [one.double().cpu() for one in (self.hits, self.predicted, self.actual)]
        return AVERAGES[self.average](self, *counts)


class F1(ClassScore):
    """The harmonic mean of precision and recall."""

    AVERAGE = "macro"

    def shares(self, hits: Tensor, predicted: Tensor, actual: Tensor) -> tuple[Tensor, Tensor]:
        return 2 * hits, predicted + actual


class F1Score(F1):
    """F1, under torchmetrics' name and with its "micro"."""

    AVERAGE = "micro"


class Precision(ClassScore):
    """How many of the predictions of a class are right."""

    def shares(self, hits: Tensor, predicted: Tensor, actual: Tensor) -> tuple[Tensor, Tensor]:
        return hits, predicted


class Recall(ClassScore):
    """How many of the samples of a class are found."""

    def shares(self, hits: Tensor, predicted: Tensor, actual: Tensor) -> tuple[Tensor, Tensor]:
        return hits, actual


def _scores(metric: ClassScore, hits: Tensor, predicted: Tensor, actual: Tensor) -> Tensor:
    """The score of each class, 0 where there is nothing to divide by."""
    part, whole = metric.shares(hits, predicted, actual)
    return part / whole.clamp(min=1)


def _macro(metric: ClassScore, hits: Tensor, predicted: Tensor, actual: Tensor) -> float:
    occurs = predicted + actual > 0
    return share(_scores(metric, hits, predicted, actual)[occurs].sum(), occurs.sum())


def _weighted(metric: ClassScore, hits: Tensor, predicted: Tensor, actual: Tensor) -> float:
    return share((_scores(metric, hits, predicted, actual) * actual).sum(), actual.sum())


def _micro(metric: ClassScore, hits: Tensor, predicted: Tensor, actual: Tensor) -> float:
    return float(_scores(metric, hits.sum(), predicted.sum(), actual.sum()))


def _binary(metric: ClassScore, hits: Tensor, predicted: Tensor, actual: Tensor) -> float:
    return float(_scores(metric, hits, predicted, actual)[1])


AVERAGES: dict[str, Callable[[ClassScore, Tensor, Tensor, Tensor], float]] = {
    "macro": _macro,
    "weighted": _weighted,
    "micro": _micro,
    "binary": _binary,
}


class ErrorRate(Metric):
    """Insertions, deletions and replacements that lead from the target to the prediction, for each of its pieces."""

    STATE = ("errors", "total")
    errors: int
    total: int

    @abstractmethod
    def pieces(self, text: str) -> Sequence[Any]:
        """What of a text is compared."""

    def update(self, prediction: Any, target: Any) -> None:
        predictions, targets = texts_in(prediction), texts_in(target)
        if len(predictions) != len(targets):
            raise BadArgument(f"{type(self).__name__}: {len(predictions)} predictions for {len(targets)} targets")
        for one, other in zip(predictions, targets):
            found, wanted = (self.pieces(text) if isinstance(text, str) else text for text in (one, other))
            self.errors += edit_distance(found, wanted)
            self.total += len(wanted)

    def compute(self) -> float:
        return share(self.errors, self.total)


class CER(ErrorRate):
    """Character error rate of texts, or of sequences of anything."""

    def pieces(self, text: str) -> Sequence[Any]:
        return text


class WER(ErrorRate):
    """Word error rate of texts, or of sequences of words."""

    def pieces(self, text: str) -> Sequence[Any]:
        return text.split()


class Perplexity(Metric):
    """The exponential of the mean cross entropy of tokens; scores of them stand on the last axis, or on axis 1."""

    STATE = ("loss", "total")
    loss: Any
    total: Any

    def __init__(self, ignore_index: int = IGNORED) -> None:
        super().__init__()
        self.ignore_index = ignore_index
        self._read = Reading("multiclass", axes=(-1, 1))

    def update(self, prediction: Any, target: Any) -> None:
        scores, wanted = self._read(prediction, target)
        if scores.ndim == wanted.ndim:
            raise BadArgument("Perplexity needs the scores of all tokens, and was given one number for each")
        losses = F.cross_entropy(
            scores.detach().float(), wanted.long(), reduction="none", ignore_index=self.ignore_index
        )
        self.loss = self.loss + losses.double().sum()
        self.total = self.total + (wanted != self.ignore_index).sum()

    def compute(self) -> float:
        return float(torch.tensor(share(self.loss, self.total), dtype=torch.float64).exp())


class MeanMetric(Metric):
    """The mean of values, weighted where weights are given."""

    STATE = ("sum", "weight")
    sum: Any
    weight: Any

    def update(self, value: Any, weight: Any = 1.0) -> None:
        values = torch.as_tensor(value).detach().double()
        if isinstance(weight, (int, float)):
            self.sum, self.weight = self.sum + values.sum() * weight, self.weight + values.numel() * weight
        else:
            weights = stacked(weight).to(values.device, torch.float64).broadcast_to(values.shape)
            self.sum, self.weight = self.sum + (values * weights).sum(), self.weight + weights.sum()

    def compute(self) -> float:
        return share(self.sum, self.weight)


class TokenCounter(Metric):
    """How many tokens there were, `padding` left out."""

    STATE = ("total",)
    total: Any

    def __init__(self, padding: int | None = None) -> None:
        super().__init__()
        self.padding = padding

    def update(self, tokens: Any) -> None:
        if isinstance(tokens, Tensor):
            self.total = self.total + (tokens.numel() if self.padding is None else (tokens != self.padding).sum())
        else:
            self.total = self.total + sum(token != self.padding for one in texts_in(tokens) for token in one)

    def compute(self) -> float:
        return float(self.total)


OURS: tuple[type[Metric], ...] = (
    Accuracy, F1, F1Score, Precision, Recall, CER, WER, Perplexity, MeanMetric, TokenCounter,
)  # fmt: skip
METRICS: dict[str, type[Metric]] = {
    "accuracy": Accuracy,
    "accuracy %": AccuracyPercent,
    "token_counter": TokenCounter,
    "CharErrorRate": CER,
    "WordErrorRate": WER,
    **{one.__name__: one for one in OURS},
}
LOSSES: dict[str, type[nn.Module]] = {name: getattr(nn, name) for name in dir(nn) if name.endswith("Loss")}


def metric(name: str, **kwargs: Any) -> Any:
    """A new metric by its short name: one of ours, or one of torchmetrics where that can be imported."""
    return find_metric(name, kwargs)(**kwargs)


def find_metric(name: str, kwargs: Mapping[str, Any] | None = None) -> type[Any]:
    """The class of a short name: ours if it takes these arguments, else torchmetrics' own."""
    ours = METRICS.get(name)
    complaint = f"there is no metric {name!r}." if ours is None else bind(ours, kwargs or {})
    if ours is not None and not complaint:
        return ours
    try:  # through the door for names in configs: some of torchmetrics downloads
        theirs: type[Any] = find(f"torchmetrics.{name}", kind="class")
    except BadConfig as error:
        near = nearest(name, METRICS) if ours is None else ""
        raise BadArgument(f"{complaint}{near} Nor in torchmetrics: {error}") from None
    wrong = bind(theirs, kwargs or {})
    if wrong:
        raise BadArgument(wrong if ours is None else complaint)
    return theirs


def loss(name: str, **kwargs: Any) -> nn.Module:
    """A new loss of torch.nn by its name; `weight` and `pos_weight` may be lists."""
    lists = [key for key in ("weight", "pos_weight") if isinstance(kwargs.get(key), list)]
    tensors = {key: torch.tensor(kwargs[key], dtype=torch.get_default_dtype()) for key in lists}
    return find_loss(name, kwargs)(**(kwargs | tensors))


def find_loss(name: str, kwargs: Mapping[str, Any] | None = None) -> type[nn.Module]:
    """The class in torch.nn of a loss."""
    if name not in LOSSES:
        raise BadArgument(f"there is no loss {name!r} in torch.nn.{nearest(name, LOSSES)}")
    wrong = bind(LOSSES[name], kwargs or {})
    if wrong:
        raise BadArgument(wrong)
    return LOSSES[name]


class Reading:
    """How predictions and targets are to be understood."""

    def __init__(
        self,
        task: str = "",
        threshold: float | None = None,
        class_axis: int | None = None,
        axes: tuple[int, ...] = (1, -1),  # where classes may stand: first as for torch's losses, else last
    ) -> None:
        if task not in TASKS:
            raise BadArgument(f"task={task!r} is none of {', '.join(TASKS[1:])}.{nearest(task, TASKS)}")
        self._single = task in ("binary", "multilabel")
        self._threshold, self._axis = threshold, class_axis
        self._axes = axes if class_axis is None else (class_axis,)

    def __call__(self, prediction: Any, target: Any) -> tuple[Tensor, Tensor]:
        """Scores (items × classes) or classes (items), and the classes that were wanted (items)."""
        found, wanted = stacked(prediction), stacked(target)
        if wanted.device != found.device:
            wanted = wanted.to(found.device, non_blocking=found.is_cuda)
        if found.ndim == 2 and wanted.ndim == 1 and found.shape[1] > 1 and len(found) == len(wanted):
            if not self._single and found.dtype != torch.bool:
                return found, wanted  # the commonest case, for which nothing is to be done
        axis = self._class_axis(found, wanted)
        if axis is None:
            return self._answers(found).reshape(-1), wanted.reshape(-1)
        if wanted.shape == found.shape:
            wanted = wanted.byte().argmax(axis) if wanted.dtype == torch.bool else wanted.argmax(axis)
        scores = found.byte() if found.dtype == torch.bool else found  # booleans have no argmax
        return scores.movedim(axis, -1).reshape(-1, found.shape[axis]), wanted.reshape(-1)

    def _class_axis(self, found: Tensor, wanted: Tensor) -> int | None:
        """Where the classes stand in scores; None where there is one number for each answer."""
        shape, wanted_shape = tuple(found.shape), tuple(wanted.shape)
        if shape == wanted_shape and self._axis is not None:
            return self._axis
        if squeezed(shape) == squeezed(wanted_shape) and (self._single or is_one_each(found)):
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

    def _answers(self, found: Tensor) -> Tensor:
        if not found.is_floating_point():
            return found
        if self._threshold is not None:
            return found > self._threshold
        are_logits = ((found < 0) | (found > 1)).any()
        return torch.where(are_logits, found.sigmoid(), found) > 0.5


def is_one_each(found: Tensor) -> bool:
    """Whether predictions of the shape of their targets must be answers, not scores of classes."""
    return not found.is_floating_point() or found.ndim < 2 or found.shape[1] == 1


def squeezed(shape: Sequence[int]) -> list[int]:
    """A shape without its axes of one."""
    return [size for size in shape if size != 1]


def without(shape: Sequence[int], axis: int, *instead: int) -> tuple[int, ...]:
    """A shape with an axis left out, or another size in its place."""
    axis = axis % max(len(shape), 1)
    return (*shape[:axis], *instead, *shape[axis + 1 :])


def share(part: Any, whole: Any) -> float:
    """A share; not a number where there is nothing."""
    part, whole = float(part), float(whole)
    return part / whole if whole else float("nan") if not part else float("inf")


def texts_in(value: Any) -> list[Any]:
    """Texts or sequences; one alone is a list of one."""
    if isinstance(value, Tensor):
        value = value.tolist()
    if isinstance(value, str):
        return [value]
    is_one = len(value) and not isinstance(value[0], (str, list, tuple, Tensor))
    items = [value] if is_one else list(value)
    return [one.tolist() if isinstance(one, Tensor) else one for one in items]


def edit_distance(one: Sequence[Any], other: Sequence[Any]) -> int:
    """The fewest insertions, deletions and replacements that make one sequence of the other.

    A whole column of the table of distances is two numbers, `more` and `less`: their bits say where it goes up or down
    by one from row to row. So a column costs a few operations on long integers instead of one for each row.
    """
    if not one:
        return len(other)
    rows: dict[Any, int] = {}  # piece -> the rows where it stands
    for row, piece in enumerate(one):
        rows[piece] = rows.get(piece, 0) | 1 << row
    full, last = (1 << len(one)) - 1, 1 << len(one) - 1
    more, less, distance = full, 0, len(one)
    for piece in other:
        same = rows.get(piece, 0)
        straight = (((same & more) + more) ^ more) | same | less
        up, down = less | ~(straight | more) & full, more & straight
        distance += bool(up & last) - bool(down & last)
        up, down = (up << 1 | 1) & full, down << 1 & full
        more, less = down | ~(straight | up) & full, up & straight
    return distance
