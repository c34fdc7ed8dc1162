"""Tensors of a running model, looked at in another process.

from torcheer.inspector import ParallelHandler, DataRecorder

The child imports this package too and does without torch: each name is loaded when it is first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torcheer.public_names import lazy_names

if TYPE_CHECKING:
    from torcheer.inspector.data_recorder import DataRecorder
    from torcheer.inspector.handler import ParallelHandler, ParrallelHandler
    from torcheer.inspector.handler_child import ProcessInfoData
    from torcheer.inspector.layer_discovery import discover, find_layers, load_layers, save_layers
    from torcheer.monitor import watch
    from torcheer.monitor.model_watch import Watch
    from torcheer.monitor.watch_settings import Transport
    from torcheer.originals.pytorch_inspector.call_decorators import (
        exception_decorator,
        wrapper_multiple_process_decorator,
    )
    from torcheer.originals.pytorch_inspector.data_plot import DataPlot
    from torcheer.originals.pytorch_inspector.dict_queue_memory import DictOp, MemoryOp, QueueOp
    from torcheer.originals.pytorch_inspector.model_explorer import ModelExplorer
    from torcheer.originals.pytorch_inspector.multiprocessing_writer import (
        MultiprocessingCtx,
        MultiprocessingWriter,
        MultiprocessingWriterFork,
        MultiprocessingWriterSpawn,
    )
    from torcheer.originals.pytorch_inspector.singleton_meta import SingletonMeta
    from torcheer.runlog.watch_reader import open_watch
    from torcheer.samples import Alert
    from torcheer.tap.step_schedule import Every

__all__ = [
    "Alert", "DataPlot", "DataRecorder", "DictOp", "Every", "MemoryOp", "ModelExplorer", "MultiprocessingCtx",
    "MultiprocessingWriter", "MultiprocessingWriterFork", "MultiprocessingWriterSpawn", "ParallelHandler",
    "ParrallelHandler", "ProcessInfoData", "QueueOp", "SingletonMeta", "Transport", "Watch", "discover",
    "exception_decorator", "find_layers", "load_layers", "open_watch", "save_layers", "watch",
    "wrapper_multiple_process_decorator",
]  # fmt: skip

_ORIGINAL = "torcheer.originals.pytorch_inspector"

if not TYPE_CHECKING:  # to type checkers a name that is not imported above is an error
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "Alert": "torcheer.samples",
            "DataRecorder": "torcheer.inspector.data_recorder",
            "Every": "torcheer.tap.step_schedule",
            "ModelExplorer": f"{_ORIGINAL}.model_explorer",
            "ParallelHandler": "torcheer.inspector.handler",
            "ParrallelHandler": "torcheer.inspector.handler",
            "ProcessInfoData": "torcheer.inspector.handler_child",
            "Transport": "torcheer.monitor.watch_settings",
            "Watch": "torcheer.monitor.model_watch",
            "discover": "torcheer.inspector.layer_discovery",
            "find_layers": "torcheer.inspector.layer_discovery",
            "load_layers": "torcheer.inspector.layer_discovery",
            "open_watch": "torcheer.runlog.watch_reader",
            "save_layers": "torcheer.inspector.layer_discovery",
            "watch": "torcheer.monitor",
            "DataPlot": f"{_ORIGINAL}.data_plot",
            "SingletonMeta": f"{_ORIGINAL}.singleton_meta",
        }
        | dict.fromkeys(("DictOp", "MemoryOp", "QueueOp"), f"{_ORIGINAL}.dict_queue_memory")
        | dict.fromkeys(("exception_decorator", "wrapper_multiple_process_decorator"), f"{_ORIGINAL}.call_decorators")
        | dict.fromkeys(
            (
                "MultiprocessingCtx",
                "MultiprocessingWriter",
                "MultiprocessingWriterFork",
                "MultiprocessingWriterSpawn",
            ),
            f"{_ORIGINAL}.multiprocessing_writer",
        ),
    )
