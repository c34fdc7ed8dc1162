"""Rules on the loop: gradients that are never cleared, a layer that is left out of the training."""

from __future__ import annotations

from collections.abc import Iterator

from torcheer.monitor.rules.rule import Board, Finding, Rule, Seen, Verdict
from torcheer.samples import Delivery

CARRIED = "carried"  # what a parameter's gradient still had when the pass after an optimizer's step came to it


class ForgottenZeroGrad(Rule):
    """Gradients that an optimizer has used are still there when the next ones are added to them."""

    name = "forgotten_zero_grad"
    explains = ("exploding_gradient", "update_ratio", "loss_plateau", "saturation", "dead_relu", "all_zero", "nan_inf")
    defaults = {"patience": 2}

    def wants(self, variable: str) -> bool:
        return variable == CARRIED

    def see(self, seen: Seen, sent: Delivery, board: Board) -> Iterator[Verdict]:
        what = "its gradient is not cleared: what the optimizer has used is still there when the next is added to it"
        advice = "call optimizer.zero_grad() once for every optimizer.step(), before the backward pass"
        yield seen.key, Finding(what, advice) if seen.summary.norm > 0 else None


class FrozenLayer(Rule):
    """A few weight matrices take no gradient, though the layers before and behind them are trained through them."""

    name, severity = "frozen_layer", "note"
    defaults = {"share": 0.25, "patience": 5}

    def end(self, board: Board) -> Iterator[Verdict]:
        weights = [seen for seen in board.all("weight").values() if seen.is_matrix]
        trained = [place for place, seen in enumerate(weights) if not seen.frozen]
        frozen = [place for place, seen in enumerate(weights) if seen.frozen]
        few = len(frozen) <= max(1, self.settings["share"] * len(weights)) and len(trained) > 1
        for place in frozen:
            seen = weights[place]
            between = few and trained[0] < place < trained[-1] and _is_passed(seen.layer, board)
            yield seen.key, self._finding(len(trained), len(weights)) if between else None

    @staticmethod
    def _finding(trained: int, all_of: int) -> Finding:
        what = (
            f"it is frozen (requires_grad=False), while {trained} of {all_of} weight matrices, before it and behind "
            "it, are trained; this may be meant"
        )
        return Finding(what, "requires_grad_(True) on it, if it is to learn; if not, all is well")


def _is_passed(weight: str, board: Board) -> bool:
    """Whether a gradient passes through the layer of a weight, on its way to those before it."""
    return weight.partition("@")[0].rpartition(".")[0] in board.all("grad")
