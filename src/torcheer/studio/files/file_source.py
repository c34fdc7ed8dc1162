"""A model file as a source with one moment: its tensors in 3D and as a table, its graph where it has one."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any, Final

from torcheer.control.control_records import Parameter, State
from torcheer.control.loop_messages import Moment
from torcheer.drawing import draw_history
from torcheer.drawing.writers.graph_text import GraphText
from torcheer.errors import TorcheerError
from torcheer.modelfiles import FileTensor, ModelFile
from torcheer.modelfiles.model_file import open_apart
from torcheer.network.network_records import Net
from torcheer.network.placement import net_of
from torcheer.runlog.table_records import Column, TableHead, TableRows
from torcheer.studio.files.file_network import MOST_CELLS, VALUE, in_reading_order, network_of, preview_shape
from torcheer.studio.sources.moment_queries import RecordedValue, Store, Values
from torcheer.studio.sources.source import Changes, Source
from torcheer.studio.tensors.numpy_code import Opening
from torcheer.terminal import human_bytes, human_count, human_shape, plural
from torcheer.vocabulary.array_statistics import TABLE, facts_of

_MOST_METADATA: Final = 300
_MOST_INSPECTED: Final = 64 << 20  # numbers of a tensor
_WHOLE, WEIGHT = ".whole", "Wt"
_SAMPLE: Final = 1 << 16  # numbers of a tensor from which the table's statistics are made
_STATISTICS: Final = tuple(row for row in TABLE if row.name != "count")  # that stands among the facts of all
_HEAD: Final = TableHead(
    "tensors", "Tensors", columns=(
        Column("Name", "text", plotted=False), Column("Type", "text", plotted=False),
        Column("Shape", "text", plotted=False), Column("Numbers", "int", plotted=False),
        Column("Bytes", "int", plotted=False), *(Column(row.title, plotted=row.name == "std") for row in _STATISTICS),
        Column("Sampled", "int", plotted=False),
    ),
)  # fmt: skip


class FileSource(Source):
    """What a model file holds. Opening it reads its header; numbers are read where somebody looks."""

    kind = "file"

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.file = open_apart(path)
        super().__init__(Path(path).name, None, FileMoments(self.file))
        self._tensors = in_reading_order(self.file.values())
        self.net = net_of(network_of(self.title, self._tensors))
        self.parameters = tuple(_facts(self.file))
        self.state = State("idle", {"Name": self.title}, message=f"{self.file.format}: nothing in it runs")
        self._statistics: list[dict[str, Any]] = []
        self._rows, self._stop = 0, threading.Event()
        self._thread: threading.Thread | None = None
        self._show_table()

    def graph(self, net: Net) -> GraphText:
        """The drawing of its program; of tensors alone, of the tree of their names."""
        if self.file.program is None:
            return super().graph(net)
        history = self.file.history()
        weights = {op.index: op.stored[0].name for op in history.trace.ops() if op.stored}
        return draw_history(history).page_text(weights)

    def poll(self) -> Changes:
        """New statistics, which a thread makes from the first call on."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._compute, name="torcheer-file-statistics", daemon=True)
            self._thread.start()
        if len(self._statistics) > self._rows:
            self._show_table()
            self._changes.tables.add(_HEAD.name)
        return super().poll()

    def close(self) -> None:
        """End the thread."""
        self._stop.set()

    def _compute(self) -> None:
        for tensor in self._tensors:
            if self._stop.is_set():
                return
            try:
                self._statistics.append(_statistics(tensor))
            except (TorcheerError, OSError, ValueError):
                self._statistics.append({})

    def _show_table(self) -> None:
        known = list(self._statistics)
        self._rows = len(known)
        tensors = self._tensors
        columns: dict[str, list[Any]] = {
            "Name": [tensor.name for tensor in tensors], "Type": [tensor.type for tensor in tensors],
            "Shape": [human_shape(tensor.shape) for tensor in tensors], "Numbers": [tensor.size for tensor in tensors],
            "Bytes": [tensor.nbytes for tensor in tensors],
        }  # fmt: skip
        rows = known + [{}] * (len(tensors) - len(known))
        columns |= {name: [row.get(name) for row in rows] for name in (*(row.title for row in _STATISTICS), "Sampled")}
        restarts = self.tables[_HEAD.name].restarts + 1 if self.tables else 0
        self.tables[_HEAD.name] = TableRows(_HEAD, columns, len(tensors), restarts)


class FileMoments:
    """The tensors of a file as values of its only moment; nothing is kept in memory."""

    def __init__(self, file: ModelFile) -> None:
        self._file = file
        self.moments = [Moment(0, 0, {"Name": file.path.name})]

    def value(self, moment: int, name: str, variable: str) -> RecordedValue | None:
        """A tensor, or a sample of a large one; below it, as "Wt" of "name.whole", all of it for the inspector."""
        whole = variable == WEIGHT
        tensor = self._file.tensors.get(name.removesuffix(_WHOLE) if whole else name)
        if moment != 0 or tensor is None or not tensor.is_readable or not tensor.size:
            return None
        if whole:
            return RecordedValue(-1, tensor.mapped()) if _is_inspected(tensor) else None
        return (
            RecordedValue(-1, tensor.preview(MOST_CELLS).reshape(preview_shape(tensor))) if variable == VALUE else None
        )

    def parameter_names(self, moment: int) -> list[str]:
        """Those of which a sample is drawn, once more, whole."""
        return [f"{name}{_WHOLE}" for name, tensor in self._file.tensors.items() if _is_inspected(tensor)]

    def values(self, moment: int) -> Values:
        """All of them, one after the other."""
        named = ((name, self.value(moment, name, VALUE)) for name in self._file)
        return {(name, VALUE): value for name, value in named if value is not None}

    def opening(self, moment: int, name: str, variable: str) -> Opening:
        """The tensor of the file, or the sample that is drawn."""
        tensor = name.removesuffix(_WHOLE) if variable == WEIGHT else name
        lines = ("import torcheer as tl", f"file = tl.load({str(self._file.path.resolve())!r})")
        read = "numpy()" if variable == WEIGHT or self._file[tensor].size <= MOST_CELLS else f"preview({MOST_CELLS})"
        return Opening(lines, f"file[{tensor!r}].{read}")

    def why(self, moment: int, layer: str, variable: str) -> str:
        """Why a tensor cannot be shown."""
        tensor = self._file.tensors.get(layer)
        if tensor is not None and not tensor.is_readable:
            return f"{tensor.type} is not decoded"
        return "it has no numbers" if tensor is not None and not tensor.size else ""

    def frozen(self) -> Store:
        """The same: a file does not change."""
        return self


def _is_inspected(tensor: FileTensor) -> bool:
    """Whether a tensor that is drawn as a sample can be inspected whole: statistics take about 16 bytes a number."""
    return tensor.is_readable and MOST_CELLS < tensor.size <= _MOST_INSPECTED


def _statistics(tensor: FileTensor) -> dict[str, Any]:
    """Statistics of a sample, evenly spread; of a small tensor, of all of it."""
    if not tensor.is_readable or not tensor.size:
        return {}
    sample = tensor.preview(_SAMPLE)
    facts = facts_of(sample)
    return {**{row.title: facts[row.name] for row in _STATISTICS}, "Sampled": sample.size}


def _facts(file: ModelFile) -> list[Parameter]:
    numbers, size = sum(tensor.size for tensor in file.values()), sum(tensor.nbytes for tensor in file.values())
    facts = {"format": file.format, "tensors": f"{len(file):,}", "numbers": human_count(numbers),
             "bytes": human_bytes(size)}  # fmt: skip
    if file.program is not None:
        facts["graph"] = plural(len(file.program.nodes), "node")
    shown = [Parameter(name, value, "text", group="file") for name, value in facts.items()]
    metadata = list(file.metadata.items())[:_MOST_METADATA]
    return shown + [Parameter(name, value, "text", group="metadata") for name, value in metadata]
