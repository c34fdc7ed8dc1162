"""The training step of a config, to be planned: its models on meta, its first batch, its losses and optimizers."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from torcheer.config import read
from torcheer.errors import BadArgument, reason_of
from torcheer.memory.planned_step import Step
from torcheer.training.loop.pipeline_runner import PipelineRunner
from torcheer.training.parallel.model_layout import layers_by_model
from torcheer.training.session import Session
from torcheer.training.spec import assemble, understand, with_changes


@dataclass(frozen=True, slots=True)
class ConfigStep:
    """One training pipeline of a config."""

    pipeline: str
    step: Step
    autocast: str
    accumulate: int
    checkpoint: list[str] | None  # paths of the layers that are recomputed


class PipelineLoss(nn.Module):
    """All models of a session as one, which returns the loss of a pipeline."""

    def __init__(self, models: dict[str, nn.Module], runner: PipelineRunner) -> None:
        super().__init__()
        for name, model in models.items():
            self.add_module(_plain(name), model)
        self.runner = copy.copy(runner)
        self.runner.inputs = [(None, port, given) for _, port, given in runner.inputs]

    def forward(self, *batches: Any) -> Tensor:
        """Return the loss of a batch of each loader."""
        frames, samples = self.runner.forward(batches)
        return self.runner.loss(frames, samples)[0]


def config_steps(
    path: Path, changes: Sequence[str], trusted: Sequence[str], checkpoint: Sequence[str] | None = None
) -> list[ConfigStep]:
    """Return a step for each pipeline that the first stage of a config trains; nothing is written.

    checkpoint: layers that are recomputed, named as in the config's `activation_checkpointing`, which it replaces.
    """
    spec = understand(with_changes(read(path), changes))
    session = assemble(spec, trusted=trusted, is_new=True, on_meta=True).session
    stage = session.stages[0]
    with session.training(stage) as runners:
        paths = _recomputed(session, checkpoint or spec.data.get("activation_checkpointing"))
        return [_step(session, runner, paths) for runner in runners]


def _recomputed(session: Session, layers: Any) -> list[str]:
    """Paths in a `PipelineLoss` of layers that the models have."""
    chosen = {} if layers is None else layers_by_model(session.models, layers, "checkpoint")
    return [f"{_plain(name)}.{path}" for name, modules in chosen.items() for path in modules]


def _step(session: Session, runner: PipelineRunner, paths: list[str]) -> ConfigStep:
    nodes = session.nodes_of(runner.name)
    optimizers = [session.optimizers[name] for name in dict.fromkeys(node.optimizer for node in nodes) if name]
    fresh = runner.fresh()
    step = Step(PipelineLoss(session.models, fresh), _first_batches(fresh), {}, optimizers, loss=lambda loss: loss)
    return ConfigStep(runner.name, step, session.options.autocast, session.options.accumulate, paths or None)


def _plain(name: str) -> str:
    return name.replace(".", "_")  # modules have no dots in their names


def _first_batches(runner: PipelineRunner) -> tuple[Any, ...]:
    batches = runner.batches(None)
    try:
        return next(batches)
    except StopIteration:
        raise BadArgument(f"plan: the loader of pipeline {runner.name!r} has no batch") from None
    except Exception as error:
        raise BadArgument(f"plan: the first batch of {runner.name!r} cannot be read: {reason_of(error)}") from error
    finally:
        for feed, _, _ in runner.inputs:
            feed.end_workers()
