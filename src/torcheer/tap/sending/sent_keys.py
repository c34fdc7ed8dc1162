"""The keys that a watch has sent, how often, and which of them are disabled."""

from __future__ import annotations

from collections import Counter
from typing import Any

from torch import Tensor

from torcheer.samples import Key
from torcheer.tap.tensor_copies import Report, is_wrapped


class SentKeys:
    """Counts the values of each key; one that fails is reported and disabled from then on."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self.disabled: set[Key] = set()
        self.counts: Counter[Key] = Counter()

    def count(self, key: Key) -> int:
        """Count a value; how many there were of its key before."""
        count = self.counts[key]
        self.counts[key] = count + 1
        return count

    def disable(self, key: Key, error: Exception) -> None:
        """Send no further values of a key."""
        self.disabled.add(key)
        self.report(f"{key[0]} ({key[1]}) is no longer watched: {type(error).__name__}: {error}")

    def refuse(self, key: Key, tensor: Tensor, text: str) -> None:
        """Report why a tensor is not sent, and disable its key."""
        if not is_wrapped(tensor):  # in its next pass it may have values
            self.disabled.add(key)
        self.report(text)

    @property
    def variables(self) -> set[str]:
        """The variables sent so far."""
        return {variable for _, variable in self.counts}

    def __contains__(self, key: Any) -> bool:
        return key in self.counts
