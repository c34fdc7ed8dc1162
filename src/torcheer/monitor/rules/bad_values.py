"""Rules on single values: NaN and infinities, zeros."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

from torcheer.monitor.rules.rule import Board, Finding, Rule, Seen, Verdict, array_of
from torcheer.samples import Delivery, Key


class NanInf(Rule):
    """A value has NaN or infinite numbers; told once, where it was met first, until all is well again."""

    name, severity = "nan_inf", "error"
    defaults = {"nan": True, "inf": True, "patience": 1}

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__(settings)
        self._ill: dict[str, dict[Key, int]] = {"nan": {}, "inf": {}}  # since which step, in the order of falling ill
        self._began: dict[str, int] = {}  # when one last fell ill that had it from no other
        self._follows: dict[str, bool] = {}
        self._first: set[Key] = set()  # those that had it from no other
        self._well: dict[Key, int] = {}  # the last step at which a key was
        self._steps: deque[int] = deque([-1], maxlen=3)  # NaN that follow infinities within them come from those

    def wants(self, variable: str) -> bool:
        return True

    def see(self, seen: Seen, sent: Delivery, board: Board) -> Iterator[Verdict]:
        if self._steps[-1] != board.step:
            self._steps.append(board.step)
        kind, key = self._kind(seen, sent), seen.key
        for name, ill in self._ill.items():
            if name != kind:
                ill.pop(key, None)
        if not kind:
            self._well[key] = board.step
            self._first.discard(key)
            yield key, None
            return
        ill = self._ill[kind]
        if key not in ill and self._is_news(kind, key):
            other = "inf" if kind == "nan" else "nan"
            self._began[kind] = board.step
            self._follows[kind] = bool(self._ill[other]) and self._began[other] in self._steps
            self._first |= set() if self._follows[kind] else {key}
        since = ill.setdefault(key, board.step)
        leads = next(iter(ill)) == key and not self._follows[kind]
        if leads or key in self._first:  # the others have it from those
            yield key, self._finding(seen, since, at_the_loss=not board.all("grad") and bool(board.all("output")))

    def _is_news(self, kind: str, key: Key) -> bool:
        """Whether a key has it from no other: it has been well for some time where others were ill.

        A mask of infinities, or a metric that has no value, must not hide all that comes later.
        """
        if not self._ill[kind]:
            return True
        return self._began[kind] not in self._steps and self._well.get(key, -1) > self._began[kind]

    def _kind(self, seen: Seen, sent: Delivery) -> str:
        """What is wrong with a value, of what is asked for; "" where nothing is."""
        unknown = sent.finite is False and not seen.summary.nans and not seen.summary.infs  # it was not sent
        found = {"nan": seen.summary.nans, "inf": seen.summary.infs or unknown}
        if unknown and not self.settings["inf"]:
            found["nan"] = 1
        return next((name for name, there in found.items() if there and self.settings[name]), "")

    @staticmethod
    def _finding(seen: Seen, since: int, at_the_loss: bool) -> Finding:
        nans, infs, count = seen.summary.nans, seen.summary.infs, seen.summary.count
        told = [f"{number:,} {name}" for number, name in ((nans, "NaN"), (infs, "infinite")) if number]
        what = f"of {count:,} numbers {' and '.join(told)}"
        if count == 1:
            what = "it is NaN" if nans else "it is infinite"
        if not told:
            what = f"some of its numbers are NaN or infinite, though none of the {count:,} that were sent"
        if seen.variable == "input":
            what += ": it is in the batch that the model was given, and in no layer"
            advice = (
                "look at the data and at what prepares them: missing values, a division by zero; drop or fill those"
            )
            return Finding(what, advice, {"nans": nans, "infs": infs, "count": count}, since)
        if seen.variable == "grad" and at_the_loss:
            what += ": every output that was looked at is finite, so it comes from the loss or its targets"
        before = "in the layers before it" if seen.variable == "output" else "in what it is computed from"
        advice = f"look {before} for a division by zero, a log of zero or an overflow; lower the learning rate; clip the gradients"  # noqa: E501
        return Finding(what, advice, {"nans": nans, "infs": infs, "count": count}, since)


class AllZero(Rule):
    """Every number of an output, a gradient or a weight matrix is zero."""

    name = "all_zero"
    defaults = {"patience": 10, "variables": ["output", "grad", "weight", "weight_grad"]}

    def wants(self, variable: str) -> bool:
        return variable in self.settings["variables"]

    def see(self, seen: Seen, sent: Delivery, board: Board) -> Iterator[Verdict]:
        if seen.summary.count < 2 or array_of(sent).dtype.kind in "biu":
            return
        if seen.variable == "weight" and not seen.is_matrix:
            return  # biases begin at zero, and some stay there
        dead = seen.variable == "output" and seen.layer in board.rectified  # another rule tells of those
        if seen.summary.zeros < seen.summary.count or dead:
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
