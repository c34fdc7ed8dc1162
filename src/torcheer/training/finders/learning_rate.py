"""Find a learning rate: train with rates that grow from step to step, and see where the loss falls fastest."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torcheer.disk import write_file
from torcheer.errors import BadArgument
from torcheer.terminal import Progress, plot_text
from torcheer.terminal.streams import encodable
from torcheer.training.finders.curve_picture import curve_svg
from torcheer.training.finders.trial_steps import TrialPipeline, on_trial

if TYPE_CHECKING:
    from torcheer.training.session import Session

SMOOTHING = 0.95  # share of the earlier losses in their running mean
DIVERGED = 4.0  # times the best loss: no larger rate is tried
SKIPPED_START = 10  # points without a meaning: the mean has just begun


@dataclass(frozen=True)
class RateCurve:
    """Losses by learning rate, and the rate that they suggest."""

    pipeline: str
    rates: tuple[float, ...]
    losses: tuple[float, ...]  # running means
    suggestion: float | None  # where the loss falls fastest; None where it falls nowhere
    current: float  # the rate that the session has
    end: str  # why no larger rate was tried

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "pipeline": self.pipeline, "suggestion": self.suggestion, "current": self.current, "end": self.end,
            "rates": list(self.rates), "losses": list(self.losses),
        }  # fmt: skip

    def save(self, path: str | Path) -> Path:
        """Draw the curve: a picture (.svg), or its numbers (.json)."""
        path = Path(path)
        if path.suffix == ".json":
            write_file(path, json.dumps(self.to_dict()))
        elif path.suffix == ".svg":
            marks = {"suggestion": self.suggestion, "now": self.current}
            write_file(path, curve_svg(self.rates, self._shown(), marks, "learning rate", "loss"))
        else:
            raise BadArgument(f"{path.name}: a curve is drawn as .svg, or written as .json")
        return path

    def _shown(self) -> list[float]:
        """The losses, cut where they explode: else the way down would be a flat line."""
        if not self.losses or min(self.losses) >= self.losses[0]:
            return list(self.losses)
        most = 2 * self.losses[0] - min(self.losses)
        return [min(loss, most) for loss in self.losses]

    def __str__(self) -> str:
        lines = plot_text(self.rates, self._shown(), mark=self.suggestion, labels=("loss", "learning rate"), log_x=True)
        if self.suggestion is None:
            lines.append(f"No suggestion: the loss falls nowhere ({self.end}). Is the model trained already?")
        else:
            lines.append(f"Suggestion: {self.suggestion:.2g}, where the loss falls fastest; now {self.current:g}.")
        return encodable("\n".join(lines))


def find_learning_rate(
    session: Session, *, pipeline: str = "", least: float = 1e-7, most: float = 10.0, steps: int = 100,
    progress: bool | None = None,
) -> RateCurve:  # fmt: skip
    """Train for some steps with rates from `least` to `most`, and suggest one; `session` is afterwards as it was.

    `pipeline`: which one of the stage that is next, where it trains several. `steps`: at most so many batches.
    `progress`: None shows it on a terminal and in a notebook.
    """
    if not 0 < least < most or steps < 2:
        raise BadArgument(f"rates from {least:g} to {most:g} in {steps} steps: least is above 0 and below most")
    with on_trial(session, [pipeline] if pipeline else [], accumulates=False) as trials:
        if len(trials) > 1:
            names = ", ".join(trial.name for trial in trials)
            raise BadArgument(f"the stage trains {names}: name one of them as pipeline (--pipeline {trials[0].name})")
        (trial,) = trials
        current = max(_rates(trial))
        with Progress("finding a learning rate", steps, "steps", progress=progress) as shown:
            rates, losses, end = _sweep(
                trial, [least * (most / least) ** (n / (steps - 1)) for n in range(steps)], shown
            )
    return RateCurve(trial.name, tuple(rates), tuple(losses), steepest(rates, losses), current, end)


def _rates(trial: TrialPipeline) -> list[float]:
    return [float(group["lr"]) for optimizer in trial.optimizers for group in optimizer.param_groups]


def _sweep(trial: TrialPipeline, rates: Sequence[float], progress: Progress) -> tuple[list[float], list[float], str]:
    """Train a batch with each rate; return the rates tried, the running means of the losses, and why it ended."""
    before = _rates(trial)
    shares = [rate / max(before) if max(before) else 1.0 for rate in before]  # groups keep their proportions
    tried: list[float] = []
    losses: list[float] = []
    mean = 0.0
    for number, (rate, batch) in enumerate(zip(rates, trial.batches()), 1):
        groups = [group for optimizer in trial.optimizers for group in optimizer.param_groups]
        for group, share in zip(groups, shares):
            group["lr"] = rate * share
        loss = float(trial.step(batch, number))
        progress.add(1)
        if not math.isfinite(loss):
            return tried, losses, f"the loss is {loss} at {rate:.2g}"
        mean = SMOOTHING * mean + (1 - SMOOTHING) * loss
        tried.append(rate)
        losses.append(mean / (1 - SMOOTHING**number))
        if number > SKIPPED_START and losses[-1] > DIVERGED * abs(min(losses)):
            return tried, losses, f"the loss is {DIVERGED:g} times its best at {rate:.2g}"
    return tried, losses, f"the largest rate, {rates[-1]:g}, is reached"


def steepest(rates: Sequence[float], losses: Sequence[float]) -> float | None:
    """Return the rate at which the loss falls fastest, by the logarithm of the rate; None where it falls nowhere.

    Only on the way to the best loss: one that explodes falls again afterwards.
    """
    start = min(SKIPPED_START, len(losses) // 4)
    best = min(range(start, len(losses)), key=lambda place: losses[place], default=0)
    points = range(max(start, 1), min(best, len(losses) - 2) + 1)
    slopes = {
        place: (losses[place + 1] - losses[place - 1]) / (math.log(rates[place + 1]) - math.log(rates[place - 1]))
        for place in points
    }
    place = min(slopes, key=lambda point: slopes[point], default=None)
    return None if place is None or slopes[place] >= 0 else rates[place]
