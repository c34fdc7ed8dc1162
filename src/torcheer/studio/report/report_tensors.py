"""The inspector's answers in a report: each layer's tensors, their statistics, and one view of each."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import asdict
from math import prod
from typing import Any, Final

from torcheer.control.loop_messages import Moment
from torcheer.network.network_records import Net
from torcheer.studio.connections.messages import Answer, AskSlice, AskStatistics, TensorHead, TensorStatistics
from torcheer.studio.report.report_blocks import Blocks, pack
from torcheer.studio.report.report_source import ChosenMoments, ReportSource
from torcheer.studio.sources.moment_queries import RecordedValue, Store
from torcheer.studio.sources.source import Source
from torcheer.studio.tensors.layer_tensors import answer_slice, answer_statistics, tensors_of
from torcheer.wire.json_codec import serialize

_CELLS: Final = (4096, 1024, 256, 64)  # of a tensor's view, at most: the most that fit for the newest state
_MOST_NUMBERS: Final = 1 << 28  # that are read for statistics; a minute

Statistics = dict[tuple[str, str, str], TensorStatistics]  # by layer, variable and parameter


def add_tensors(blocks: Blocks, source: Source, moments: list[Moment], share: float) -> list[str]:
    """Add the tensors of each layer, of the newest moments that fit; returns sentences about what is left out."""
    if source.net is None or not moments:
        return []
    room = blocks.left_bytes - int(blocks.left_bytes * share)
    looked = _looked_at(source, source.net, moments)
    kept, partial = 0, False
    for moment, packed, is_partial in _moments(source, looked, moments, blocks.left_bytes - room):
        if blocks.left_bytes - sum(map(len, packed.values())) < room:
            break
        if not all(blocks.add_packed(["layer", name, moment.id], block) for name, block in packed.items()):
            break
        kept, partial = kept + 1, partial or is_partial
    return list(_left_out(kept, len(moments), partial))


def _left_out(kept: int, of: int, partial: bool) -> Iterator[str]:
    if kept < of:
        states = f" of {of - kept:,} older states" if kept else ""
        yield f"Tensors and histograms of single layers{states}: there was no room for them."
    if partial:
        yield "Most numbers of large tensors: the inspector has statistics of all of them, and a small view of each."


def _moments(
    source: Source, looked: Source, moments: list[Moment], room: int
) -> Iterator[tuple[Moment, dict[str, bytes], bool]]:
    """The packed blocks of each moment, the newest first; its views are as large as fits, the others' like them."""
    assert source.net is not None
    layers = [placed.layer.name for placed in source.net.layers]
    sizes: tuple[int, ...] = _CELLS
    for moment in reversed(moments):
        statistics: Statistics = {}
        for cells in sizes:
            packed = {name: pack(_block(source, looked, name, moment.id, cells, statistics)) for name in layers}
            if sum(map(len, packed.values())) + 300 * len(packed) <= room:
                break
        sizes = (cells,)
        partial = any(_is_partial(looked, name, moment.id, cells) for name in layers)
        yield moment, packed, partial


def _is_partial(looked: Source, layer: str, moment: int, cells: int) -> bool:
    """Whether the view of some tensor of a layer has not all of its numbers."""
    for head in tensors_of(looked, layer, moment).tensors:
        shown = {head.tiles, head.rows, head.columns}
        if prod(head.shape) > cells or any(size > 1 for axis, size in enumerate(head.shape) if axis not in shown):
            return True
    return False


def _block(source: Source, looked: Source, layer: str, moment: int, cells: int, statistics: Statistics) -> bytes:
    """A layer's answers: pieces with their lengths, the first a JSON head, the others slices in its order."""
    tensors = tensors_of(looked, layer, moment)
    there = [head for head in tensors.tensors if not head.why]
    for head in there:
        _add_statistics(source, layer, moment, head, statistics)
    known = [head for head in there if (layer, head.variable, head.parameter) in statistics]
    facts = [_facts(head, statistics[layer, head.variable, head.parameter]) for head in known]
    slices = [{"variable": head.variable, "parameter": head.parameter} for head in there]
    value = {"tensors": asdict(tensors), "statistics": facts, "slices": slices}
    pieces = [serialize(Answer(0, value)).encode(), *(_slice(looked, layer, moment, head, cells) for head in there)]
    return b"".join(part for piece in pieces for part in (struct.pack("<I", len(piece)), piece))


def _add_statistics(source: Source, layer: str, moment: int, head: TensorHead, statistics: Statistics) -> None:
    """Statistics of all numbers, all items of the batch among them; computed once, whatever the size of the views."""
    key = layer, head.variable, head.parameter
    if key not in statistics and sum(each.count for each in statistics.values()) + prod(head.shape) <= _MOST_NUMBERS:
        statistics[key] = answer_statistics(source, AskStatistics(0, *key, moment))()


def _facts(head: TensorHead, statistics: TensorStatistics) -> dict[str, Any]:
    edges = [float(f"{edge:.6g}") for edge in statistics.edges]
    return {"variable": head.variable, "parameter": head.parameter, "facts": {**asdict(statistics), "edges": edges}}


def _slice(looked: Source, layer: str, moment: int, head: TensorHead, cells: int) -> bytes:
    ask = AskSlice(
        0, layer, head.variable, head.parameter, moment, head.tiles, head.rows, head.columns, (0,) * len(head.shape),
        most_cells=cells,
    )  # fmt: skip
    return answer_slice(looked, ask)()


# -- the first item of the batch ---------------------------------------------------------------------------------------


def _looked_at(source: Source, net: Net, moments: list[Moment]) -> Source:
    looked = ReportSource(source, "", moments)
    looked.store, looked.state = _FirstItems(source.store, moments, net), source.state
    return looked


class _FirstItems(ChosenMoments):
    """Chosen moments with the first item of each batch alone, and with parameters."""

    def __init__(self, store: Store, moments: list[Moment], net: Net) -> None:
        super().__init__(store, moments)
        self._axes = {placed.layer.name: len(placed.layer.shape) for placed in net.layers}

    def value(self, moment: int, name: str, variable: str) -> RecordedValue | None:
        """A value without the other items of its batch."""
        value = super().value(moment, name, variable)
        if value is None or value.array.ndim != self._axes.get(name, -2) + 1:
            return value
        return RecordedValue(value.first, value.array[:1])

    def parameter_names(self, moment: int) -> list[str]:
        """The parameters that the source has."""
        return self._store.parameter_names(moment)
