"""Train, evaluate and infer, from a config file or from Python; a run survives any crash."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torcheer.training.session_parts import (  # fmt: skip
    Clip,
    DebugPipeline,
    Graph,
    Input,
    Loader,
    Measure,
    Node,
    Options,
    Pipeline,
    Processor,
    Schedule,
    Stage,
    Term,
)
from torcheer.training.stop_conditions import EarlyStopping, EpochsCompleted

if TYPE_CHECKING:
    from torcheer.training.observe.session_log import log
    from torcheer.training.session import Session

__all__ = [
    "Clip", "DebugPipeline", "EarlyStopping", "EpochsCompleted", "Graph", "Input", "Loader", "Measure", "Node",
    "Options", "Pipeline", "Processor", "Schedule", "Session", "Stage", "Term",
    "log",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name == "Session":  # imported lazily: `torcheer show` should not wait for torch
        from torcheer.training.session import Session

        return Session
    if name == "log":
        from torcheer.training.observe.session_log import log

        return log
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}")
