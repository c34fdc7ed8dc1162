"""What looks wrong in a training run: a table of rules, their settings, and who judges by them."""

from __future__ import annotations

from torcheer.monitor.rules.judge import Rules
from torcheer.monitor.rules.rule_settings import RULES, described, settle

__all__ = ["RULES", "Rules", "described", "settle"]
