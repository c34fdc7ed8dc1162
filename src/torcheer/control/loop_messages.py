"""What a loop and those who look at it say to each other: the messages of a host, a viewer and its pages.

The first part travels twice: from the host to the viewer as JSON lines, from the viewer to its pages over a WebSocket;
`wire.json_codec` writes and parses both. `studio/connections/messages.py` has what only pages and their server say.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torcheer.control.control_records import Act, Change, Parameter, State, Wants
from torcheer.network.network_records import Network
from torcheer.samples import Alert
from torcheer.wire.json_codec import by_kind

VERSION = 2


@dataclass(frozen=True, slots=True)
class Moment:
    """A recorded state of the network."""

    id: int  # increases
    step: int
    counters: dict[str, Any] = field(default_factory=dict)
    test: bool = False


@dataclass(frozen=True, slots=True)
class AlertSeen:
    """An alert: a problem that a rule or the host reported."""

    text: str
    severity: str = "warning"
    step: int = 0
    rule: str = ""
    layer: str = ""
    id: str = ""  # of the run's log, or of the host; "" for those of 0.1
    follows: str = ""  # the alert that explains it, as its text begins: "dead_relu at step 20"
    began_here: bool = False  # of NaN and infinities: the step before was looked at and had none


def alert_seen(alert: Alert, layer: str, id: str) -> AlertSeen:
    """An alert as pages show it; its layer may have a fuller name there."""
    began_here = bool(alert.values.get("began_here"))
    return AlertSeen(str(alert), alert.severity, alert.step, alert.rule, layer, id, alert.follows, began_here)


# -- to the viewer, and on to its pages ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StateCame:
    """The run's state changed: it continued, paused, …"""

    state: State


@dataclass(frozen=True, slots=True)
class ParametersCame:
    """All parameters of the form."""

    parameters: tuple[Parameter, ...]


@dataclass(frozen=True, slots=True)
class AlertsCame:
    """New alerts."""

    alerts: tuple[AlertSeen, ...]


@dataclass(frozen=True, slots=True)
class Problem:
    """A failed request, as a sentence for people; `question` is -1 if there was none."""

    text: str
    question: int = -1


# -- to the viewer only ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Welcome:
    """The host's answer to a viewer: it will be sent everything."""

    version: int
    title: str


@dataclass(frozen=True, slots=True)
class Busy:
    """The host's answer to a second viewer: the first one's URL."""

    url: str


@dataclass(frozen=True, slots=True)
class NetworkCame:
    """A new network, or changed layers; the viewer places them and sends its pages `NetCame`."""

    network: Network


@dataclass(frozen=True, slots=True)
class RingCame:
    """The ring of the states that follow; its descriptor travels with this message."""


@dataclass(frozen=True, slots=True)
class MomentCame:
    """A state whose last value was put into the ring; the viewer's pages get `Moments`, and pictures of its layers."""

    moment: Moment
    absences: tuple[tuple[str, str, str], ...] = ()  # layer, variable, why it has no value


@dataclass(frozen=True, slots=True)
class Bye:
    """The host's last message; `why` it ended, if that was not planned."""

    why: str = ""


# -- to the host -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Join:
    """A viewer's first message."""

    version: int
    url: str  # of its page


@dataclass(frozen=True, slots=True)
class Subscribe:
    """What the viewer's pages look at, whenever it changes."""

    wants: Wants


FROM_HOST = by_kind(
    Welcome, Busy, NetworkCame, StateCame, ParametersCame, AlertsCame, Problem, RingCame, MomentCame, Bye,
)  # fmt: skip
TO_HOST = by_kind(Join, Subscribe, Act, Change)
