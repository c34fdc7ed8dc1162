"""Train, evaluate and infer, from a config file or from Python; a run survives any crash."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torcheer.public_names import lazy_names
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

# Imported when first used: `torcheer show` should not wait for torch.
_HOMES = {
    "Session": "torcheer.training.session",
    "find_batch_size": "torcheer.training.finders.batch_size",
    "find_learning_rate": "torcheer.training.finders.learning_rate",
    "log": "torcheer.training.observe.session_log",
    "overfit_one_batch": "torcheer.training.finders.one_batch",
}
if not TYPE_CHECKING:  # to type checkers a name that is not imported above is an error
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)
