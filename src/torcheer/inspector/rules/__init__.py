"""What looks wrong in a training run: a table of rules, their settings, and who judges by them."""

from __future__ import annotations

from torcheer.inspector.rules.judging import Rules
from torcheer.inspector.rules.settings import RULES, described, settle

__all__ = ["RULES", "Rules", "described", "settle"]
