"""A pipeline at work: batches in, frames through the graph, losses and metrics out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import copy, deepcopy
from typing import Any

import torch
from torch import Tensor

from torcheer.errors import BadArgument
from torcheer.training.loop.batch_order import Feed
from torcheer.training.loop.graph_forward import Measured, Runner, frame_of, run_graph, samples_in
from torcheer.training.loop.optimizer_step import Update
from torcheer.training.loop.sample_means import Gathered, Mean
from torcheer.training.simple_session import found
from torcheer.training.spec.session_parts import DebugPipeline, Frame, Graph, Pipeline, Term


class Lane:
    """One pipeline, ready to run."""

    def __init__(
        self,
        name: str,
        pipeline: Pipeline | DebugPipeline,
        graph: Graph,
        runners: Mapping[str, Runner],
        feeds: Mapping[str, Feed],
        measures: Mapping[str, Mapping[str, Measured]],
    ) -> None:
        self.name, self.graph, self.runners = name, graph, runners
        self.inputs = [
            (found(feeds, one.loader, "loaders"), one.port or graph.ports[0], one) for one in pipeline.inputs
        ]
        for processor in graph.processors:
            found(runners, processor, "processors")
        losses, metrics = getattr(pipeline, "losses", ()), getattr(pipeline, "metrics", ())
        self.losses = [(term, found(measures["losses"], term.name, "losses"), Mean()) for term in losses]
        kept = [(term, found(measures["metrics"], term.name, "metrics")) for term in metrics]
        self.metrics = [(term, measure, _meter(measure)) for term, measure in kept]
        for term in (*losses, *metrics):
            found(dict.fromkeys(graph.processors), term.node, f"processors of pipeline {name!r}")
        self.update: Update | None = None  # only while it trains
        self._is_one = len(graph.ports) == 1  # port, so that all frames have the same samples

    def fresh(self) -> Lane:
        """The same pipeline with empty meters of its own, not trained."""
        other = copy(self)
        other.losses = [(term, measure, Mean()) for term, measure, _ in self.losses]
        other.metrics = [(term, measure, _meter(measure)) for term, measure, _ in self.metrics]
        other.update = None
        return other

    def __len__(self) -> int:
        """Batches in an epoch."""
        return min(len(feed) for feed, _, _ in self.inputs)

    def batches(self, epoch: int, start: int = 0) -> Iterator[tuple[Any, ...]]:
        """One batch of each of its loaders, until one of them ends."""
        return zip(*[feed.epoch(epoch, start) for feed, _, _ in self.inputs])

    def forward(self, batches: tuple[Any, ...], *, infer: bool = False) -> tuple[dict[str, Frame], int]:
        """The frames of every processor, and the number of samples."""
        ports = {port: frame_of(batch, one.names, one.loader) for batch, (_, port, one) in zip(batches, self.inputs)}
        return run_graph(self.graph, self.runners, ports, infer=infer), samples_in(next(iter(ports.values())))

    def loss(self, frames: Mapping[str, Frame], samples: int) -> tuple[Tensor, float]:
        """The weighted sum of the losses, and for how many items it stands."""
        total, items = None, float(samples)
        for term, measure, mean in self.losses:
            frame = frames[term.node]
            value, items = measure(frame), self._items(measure, frame, samples)
            mean.add(value.detach(), items)
            if term.weight != 1.0:
                value = value * term.weight
            total = value if total is None else total + value
        if total is None:
            raise BadArgument(f"pipeline {self.name!r} has no loss to train with")
        return total, items

    def measure(self, frames: Mapping[str, Frame], samples: int) -> None:
        """Count the metrics of a batch in."""
        if not self.metrics:
            return
        with torch.no_grad():
            for term, measure, meter in self.metrics:
                frame = frames[term.node]
                if isinstance(meter, Gathered):
                    meter.update(measure.values(frame))
                else:
                    meter.add(measure(frame), self._items(measure, frame, samples))

    def _items(self, measure: Measured, frame: Frame, samples: int) -> float:
        """For how many items a value of a batch stands."""
        if measure.counts_by:
            return measure.items(frame)
        return samples if self._is_one else samples_in(frame)

    def meters(self) -> Iterator[tuple[Term, Mean | Gathered]]:
        for term, _, meter in (*self.losses, *self.metrics):
            yield term, meter

    def values(self) -> dict[str, float]:
        """Every column's value so far, by name."""
        return {term.shown: meter.value() for term, meter in sorted(self.meters(), key=lambda one: one[0].shown)}

    def reset(self) -> None:
        for _, meter in self.meters():
            meter.reset()

    def state(self) -> dict[str, Any]:
        return {term.shown: meter.state() for term, meter in self.meters()}

    def restore(self, state: Mapping[str, Any]) -> None:
        for term, meter in self.meters():
            meter.restore(state[term.shown])


def _meter(measure: Measured) -> Mean | Gathered:
    """A metric with a state gets a copy of it for this lane alone: pipelines that share it must not mix."""
    function = measure.function
    return Gathered(deepcopy(function)) if hasattr(function, "update") and hasattr(function, "compute") else Mean()
