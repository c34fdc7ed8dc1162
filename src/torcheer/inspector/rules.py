"""The rules of a watch under the name that users import them from."""

from torcheer.monitor.rules import RULES
from torcheer.monitor.rules import describe_rules as described

__all__ = ["RULES", "described"]
