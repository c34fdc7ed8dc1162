"""From a config file to a session: read, understood in one dialect, completed, checked, built."""

from __future__ import annotations

from torcheer.training.spec.building import Built, assemble, build
from torcheer.training.spec.checking import check, checked, understand
from torcheer.training.spec.description import Spec
from torcheer.training.spec.merging import is_later, merged, read_spec
from torcheer.training.spec.opening import Inference, begin, inference, reopen

__all__ = [
    "Built",
    "Inference",
    "Spec",
    "assemble",
    "begin",
    "build",
    "check",
    "checked",
    "inference",
    "is_later",
    "merged",
    "read_spec",
    "reopen",
    "understand",
]
