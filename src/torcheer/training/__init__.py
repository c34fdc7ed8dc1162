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
    from torcheer.training.finders.batch_size import find_batch_size
    from torcheer.training.finders.learning_rate import find_learning_rate
    from torcheer.training.finders.one_batch import overfit_one_batch
    from torcheer.training.observe.session_log import log
    from torcheer.training.session import Session

__all__ = [
    "Clip", "DebugPipeline", "EarlyStopping", "EpochsCompleted", "Graph", "Input", "Loader", "Measure", "Node",
    "Options", "Pipeline", "Processor", "Schedule", "Session", "Stage", "Term",
    "find_batch_size", "find_learning_rate", "log", "overfit_one_batch",
]  # fmt: skip


def __getattr__(name: str) -> Any:  # imported lazily: `torcheer show` should not wait for torch
    if name == "Session":
        from torcheer.training.session import Session

        return Session
    if name == "log":
        from torcheer.training.observe.session_log import log

        return log
    if name == "find_batch_size":
        from torcheer.training.finders.batch_size import find_batch_size

        return find_batch_size
    if name == "find_learning_rate":
        from torcheer.training.finders.learning_rate import find_learning_rate

        return find_learning_rate
    if name == "overfit_one_batch":
        from torcheer.training.finders.one_batch import overfit_one_batch

        return overfit_one_batch
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}")
