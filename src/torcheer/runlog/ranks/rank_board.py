"""Compares the ranks of a run as their logs are read: step times, who is slow, whose weights differ."""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any, Final

from torcheer.runlog.log_frames import METRICS
from torcheer.runlog.log_stream import LogFrame
from torcheer.runlog.ranks.rank_facts import RankFacts, are_comparable, name_ranks
from torcheer.samples import Alert
from torcheer.terminal import first_names

DIFFERENT_WEIGHTS: Final = "different_weights"
STRAGGLER: Final = "straggler"
_TIMES: Final = ("step_secs", "forward_secs", "wait_secs")
_LOOKS: Final = 20  # of which times are the median
_LEAST_LOOKS: Final = 5
_SLOWER, _SHARE = 1.5, 0.1  # times the others' median, and by at least this share of a step
_STEPS: Final = 16  # whose hashes are kept: ranks may be so many looks apart
_MOST_FAULTS: Final = 256

_Hashes = dict[tuple[str, Hashable], dict[int, int]]  # by layer and place of its part: each rank's hash


@dataclass(frozen=True, slots=True)
class RankRow:
    """One rank for people."""

    rank: int
    step: int  # the last one that it has logged
    step_secs: float | None = None  # medians of the last looks
    forward_secs: float | None = None
    wait_secs: float | None = None
    is_slow: bool = False
    differs: str = ""  # which weights differ from the other ranks', and since when


@dataclass(slots=True)
class _Rank:
    facts: RankFacts
    step: int = -1
    times: dict[str, deque[float]] = field(default_factory=lambda: {name: deque(maxlen=_LOOKS) for name in _TIMES})

    def typical(self, name: str) -> float | None:
        return median(self.times[name]) if self.times[name] else None

    @property
    def own_secs(self) -> float | None:
        """How long it computes and waits for data before it needs the others; None if too little is known.

        A forward pass that itself waits for them has no time of its own.
        """
        forward, wait = self.times["forward_secs"], self.times["wait_secs"]
        if len(wait) < _LEAST_LOOKS or 0 < len(forward) < _LEAST_LOOKS:
            return None
        return median(wait) + (median(forward) if forward else 0.0)


class RankBoard:
    """The ranks of one watched model so far."""

    def __init__(self) -> None:
        self._ranks: dict[int, _Rank] = {}
        self._hashes: OrderedDict[int, _Hashes] = OrderedDict()  # by step, the newest ones
        self._faults: dict[tuple[int, str], dict[int, int]] = {}  # by step and layer: hashes that are not equal

    def note_rank(self, facts: RankFacts) -> None:
        """Take what a rank says of itself, when its log is opened."""
        known = self._ranks.get(facts.rank)
        if known is None:
            self._ranks[facts.rank] = _Rank(facts)
        else:
            known.facts = facts

    def note_step(self, rank: int, step: int) -> None:
        """Take that a rank has logged something of a step."""
        known = self._ranks[rank]
        known.step = max(known.step, step)

    def note_frame(self, rank: int, frame: LogFrame) -> None:
        """Take the times and the hashes in a frame of a rank's log."""
        for row in frame.rows(METRICS) or () if METRICS in frame.tables else ():
            self.note_metrics(rank, row.step, row.cells)
        if frame.about.get("values"):
            self.note_step(rank, frame.step)
        if hashes := frame.hashes:
            self.note_hashes(rank, frame.step, frame.about["values"], hashes)

    def note_metrics(self, rank: int, step: int, cells: Mapping[str, Any]) -> None:
        """Take the times of a step."""
        self.note_step(rank, step)
        for name in _TIMES:
            if isinstance(secs := cells.get(name), int | float):
                self._ranks[rank].times[name].append(float(secs))

    def note_hashes(self, rank: int, step: int, names: Sequence[Sequence[Any]], hashes: Sequence[int | None]) -> None:
        """Compare the weights of a look with those of the ranks that were read before."""
        known = self._ranks[rank]
        if step not in self._hashes:
            self._hashes[step] = {}
            if len(self._hashes) > _STEPS:
                del self._hashes[min(self._hashes)]
        for name, bits in zip(names, hashes):
            if name[1] == "weight" and type(bits) is int and step in self._hashes:
                ranks = self._hashes[step].setdefault((name[0], known.facts.place_of(name[0])), {})
                ranks[rank] = bits
                fault = (step, name[0])
                if fault in self._faults or any(
                    are_comparable(bits, other) and bits != other for other in ranks.values()
                ):
                    if len(self._faults) < _MOST_FAULTS:
                        self._faults[fault] = ranks

    @property
    def count(self) -> int:
        """How many ranks there are, with a log or without."""
        return max((rank.facts.of for rank in self._ranks.values()), default=1)

    @property
    def rows(self) -> list[RankRow]:
        """A row for each rank that has a log; empty for one process."""
        if self.count == 1:
            return []
        differing, slow = self._differing(), self._slow()
        return [
            RankRow(
                number, rank.step, rank.typical("step_secs"), rank.typical("forward_secs"), rank.typical("wait_secs"),
                number in slow, _describe(*differing[number]) if number in differing else "",
            )
            for number, rank in sorted(self._ranks.items())
        ]  # fmt: skip

    def alerts(self) -> Iterator[Alert]:
        """Yield what the ranks' logs say together and none of them alone."""
        by_fault: dict[tuple[int, tuple[str, ...]], list[int]] = {}
        for rank, (step, differing, _) in self._differing().items():
            by_fault.setdefault((step, tuple(differing)), []).append(rank)
        for (step, layers), ranks in by_fault.items():
            others = sorted(set(self._ranks) - set(ranks))
            yield Alert(
                DIFFERENT_WEIGHTS, layers[0], "weight", step, step,
                f"{name_ranks(sorted(ranks))} has other weights than {name_ranks(others)}: {first_names(layers, 3)}",
                "see that all ranks begin from the same weights and take the same steps (DistributedDataParallel does; "
                "weights that are written by hand, or a step that one rank leaves out, undo it)",
                values={"ranks": sorted(ranks), "layers": list(layers)}, id=f"ranks:{DIFFERENT_WEIGHTS}:{step}",
            )  # fmt: skip
        for rank, (own, others_secs) in self._slow().items():
            step = self._ranks[rank].step
            yield Alert(
                STRAGGLER, "", f"rank {rank}", step, step,
                f"it takes {own:.3g} s a step to {self._own_work(rank)}, where the other ranks take "
                f"{others_secs:.3g} s: they wait for it",
                "see what its machine does besides, whether its GPU is throttled, and how its data is loaded",
                values={"rank": rank, "own_secs": own, "others_secs": others_secs}, id=f"ranks:{STRAGGLER}:{rank}",
            )  # fmt: skip

    def _own_work(self, rank: int) -> str:
        has_forward = self._ranks[rank].times["forward_secs"]
        return "compute its forward pass and to wait for data" if has_forward else "wait for data"

    def _slow(self) -> dict[int, tuple[float, float]]:
        """The ranks that others wait for, with their own seconds a step and the others'."""
        own = {number: secs for number, rank in self._ranks.items() if (secs := rank.own_secs) is not None}
        steps = [secs for rank in self._ranks.values() if (secs := rank.typical("step_secs")) is not None]
        slow = {}
        for number, secs in own.items():
            others = [other for rank, other in own.items() if rank != number]
            if others and steps:
                usual = median(others)
                if secs > _SLOWER * usual and secs - usual > _SHARE * median(steps):
                    slow[number] = (secs, usual)
        return slow

    def _differing(self) -> dict[int, tuple[int, list[str], list[int]]]:
        """The ranks whose weights differ: since which step, which layers, from which ranks."""
        found: dict[int, tuple[int, list[str], list[int]]] = {}
        for (step, layer), hashes in sorted(self._faults.items(), key=lambda item: item[0][0]):
            groups: dict[int, list[int]] = {}
            for rank, bits in sorted(hashes.items()):
                groups.setdefault(bits, []).append(rank)
            usual = max(groups.values(), key=len)  # of equally many, the one with the lowest rank
            for ranks in groups.values():
                for rank in ranks if ranks is not usual else ():
                    since, layers, _ = found.setdefault(rank, (step, [], usual))
                    if since == step and layer not in layers:
                        layers.append(layer)
        return found


def _describe(step: int, layers: list[str], others: list[int]) -> str:
    return f"other weights than {name_ranks(others)} since step {step}: {first_names(layers, 3)}"


def merge_alerts(alerts: Sequence[tuple[int, Alert]]) -> list[Alert]:
    """The alerts of several ranks: one that all of them raise at the same step stands once, and names them."""
    first: dict[tuple[Any, ...], tuple[list[int], Alert]] = {}
    raised: Counter[tuple[Any, ...]] = Counter()
    for rank, alert in alerts:
        kind = (alert.rule, alert.layer, alert.variable, alert.step)
        ranks, _ = first.setdefault((*kind, raised[rank, kind]), ([], alert))
        raised[rank, kind] += 1
        ranks.append(rank)
    return [alert if ranks == [0] else _with_ranks(alert, sorted(ranks)) for ranks, alert in first.values()]


def _with_ranks(alert: Alert, ranks: list[int]) -> Alert:
    return replace(alert, what=f"{alert.what} ({name_ranks(ranks)})", values={**alert.values, "ranks": ranks})
