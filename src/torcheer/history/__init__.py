"""ModelHistory: everything that happened, to find, slice, print, compare and tabulate."""

from __future__ import annotations

from torcheer.history.model_history import ModelHistory

__all__ = ["ModelHistory"]
