"""Build the pipelines and stages of a description."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torcheer.config.line_numbers import KeyPath
from torcheer.training.output_devices import Printer
from torcheer.training.session_parts import DebugPipeline, Input, Loader, Pipeline, Stage, Term
from torcheer.training.spec.builders.static_state import size_of
from torcheer.training.spec.read.description import DEBUG, PIPELINES, STAGES, part

if TYPE_CHECKING:
    from torcheer.training.spec.builders.build_session import Builder


def pipelines(data: Mapping[str, Any]) -> dict[str, Pipeline]:
    """Build the pipelines of a description."""
    return {
        name: Pipeline(
            pipeline["graph"],
            inputs_of(pipeline),
            tuple(
                Term(
                    term["loss_name"],
                    term["node_name"],
                    term.get("loss_display_name", term["loss_name"]),
                    term.get("weight", 1.0),
                )
                for term in pipeline.get("losses", ())
            ),
            tuple(
                Term(term["metric_name"], term["node_name"], term.get("display_name", term["metric_name"]))
                for term in pipeline.get("metrics", ())
            ),
        )
        for name, pipeline in part(data, PIPELINES).items()
    }


def inputs_of(pipeline: Mapping[str, Any]) -> tuple[Input, ...]:
    return tuple(
        Input(entry["data_loader"], tuple(entry.get("variable_names", ())), entry.get("input_port", ""))
        for entry in pipeline["input_injector"]
    )


def debug_pipelines(builder: Builder) -> dict[str, DebugPipeline]:
    """Build the debug pipelines of a description."""
    return {
        name: _debug(builder, pipeline, (*DEBUG, name))
        for name, pipeline in (part(builder.spec.data, DEBUG) or {}).items()
    }


def _debug(builder: Builder, pipeline: Mapping[str, Any], path: KeyPath) -> DebugPipeline:
    device, after = Printer(), None
    if "output_device" in pipeline:
        device = builder.make((*path, "output_device"), pipeline["output_device"], "output_device")
    if "postprocessor" in pipeline:
        after = builder.make((*path, "postprocessor"), pipeline["postprocessor"], "post_processor")
    return DebugPipeline(
        pipeline["graph"],
        inputs_of(pipeline),
        pipeline.get("num_iterations", 1),
        pipeline.get("interval", 1),
        tuple(pipeline.get("output_keys", ("y_hat",))),
        after,
        device,
    )


def stages(builder: Builder) -> list[Stage]:
    """Build the stages of a description."""
    return [_stage(builder, stage, (*STAGES, number)) for number, stage in enumerate(part(builder.spec.data, STAGES))]


def _stage(builder: Builder, stage: Mapping[str, Any], path: KeyPath) -> Stage:
    words = "a stop condition has a method is_met(rows), or is called with the epoch and the history"
    stop = builder.make(
        (*path, "stop_condition"),
        stage["stop_condition"],
        "stop_condition",
        must_be=lambda stop: hasattr(stop, "is_met") or callable(stop),
        words=words,
    )
    validation = tuple(stage.get("validation_pipelines", ()))
    steps = {name: count for name in validation if (count := _steps(builder, stage, name, path)) is not None}
    callbacks = builder.parts.callbacks
    return Stage(
        tuple(stage["training_pipelines"]),
        validation,
        stop,
        tuple(stage.get("debug_pipelines", ())),
        steps or None,
        tuple(callbacks.get(name, name) for name in stage.get("run_before_epoch", ())),
    )


def _steps(builder: Builder, stage: Mapping[str, Any], pipeline: str, path: KeyPath) -> float | None:
    """Return the number of batches a pipeline is evaluated on, or their share; None for all."""
    steps = stage.get("eval_steps")
    if isinstance(steps, dict):
        steps = steps.get(pipeline)
    if not isinstance(steps, float):
        return steps
    inputs = part(builder.spec.data, PIPELINES)[pipeline]["input_injector"]
    counts = [batches_in(builder.get("data_loaders", entry["data_loader"])) for entry in inputs]
    if all(count is None for count in counts):
        message = f"the data of {pipeline!r} does not say how long it is: write a number of batches, not a share"
        raise builder.spec.problem((*path, "eval_steps"), message)
    return steps


def batches_in(loader: Loader) -> int | None:
    size = size_of(loader.dataset)
    if size is None:
        return None
    return size // loader.batch_size if loader.drop_last else math.ceil(size / loader.batch_size)
