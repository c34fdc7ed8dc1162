"""Run a pipeline: batches in, frames through the graph, losses and metrics out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy, deepcopy
from typing import Any

import torch
from torch import Tensor

from torcheer.errors import BadArgument
from torcheer.training.batches.batch_order import Feed
from torcheer.training.loop.graph_forward import (
    BoundMeasure,
    ProcessorRunner,
    count_samples,
    frame_from_batch,
    run_graph,
)
from torcheer.training.loop.optimizer_step import Update
from torcheer.training.loop.sample_means import Mean, StatefulMeter, WholeBatchMeter
from torcheer.training.parallel.batch_shares import Share, mark_stand_ins
from torcheer.training.parallel.heartbeats import HEARTBEAT, METRICS
from torcheer.training.session_parts import DebugPipeline, Frame, Graph, Pipeline, Term
from torcheer.training.simple_session import lookup


class PipelineRunner:
    """One pipeline with its loaders, models and meters."""

    def __init__(
        self,
        name: str,
        pipeline: Pipeline | DebugPipeline,
        graph: Graph,
        processors: Mapping[str, ProcessorRunner],
        feeds: Mapping[str, Feed],
        measures: Mapping[str, Mapping[str, BoundMeasure]],
    ) -> None:
        self.name, self.graph, self.processors = name, graph, processors
        self.inputs = [
            (lookup(feeds, input.loader, "loaders"), input.port or graph.ports[0], input) for input in pipeline.inputs
        ]
        for processor in graph.processors:
            lookup(processors, processor, "processors")
        losses, metrics = getattr(pipeline, "losses", ()), getattr(pipeline, "metrics", ())
        self.losses = [(term, lookup(measures["losses"], term.name, "losses"), Mean()) for term in losses]
        bound = [(term, lookup(measures["metrics"], term.name, "metrics")) for term in metrics]
        self.metrics = [(term, measure, _meter(measure)) for term, measure in bound]
        for term in (*losses, *metrics):
            lookup(dict.fromkeys(graph.processors), term.node, f"processors of pipeline {name!r}")
        self.update: Update | None = None  # set only while the pipeline trains
        self._has_one_port = len(graph.ports) == 1  # then all frames have the same samples

    def fresh(self) -> PipelineRunner:
        """Return a copy with new, empty meters and without an update."""
        clone = copy(self)
        clone.losses = [(term, measure, Mean()) for term, measure, _ in self.losses]
        clone.metrics = [(term, measure, _meter(measure)) for term, measure, _ in self.metrics]
        clone.update = None
        return clone

    def __len__(self) -> int:
        """Return the number of batches in an epoch."""
        return min(len(feed) for feed, _, _ in self.inputs)

    def batches(self, epoch: int | None, start: int = 0, share: Share | None = None) -> Iterator[tuple[Any, ...]]:
        """Iterate over one batch of each loader, until one of them ends; `epoch` None outside of training.

        `share`: what one of several ranks takes of each batch; `StandInBatches` where that is nothing.
        """
        steps = zip(*[feed.epoch(epoch, start, share) for feed, _, _ in self.inputs])
        return steps if share is None else mark_stand_ins(steps)

    def forward(self, batches: tuple[Any, ...], *, infer: bool = False) -> tuple[dict[str, Frame], int]:
        """Return the frame of every processor, and the number of samples."""
        frames: dict[str, Frame] = {}
        for batch, (_, port, input) in zip(batches, self.inputs):
            frames[port] = frame_from_batch(batch, input.names, input.loader)
        samples = count_samples(frames[self.inputs[0][1]])
        return run_graph(self.graph, self.processors, frames, infer=infer), samples

    def loss(self, frames: Mapping[str, Frame], samples: int) -> tuple[Tensor, float]:
        """Return the weighted sum of the losses, and the number of items it averages over.

        `samples` of 0: this rank only stands in, and nothing of it counts.
        """
        total, items = None, float(samples)
        for term, measure, mean in self.losses:
            frame = frames[term.node]
            value = measure(frame)
            items = samples if self._has_one_port and not measure.counts_by else self._items(measure, frame, samples)
            mean.add(value, items)
            if term.weight != 1.0:
                value = value * term.weight
            total = value if total is None else total + value
        if total is None:
            raise BadArgument(f"pipeline {self.name!r} has no loss to train with")
        if self.update is not None and not getattr(total, "requires_grad", False) and torch.is_grad_enabled():
            raise BadArgument(
                f"the loss of pipeline {self.name!r} has no gradient: it was cut off from the models, by .item(), "
                f".detach(), argmax or no_grad, or what it comes from is frozen (requires_grad is False)"
            )
        return total, items

    def measure(self, frames: Mapping[str, Frame], samples: int) -> None:
        """Update the metrics with a batch."""
        if self.update is not None:
            HEARTBEAT.enter(METRICS)
        with torch.no_grad():
            for term, measure, meter in self.metrics:
                frame = frames[term.node]
                if isinstance(meter, WholeBatchMeter):
                    meter.gather(measure.values(frame) if samples else None)
                elif isinstance(meter, StatefulMeter):
                    if samples:
                        meter.update(measure.values(frame))
                else:
                    meter.add(measure(frame), self._items(measure, frame, samples))

    def _items(self, measure: BoundMeasure, frame: Frame, samples: int) -> float:
        """Return the number of items that a batch's value averages over."""
        if not samples:
            return 0.0
        if measure.counts_by:
            return measure.items(frame)
        return samples if self._has_one_port else count_samples(frame)

    def meters(self) -> Iterator[tuple[Term, Mean | StatefulMeter]]:
        """Yield what is measured in the order of columns: metrics, then losses."""
        for term, _, meter in (*self.metrics, *self.losses):
            yield term, meter

    def values(self) -> dict[str, float]:
        """Return every column's value so far, by name."""
        return {term.shown: meter.value() for term, meter in self.meters()}

    def merged_values(self, exchange: Callable[[Any], list[Any]]) -> dict[str, float]:
        """Return every column's value over what all ranks have seen; the meters stay as they are."""
        merged = self.fresh()
        states = exchange({term.shown: meter.state() for term, meter in self.meters()})
        for term, meter in merged.meters():
            meter.merge([state[term.shown] for state in states])
        return merged.values()

    def share_metrics(self, exchange: Callable[[Any], list[Any]]) -> None:
        """Let metrics whose states cannot be added see the batches of all ranks, given by `exchange`."""
        self.metrics = [
            (term, measure, WholeBatchMeter(meter.metric, exchange))
            if isinstance(meter, StatefulMeter) and not meter.is_additive
            else (term, measure, meter)
            for term, measure, meter in self.metrics
        ]

    def reset(self) -> None:
        for _, meter in self.meters():
            meter.reset()

    def state(self) -> dict[str, Any]:
        return {term.shown: meter.state() for term, meter in self.meters()}

    def merge(self, states: Sequence[Mapping[str, Any]], *, is_counted: bool) -> None:
        """Go on from the state of this rank, or from those of several.

        is_counted: False on a rank that counts nothing of them, as another does.
        """
        for term, meter in self.meters():
            parts = [state[term.shown] for state in states]
            if len(parts) == 1 or isinstance(meter, WholeBatchMeter):
                meter.restore(parts[0])
            else:
                meter.merge(parts)
            if not is_counted and not isinstance(meter, WholeBatchMeter):
                meter.reset()


def _meter(measure: BoundMeasure) -> Mean | StatefulMeter:
    """Make the meter of a measure.

    A stateful metric is copied, so that pipelines that share it do not mix.
    """
    function = measure.function
    return StatefulMeter(deepcopy(function)) if hasattr(function, "update") and hasattr(function, "compute") else Mean()
