"""PyTorch Inspector's names: write `torcheer_originals.pytorch_inspector` for `pytorch_inspector`.

The child imports this package too and does without torch: each name is loaded when it is first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torcheer.public_names import lazy_names
from torcheer.terminal.notices import DIFFERENCES
from torcheer_originals.pytorch_inspector.met_differences import meet

if TYPE_CHECKING:
    from torcheer.inspector import DataRecorder, ProcessInfoData
    from torcheer_originals.pytorch_inspector.call_decorators import (
        exception_decorator,
        wrapper_multiple_process_decorator,
    )
    from torcheer_originals.pytorch_inspector.data_plot import DataPlot
    from torcheer_originals.pytorch_inspector.dict_queue_memory import DictOp, MemoryOp, QueueOp
    from torcheer_originals.pytorch_inspector.handler_names import ParrallelHandler
    from torcheer_originals.pytorch_inspector.model_explorer import ModelExplorer
    from torcheer_originals.pytorch_inspector.multiprocessing_writer import (
        MultiprocessingCtx,
        MultiprocessingWriter,
        MultiprocessingWriterFork,
        MultiprocessingWriterSpawn,
    )
    from torcheer_originals.pytorch_inspector.singleton_meta import SingletonMeta

__all__ = [
    "DataPlot", "DataRecorder", "DictOp", "MemoryOp", "ModelExplorer", "MultiprocessingCtx", "MultiprocessingWriter",
    "MultiprocessingWriterFork", "MultiprocessingWriterSpawn", "ParrallelHandler", "ProcessInfoData", "QueueOp",
    "SingletonMeta", "exception_decorator", "wrapper_multiple_process_decorator",
]  # fmt: skip

_HOMES = {
    "call_decorators": "exception_decorator wrapper_multiple_process_decorator",
    "data_plot": "DataPlot",
    "dict_queue_memory": "DictOp MemoryOp QueueOp",
    "handler_names": "ParrallelHandler",
    "model_explorer": "ModelExplorer",
    "multiprocessing_writer": "MultiprocessingCtx MultiprocessingWriter MultiprocessingWriterFork "
    "MultiprocessingWriterSpawn",
    "singleton_meta": "SingletonMeta",
}
DIFFERENCES["pytorch-inspector"] = meet

if not TYPE_CHECKING:  # to type checkers a name that is not imported above is an error
    __getattr__, __dir__ = lazy_names(
        __name__,
        {name: f"{__name__}.{module}" for module, names in _HOMES.items() for name in names.split()}
        | dict.fromkeys(("DataRecorder", "ProcessInfoData"), "torcheer.inspector"),
    )
