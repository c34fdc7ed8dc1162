"""What a program for eTorch meets that is different here, and would not notice: each is said once.

Calls of the desktop toolkit that do nothing are named in one remark: see `ignored_calls`.
"""

from __future__ import annotations

from torcheer.terminal import warn_of_difference

TEXTS = {
    "seed": "rand.Seed: the same seed draws other numbers than in Go, numpy's; torch.manual_seed is apart, as it was",
    "batch": "the items of a batch are kept apart, and Item on the page chooses one; eTorch wrote all of them into the "
    "layer",
    "pattern": "a projection is drawn as a full one, whatever its pattern: its weights say what is connected",
    "plot columns": "plots have columns of numbers; columns of text and tensors that are switched on are under Tables",
    "plot rows": "a plot of a view has all rows of its table",
    "plot settings": "of a plot's Params, Title, XAxisCol and LegendCol are taken over",
}


def meet(difference: str) -> None:
    """Warn of a difference."""
    warn_of_difference("etorch", TEXTS[difference])
