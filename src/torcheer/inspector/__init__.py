"""Tensors of a running model, looked at in another process.

from torcheer.inspector import ParallelHandler, DataRecorder

The child imports this package too and does without torch: each name is loaded when it is first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torcheer.lazy_names import lazy_names

if TYPE_CHECKING:
    from torcheer.inspector.data_recorder import DataRecorder
    from torcheer.inspector.handler import ParallelHandler, ParrallelHandler
    from torcheer.inspector.handler_child import ProcessInfoData
    from torcheer.inspector.layer_discovery import ModelExplorer, discover, find_layers, load_layers, save_layers
    from torcheer.monitor.watch import Every, Transport, Watch, watch
    from torcheer.runlog.watch_reader import open_watch
    from torcheer.samples import Alert

__all__ = [
    "Alert", "DataRecorder", "Every", "ModelExplorer", "ParallelHandler", "ParrallelHandler", "ProcessInfoData",
    "Transport", "Watch", "discover", "find_layers", "load_layers", "open_watch", "save_layers", "watch",
]  # fmt: skip

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "Alert": "torcheer.samples",
        "DataRecorder": "torcheer.inspector.data_recorder",
        "Every": "torcheer.monitor.watch",
        "ModelExplorer": "torcheer.inspector.layer_discovery",
        "ParallelHandler": "torcheer.inspector.handler",
        "ParrallelHandler": "torcheer.inspector.handler",
        "ProcessInfoData": "torcheer.inspector.handler_child",
        "Transport": "torcheer.monitor.watch",
        "Watch": "torcheer.monitor.watch",
        "discover": "torcheer.inspector.layer_discovery",
        "find_layers": "torcheer.inspector.layer_discovery",
        "load_layers": "torcheer.inspector.layer_discovery",
        "open_watch": "torcheer.runlog.watch_reader",
        "save_layers": "torcheer.inspector.layer_discovery",
        "watch": "torcheer.monitor.watch",
    },
)
