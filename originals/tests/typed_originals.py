"""A program that mypy checks strictly: the names of torcheer-originals as type checkers know them."""

from __future__ import annotations

from typing import assert_type

from torch import nn, ones

import torcheer_originals.torchlens as tl
import torcheer_originals.torchtrace as torchtrace
from torcheer_originals import pytorch_inspector as inspector


def names(model: nn.Module) -> None:
    print(inspector.DataPlot, inspector.DictOp, inspector.MemoryOp, inspector.QueueOp, inspector.SingletonMeta)
    print(inspector.MultiprocessingCtx, inspector.MultiprocessingWriter, inspector.ParrallelHandler)
    print(inspector.MultiprocessingWriterFork, inspector.MultiprocessingWriterSpawn, inspector.ModelExplorer)
    print(inspector.exception_decorator, inspector.wrapper_multiple_process_decorator)
    torchtrace.prCyan("a")
    torchtrace.prGreen("b")
    torchtrace.prYellow("c")
    print(torchtrace.nn.Linear(1, 1), torchtrace.utils.iterate_regions)
    history = tl.log_forward_pass(model, ones(1, 3), vis_outpath="a.svg", vis_nesting_depth=2)
    assert_type(history, tl.ModelHistory)
