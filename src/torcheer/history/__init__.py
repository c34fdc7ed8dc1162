"""ModelHistory: the operations of a run, to look up, slice, print, compare and tabulate."""

from __future__ import annotations

from torcheer.history.model_history import ModelHistory

__all__ = ["ModelHistory"]
