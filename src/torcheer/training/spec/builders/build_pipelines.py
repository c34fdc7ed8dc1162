"""Pipelines and stages of a description, as parts of a session."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torcheer.config.line_numbers import KeyPath
from torcheer.training.output_devices import Printer
from torcheer.training.spec.builders.static_state import size_of
from torcheer.training.spec.read.description import DEBUG, PIPELINES, STAGES, part
from torcheer.training.spec.session_parts import DebugPipeline, Input, Loader, Pipeline, Stage, Term

if TYPE_CHECKING:
    from torcheer.training.spec.builders.build_session import Builder


def pipelines(data: Mapping[str, Any]) -> dict[str, Pipeline]:
    """The pipelines of a description."""
    return {
        name: Pipeline(
            one["graph"],
            inputs_of(one),
            tuple(
                Term(
                    each["loss_name"],
                    each["node_name"],
                    each.get("loss_display_name", each["loss_name"]),
                    each.get("weight", 1.0),
                )
                for each in one.get("losses", ())
            ),
            tuple(
                Term(each["metric_name"], each["node_name"], each.get("display_name", each["metric_name"]))
                for each in one.get("metrics", ())
            ),
        )
        for name, one in part(data, PIPELINES).items()
    }


def inputs_of(pipeline: Mapping[str, Any]) -> tuple[Input, ...]:
    return tuple(
        Input(one["data_loader"], tuple(one.get("variable_names", ())), one.get("input_port", ""))
        for one in pipeline["input_injector"]
    )


def debug_pipelines(builder: Builder) -> dict[str, DebugPipeline]:
    """The debug pipelines of a description."""
    return {name: _debug(builder, one, (*DEBUG, name)) for name, one in (part(builder.spec.data, DEBUG) or {}).items()}


def _debug(builder: Builder, one: Mapping[str, Any], path: KeyPath) -> DebugPipeline:
    device, after = Printer(), None
    if "output_device" in one:
        device = builder.made((*path, "output_device"), one["output_device"], "output_device")
    if "postprocessor" in one:
        after = builder.made((*path, "postprocessor"), one["postprocessor"], "post_processor")
    return DebugPipeline(
        one["graph"],
        inputs_of(one),
        one.get("num_iterations", 1),
        one.get("interval", 1),
        tuple(one.get("output_keys", ("y_hat",))),
        after,
        device,
    )


def stages(builder: Builder) -> list[Stage]:
    """The stages of a description."""
    return [_stage(builder, one, (*STAGES, number)) for number, one in enumerate(part(builder.spec.data, STAGES))]


def _stage(builder: Builder, one: Mapping[str, Any], path: KeyPath) -> Stage:
    words = "a stop condition has a method is_met(rows)"
    stop = builder.made(
        (*path, "stop_condition"),
        one["stop_condition"],
        "stop_condition",
        must_be=lambda found: hasattr(found, "is_met"),
        words=words,
    )
    validation = tuple(one.get("validation_pipelines", ()))
    steps = {name: found for name in validation if (found := _steps(builder, one, name, path)) is not None}
    return Stage(
        tuple(one["training_pipelines"]), validation, stop, tuple(one.get("debug_pipelines", ())), steps or None
    )


def _steps(builder: Builder, stage: Mapping[str, Any], pipeline: str, path: KeyPath) -> int | None:
    """On how many batches a pipeline is evaluated; None for all."""
    steps = stage.get("eval_steps")
    if isinstance(steps, dict):
        steps = steps.get(pipeline)
    if not isinstance(steps, float):
        return steps
    inputs = part(builder.spec.data, PIPELINES)[pipeline]["input_injector"]
    counts = [batches_in(builder.get("data_loaders", one["data_loader"])) for one in inputs]
    known = [count for count in counts if count is not None]
    if not known:
        message = f"the data of {pipeline!r} does not say how long it is: write a number of batches, not a share"
        raise builder.spec.problem((*path, "eval_steps"), message)
    return max(1, round(steps * min(known)))


def batches_in(loader: Loader) -> int | None:
    size = size_of(loader.dataset)
    if size is None:
        return None
    return size // loader.batch_size if loader.drop_last else math.ceil(size / loader.batch_size)
