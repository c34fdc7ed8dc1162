"""Rules on the training loop: gradients that are never cleared, a layer that is not trained."""

from __future__ import annotations

from collections.abc import Iterator

from torcheer.monitor.rules.rule import Finding, Observation, Rule, StepValues, Verdict
from torcheer.samples import Delivery

CARRIED = "carried"  # variable: magnitude that a parameter's gradient still had in the pass after an optimizer's step


class ForgottenZeroGrad(Rule):
    """Gradients that an optimizer has used are still there when the next ones are added to them."""

    name = "forgotten_zero_grad"
    defaults = {"patience": 2}

    def wants(self, variable: str) -> bool:
        return variable == CARRIED

    def observe(self, value: Observation, delivery: Delivery, values: StepValues) -> Iterator[Verdict]:
        text = "its gradient is not cleared: what the optimizer has used is still there when the next is added to it"
        advice = "call optimizer.zero_grad() once for every optimizer.step(), before the backward pass"
        yield value.key, Finding(text, advice) if value.summary.norm > 0 else None


class FrozenLayer(Rule):
    """A few weight matrices take no gradient, though the layers before and behind them are trained through them."""

    name, severity = "frozen_layer", "note"
    defaults = {"share": 0.25, "patience": 5}

    def end(self, values: StepValues) -> Iterator[Verdict]:
        weights = [value for value in values.all("weight").values() if value.is_matrix]
        trained = [position for position, value in enumerate(weights) if not value.frozen]
        frozen = [position for position, value in enumerate(weights) if value.frozen]
        are_few = len(frozen) <= max(1, self.settings["share"] * len(weights)) and len(trained) > 1
        for position in frozen:
            value = weights[position]
            is_between = are_few and trained[0] < position < trained[-1] and _passes_gradient(value.layer, values)
            yield value.key, self._finding(len(trained), len(weights)) if is_between else None

    @staticmethod
    def _finding(trained: int, total: int) -> Finding:
        text = (
            f"it is frozen (requires_grad=False), while {trained} of {total} weight matrices, before it and behind "
            "it, are trained; this may be meant"
        )
        return Finding(text, "requires_grad_(True) on it, if it is to learn; if not, all is well")


def _passes_gradient(weight: str, values: StepValues) -> bool:
    """Whether a gradient flows through the layer of a weight to the layers before it."""
    return weight.rpartition(".")[0] in values.all("grad")
