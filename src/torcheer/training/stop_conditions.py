"""Stop conditions under the name that configs know."""

from __future__ import annotations

from torcheer.training.stopping import EarlyStopping, EpochsCompleted

__all__ = ["EarlyStopping", "EpochsCompleted"]
