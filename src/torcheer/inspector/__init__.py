"""Tensors of a running model, looked at in another process.

from torcheer.inspector import ParallelHandler, DataRecorder

The child imports this package too and does without torch: each name is loaded when it is first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}")
    value = getattr(_home(name), name)
    globals()[name] = value
    return value


def _home(name: str) -> Any:
    """The module that a public name lives in."""
    match name:
        case "ParallelHandler" | "ParrallelHandler":
            from torcheer.inspector import handler

            return handler
        case "ProcessInfoData":
            from torcheer.inspector import handler_child

            return handler_child
        case "Every" | "Transport" | "Watch" | "watch":
            from torcheer.monitor import watch

            return watch
        case "DataRecorder":
            from torcheer.inspector import data_recorder

            return data_recorder
        case "open_watch":
            from torcheer.runlog import watch_reader

            return watch_reader
        case "Alert":
            from torcheer.monitor import child_plan

            return child_plan
        case _:
            from torcheer.inspector import layer_discovery

            return layer_discovery


def __dir__() -> list[str]:
    return sorted(__all__)
