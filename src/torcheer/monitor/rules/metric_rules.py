"""Rules on metrics: training loss, held-out loss, and data loading time."""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Iterator
from statistics import fmean, median
from typing import Any, NamedTuple

from torcheer.monitor.rules.rule import Finding, Observation, Rule, StepValues, Verdict
from torcheer.samples import Delivery

_LOSS_TRIES = 20  # looks at which the loss may be recognised by its gradient
_HELD_OUT = re.compile(r"^(val|valid|validation|eval|test)(?![a-z])[\W_]*", re.IGNORECASE)
_TRAINED = re.compile(r"^(train|training)(?![a-z])[\W_]*", re.IGNORECASE)


class LossPlateau(Rule):
    """The loss does not fall any more, and has not come near zero."""

    name = "loss_plateau"
    defaults = {"metric": "loss", "window": 200, "ratio": 0.01, "done": 0.01, "patience": 3}

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__(settings)
        self._losses: dict[str, deque[tuple[int, float]]] = {}
        self._first_losses: dict[str, float] = {}
        self._counts: dict[str, int] = {}

    def wants(self, variable: str) -> bool:
        return variable == "metric"

    def observe(self, value: Observation, delivery: Delivery, values: StepValues) -> Iterator[Verdict]:
        loss, window = value.summary.mean, self.settings["window"]
        if not is_training(value, self.settings["metric"]) or not math.isfinite(loss):
            return
        self._first_losses.setdefault(value.layer, loss)
        losses = self._losses.setdefault(value.layer, deque(maxlen=2 * window))
        losses.append((values.step, loss))
        count = self._counts[value.layer] = self._counts.get(value.layer, 0) + 1
        if len(losses) == 2 * window and count % max(1, window // 10) == 0:
            yield value.key, self._judge(list(losses), self._first_losses[value.layer])

    def _judge(self, losses: list[tuple[int, float]], first_loss: float) -> Finding | None:
        window = self.settings["window"]
        if min(loss for _, loss in losses) < 0 < max(loss for _, loss in losses):
            return None  # a policy or critic loss: near zero is normal
        before, after = (fmean(loss for _, loss in half) for half in (losses[:window], losses[window:]))
        if before - after > self.settings["ratio"] * abs(before) or abs(after) <= self.settings["done"] * abs(
            first_loss
        ):
            return None
        text = f"it was {before:.4g} in the mean of {window} looks, and is {after:.4g} in the {window} after them"
        advice = "change the learning rate (lower it if the loss jumps, raise it if nothing moves), or end here"
        return Finding(text, advice, {"before": before, "after": after}, since=losses[0][0])


class _HeldOut(NamedTuple):
    step: int
    loss: float
    training: float  # median training loss since the previous one


class Overfitting(Rule):
    """A held-out loss (named val, valid, eval or test) rises while the training loss, better than chance, falls."""

    name = "overfitting"
    defaults = {"metric": "loss", "rise": 0.05, "looks": 5, "patience": 1}

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__(settings)
        self._training: deque[float] = deque(maxlen=50)
        self._training_count = 0  # number of training losses so far
        self._chance = math.inf  # a training loss that shows no learning: the first one, or ln of the count of classes
        self._tries = _LOSS_TRIES
        self._counts_at_last: dict[str, int] = {}  # `_training_count` at the last value of each held-out loss
        self._best: dict[str, _HeldOut] = {}
        self._later: dict[str, deque[_HeldOut]] = {}  # the newest values after the best

    def wants(self, variable: str) -> bool:
        return variable in ("metric", "output", "grad")

    def observe(self, value: Observation, delivery: Delivery, values: StepValues) -> Iterator[Verdict]:
        if value.variable != "metric":
            self._see_classes(value, delivery, values)
            return
        loss = value.summary.mean
        if not math.isfinite(loss):
            return
        if is_training(value, self.settings["metric"]):
            self._chance = loss if self._chance == math.inf else self._chance
            self._training.append(loss)
            self._training_count += 1
        elif is_held_out(value, self.settings["metric"]) and (
            new := self._training_count - self._counts_at_last.get(value.layer, 0)
        ):
            self._counts_at_last[value.layer] = self._training_count
            measurement = _HeldOut(values.step, loss, median(list(self._training)[-new:]))
            yield value.key, self._judge(measurement, value.layer)

    def _see_classes(self, value: Observation, delivery: Delivery, values: StepValues) -> None:
        """Find the number of classes in the gradient of the loss, where it is a cross entropy."""
        if self._tries and (fits := values.loss_gradient.fits(value, delivery, values.step)) is not None:
            self._tries = 0 if fits else self._tries - 1
            self._chance = fits[0].chance if fits else self._chance

    def _judge(self, measurement: _HeldOut, name: str) -> Finding | None:
        best = self._best.setdefault(name, measurement)
        if measurement.loss <= best.loss:
            self._best[name], self._later[name] = measurement, deque(maxlen=self.settings["looks"])
            return None
        later = self._later[name]
        later.append(measurement)
        current, training = (
            median(entry.loss for entry in later),
            median(entry.training for entry in later),
        )
        rises = current - best.loss >= self.settings["rise"] * abs(best.loss)
        falls = best.training - training >= self.settings["rise"] * abs(best.training) and training < self._chance
        if len(later) < self.settings["looks"] or not (rises and falls):
            return None
        text = f"it has risen from {best.loss:.4g} to {current:.4g}, while the training loss fell from {best.training:.4g} to {training:.4g}"  # noqa: E501
        advice = (
            f"keep the weights of step {best.step}, where it was best; more data, augmentation, dropout or weight decay"
        )
        return Finding(text, advice, {"best": best.loss, "best_step": best.step, "now": current}, since=best.step)


class StalledLoader(Rule):
    """Between two steps (`wait_secs`) more time passes than in them (`step_secs`): they wait for data."""

    name = "stalled_loader"
    defaults = {"share": 0.5, "least_secs": 0.01, "window": 20, "silent_secs": 60.0, "patience": 5}

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__(settings)
        self._times: deque[tuple[int, float, float]] = deque(maxlen=self.settings["window"])
        self._since: int | None = None  # first waiting step, while steps wait
        self._halves: dict[str, tuple[int, float]] = {}  # of one step, in either order

    def wants(self, variable: str) -> bool:
        return variable == "metric"

    def observe(self, value: Observation, delivery: Delivery, values: StepValues) -> Iterator[Verdict]:
        if value.layer not in ("wait_secs", "step_secs") or not math.isfinite(value.summary.mean):
            return
        self._halves[value.layer] = values.step, value.summary.mean
        if {step for step, _ in self._halves.values()} != {values.step} or len(self._halves) < 2:
            return
        (_, wait), (_, step) = self._halves["wait_secs"], self._halves["step_secs"]
        self._halves.clear()
        self._times.append((values.step, wait, wait + step))
        if len(self._times) == self.settings["window"]:
            yield ("wait_secs", "metric"), self._judge()

    def _judge(self) -> Finding | None:
        wait, step = median(times[1] for times in self._times), median(times[2] for times in self._times)
        if not self._waits(wait, step):
            self._since = None
            return None
        if self._since is None:
            self._since = self._first_waiting_step()
        text = f"{wait:.3g} s pass before each step, {wait / step:.0%} of the {step:.3g} s it takes in all"
        advice = "more workers (num_workers=), cheaper transforms, pin_memory=True, or data on a faster disk"
        return Finding(text, advice, {"wait_secs": wait, "step_secs": step - wait}, since=self._since)

    def _waits(self, wait_secs: float, total_secs: float) -> bool:
        return bool(wait_secs >= self.settings["least_secs"] and wait_secs > self.settings["share"] * total_secs)

    def _first_waiting_step(self) -> int:
        """The step since which most steps waited; the first of an epoch often does."""
        majority, most, since = 0, 0, self._times[-1][0]
        for step, wait, total in reversed(self._times):
            majority += 1 if self._waits(wait, total) else -1
            if majority > most:
                most, since = majority, step
        return since


def is_training(value: Observation, metric: str) -> bool:
    """Whether a metric is the training loss: "loss", "train_loss"."""
    return _TRAINED.sub("", value.layer) == metric


def is_held_out(value: Observation, metric: str) -> bool:
    """Whether a metric is a held-out loss: "val_loss", "test/loss", "valid"; not an accuracy."""
    name, matches = _HELD_OUT.subn("", value.layer)
    return bool(matches) and (not name or metric in name.lower())
