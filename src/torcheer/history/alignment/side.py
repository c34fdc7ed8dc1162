"""One history of an alignment: its values, their counterparts, and which of them agree."""

from __future__ import annotations

from functools import cached_property
from math import inf

import numpy as np

from torcheer.history.alignment.pairing import Pair, Pairs
from torcheer.history.alignment.rounding import Verdicts, explained, judge
from torcheer.history.alignment.value_samples import HistoryValues, numel
from torcheer.records import BESIDE


class Side:
    """The values of one history with their counterparts in the other."""

    def __init__(self, values: HistoryValues, pairs: Pairs, others: HistoryValues, back: Pairs, unit: float) -> None:
        self.values, self.pairs, self.others, self.back = values, pairs, others, back
        self.verdicts: Verdicts = judge(values, others, pairs, unit)
        self.fine = explained(values, pairs, self.verdicts)
        self.leads = self._leads_to(self._wrong_results(others))
        self.reaches = self._leads_to(values.results())
        self.given = self._given()
        self.wrong = [index for index in range(len(values.slots)) if self._is_wrong(index)]
        self.starts = self._starts()

    def _wrong_results(self, others: HistoryValues) -> list[int]:
        """Return the results that do not agree, or agree with what the other history goes on from."""
        returned = set(others.results())
        sizes = {numel(others.slots[other].shape) for other in returned}
        wrong = []
        for index in self.values.results():
            pair = self.pairs.get(index)
            early = pair and pair.partner not in returned and numel(self.values.slots[index].shape) in sizes
            if early or not self.verdicts.good[index]:
                wrong.append(index)
        return wrong

    def _leads_to(self, results: list[int]) -> list[bool]:
        leads = [False] * len(self.values.slots)
        for index in results:
            leads[index] = True
        for index in reversed(range(len(leads))):
            leads[index] = leads[index] or any(leads[child] for child in self.values.children[index])
        return leads

    def _is_wrong(self, index: int) -> bool:
        """Whether a value neither agrees nor is explained by what agrees further on."""
        slot = self.values.slots[index]
        if not slot.known or self.verdicts.good[index] or self.fine[index] or self.values.op_of(index).note == BESIDE:
            return False
        pair = self.pairs.get(index)
        if pair is not None and not self.others.slots[pair.partner].known:
            return False
        if self.others.is_partial and not (pair and self.is_mutual(index, pair)):
            return False
        constant = slot.spread <= 1e-12 * slot.rms  # it may equal another by chance, and says nothing
        if (constant or not self.given[index]) and not (pair and self._is_namesake(index, pair)):
            return False
        if self.leads[index]:
            return True
        # its error may be too small to be seen in the result, among what rounding adds there
        return pair is not None and slot.telling and bool(slot.parents) and self._is_astray(index, pair)

    def _is_astray(self, index: int, pair: Pair) -> bool:
        """Whether a value and its nearest, or the same function of agreeing values, differ by more than rounding."""
        same = pair.by == "dataflow" and all(self.verdicts.good[parent] for parent in self.values.slots[index].parents)
        return self.is_mutual(index, pair) and self.reaches[index] and (same or (pair.firm and pair.error < inf))

    def is_mutual(self, index: int, pair: Pair) -> bool:
        """Whether a value is its counterpart's counterpart."""
        back = self.back.get(pair.partner)
        return back is not None and self.values.twin[back.partner] == self.values.twin[index]

    def _given(self) -> list[bool]:
        """Whether each value is made of what was given to the run, not of constants and parameters alone."""
        given = [False] * len(self.values.slots)
        for index, slot in enumerate(self.values.slots):
            inside = self.values.op_of(index).kind == "op"
            given[index] = not inside or any(given[parent] for parent in slot.parents)
        return given if any(given) else [True] * len(given)

    def _is_namesake(self, index: int, pair: Pair) -> bool:
        """Whether a constant stands where the other history makes one with the same function.

        One of the opposite sign does not: it is added where the other is subtracted, or what reads it is wrong.
        """
        slot, other = self.values.slots[index], self.others.slots[pair.partner]
        if numel(slot.shape) != numel(other.shape):
            return False
        if slot.sample is not None and other.sample is not None and np.array_equal(slot.sample, -other.sample):
            return False
        readers = [
            {values.op_of(child).name for child in values.children[n]}
            for values, n in ((self.values, index), (self.others, pair.partner))
        ]
        is_result = self.values.op_of(index).kind == "output"  # nothing reads it
        same_place = pair.by != "label" or is_result or bool(readers[0] & readers[1])
        return same_place and self.values.op_of(index).name == self.others.op_of(pair.partner).name

    def _starts(self) -> list[int]:
        """Return the wrong values that follow from no other wrong one."""
        tainted, below = set(self.wrong), set[int]()
        for index, slot in enumerate(self.values.slots):
            if not self.verdicts.good[index] and any(parent in tainted or parent in below for parent in slot.parents):
                below.add(index)
        return [index for index in self.wrong if index not in below]

    def region(self, end: int) -> set[int]:
        """Return the values between the agreeing ones upstream and `end`."""
        if self.verdicts.good[end]:
            return set()
        region, queue = {end}, [end]
        while queue:
            for parent in self.values.slots[queue.pop()].parents:
                if parent not in region and (not self.verdicts.good[parent] or self._hides(parent)):
                    region.add(parent)
                    queue.append(parent)
        return region

    def _hides(self, index: int) -> bool:
        """Whether a value agrees only because it was multiplied by ones, or zeros were added: these may be wrong."""
        twin, parents = self.values.twin, self.values.slots[index].parents
        others = [parent for parent in parents if twin[parent] != twin[index]]
        changed = (self.given[parent] and not self.verdicts.good[parent] for parent in others)
        return len(others) < len(parents) and any(changed) and self.leads[index]

    def downstream(self, starts: set[int]) -> list[int]:
        """Return the wrong values that are made of `starts`, these included, in order of execution."""
        reached = set(starts)
        for index in range(min(starts, default=0), len(self.values.slots)):
            if not self.verdicts.good[index] and reached & set(self.values.slots[index].parents):
                reached.add(index)
        return [index for index in self.wrong if index in reached]

    def parameters_read(self, index: int) -> set[str]:
        """Return the parameters that an operation reads, be it after operations on them alone."""
        names, queue, seen = set[str](), [index], {index}
        while queue:
            current = queue.pop()
            names |= {stored.name for stored in self.values.op_of(current).stored}
            for parent in self.values.slots[current].parents:
                if not self.given[parent] and parent not in seen:
                    seen.add(parent)
                    queue.append(parent)
        return names

    @cached_property
    def parameters_above(self) -> list[set[str]]:
        """For each value, the parameters read between the agreeing values upstream and it."""
        above: list[set[str]] = []
        for index, slot in enumerate(self.values.slots):
            parents = [above[parent] for parent in slot.parents if not self.verdicts.good[parent]]
            above.append(self.parameters_read(index).union(*parents))
        return above
