"""The state that is being recorded: its number, what is absent in it, what it cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from torcheer.host.follow.described_model import DescribedModel
from torcheer.host.follow.record_rate import cost
from torcheer.host.host import Host
from torcheer.host.missing_values import Absences

_HIDDEN_SHARE: Final = 1.5  # unmeasured cost of a state: hooks slow calls down, caches are evicted
_HIDDEN_SECS: Final = 0.0005  # and the host's thread has to send it


class RecordedState:
    """The values of one pass, from `begin` to `finish`."""

    def __init__(self, host: Host) -> None:
        self._host, self.absences = host, Absences()
        self.number = -1  # the host's number of it; -1: none is being recorded
        self.has_inputs = False  # the arguments of the pass's first call were recorded
        self.has_gradient_hooks = False
        self._secs, self._made_secs = 0.0, 0.0  # spent on it; that the host had spent on its own before it

    def begin(self, step: int, counters: Mapping[str, Any], test: bool) -> bool:
        """Begin a state; False where the host has no subscription or no room."""
        self.number = self._host.values.begin(step, counters, test)
        self.has_inputs = False
        return self.number >= 0

    def start_clock(self) -> None:
        """Count what the host spends on its own from now on apart."""
        self._made_secs = self._host.values.making_secs

    def spend(self, began: Any) -> None:
        """Count the time since a `stamp`."""
        self._secs += cost(began)

    def finish(self, described: DescribedModel) -> float:
        """Complete the state; the seconds that it cost."""
        number, self.number, self.has_gradient_hooks = self.number, -1, False
        secs, self._secs = self._secs, 0.0
        host = self._host
        if number < 0:
            return secs
        if host.network is not None:
            unselected = described.places.unselected
            host.values.absent(
                number, self.absences.of(host.network, host.wants.variables, described.hidden, unselected)
            )
        host.values.end(number)
        secs -= host.values.making_secs - self._made_secs
        return _HIDDEN_SHARE * max(secs, 0.0) + _HIDDEN_SECS
