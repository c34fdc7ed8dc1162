"""The plan of the monitor process, and the interface of its readers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from torcheer.samples import Delivery

LENGTH_BYTES: Final = 8  # of the length before the plan's JSON in the start-up data


@dataclass(frozen=True, slots=True)
class Plan:
    """The configuration of a child; sent to it as JSON."""

    to: str = ""  # the folder for log, alerts and videos; "" writes nothing
    run: str = ""  # the run whose log is written; "" for `to`
    writer: str = "watch"  # the name there
    elsewhere: tuple[str, ...] = ()  # metrics that another writer logs
    statistics: bool = True  # compute statistics of every value, apply the rules
    rules: dict[str, Any] = field(default_factory=dict)  # name -> its settings, as `rules.settle` returns them
    keep: tuple[str, ...] = ()  # patterns of keys ("features.*/output") whose arrays are logged in full
    video: dict[str, Any] = field(default_factory=dict)  # settings of `video.Videos`; empty for none
    system_secs: float = 0.0  # between two rows about the machine in the log; 0: none
    places: dict[str, str] = field(default_factory=dict)  # by module, its class; after its first pass also the line
    awaits_lines: bool = False  # whether a pass will tell the lines
    rank: dict[str, Any] = field(default_factory=dict)  # of several processes, which this is: `log_frames`, `rank`
    log_bytes: int | None = None  # that the log may have; None for any
    timeout_secs: float = 0.0  # the child ends after so long without data; 0: never
    prints: bool = True  # a loop that hangs is said on stderr; False where the program's logging silences it
    continues: bool = False  # whether a child before it died, whose log this one goes on with
    unique_id: int = 0  # the seed's name for a child


def ranked_folder(plan: Plan) -> str:
    """The folder for files that each rank writes: that of the run for rank 0, one inside for the others."""
    rank = plan.rank.get("rank", 0)
    return f"{plan.to}/rank{rank}" if rank else plan.to


class Reader(Protocol):
    """A component of the child that receives every value."""

    def take(self, delivery: Delivery) -> None:
        """Handle one value. An exception disables this reader for the value's key, and is reported once."""

    def tick(self) -> None:
        """Flush buffers; called at least four times a second while there is time."""

    def close(self) -> None:
        """Finish: no more values will come."""
