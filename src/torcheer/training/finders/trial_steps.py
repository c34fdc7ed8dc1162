"""Steps of training that leave no trace: weights, optimizers, generators and modes are afterwards as they were."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from torch import Tensor

from torcheer.errors import BadArgument
from torcheer.training.checkpoints.session_state import restore, state_of
from torcheer.training.loop.optimizer_step import Update, make_update
from torcheer.training.loop.pipeline_runner import PipelineRunner
from torcheer.training.loop.step_errors import explain_step

if TYPE_CHECKING:
    from torcheer.training.session import Session


class TrialPipeline:
    """A training pipeline on trial: its meters, its update and its batches are its own."""

    def __init__(self, session: Session, runner: PipelineRunner) -> None:
        self.session, self.name = session, runner.name
        self.runner = runner.fresh()
        self.update: Update = make_update(session, runner, is_trial=True)
        names = dict.fromkeys(node.optimizer for node in session.nodes_of(runner.name))
        self.optimizers = [session.optimizers[name] for name in names if name is not None]

    def batches(self) -> Iterator[tuple[Any, ...]]:
        """Yield batches in the order of training, one epoch after the other, without an end."""
        epoch = 0
        while True:
            count = 0
            for batch in self.runner.batches(epoch):
                yield batch
                count += 1
            if not count:
                raise BadArgument(f"pipeline {self.name!r} has no batch to train with")
            epoch += 1

    def step(self, batch: tuple[Any, ...], number: int = 1) -> Tensor:
        """Train one batch; return its loss, on the device."""
        try:
            self.update.begin()
            with self.session.precision():
                frames, samples = self.runner.forward(batch)
                loss, items = self.runner.loss(frames, samples)
            self.update.backward(loss, items)
        except Exception as error:
            explain_step(error, self.runner, batch, stage=1, epoch=1, step=number, batch=number)
            raise
        return loss.detach()


@contextmanager
def on_trial(
    session: Session, pipelines: Sequence[str] = (), *, accumulates: bool = True
) -> Iterator[list[TrialPipeline]]:
    """Yield pipelines of the stage that is next, in training mode; restore the session afterwards.

    pipelines: their names; all that the stage trains unless given. accumulates: False for an update after each batch.
    """
    if session.ranks is not None:
        raise BadArgument("trials run in one process; start this without torchrun")
    stage = session.stages[min(session.place.stage, len(session.stages) - 1)]
    unknown = [name for name in pipelines if name not in stage.training]
    if unknown:
        raise BadArgument(f"the stage does not train {unknown[0]!r}; it trains {', '.join(stage.training)}")
    state, options = copy.deepcopy(state_of(session)), session.options
    modes = {module: module.training for model in session.models.values() for module in model.modules()}
    gradients = [(p, p.grad) for model in session.models.values() for p in model.parameters()]
    try:
        if not accumulates:
            session.options = replace(options, accumulate=1)
        with session.reading(), session.training(stage) as runners:
            yield [TrialPipeline(session, runner) for runner in runners if runner.name in (pipelines or stage.training)]
    finally:
        session.options = options
        for module, mode in modes.items():
            module.training = mode
        for parameter, gradient in gradients:
            parameter.grad = gradient
        restore(session, state)
