"""Builtin metrics, and lookup of metrics and losses by short name.

A metric accumulates over batches: `update` adds one, `compute` returns the value, `reset` clears. Its state is in the
attributes that `STATE` names, as numbers at first and then as tensors on the batches' device, so that checkpoints can
save it and no update waits for a GPU.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torcheer.config import bind, find
from torcheer.errors import BadArgument, BadConfig
from torcheer.terminal import did_you_mean
from torcheer.training.collators import stacked
from torcheer.training.metric_inputs import TASKS as TASKS
from torcheer.training.metric_inputs import Reading, edit_distance, share, texts_in
from torcheer.training.metric_inputs import is_one_each as is_one_each
from torcheer.training.metric_inputs import squeezed as squeezed
from torcheer.training.metric_inputs import without as without

IGNORED = -100  # the target that torch's cross entropy ignores


class Metric(ABC):
    """A value accumulated over batches."""

    STATE: ClassVar[tuple[str, ...]] = ()
    ADDS: ClassVar[bool] = False  # True where the sum of two states is the state of both batches, as on two ranks

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Clear the state."""
        for name in self.STATE:
            setattr(self, name, 0)

    @abstractmethod
    def update(self, *args: Any, **kwargs: Any) -> None:
        """Add a batch."""

    @abstractmethod
    def compute(self) -> float:
        """Return the value; NaN where nothing was added."""


class Accuracy(Metric):
    """Share of predictions that are right, or among the `top_k` best.

    Predictions are scores of classes (the classes on axis 1 or the last), one score each, or classes; targets are
    classes or one-hot. `task` is needed only where shapes are ambiguous: "multilabel" for several answers to a sample.
    A single score means yes above `threshold`; without one, above 0.5 as a probability, and a batch with scores
    outside of 0 to 1 is taken for logits.
    """

    ADDS = True
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
        predictions, targets = self._read(prediction, target)
        are_scores = predictions.ndim > targets.ndim
        hits = self._among_best(predictions, targets) if are_scores or self.top_k > 1 else predictions == targets
        if self.ignore_index is None:
            self.total = self.total + hits.numel()
        else:
            counted = targets != self.ignore_index
            self.total = self.total + counted.sum()
            if self.ignore_index >= 0 or not are_scores:  # no score is of a class below 0
                hits = hits & counted
        self.correct = self.correct + hits.sum()

    def _among_best(self, scores: Tensor, targets: Tensor) -> Tensor:
        if self.top_k == 1:
            return scores.argmax(-1) == targets
        classes = scores.shape[-1] if scores.ndim > 1 else 1
        if self.top_k > classes:
            raise BadArgument(
                f"top_k={self.top_k} of {classes}: predictions are the scores of at least so many classes"
            )
        return (scores.topk(self.top_k).indices == targets[:, None]).any(-1)

    def compute(self) -> float:
        return share(self.correct, self.total)


class AccuracyPercent(Accuracy):
    """Accuracy in percent."""

    def compute(self) -> float:
        return 100 * super().compute()


class ClassScore(Metric):
    """Average of a score of each class, from the counts of predictions, targets and hits.

    `average` is "macro" (the mean over the classes that occur), "weighted" (by how often each is the target), "micro"
    (one score of all counts) or "binary" (that of class 1). `num_classes` is needed where predictions are classes.
    """

    ADDS = True
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
            raise BadArgument(f"average={average!r} is none of {', '.join(AVERAGES)}.{did_you_mean(average, AVERAGES)}")
        if task == "multilabel":
            raise BadArgument(f"{type(self).__name__} counts one class to a sample; torchmetrics does multilabel")
        self._read = Reading(task, threshold, class_axis)
        self.num_classes, self.ignore_index = num_classes, ignore_index

    @abstractmethod
    def shares(self, hits: Tensor, predicted: Tensor, actual: Tensor) -> tuple[Tensor, Tensor]:
        """Return the numerators and denominators of the score."""

    def update(self, prediction: Any, target: Any) -> None:
        predictions, targets = self._read(prediction, target)
        count = self._classes(predictions, targets)
        predictions = (predictions.argmax(-1) if predictions.ndim > targets.ndim else predictions).long()
        targets = targets.long()
        counted = torch.ones_like(targets) if self.ignore_index is None else (targets != self.ignore_index).long()
        targets = targets * counted  # ignored targets add nothing to class 0

        self.hits = self._times(targets, counted * (predictions == targets), count, self.hits)
        self.predicted = self._times(predictions, counted, count, self.predicted)
        self.actual = self._times(targets, counted, count, self.actual)

    def _times(self, classes: Tensor, amounts: Tensor, count: int, before: Any) -> Tensor:
        """Return how often each class occurred, this batch included.

        `bincount` would wait for the GPU.
        """
        held: Tensor = torch.zeros(count, dtype=torch.long) if isinstance(before, int) else before
        try:  # moved: it may come from a checkpoint
            return held.to(classes.device, non_blocking=True).scatter_add(0, classes, amounts)
        except RuntimeError as error:
            raise BadArgument(f"{type(self).__name__} counts {count} classes: {error}") from None

    def _classes(self, predictions: Tensor, targets: Tensor) -> int:
        if self.num_classes is not None:
            return self.num_classes
        if predictions.ndim > targets.ndim:
            return predictions.shape[-1]
        if self.average == "binary" or predictions.dtype == torch.bool:
            return 2
        raise BadArgument(f"{type(self).__name__} of predicted classes needs to know how many there are: num_classes=…")

    def compute(self) -> float:
        if isinstance(self.actual, int):  # nothing yet
            return float("nan")
        counts = [count.double().cpu() for count in (self.hits, self.predicted, self.actual)]
        return AVERAGES[self.average](self, *counts)


class F1(ClassScore):
    """Harmonic mean of precision and recall."""

    AVERAGE = "macro"

    def shares(self, hits: Tensor, predicted: Tensor, actual: Tensor) -> tuple[Tensor, Tensor]:
        return 2 * hits, predicted + actual


class F1Score(F1):
    """F1, under torchmetrics' name and with its "micro"."""

    AVERAGE = "micro"


class Precision(ClassScore):
    """Share of the predictions of a class that are right."""

    def shares(self, hits: Tensor, predicted: Tensor, actual: Tensor) -> tuple[Tensor, Tensor]:
        return hits, predicted


class Recall(ClassScore):
    """Share of the samples of a class that are predicted."""

    def shares(self, hits: Tensor, predicted: Tensor, actual: Tensor) -> tuple[Tensor, Tensor]:
        return hits, actual


def _scores(metric: ClassScore, hits: Tensor, predicted: Tensor, actual: Tensor) -> Tensor:
    """Return the score of each class, 0 where the denominator is 0."""
    numerator, denominator = metric.shares(hits, predicted, actual)
    return numerator / denominator.clamp(min=1)


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
    """Edit distance between prediction and target, divided by the length of the target."""

    ADDS = True
    STATE = ("errors", "total")
    errors: int
    total: int

    @abstractmethod
    def pieces(self, text: str) -> Sequence[Any]:
        """Return the units of a text to compare."""

    def update(self, prediction: Any, target: Any) -> None:
        predictions, targets = texts_in(prediction), texts_in(target)
        if len(predictions) != len(targets):
            raise BadArgument(f"{type(self).__name__}: {len(predictions)} predictions for {len(targets)} targets")
        for predicted_text, target_text in zip(predictions, targets):
            predicted, expected = (
                self.pieces(text) if isinstance(text, str) else text for text in (predicted_text, target_text)
            )
            self.errors += edit_distance(predicted, expected)
            self.total += len(expected)

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
    """Exponential of the mean cross entropy of tokens.

    Their scores are on the last axis, or on axis 1.
    """

    ADDS = True
    STATE = ("loss", "total")
    loss: Any
    total: Any

    def __init__(self, ignore_index: int = IGNORED) -> None:
        super().__init__()
        self.ignore_index = ignore_index
        self._read = Reading("multiclass", axes=(-1, 1))

    def update(self, prediction: Any, target: Any) -> None:
        scores, targets = self._read(prediction, target)
        if scores.ndim == targets.ndim:
            raise BadArgument("Perplexity needs the scores of all tokens, and was given one number for each")
        losses = F.cross_entropy(
            scores.detach().float(), targets.long(), reduction="none", ignore_index=self.ignore_index
        )
        self.loss = self.loss + losses.double().sum()
        self.total = self.total + (targets != self.ignore_index).sum()

    def compute(self) -> float:
        return float(torch.tensor(share(self.loss, self.total), dtype=torch.float64).exp())


class MeanMetric(Metric):
    """Mean of values, weighted where weights are given."""

    ADDS = True
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
    """Number of tokens, without `padding`."""

    ADDS = True
    STATE = ("total",)
    total: Any

    def __init__(self, padding: int | None = None) -> None:
        super().__init__()
        self.padding = padding

    def update(self, tokens: Any) -> None:
        if isinstance(tokens, Tensor):
            self.total = self.total + (tokens.numel() if self.padding is None else (tokens != self.padding).sum())
        else:
            self.total = self.total + sum(token != self.padding for sequence in texts_in(tokens) for token in sequence)

    def compute(self) -> float:
        return float(self.total)


BUILTINS: tuple[type[Metric], ...] = (
    Accuracy, F1, F1Score, Precision, Recall, CER, WER, Perplexity, MeanMetric, TokenCounter,
)  # fmt: skip
METRICS: dict[str, type[Metric]] = {
    "accuracy": Accuracy,
    "accuracy %": AccuracyPercent,
    "token_counter": TokenCounter,
    "CharErrorRate": CER,
    "WordErrorRate": WER,
    **{kind.__name__: kind for kind in BUILTINS},
}
LOSSES: dict[str, type[nn.Module]] = {name: getattr(nn, name) for name in dir(nn) if name.endswith("Loss")}


def metric(name: str, **kwargs: Any) -> Any:
    """Make a metric by its short name.

    A builtin one, or one of torchmetrics where that can be imported.
    """
    return find_metric(name, kwargs)(**kwargs)


def find_metric(name: str, kwargs: Mapping[str, Any] | None = None) -> type[Any]:
    """Return the class of a short name.

    The builtin if it takes these arguments, else that of torchmetrics.
    """
    builtin = METRICS.get(name)
    complaint = f"there is no metric {name!r}." if builtin is None else bind(builtin, kwargs or {})
    if builtin is not None and not complaint:
        return builtin
    try:  # by the lookup of config names, which refuses what downloads
        external: type[Any] = find(f"torchmetrics.{name}", kind="class")
    except BadConfig as error:
        near = did_you_mean(name, METRICS) if builtin is None else ""
        raise BadArgument(f"{complaint}{near} Nor in torchmetrics: {error}") from None
    wrong = bind(external, kwargs or {})
    if wrong:
        raise BadArgument(wrong if builtin is None else complaint)
    return external


def loss(name: str, **kwargs: Any) -> nn.Module:
    """Make a loss of torch.nn by its name; `weight` and `pos_weight` may be lists."""
    lists = [key for key in ("weight", "pos_weight") if isinstance(kwargs.get(key), list)]
    tensors = {key: torch.tensor(kwargs[key], dtype=torch.get_default_dtype()) for key in lists}
    return find_loss(name, kwargs)(**(kwargs | tensors))


def find_loss(name: str, kwargs: Mapping[str, Any] | None = None) -> type[nn.Module]:
    """Return the class in torch.nn of a loss."""
    if name not in LOSSES:
        raise BadArgument(f"there is no loss {name!r} in torch.nn.{did_you_mean(name, LOSSES)}")
    wrong = bind(LOSSES[name], kwargs or {})
    if wrong:
        raise BadArgument(wrong)
    return LOSSES[name]
