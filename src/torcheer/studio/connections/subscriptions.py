"""Pages' subscriptions: one state in flight per page, the latest wins.

The host receives their union.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from torcheer.control.control_records import Every, Wants
from torcheer.control.loop_messages import Moment
from torcheer.network.network_records import Net
from torcheer.studio.connections.messages import Look, Seen
from torcheer.studio.sources.layer_frames import weight_variables

_MOST_IN_FLIGHT: Final = 4  # states: one for the current look, the others for earlier looks
_FEW_LAYERS: Final = 200
_RETRY_SECS: Final = 1.0  # then a page that has not acknowledged an old look is sent the current one


@dataclass(slots=True)
class Subscription:
    """One page's current look, and the states that it was sent."""

    look: Look | None = None
    last: int = -1  # the moment last sent for this look; -1: none yet
    in_flight: list[tuple[int, int, float]] = field(default_factory=list)  # look, moment, time sent
    answered: bool = False  # whether this look was answered at least once

    def begin(self, look: Look) -> None:
        """Replace the look; the one before is dropped."""
        self.look, self.last, self.answered = look, -1, False
        self.in_flight = [state for state in self.in_flight if state[0] != look.look]

    def resend(self) -> None:
        """Answer the same look once more: a new network has cleared the page."""
        self.answered = False

    def cancel(self, look: Look) -> None:
        """Forget a state that was not sent completely: the page will not acknowledge it."""
        self.in_flight = [state for state in self.in_flight if state[0] != look.look]

    def acknowledge(self, seen: Seen) -> None:
        """Note that the page has drawn a state: it and those before it are no longer in flight."""
        for index, (look, moment, _) in enumerate(self.in_flight):
            if (look, moment) == (seen.look, seen.moment):
                del self.in_flight[: index + 1]
                return

    def due(self, moments: list[Moment]) -> int | None:
        """The moment to send now, -1 to report that there is none, or None to send nothing."""
        if self.look is None or not self.look.variable or self._is_throttled():
            return None
        newest = moments[-1].id if moments else -1
        wanted = newest if self.look.moment == -1 else self.look.moment
        if self.answered and (self.look.moment != -1 or wanted == self.last):
            return None
        return wanted

    def mark_sent(self, look: Look, moment: int) -> None:
        """Note that a state was sent."""
        if moment >= 0:  # -1 is not drawn, so never acknowledged
            self.in_flight = [*self.in_flight[1 - _MOST_IN_FLIGHT :], (look.look, moment, time.monotonic())]
        if self.look is look:
            self.last, self.answered = moment, True

    def _is_throttled(self) -> bool:
        assert self.look is not None
        if any(look == self.look.look for look, _, _ in self.in_flight):
            return True  # one state at a time: the page draws slower than states arrive
        full = len(self.in_flight) >= _MOST_IN_FLIGHT
        return full and time.monotonic() - self.in_flight[-1][2] < _RETRY_SECS


def wants_of(looks: Iterable[Look], net: Net | None) -> Wants:
    """The union of all looks, as the host receives it; empty without looks."""
    looks = [look for look in looks if look.variable]
    if not looks:
        return Wants()
    of_weights = weight_variables(net)
    shown = [variable for look in looks for variable in (look.variable, look.also) if variable]
    units = dict.fromkeys(variable for variable in shown if variable not in of_weights)
    weights = [look for look in looks if look.variable in of_weights]
    variables = tuple(units) or _first_variable(net)  # an empty tuple would mean no subscription
    clicked = dict.fromkeys((look.layer, look.unit) for look in weights if look.unit >= 0)
    return Wants(
        variables, bool(weights), tuple(clicked)[-64:], looks[-1].item,
        items=tuple(dict.fromkeys(look.item for look in looks))[-16:],
        train=_most_often(look.train for look in looks), test=_most_often(look.test for look in looks),
        layers=_open_layers(looks, net),
        inspected=tuple(dict.fromkeys(look.inspected for look in looks if look.inspected)),
    )  # fmt: skip


def _open_layers(looks: list[Look], net: Net | None) -> tuple[str, ...]:
    """The layers that some page has open; empty, for all, where there are few: any can be opened later, with values."""
    if net is None or len(net.layers) <= _FEW_LAYERS or not all(look.layers for look in looks):
        return ()
    return tuple(dict.fromkeys(name for look in looks for name in (*look.layers, look.inspected) if name))


def _first_variable(net: Net | None) -> tuple[str, ...]:
    return tuple(variable.name for variable in net.variables if variable.of == "unit")[:1] if net else ()


def _most_often(settings: Iterable[Every]) -> Every:
    """The setting that records most often: each trial before "auto", that before each epoch."""
    rank = {"trial": 0, "auto": 1, "epoch": 2, "off": 3}
    return min(settings, key=lambda every: (rank[every.unit], every.count))
