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
    from torcheer.runlog.watch_reader import open_watch
    from torcheer.samples import Alert
    from torcheer.tap.step_schedule import Every

__all__ = [
    "Alert", "DataRecorder", "Every", "ParallelHandler", "ParrallelHandler", "ProcessInfoData", "Transport", "Watch",
    "discover", "find_layers", "load_layers", "open_watch", "save_layers", "watch",
]  # fmt: skip

if not TYPE_CHECKING:  # to type checkers a name that is not imported above is an error
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "Alert": "torcheer.samples",
            "DataRecorder": "torcheer.inspector.data_recorder",
            "Every": "torcheer.tap.step_schedule",
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
        },
    )
