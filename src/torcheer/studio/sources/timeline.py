"""A bounded in-memory buffer of states, limited in number and bytes.

Older states are thinned out evenly.
"""

from __future__ import annotations

from typing import Final

from torcheer.control.loop_messages import Moment
from torcheer.studio.sources.moment_queries import Reasons, RecordedValue, Values

MOST_BYTES: Final = 256 << 20
MOST_STATES: Final = 500


class _State:
    """A moment with its values."""

    __slots__ = ("absences", "bytes", "moment", "number", "values")

    def __init__(self, moment: Moment, values: Values, number: int, absences: Reasons) -> None:
        self.moment, self.values, self.number, self.absences = moment, values, number, absences
        self.bytes = sum(value.array.nbytes for value in values.values())


class Timeline:
    """The buffered states, oldest first; arrays are stored as received."""

    def __init__(self, most_bytes: int = MOST_BYTES, most_states: int = MOST_STATES) -> None:
        self._most_bytes, self._most_states = most_bytes, max(most_states, 2)
        self._states: dict[int, _State] = {}
        self._pinned: set[int] = set()
        self._added = 0
        self.bytes = 0

    @property
    def moments(self) -> list[Moment]:
        """The buffered moments, oldest first."""
        return [state.moment for state in self._states.values()]

    def __len__(self) -> int:
        return len(self._states)

    def add(self, moment: Moment, values: Values, absences: Reasons | None = None) -> list[int]:
        """Add a state, newer than all others; return the ids of those that were evicted."""
        state = _State(moment, values, self._added, absences or {})
        self._added += 1
        self._states[moment.id] = state
        self.bytes += state.bytes
        return self._thin()

    def value(self, moment: int, name: str, variable: str) -> RecordedValue | None:
        """The value of a layer or projection; None if there is none."""
        state = self._states.get(moment)
        return None if state is None else state.values.get((name, variable))

    def why(self, moment: int, layer: str, variable: str) -> str:
        """The reason for a missing value, or "" if none was given."""
        state = self._states.get(moment)
        return "" if state is None else state.absences.get((layer, variable), "")

    def values(self, moment: int) -> Values:
        """All values of a moment."""
        state = self._states.get(moment)
        return {} if state is None else dict(state.values)

    def frozen(self) -> Timeline:
        """A copy that shares the values: states may be evicted while it is read."""
        copy = Timeline(self._most_bytes, self._most_states)
        copy._states = dict(self._states)
        return copy

    def pin(self, moments: set[int]) -> None:
        """Protect moments that pages show from eviction, until another set is pinned."""
        self._pinned = set(moments)

    def clear(self) -> list[int]:
        """Remove all states; return their ids."""
        removed = list(self._states)
        self._states.clear()
        self.bytes = 0
        return removed

    def _thin(self) -> list[int]:
        evicted: list[int] = []
        while len(self._states) > self._most_states or self.bytes > self._most_bytes:
            victim = self._victim()
            if victim is None:
                break
            self.bytes -= self._states.pop(victim).bytes
            evicted.append(victim)
        return evicted

    def _victim(self) -> int | None:
        """The state to evict: the one whose neighbours are closest together.

        The newest quarter is spared.
        """
        states = list(self._states.values())
        for dense in (max(len(states) // 4, 1), 1):  # unless all the others are pinned
            best: tuple[int, int] | None = None
            for position in range(len(states) - dense):
                state = states[position]
                if state.moment.id in self._pinned:
                    continue
                before = states[position - 1].number if position else -self._added  # the first state goes last
                gap = states[position + 1].number - before
                if best is None or gap < best[0]:
                    best = (gap, state.moment.id)
            if best is not None:
                return best[1]
        return None
