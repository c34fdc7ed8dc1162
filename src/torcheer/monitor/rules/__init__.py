"""Rules that detect faults of a training run: the table of rules, their settings, and the judge that applies them."""

from __future__ import annotations

from torcheer.monitor.rules.judge import Rules
from torcheer.monitor.rules.rule_settings import RULES, describe_rules, resolve_rules

__all__ = ["RULES", "Rules", "describe_rules", "resolve_rules"]
