"""From a config file to a session: read, translate to one dialect, complete, check, build."""

from __future__ import annotations

from torcheer.training.spec.builders.build_session import Built, assemble, build
from torcheer.training.spec.builders.open_session import Inference, begin, inference, reopen
from torcheer.training.spec.checks.check_config import check, checked, understand
from torcheer.training.spec.read.config_merge import is_later, merged, read_spec
from torcheer.training.spec.read.description import Spec
from torcheer.training.spec.read.key_addresses import with_changes

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
    "with_changes",
]
