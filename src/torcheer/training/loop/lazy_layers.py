"""Layers such as `LazyLinear`, whose sizes the first batch tells: give them their weights before training begins."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.parameter import is_lazy

from torcheer.errors import BadArgument
from torcheer.training.batches.batch_order import mix_seeds, seed_everything
from torcheer.training.checkpoints.random_state import preserved_random

if TYPE_CHECKING:
    from torcheer.training.loop.pipeline_runner import PipelineRunner


def has_lazy_layers(models: Mapping[str, torch.nn.Module]) -> bool:
    """Return whether some parameters of the models have no size yet."""
    return any(_lazy_names(model) for model in models.values())


def initialize_lazy_layers(
    models: Mapping[str, torch.nn.Module], runners: Iterable[PipelineRunner], seed: int | None
) -> None:
    """Run a sample through the pipelines until every layer knows its size; the weights come from the seed."""
    training = [module for model in models.values() for module in model.modules() if module.training]
    with preserved_random():
        if seed is not None:
            seed_everything(mix_seeds(seed, zlib.crc32(b"lazy layers")))
        for model in models.values():
            model.eval()
        for runner in runners:
            if has_lazy_layers(models):
                _run_sample(runner)
    for module in training:
        module.training = True
    for name, model in models.items():
        if lazy := _lazy_names(model):
            raise BadArgument(
                f"model {name!r}: no pipeline runs {', '.join(lazy)}, so its size stays unknown: give it one"
            )


def _run_sample(runner: PipelineRunner) -> None:
    batches = tuple(_first_batch(feed.loader) for feed, _, _ in runner.inputs)
    try:
        with torch.no_grad():
            runner.forward(batches)
    except Exception as error:  # user code
        reason = f"{type(error).__name__}: {error}".rstrip(": ")
        message = f"pipeline {runner.name!r} has lazy layers, whose sizes the first sample tells, and running it failed"
        raise BadArgument(f"{message} with {reason}") from error


def _first_batch(loader: Any) -> Any:
    dataset = loader.dataset
    sample = dataset[0] if hasattr(dataset, "__getitem__") else next(iter(dataset))
    return (loader.collate or torch.utils.data.default_collate)([sample])


def _lazy_names(model: torch.nn.Module) -> list[str]:
    values = (*model.named_parameters(), *model.named_buffers())
    return sorted({name.rpartition(".")[0] or name for name, value in values if is_lazy(value)})
