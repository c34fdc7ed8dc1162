"""The half of completion that looks at data: collator, loss and metric by what the values of one sample are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from torcheer.training.spec.checks.completion import Completion
from torcheer.training.spec.checks.graph_order import order_of
from torcheer.training.spec.checks.pipeline_checks import MEASURES
from torcheer.training.spec.read.description import DEFINITIONS, PIPELINES, STAGES, Spec, part
from torcheer.training.spec.read.value_kinds import Fault

COLLATORS = "torcheer.training.collators"
WHOLE, FLOAT, IMAGE, OTHER = "whole", "float", "image", "other"
COLUMNS = {WHOLE: "to_long_tensor", FLOAT: "to_float_tensor", IMAGE: "images_to_tensor"}


def needs_sample(spec: Spec) -> bool:
    """Whether something is left out that a sample decides."""
    return not list(spec.definitions("losses")) or needs_collator(spec)


def needs_collator(spec: Spec) -> bool:
    """Whether loaders were filled in, and no collator is there for them."""
    filled = [one for one in spec.definitions("data_loaders") if spec.is_completed(one.path)]
    return bool(filled) and not list(spec.definitions("collators"))


def training_loader(spec: Spec) -> str:
    """The loader whose data tells: the first one of the first pipeline that is trained."""
    pipeline = part(spec.data, STAGES)[0]["training_pipelines"][0]
    return str(part(spec.data, PIPELINES)[pipeline]["input_injector"][0]["data_loader"])


def complete_from(spec: Spec, sample: Any) -> tuple[Spec, list[Fault]]:
    """A description with all filled in that a sample decides, and what cannot be guessed."""
    completion = Completion(spec)
    if needs_collator(spec):
        collator = completion.define("collators", "collator", collator_of(sample))
        for one in completion.spec.definitions("data_loaders"):
            one.spec.setdefault("collator", collator)
    if list(spec.definitions("losses")):
        return completion.spec, []
    return completion.spec, list(measure(completion, sample))


def measure(completion: Completion, sample: Any) -> list[Fault]:
    """Give the pipelines a loss and a metric that fit the target."""
    kind = kind_of(target_of(sample))
    if kind not in MEASURES or not isinstance(sample, (tuple, list)):
        found = type(target_of(sample)).__name__
        message = f"there are no losses, and the target of a sample is {found}: which loss it takes has to be said"
        return [Fault(DEFINITIONS, message)]
    loss, loss_class, metric, metric_class, shown = MEASURES[kind]
    own = completion.names("metrics")
    for name, pipeline in part(completion.data, PIPELINES).items():
        node, output = last_output(completion, pipeline)
        names = pipeline["input_injector"][0].get("variable_names") or [f"input_{n + 1}" for n in range(len(sample))]
        given: dict[str, Any] = {"inputs": [output, names[-1]]}
        if kind == FLOAT:
            given["transform"] = "torcheer.training.spec.transforms.same_shape"
        if loss not in completion.names("losses"):
            completion.define("losses", loss, {"class": loss_class, **given})
        if not completion.names("metrics"):
            completion.define("metrics", metric, {"class": metric_class, **given})
        prefix = "val " * (name in part(completion.data, STAGES)[0].get("validation_pipelines", ()))
        pipeline["losses"] = [{"node_name": node, "loss_name": loss, "loss_display_name": f"{prefix}loss"}]
        if not own:
            pipeline["metrics"] = [{"node_name": node, "metric_name": metric, "display_name": f"{prefix}{shown}"}]
        completion.note((*PIPELINES, name, "losses"))
    return []


def last_output(completion: Completion, pipeline: Mapping[str, Any]) -> tuple[str, str]:
    """The last processor of a pipeline, and the first output of its last model."""
    graphs = {one.name: one.spec for one in completion.spec.definitions("batch_graphs")}
    processors = {one.name: one.spec for one in completion.spec.definitions("batch_processors")}
    graph = graphs[pipeline["graph"]]
    node = order_of(graph["nodes"], graph["ingoing_edges"])[0][-1]
    return node, processors[node]["neural_graph"][-1]["outputs"][0]


def collator_of(sample: Any) -> dict[str, Any]:
    """A collator for samples like this one."""
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
    """What a value is, to a collator or a loss."""
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
