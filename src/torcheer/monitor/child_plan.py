"""What the child is asked to do, and what a reader in it is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from torcheer.samples import Delivery


@dataclass(frozen=True, slots=True)
class Plan:
    """What a child is to do, as JSON carries it there."""

    to: str = ""  # the folder for log, alerts and videos; "" writes none
    statistics: bool = True  # sum up every value, judge it by the rules
    rules: dict[str, Any] = field(default_factory=dict)  # name -> its settings, as `rules.settle` returns them
    keep: tuple[str, ...] = ()  # patterns of keys ("features.*/output") whose arrays go into the log whole
    video: dict[str, Any] = field(default_factory=dict)  # settings of `video.Videos`; empty for none
    timeout_secs: float = 0.0  # ends after so long without data; 0 never
    unique_id: int = 0  # the seed's name for a child


class Reader(Protocol):
    """Someone in the child who looks at everything that arrives."""

    def take(self, sent: Delivery) -> None:
        """Look at one value. Raising closes this reader's eyes for the value's key, and is reported once."""

    def tick(self) -> None:
        """Called at least four times a second while there is time: write what waits."""

    def close(self) -> None:
        """Nothing more will come."""
