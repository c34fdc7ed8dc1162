"""Rules on metrics: the loss, what is measured beside training, and the time that data take."""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Iterator
from statistics import fmean, median
from typing import Any, NamedTuple

from torcheer.monitor.rules.rule import Board, Finding, Rule, Seen, Verdict
from torcheer.samples import Delivery

_HELD_OUT = re.compile(r"^(val|valid|validation|test)(?![a-z])[\W_]*", re.IGNORECASE)
_TRAINED = re.compile(r"^(train|training)(?![a-z])[\W_]*", re.IGNORECASE)


class LossPlateau(Rule):
    """The loss does not fall any more, and has not come near zero."""

    name = "loss_plateau"
    defaults = {"metric": "loss", "window": 200, "ratio": 0.01, "done": 0.01, "patience": 3}

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__(settings)
        self._losses: dict[str, deque[tuple[int, float]]] = {}
        self._began: dict[str, float] = {}
        self._looks: dict[str, int] = {}

    def wants(self, variable: str) -> bool:
        return variable == "metric"

    def see(self, seen: Seen, sent: Delivery, board: Board) -> Iterator[Verdict]:
        loss, window = seen.summary.mean, self.settings["window"]
        if not is_training(seen, self.settings["metric"]) or not math.isfinite(loss):
            return
        self._began.setdefault(seen.layer, loss)
        losses = self._losses.setdefault(seen.layer, deque(maxlen=2 * window))
        losses.append((board.step, loss))
        looks = self._looks[seen.layer] = self._looks.get(seen.layer, 0) + 1
        if len(losses) == 2 * window and looks % max(1, window // 10) == 0:
            yield seen.key, self._judge(list(losses), self._began[seen.layer])

    def _judge(self, losses: list[tuple[int, float]], began: float) -> Finding | None:
        window = self.settings["window"]
        if min(loss for _, loss in losses) < 0 < max(loss for _, loss in losses):
            return None  # a policy's, or a critic's: it comes near zero by being well
        before, after = (fmean(loss for _, loss in half) for half in (losses[:window], losses[window:]))
        if before - after > self.settings["ratio"] * abs(before) or abs(after) <= self.settings["done"] * abs(began):
            return None
        what = f"it was {before:.4g} in the mean of {window} looks, and is {after:.4g} in the {window} after them"
        advice = "change the learning rate (lower it if the loss jumps, raise it if nothing moves), or end here"
        return Finding(what, advice, {"before": before, "after": after}, since=losses[0][0])


class _HeldOut(NamedTuple):
    step: int
    loss: float
    training: float  # the training loss until then


class Overfitting(Rule):
    """A held-out loss (its name begins with val, valid or test) rises while the training loss falls."""

    name = "overfitting"
    defaults = {"metric": "loss", "rise": 0.05, "looks": 5, "patience": 1}

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__(settings)
        self._training: deque[float] = deque(maxlen=50)
        self._trained = 0  # training losses so far
        self._known: dict[str, int] = {}  # how many of them there were at the last of each held-out loss
        self._best: dict[str, _HeldOut] = {}
        self._later: dict[str, deque[_HeldOut]] = {}  # the newest ones after the best

    def wants(self, variable: str) -> bool:
        return variable == "metric"

    def see(self, seen: Seen, sent: Delivery, board: Board) -> Iterator[Verdict]:
        loss = seen.summary.mean
        if not math.isfinite(loss):
            return
        if is_training(seen, self.settings["metric"]):
            self._training.append(loss)
            self._trained += 1
        elif is_held_out(seen, self.settings["metric"]) and (new := self._trained - self._known.get(seen.layer, 0)):
            self._known[seen.layer] = self._trained
            found = _HeldOut(board.step, loss, median(list(self._training)[-new:]))
            yield seen.key, self._judge(found, seen.layer)

    def _judge(self, found: _HeldOut, name: str) -> Finding | None:
        best = self._best.setdefault(name, found)
        if found.loss <= best.loss:
            self._best[name], self._later[name] = found, deque(maxlen=self.settings["looks"])
            return None
        later = self._later[name]
        later.append(found)
        now, training = median(one.loss for one in later), median(one.training for one in later)
        rises = now - best.loss >= self.settings["rise"] * abs(best.loss) and training < best.training
        if len(later) < self.settings["looks"] or not rises:
            return None
        what = f"it has risen from {best.loss:.4g} to {now:.4g}, while the training loss fell from {best.training:.4g} to {training:.4g}"  # noqa: E501
        advice = (
            f"keep the weights of step {best.step}, where it was best; more data, augmentation, dropout or weight decay"
        )
        return Finding(what, advice, {"best": best.loss, "best_step": best.step, "now": now}, since=best.step)


class StalledLoader(Rule):
    """Between two steps (`wait_secs`) more time passes than in them (`step_secs`): they wait for data."""

    name = "stalled_loader"
    defaults = {"share": 0.5, "least_secs": 0.01, "window": 20, "silent_secs": 60.0, "patience": 5}

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__(settings)
        self._times: deque[tuple[int, float, float]] = deque(maxlen=self.settings["window"])
        self._since: int | None = None  # while it is so
        self._halves: dict[str, tuple[int, float]] = {}  # of one step, in whatever order they come

    def wants(self, variable: str) -> bool:
        return variable == "metric"

    def see(self, seen: Seen, sent: Delivery, board: Board) -> Iterator[Verdict]:
        if seen.layer not in ("wait_secs", "step_secs") or not math.isfinite(seen.summary.mean):
            return
        self._halves[seen.layer] = board.step, seen.summary.mean
        if {step for step, _ in self._halves.values()} != {board.step} or len(self._halves) < 2:
            return
        (_, wait), (_, step) = self._halves["wait_secs"], self._halves["step_secs"]
        self._halves.clear()
        self._times.append((board.step, wait, wait + step))
        if len(self._times) == self.settings["window"]:
            yield ("wait_secs", "metric"), self._judge()

    def _judge(self) -> Finding | None:
        wait, step = median(one[1] for one in self._times), median(one[2] for one in self._times)
        if not self._waits(wait, step):
            self._since = None
            return None
        if self._since is None:
            self._since = self._began()
        what = f"{wait:.3g} s pass before each step, {wait / step:.0%} of the {step:.3g} s it takes in all"
        advice = "more workers (num_workers=), cheaper transforms, pin_memory=True, or data on a faster disk"
        return Finding(what, advice, {"wait_secs": wait, "step_secs": step - wait}, since=self._since)

    def _waits(self, wait_secs: float, whole_secs: float) -> bool:
        return bool(wait_secs >= self.settings["least_secs"] and wait_secs > self.settings["share"] * whole_secs)

    def _began(self) -> int:
        """The step from which on most had to wait; the first of a pass over the data often has."""
        surplus, most, since = 0, 0, self._times[-1][0]
        for step, wait, whole in reversed(self._times):
            surplus += 1 if self._waits(wait, whole) else -1
            if surplus > most:
                most, since = surplus, step
        return since


def is_training(seen: Seen, metric: str) -> bool:
    """Whether a metric is the loss of training: "loss", "train_loss"."""
    return _TRAINED.sub("", seen.layer) == metric


def is_held_out(seen: Seen, metric: str) -> bool:
    """Whether a metric is a loss on other data: "val_loss", "test/loss", "valid"; an accuracy is not."""
    name, found = _HELD_OUT.subn("", seen.layer)
    return bool(found) and (not name or metric in name.lower())
