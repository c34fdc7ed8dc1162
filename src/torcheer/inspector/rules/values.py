"""Rules on single values: NaN and infinities, zeros."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

from torcheer.inspector.records import Sent
from torcheer.inspector.rules.base import Board, Finding, Key, Rule, Seen, Verdict, array_of


class NanInf(Rule):
    """A value has NaN or infinite numbers; told once, where it was met first, until all is well again."""

    name, severity = "nan_inf", "error"
    defaults = {"nan": True, "inf": True, "patience": 1}

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__(settings)
        self._ill: dict[str, dict[Key, bool]] = {"nan": {}, "inf": {}}  # in the order in which they fell ill
        self._began: dict[str, int] = {}
        self._follows: dict[str, bool] = {}
        self._steps: deque[int] = deque([-1], maxlen=3)  # NaN that follow infinities within them come from those

    def wants(self, variable: str) -> bool:
        return True

    def see(self, seen: Seen, sent: Sent, board: Board) -> Iterator[Verdict]:
        if self._steps[-1] != board.step:
            self._steps.append(board.step)
        kind = "nan" if seen.summary.nans else "inf" if seen.summary.infs or sent.finite is False else ""
        for name, ill in self._ill.items():
            if name != kind:
                ill.pop(seen.key, None)
        if not kind or not self.settings[kind]:
            yield seen.key, None
            return
        ill, other = self._ill[kind], "inf" if kind == "nan" else "nan"
        if not ill:
            self._began[kind] = board.step
            self._follows[kind] = bool(self._ill[other]) and self._began[other] in self._steps
        ill[seen.key] = True
        if next(iter(ill)) == seen.key and not self._follows[kind]:  # the others have it from the first one
            yield seen.key, self._finding(seen, sent)

    @staticmethod
    def _finding(seen: Seen, sent: Sent) -> Finding:
        nans, infs, count = seen.summary.nans, seen.summary.infs, seen.summary.count
        told = [f"{number:,} {name}" for number, name in ((nans, "NaN"), (infs, "infinite")) if number]
        what = f"of {count:,} numbers {' and '.join(told)}"
        if count == 1:
            what = "it is NaN" if nans else "it is infinite"
        if not told:
            what = f"some of its numbers are NaN or infinite, though none of the {count:,} that were sent"
        before = "in the layers before it" if seen.variable == "output" else "in what it is computed from"
        advice = f"look {before} for a division by zero, a log of zero or an overflow; lower the learning rate; clip the gradients"  # noqa: E501
        return Finding(what, advice, {"nans": nans, "infs": infs, "count": count})


class AllZero(Rule):
    """Every number of an output, a gradient or a weight matrix is zero."""

    name = "all_zero"
    defaults = {"patience": 10, "variables": ["output", "grad", "weight", "weight_grad"]}

    def wants(self, variable: str) -> bool:
        return variable in self.settings["variables"]

    def see(self, seen: Seen, sent: Sent, board: Board) -> Iterator[Verdict]:
        if seen.summary.count < 2 or array_of(sent).dtype.kind in "biu":
            return
        if seen.variable == "weight" and not seen.is_matrix:
            return  # biases begin at zero, and some stay there
        if seen.summary.zeros < seen.summary.count or seen.layer in board.rectified:
            yield seen.key, None
            return
        yield seen.key, Finding(f"all of its {seen.summary.count:,} numbers are 0", self._advice(seen.variable))

    @staticmethod
    def _advice(variable: str) -> str:
        if variable == "weight":
            return "give it random values before training"
        if variable == "output":
            return "look at its weights, and at the layer before it: a dead ReLU, a mask, an initialisation with zeros"
        return "look for a dead ReLU, a detach() or a zero weight between this layer and the loss"
