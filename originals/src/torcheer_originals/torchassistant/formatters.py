"""TorchAssistant's `formatters`."""

from __future__ import annotations


class ProgressBar:
    """A bar of text, such as `====>................`."""

    def updated(self, step: int, num_steps: int, fill: str = "=", empty: str = ".", cols: int = 20) -> str:
        """Return the bar after a step of so many."""
        done = cols * step // max(num_steps, 1)
        return f"{fill * done}>{empty * (cols - done)}"
