"""The end of a watch: how many values are on the disk, why others are not, and the line that says so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import replace as replaced
from pathlib import Path
from typing import Any

from torcheer.errors import TorcheerError
from torcheer.samples import Account

_UNKNOWN = "the watching process ended before it had written them"


@dataclass(frozen=True, slots=True)
class Ending:
    """What became of a watch's values, and why some are not in its log."""

    account: Account
    to: Path | None
    why: str = ""

    @property
    def unwritten(self) -> int:
        """How many values the child has dealt with and the log does not hold."""
        return 0 if self.account.written is None else max(self.account.handled - self.account.written, 0)

    @property
    def problem(self) -> str:
        """In words, that values are not in the log; "" where all are."""
        if not self.unwritten:
            return ""
        return f"{self.unwritten:,} of {self.account.handled:,} values are not in {self.to}: {self.why}"

    def line(self, steps: int) -> str:
        """The closing line of a watch of so many steps."""
        account, span = self.account, f"values of {steps:,} step{'s' * (steps != 1)}"
        if not self.unwritten:
            text = f"{account.handled:,} {span}" + (f", in {self.to}" if self.to is not None else "")
        elif account.written:
            text = f"{account.written:,} of {account.handled:,} {span}, in {self.to} ({self.why})"
        else:
            text = f"none of {account.handled:,} {span} is in {self.to} ({self.why})"
        return f"torcheer: {text}; {account.missing}" if account.missing else f"torcheer: {text}"


def ending_of(account: Account, to: Path | None, said: Mapping[str, Any], opened: float) -> Ending:
    """Settle how many values are on the disk.

    `said` is what the last child said of its log, nothing where it could not: then, and where one child has taken the
    place of another, what is on the disk since the time `opened` is counted.
    """
    if to is None:
        return Ending(account, to)
    if not said or account.restarts:
        written = _counted(to, opened)
    else:
        written = int(said["written"])
    why = str(said.get("why") or _UNKNOWN)
    return Ending(replaced(account, written=written), to, why)


def _counted(to: Path, opened: float) -> int:
    from torcheer.runlog.watch_reader import archive_in  # rarely needed

    try:
        frames = archive_in(to, []).frames
    except (OSError, TorcheerError):
        return 0
    count, ours = 0, False
    for frame in frames:
        ours = ours or float(frame["about"].get("opened", 0.0)) >= opened
        count += len(frame["about"].get("rows", ())) if ours else 0
    return count
