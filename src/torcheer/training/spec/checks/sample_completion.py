"""Completion from one sample: collator, loss and metric by the types of its values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

from torcheer.training.spec.checks.completion import Completion
from torcheer.training.spec.checks.graph_order import order_of
from torcheer.training.spec.checks.pipeline_checks import MEASURES
from torcheer.training.spec.read.description import DEFINITIONS, PIPELINES, STAGES, Definition, Spec, part
from torcheer.training.spec.read.value_kinds import Fault

COLLATORS = "torcheer.training.collators"
SAME_SHAPE = "torcheer.training.spec.transforms.same_shape"
WHOLE, FLOAT, IMAGE, OTHER = "whole", "float", "image", "other"
COLUMNS = {WHOLE: "to_long_tensor", FLOAT: "to_float_tensor", IMAGE: "images_to_tensor"}


def needs_sample(spec: Spec) -> bool:
    """Return whether something is omitted that a sample decides."""
    return not list(spec.definitions("losses")) or needs_collator(spec) or bool(without_inputs(spec))


def without_inputs(spec: Spec) -> list[Definition]:
    """Return the losses and metrics that say no inputs."""
    return [each for kind in ("losses", "metrics") for each in spec.definitions(kind) if "inputs" not in each.spec]


def needs_collator(spec: Spec) -> bool:
    """Return whether loaders were filled in and there is no collator for them."""
    filled = [loader for loader in spec.definitions("data_loaders") if spec.is_completed(loader.path)]
    return bool(filled) and not list(spec.definitions("collators"))


def training_loader(spec: Spec) -> str:
    """Return the loader whose sample decides: the first of the first training pipeline."""
    pipeline = part(spec.data, STAGES)[0]["training_pipelines"][0]
    return str(part(spec.data, PIPELINES)[pipeline]["input_injector"][0]["data_loader"])


def complete_from(spec: Spec, sample: Any) -> tuple[Spec, list[Fault]]:
    """Fill in everything that a sample decides; return the description and its faults."""
    completion = Completion(spec)
    if needs_collator(spec):
        collator = completion.define("collators", "collator", collator_of(sample))
        for loader in completion.spec.definitions("data_loaders"):
            loader.spec.setdefault("collator", collator)
    faults = [] if list(spec.definitions("losses")) else measure(completion, sample)
    return completion.spec, [*faults, *complete_inputs(completion, sample)]


def complete_inputs(completion: Completion, sample: Any) -> Iterator[Fault]:
    """Have losses and metrics compare what the model gives with the last value of a sample."""
    pipelines = part(completion.data, PIPELINES)
    for definition in without_inputs(completion.spec):
        key = "loss_name" if definition.group == "losses" else "metric_name"
        uses = [
            each
            for each in pipelines.values()
            if any(t[key] == definition.name for t in each.get(definition.group, ()))
        ]
        if not isinstance(sample, (tuple, list)) or len(sample) < 2:
            message = "say as inputs which columns it takes: a sample has no second value to compare with"
            yield Fault((*definition.path, "inputs"), message)
            continue
        pipeline = (uses or list(pipelines.values()))[0]
        definition.spec["inputs"] = [last_output(completion, pipeline)[1], column_names(pipeline, sample)[-1]]
        if kind_of(target_of(sample)) == FLOAT and "transform" not in definition.spec:
            definition.spec["transform"] = SAME_SHAPE
        completion.mark_completed((*definition.path, "inputs"))


def column_names(pipeline: Mapping[str, Any], sample: Any) -> list[str]:
    """Return the names of the columns of a pipeline's batches."""
    return pipeline["input_injector"][0].get("variable_names") or [f"input_{n + 1}" for n in range(len(sample))]


def measure(completion: Completion, sample: Any) -> list[Fault]:
    """Add a loss and a metric that fit the target to the pipelines."""
    kind = kind_of(target_of(sample))
    if kind not in MEASURES or not isinstance(sample, (tuple, list)):
        kind_name = type(target_of(sample)).__name__
        message = f"there are no losses, and the target of a sample is {kind_name}: which loss it takes has to be said"
        return [Fault(DEFINITIONS, message)]
    loss, loss_class, metric, metric_class, shown = MEASURES[kind]
    defined_metrics = completion.names("metrics")
    for name, pipeline in part(completion.data, PIPELINES).items():
        node, output = last_output(completion, pipeline)
        options: dict[str, Any] = {"inputs": [output, column_names(pipeline, sample)[-1]]}
        if kind == FLOAT:
            options["transform"] = SAME_SHAPE
        if loss not in completion.names("losses"):
            completion.define("losses", loss, {"class": loss_class, **options})
        if not completion.names("metrics"):
            completion.define("metrics", metric, {"class": metric_class, **options})
        prefix = "val " * (name in part(completion.data, STAGES)[0].get("validation_pipelines", ()))
        pipeline["losses"] = [{"node_name": node, "loss_name": loss, "loss_display_name": f"{prefix}loss"}]
        if not defined_metrics:
            pipeline["metrics"] = [{"node_name": node, "metric_name": metric, "display_name": f"{prefix}{shown}"}]
        completion.mark_completed((*PIPELINES, name, "losses"))
    return []


def last_output(completion: Completion, pipeline: Mapping[str, Any]) -> tuple[str, str]:
    """Return the last processor of a pipeline, and the first output of its last model."""
    graphs = {definition.name: definition.spec for definition in completion.spec.definitions("batch_graphs")}
    processors = {definition.name: definition.spec for definition in completion.spec.definitions("batch_processors")}
    graph = graphs[pipeline["graph"]]
    node = order_of(graph["nodes"], graph["ingoing_edges"])[0][-1]
    return node, processors[node]["neural_graph"][-1]["outputs"][0]


def collator_of(sample: Any) -> dict[str, Any]:
    """Return the spec of a collator for samples like this one."""
    if not isinstance(sample, (tuple, list)):
        return {"class": f"{COLLATORS}.StackTensors"}
    columns = [column_of(value) for value in sample]
    return {"class": f"{COLLATORS}.ColumnWiseCollator", "kwargs": {"column_transforms": columns}}


def column_of(value: Any) -> dict[str, str] | None:
    if isinstance(value, torch.Tensor | np.ndarray) and np.ndim(value):
        return {"function": f"{COLLATORS}.stacked"}
    kind = kind_of(value)
    return {"function": f"{COLLATORS}.{COLUMNS[kind]}"} if kind in COLUMNS else None


def target_of(sample: Any) -> Any:
    return sample[-1] if isinstance(sample, (tuple, list)) and sample else sample


def kind_of(value: Any) -> str:
    """Classify a value for a collator or a loss."""
    if hasattr(value, "getbands"):  # a Pillow image
        return IMAGE
    if isinstance(value, bool | int | np.integer):
        return WHOLE
    if isinstance(value, float | np.floating):
        return FLOAT
    if isinstance(value, torch.Tensor | np.ndarray):
        is_float = torch.as_tensor(value).is_floating_point()
        return FLOAT if is_float else WHOLE
    return OTHER
