"""The states of a live host, read from its ring into a buffer that is limited in number and bytes.

Older states are thinned out evenly.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from typing import Final

from torcheer.control.loop_messages import Moment
from torcheer.errors import BadArgument, TorcheerError
from torcheer.studio.sources.moment_queries import Reasons, RecordedValue, Values
from torcheer.studio.tensors.numpy_code import Opening
from torcheer.wire.ring import RingReader
from torcheer.wire.shared_memory import check_sealed

MOST_BYTES: Final = 256 << 20
MOST_STATES: Final = 500
_NOT_INSPECTED: Final = "weights travel only while a page inspects them: the next recorded step has it"
_MOST_INCOMPLETE: Final = 512 << 20  # bytes of states that were not completed
HOSTILE: Final = (  # what a faulty host's bytes and messages may raise
    TorcheerError, LookupError, TypeError, ValueError, ArithmeticError, RecursionError, AttributeError, MemoryError,
    OSError, struct.error,
)  # fmt: skip


class _State:
    """A moment with its values."""

    __slots__ = ("absences", "bytes", "moment", "number", "values")

    def __init__(self, moment: Moment, values: Values, number: int, absences: Reasons) -> None:
        self.moment, self.values, self.number, self.absences = moment, values, number, absences
        self.bytes = _size_bytes(values)


class Timeline:
    """The buffered states, oldest first; arrays are stored as received. `report` hears of a ring that is damaged."""

    def __init__(
        self, most_bytes: int = MOST_BYTES, most_states: int = MOST_STATES, report: Callable[[str], None] | None = None
    ) -> None:
        self._most_bytes, self._most_states, self._report = most_bytes, max(most_states, 2), report
        self._ring: RingReader | None = None
        self._incomplete: dict[int, Values] = {}  # values of the host's states, by their numbers there
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

    # -- the host's ring ---------------------------------------------------------------------------------------------

    def open_ring(self, fd: int) -> None:
        """Switch to another ring, after draining the one before."""
        self.drain()
        self._close_reader()
        try:
            check_sealed(fd)
            self._ring = RingReader(fd)
        except HOSTILE as error:
            os.close(fd)
            raise BadArgument(f"a ring that cannot be read: {error}") from None

    def drain(self) -> None:
        """Read the ring's values, at most one ring size of them; even of incomplete states: the host needs the room."""
        if self._ring is None:
            return
        ring, taken = self._ring, 0
        try:
            while taken <= ring.memory.size and (sent := ring.take()) is not None:
                sample = sent.sample
                taken += sample.array.nbytes + 256
                values = self._incomplete.setdefault(sample.step, {})
                name = sample.variable
                if (sample.layer, name) in values and sample.item >= 0:  # a further item, for another page
                    name = f"{name}[{sample.item}]"
                values[sample.layer, name] = RecordedValue(sample.item, sample.array)
                ring.done()
        except HOSTILE as error:
            if self._report is not None:
                self._report(f"the values of the host cannot be read: {str(error)[:200]}")
            self.close_ring()
        self._drop_incomplete()

    def _drop_incomplete(self) -> None:
        """Drop the oldest incomplete states, so that a faulty host cannot fill the memory."""
        if len(self._incomplete) > 16:
            sizes = {number: _size_bytes(values) for number, values in self._incomplete.items()}
            while sum(sizes.values()) > _MOST_INCOMPLETE:
                oldest = min(sizes)
                del sizes[oldest], self._incomplete[oldest]

    def complete(self, number: int, moment: Moment, absences: Reasons) -> list[int]:
        """Add the state that the host has numbered so; return the ids of those that were evicted."""
        self.drain()
        values = self._incomplete.pop(number, {})
        for earlier in [waiting for waiting in self._incomplete if waiting < number]:
            del self._incomplete[earlier]
        return self.add(moment, values, absences)

    def close_ring(self) -> None:
        """Release the ring, and forget the states that it has not completed."""
        self._close_reader()
        self._incomplete.clear()

    def _close_reader(self) -> None:
        ring, self._ring = self._ring, None
        try:
            if ring is not None:
                ring.close()
        except (OSError, ValueError, BufferError):
            return

    # -- the buffer --------------------------------------------------------------------------------------------------

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
        why = "" if state is None else state.absences.get((layer, variable), "")
        return why or (_NOT_INSPECTED if variable in ("Wt", "WtGrad") else "")

    def parameter_names(self, moment: int) -> list[str]:
        """The names of the parameters and buffers that have a value at a moment."""
        state = self._states.get(moment)
        return [] if state is None else [name for name, variable in state.values if variable == "Wt"]

    def opening(self, moment: int, name: str, variable: str) -> Opening:
        """Say that these values are in no file."""
        return Opening(note="the states of a live run are in this viewer's memory only: save a recording and open it")

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


def _size_bytes(values: Values) -> int:
    return sum(value.array.nbytes for value in values.values())
