"""The closing report of a watch: how many values are on disk, why others are not, and the closing line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import replace as replaced
from pathlib import Path
from typing import Any

from torcheer.errors import TorcheerError
from torcheer.runlog.log_frames import LogPlace, count_values
from torcheer.samples import Account
from torcheer.terminal import plural

_UNKNOWN = "the watching process ended before it had written them"


@dataclass(frozen=True, slots=True)
class Ending:
    """Counts of a watch's values by outcome, and why some are not in its log."""

    account: Account
    to: Path | None
    why: str = ""

    @property
    def unwritten(self) -> int:
        """Number of values that the child handled but the log lacks."""
        return 0 if self.account.written is None else max(self.account.handled - self.account.written, 0)

    @property
    def problem(self) -> str:
        """The message that values are missing from the log; "" where none are."""
        if not self.unwritten:
            return ""
        return f"{self.unwritten:,} of {self.account.handled:,} values are not in {self.to}: {self.why}"

    def line(self, steps: int) -> str:
        """The closing line of a watch of so many steps."""
        account, span = self.account, f"values of {plural(steps, 'step')}"
        if not self.unwritten:
            text = f"{account.handled:,} {span}" + (f", in {self.to}" if self.to is not None else "")
        elif account.written:
            text = f"{account.written:,} of {account.handled:,} {span}, in {self.to} ({self.why})"
        else:
            text = f"none of {account.handled:,} {span} is in {self.to} ({self.why})"
        return f"torcheer: {text}; {account.missing}" if account.missing else f"torcheer: {text}"


def ending_of(account: Account, place: LogPlace | None, log_facts: Mapping[str, Any], opened: float) -> Ending:
    """Determine how many values are on disk.

    `log_facts` is the last child's report on its log, empty where it could not send one: then, and after restarts, the
    values on disk since the time `opened` are counted.
    """
    if place is None:
        return Ending(account, None)
    if not log_facts or account.restarts:
        written = _count_on_disk(place, opened)
    else:
        written = int(log_facts["written"])
    why = str(log_facts.get("why") or _UNKNOWN)
    return Ending(replaced(account, written=written), place.run, why)


def _count_on_disk(place: LogPlace, opened: float) -> int:
    from torcheer.runlog.log_stream import LogStream, Place  # rarely needed

    try:
        frames = LogStream(Place.of(place.path)).read()
    except (OSError, TorcheerError):
        return 0
    count, is_this_run = 0, False
    for frame in frames:
        is_this_run = is_this_run or float(frame.about.get("opened", 0.0)) >= opened
        count += count_values(frame.about) if is_this_run else 0
    return count
