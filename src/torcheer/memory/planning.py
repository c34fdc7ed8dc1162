"""Plan the memory of a model, and what bfloat16, checkpointing and sharding would save: what the verb `plan` does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from torcheer.errors import NotAModel, TorcheerError, reason_of
from torcheer.inputs import call_arguments
from torcheer.memory.memory_plan import Plan, Saving
from torcheer.memory.planned_step import PlanSettings, Run, Step, run_step
from torcheer.memory.step_sums import repeated_blocks, sum_up
from torcheer.terminal import Progress

EXAMPLE_SIZE = 8  # of the saving by sharding that is shown


def plan_model(
    model: nn.Module, inputs: Any, input_kwargs: Mapping[str, Any] | None, settings: PlanSettings, *,
    optimizer: Any, loss: Callable[[Any], Tensor] | None, savings: bool,
) -> Plan:  # fmt: skip
    """Plan a step of a model with these inputs."""
    if not isinstance(model, nn.Module):
        raise NotAModel(f"plan needs an nn.Module, got {type(model).__name__}")
    args, kwargs = call_arguments(model, inputs, input_kwargs)
    return plan_step(Step(model, args, kwargs, optimizer, loss), settings, savings=savings)


def plan_step(step: Step, settings: PlanSettings, *, savings: bool = True) -> Plan:
    """Plan a step that was prepared."""
    run = run_step(step, settings)
    made = _plan_of(step, settings, run)
    if not savings:
        return made
    refused: list[str] = []
    found = tuple(_savings(step, settings, run, refused))
    return replace(made, savings=found, assumptions=(*made.assumptions, *refused))


def _plan_of(step: Step, settings: PlanSettings, run: Run) -> Plan:
    phases, layers = sum_up(run, world_size=settings.world_size, device=settings.device)
    return Plan(
        model=type(step.model).__name__,
        parameter_count=sum(parameter.numel() for parameter in run.model.parameters()),
        device=settings.device,
        optimizer=run.optimizer,
        settings={
            "autocast": _type_name(settings.autocast),
            "dtype": _type_name(settings.dtype),
            "accumulate": settings.accumulate,
            "checkpoint": None if settings.checkpoint is None else str(settings.checkpoint),
            "world_size": settings.world_size,
        },
        phases=tuple(phases),
        layers=tuple(layers),
        assumptions=tuple(_assumptions(step, settings, run)),
    )


def _type_name(dtype: torch.dtype | None) -> str | None:
    return None if dtype is None else str(dtype).removeprefix("torch.")


def _assumptions(step: Step, settings: PlanSettings, run: Run) -> list[str]:
    texts = []
    if settings.device == "cuda":
        texts.append(
            "kernels of a recent NVIDIA GPU (fused attention, cuDNN) and 64 MB of workspace for cuBLAS; the driver's "
            "own memory, about 0.5 GB, and gaps between blocks come on top"
        )
    if run.optimizer:
        if settings.accumulate == 1:
            texts.append("gradients are None before forward (zero_grad's default)")
        texts.append("what the model returned lives until the end of the step")
        if step.loss is None:
            texts.append("the loss is what the model returns as .loss or, without one, the mean of its outputs")
    if settings.world_size > 1:
        texts.append(
            f"FSDP2 over {settings.world_size} devices, a shard for each repeated block; the batch is that of one"
        )
    return texts


def _savings(step: Step, settings: PlanSettings, run: Run, refused: list[str]) -> list[Saving]:
    """Plan each change by itself, then all that go together; what cannot be planned is said in `refused`."""
    changes: list[tuple[str, str, PlanSettings]] = []
    is_float32 = any(parameter.dtype == torch.float32 for parameter in run.model.parameters())
    is_plain = settings.autocast is None and settings.dtype is None and is_float32
    best = settings
    if is_plain and settings.device == "cuda":
        best = replace(best, autocast=torch.bfloat16)
        changes.append(("autocast to bfloat16", "autocast='bfloat16'", best))
    if is_plain:
        pure = replace(settings, dtype=torch.bfloat16)
        changes.append(("all in bfloat16", "dtype='bfloat16'", pure))
    if run.optimizer and settings.checkpoint is None and (blocks := repeated_blocks(run.model)):
        layers = _layers_text(run.model, blocks)
        best = replace(best, checkpoint=layers)
        text = f"checkpointing {len(blocks)} × {type(next(iter(blocks.values()))).__name__}"
        changes.append((text, f"checkpoint={layers!r}", replace(settings, checkpoint=layers)))
    if run.optimizer and settings.world_size == 1:
        best = replace(best, world_size=EXAMPLE_SIZE)
        changes.append(
            (f"FSDP over {EXAMPLE_SIZE}", f"world_size={EXAMPLE_SIZE}", replace(settings, world_size=EXAMPLE_SIZE))
        )
    texts: list[str] = []
    if len(changes) > 1 and best not in [change for *_, change in changes]:
        texts = [argument for _, argument, _ in changes if argument != "dtype='bfloat16'"]
        changes.append(("these together", ", ".join(texts), best))
    runs = {_key(settings): run}
    found = []
    with Progress("planning savings", len(changes), "plans", progress=None) as progress:
        for text, argument, change in changes:
            progress.add(1)
            try:
                if _key(change) not in runs:
                    runs[_key(change)] = run_step(step, change)
            except TorcheerError as error:
                if argument != ", ".join(texts):  # which of these together it is was said
                    refused.append(f"{text} is not among the savings: {reason_of(error).removeprefix('plan: ')}")
                continue
            phases, _ = sum_up(runs[_key(change)], world_size=change.world_size, device=change.device)
            found.append(Saving(text, argument, max(phase.peak_bytes for phase in phases)))
    return found


def _layers_text(model: nn.Module, blocks: Mapping[str, nn.Module]) -> str | list[str]:
    """Return how to name blocks: by their class where all of it are blocks, else by their paths."""
    kinds = {type(block) for block in blocks.values()}
    named = [module for module in model.modules() if type(module) in kinds]
    if len(named) > len(blocks):
        return list(blocks)
    names = sorted(kind.__name__ for kind in kinds)
    return names[0] if len(names) == 1 else names


def _key(settings: PlanSettings) -> str:
    return repr(replace(settings, world_size=1))  # how many devices there are changes sums alone
