"""Train on one batch again and again: a model that cannot learn it by heart has a fault somewhere."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torcheer.terminal import Progress, plot_text
from torcheer.terminal.streams import encodable
from torcheer.training.finders.trial_steps import on_trial

if TYPE_CHECKING:
    from torcheer.training.session import Session

LEARNED = 0.1  # share of the first loss that is left of a batch learned by heart
STEPS = 300


@dataclass(frozen=True)
class OneBatch:
    """Losses of training on the same batch."""

    losses: dict[str, tuple[float, ...]]  # pipeline -> a loss for each step

    @property
    def is_learned(self) -> bool:
        """Whether the loss of each pipeline has fallen to a tenth."""
        return all(is_learned(losses) for losses in self.losses.values())

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {"learned": self.is_learned, "losses": {name: list(losses) for name, losses in self.losses.items()}}

    def __str__(self) -> str:
        lines: list[str] = []
        for name, losses in self.losses.items():
            finite = [(n, loss) for n, loss in enumerate(losses, 1) if math.isfinite(loss)]
            lines += plot_text([n for n, _ in finite], [loss for _, loss in finite], labels=(f"loss of {name}", "step"))
            lines.append(f"{name}: the loss goes from {losses[0]:.4g} to {losses[-1]:.4g} in {len(losses)} steps.")
        if self.is_learned:
            lines.append("One batch is learned by heart: model, loss and optimizer work together.")
        elif len(self.losses) > 1:
            lines.append(
                "One batch is not learned by heart. Pipelines that work against each other, as a GAN's, need not be "
                "able to."
            )
        else:
            lines.append(
                "One batch is not learned by heart. Look at: the learning rate (torcheer lr-find), whether the loss "
                "takes what the model gives (scores, not probabilities), frozen layers, and labels that fit."
            )
        return encodable("\n".join(lines))


def is_learned(losses: tuple[float, ...]) -> bool:
    """Return whether losses end at less than a tenth of the first one."""
    return math.isfinite(losses[-1]) and losses[-1] <= LEARNED * abs(losses[0])


def overfit_one_batch(session: Session, *, steps: int = STEPS, progress: bool | None = None) -> OneBatch:
    """Train the pipelines of the next stage on their first batch, `steps` times; `session` is afterwards as it was.

    It ends early when each loss has fallen to a hundredth. `progress`: None shows it on a terminal and in a notebook.
    """
    with (
        on_trial(session, accumulates=False) as trials,
        Progress("training on one batch", steps, "steps", progress=progress) as shown,
    ):
        batches = [next(trial.batches()) for trial in trials]
        losses: dict[str, list[float]] = {trial.name: [] for trial in trials}
        for number in range(1, steps + 1):
            for trial, batch in zip(trials, batches):
                losses[trial.name].append(float(trial.step(batch, number)))
            shown.add(1)
            if all(each[-1] <= LEARNED**2 * abs(each[0]) for each in losses.values()):
                break
            if not all(math.isfinite(each[-1]) for each in losses.values()):
                break
    return OneBatch({name: tuple(each) for name, each in losses.items()})
