"""Checks beyond the schema: whether pipelines and stages are consistent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from torcheer.config.line_numbers import KeyPath
from torcheer.training.spec.checks.graph_order import Columns, common_columns, frame_columns, graph_faults, node_faults
from torcheer.training.spec.read.description import DEBUG, PIPELINES, STAGES, Definition, definitions, part
from torcheer.training.spec.read.value_kinds import Fault

TERMS = (("losses", "loss_name", "loss_display_name"), ("metrics", "metric_name", "display_name"))
MONITORING_STOPS = ("EarlyStopping",)  # stop conditions that monitor a column
# type of the target -> the loss and metric that are filled in, and the metric's display name
MEASURES = {
    "whole": ("cross_entropy", "CrossEntropyLoss", "accuracy", "Accuracy", "acc"),
    "float": ("mse", "MSELoss", "mae", "torch.nn.L1Loss", "mae"),
}


def pipeline_faults(data: dict[str, Any]) -> list[Fault]:
    """Return the faults of a description whose schema and references are valid."""
    sense = PipelineChecks(data)
    faults = [fault for definition in sense.groups["batch_graphs"].values() for fault in graph_faults(definition)]
    if not faults:  # columns can be followed only through valid graphs
        faults = [*sense.pipelines(PIPELINES), *sense.pipelines(DEBUG)]
    return [
        *faults,
        *sense.splits(),
        *sense.processors(),
        *sense.stages(),
        *sense.inference_faults(),
    ]


def unused_optimizers(data: dict[str, Any]) -> list[Fault]:
    """Return the faults of optimizers that nothing steps, in a valid description."""
    checks = PipelineChecks(data)
    used = {
        node.get("optimizer_name")
        for processor in checks.groups["batch_processors"]
        for node in checks.nodes(processor)
    }
    return [
        Fault(
            optimizer.path,
            f"the optimizer {optimizer.name!r} trains nothing, as no node of "
            f"{' and '.join(map(repr, models_of(optimizer.spec)))} names it (optimizer_name; trains, in a short "
            f"pipeline): name it there, or leave it out",
        )
        for optimizer in checks.groups["optimizers"].values()
        if optimizer.name not in used
    ]


def frozen_notes(data: dict[str, Any]) -> list[str]:
    """Describe the models of a valid description that no stage trains."""
    checks = PipelineChecks(data)
    trained = {name for stage in part(data, STAGES) or () for name in stage["training_pipelines"]}
    graphs = {part(data, PIPELINES)[name]["graph"] for name in trained}
    processors = {name for graph in graphs for name in checks.groups["batch_graphs"][graph].spec["nodes"]}
    learning = {node["model_name"] for name in processors for node in checks.nodes(name) if node.get("optimizer_name")}
    return [
        f"{model.name}: it is frozen, as no stage trains a node that gives it an optimizer"
        for model in definitions(data, "models")
        if trained and model.name not in learning
    ]


class PipelineChecks:
    """Consistency checks of a description."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.data = data
        self.groups: dict[str, dict[str, Definition]] = {}
        for group in ("splits", "batch_graphs", "batch_processors", "optimizers", "losses", "metrics"):
            self.groups[group] = {definition.name: definition for definition in definitions(data, group)}

    def splits(self) -> Iterator[Fault]:
        for definition in self.groups["splits"].values():
            total = sum(definition.spec["ratio"])
            if abs(total - 1) > 0.002:
                yield Fault((*definition.path, "ratio"), f"the shares of a split add up to 1, and these to {total:g}")

    def processors(self) -> Iterator[Fault]:
        """Yield faults of nodes whose optimizer trains another model."""
        for definition in self.groups["batch_processors"].values():
            for number, node in enumerate(definition.spec["neural_graph"]):
                name, model = node.get("optimizer_name"), node["model_name"]
                trained = models_of(self.groups["optimizers"][name].spec) if name else [model]
                if model not in trained:
                    path = (*definition.path, "neural_graph", number, "optimizer_name")
                    fitting = [
                        optimizer.name
                        for optimizer in self.groups["optimizers"].values()
                        if model in models_of(optimizer.spec)
                    ]
                    hint = f"; {', '.join(fitting)} would" if fitting else ""
                    yield Fault(path, f"{name!r} trains {', '.join(trained)}, not {model}{hint}")

    def pipelines(self, path: KeyPath) -> Iterator[Fault]:
        for name, pipeline in (part(self.data, path) or {}).items():
            pipeline_path = (*path, name)
            graph = self.groups["batch_graphs"][pipeline["graph"]]
            faults = list(port_faults(pipeline, graph, pipeline_path))
            yield from faults
            if not faults:
                yield from self._columns(pipeline, graph, pipeline_path)
            yield from self._terms(pipeline, graph, pipeline_path)

    def _columns(self, pipeline: dict[str, Any], graph: Definition, path: KeyPath) -> Iterator[Fault]:
        """Yield faults of columns that are read and never produced."""
        processors = self.groups["batch_processors"]
        only = graph.spec["input_ports"][0]
        ports = {entry.get("input_port", only): entry.get("variable_names") for entry in pipeline["input_injector"]}
        columns = frame_columns(graph.spec, ports, processors)
        for node in graph.spec["nodes"]:
            into = [columns.get(source) for source in graph.spec["ingoing_edges"][node]]
            yield from node_faults(processors[node], common_columns(into))
        for kind, key, _ in TERMS:
            for term in pipeline.get(kind, ()):
                if term["node_name"] in graph.spec["nodes"]:
                    where = f"the frame of {term['node_name']!r} in pipeline {path[-1]!r}"
                    yield from input_faults(self.groups[kind][term[key]], columns[term["node_name"]], where)

    def _terms(self, pipeline: dict[str, Any], graph: Definition, path: KeyPath) -> Iterator[Fault]:
        shown: Counter[str] = Counter()
        for kind, key, name_key in TERMS:
            for number, term in enumerate(pipeline.get(kind, ())):
                column, nodes = term.get(name_key, term[key]), graph.spec["nodes"]
                shown[column] += 1
                if shown[column] > 1 or column == "epoch":
                    why = "has a column of this name already" if column != "epoch" else "counts epochs in this column"
                    yield Fault((*path, kind, number), f"{column!r}: the pipeline {why}; write another {name_key}")
                if term["node_name"] not in nodes:
                    message = f"{term['node_name']!r} is no node of the graph {graph.name!r}; it has {', '.join(nodes)}"
                    yield Fault((*path, kind, number, "node_name"), message, tuple(nodes))

    def stages(self) -> Iterator[Fault]:
        for number, stage in enumerate(part(self.data, STAGES) or ()):
            path = (*STAGES, number)
            yield from self._training_faults(stage, path)
            columns = self._stage_columns(stage)
            shown = (*columns, *self._sample_columns(stage))
            for column, names in columns.items():
                if len(names) > 1:
                    message = (
                        f"the pipelines {' and '.join(names)} both show a column {column!r}: give one another name"
                    )
                    yield Fault(path, message)
            yield from self._stop_faults(stage, path, shown)
            yield from self._scheduler_faults(stage, shown)
            steps = stage.get("eval_steps")
            for name in steps if isinstance(steps, dict) else ():
                validation = stage.get("validation_pipelines", [])
                if name not in validation:
                    yield Fault(
                        (*path, "eval_steps", name), f"{name!r} is none of the validation_pipelines", tuple(validation)
                    )
        yield from self._keep_best_faults()

    def _training_faults(self, stage: dict[str, Any], path: KeyPath) -> Iterator[Fault]:
        pipelines = part(self.data, PIPELINES)
        for number, name in enumerate(stage["training_pipelines"]):
            name_path = (*path, "training_pipelines", number)
            graph = self.groups["batch_graphs"][pipelines[name]["graph"]]
            nodes = [node for processor in graph.spec["nodes"] for node in self.nodes(processor)]
            if not any(node.get("optimizer_name") for node in nodes):
                yield Fault(name_path, "this pipeline trains nothing: none of its nodes names an optimizer")
            if not pipelines[name].get("losses") and self.groups["losses"]:
                yield Fault(name_path, "this pipeline has no losses to train with")

    def nodes(self, processor: str) -> list[dict[str, Any]]:
        """Return the nodes of a processor: a model each."""
        nodes: list[dict[str, Any]] = self.groups["batch_processors"][processor].spec["neural_graph"]
        return nodes

    def _stage_columns(self, stage: dict[str, Any]) -> dict[str, list[str]]:
        """Return the columns of a stage, with the pipelines that show each."""
        columns: dict[str, list[str]] = {}
        for name in dict.fromkeys([*stage["training_pipelines"], *stage.get("validation_pipelines", ())]):
            pipeline = part(self.data, PIPELINES)[name]
            for kind, key, shown in TERMS:
                for column in dict.fromkeys(term.get(shown, term[key]) for term in pipeline.get(kind, ())):
                    columns.setdefault(column, []).append(name)
        return columns

    def _sample_columns(self, stage: dict[str, Any]) -> list[str]:
        """Return the columns that a sample may add where no losses are defined."""
        if self.groups["losses"]:
            return []
        words = ["loss"] if self.groups["metrics"] else ["loss", *(shown for *_, shown in MEASURES.values())]
        return [*words, *(f"val {word}" for word in words if stage.get("validation_pipelines"))]

    def _stop_faults(self, stage: dict[str, Any], path: KeyPath, columns: tuple[str, ...]) -> Iterator[Fault]:
        """Yield a fault of a stop condition that monitors an unknown column."""
        stop = stage.get("stop_condition", {})
        is_named = "monitor" in stop.get("kwargs", {})
        monitor = stop["kwargs"]["monitor"] if is_named else next(iter(stop.get("args", ())), None)
        if stop.get("class", "").split(".")[-1] in MONITORING_STOPS and monitor is not None and monitor not in columns:
            where = (*path, "stop_condition", *(("kwargs", "monitor") if is_named else ("args", 0)))
            yield Fault(where, f"the stage has no column {monitor!r}; it has {', '.join(columns)}", columns)

    def _scheduler_faults(self, stage: dict[str, Any], columns: tuple[str, ...]) -> Iterator[Fault]:
        """Yield faults of schedulers that monitor a column missing in a stage using them."""
        graphs = [part(self.data, PIPELINES)[name]["graph"] for name in stage["training_pipelines"]]
        processors = [name for graph in graphs for name in self.groups["batch_graphs"][graph].spec["nodes"]]
        names = {node.get("optimizer_name") for name in processors for node in self.nodes(name)}
        for optimizer in self.groups["optimizers"].values():
            monitor = optimizer.spec.get("lr_scheduler", {}).get("monitor")
            if optimizer.name in names and monitor is not None and monitor not in columns:
                message = f"a stage that trains with it has no column {monitor!r}; there is {', '.join(columns)}"
                yield Fault((*optimizer.path, "lr_scheduler", "monitor"), message, columns)

    def _keep_best_faults(self) -> Iterator[Fault]:
        """Yield a fault of a `keep_best` that names a column of no stage."""
        stages = part(self.data, STAGES) or ()
        columns = {column for stage in stages for column in (*self._stage_columns(stage), *self._sample_columns(stage))}
        best, choices = self.data.get("keep_best", "").removeprefix("-"), tuple(sorted(columns))
        if best and best not in columns:
            yield Fault(("keep_best",), f"no stage has a column {best!r}; there is {', '.join(choices)}", choices)

    def inference_faults(self) -> Iterator[Fault]:
        """Yield faults of the keys that inference adds."""
        name = self.data.get("inference_pipeline")
        for number, meta in enumerate(self.data.get("inputs_meta", ()) if name else ()):
            ports = self.groups["batch_graphs"][part(self.data, PIPELINES)[name]["graph"]].spec["input_ports"]
            port = meta.get("input_port")
            if port is not None and port not in ports:
                message = f"the graph of {name!r} has no port {port!r}; it has {', '.join(ports)}"
                yield Fault(("inputs_meta", number, "input_port"), message, tuple(ports))


def port_faults(pipeline: dict[str, Any], graph: Definition, path: KeyPath) -> Iterator[Fault]:
    """Yield faults of graph ports that a pipeline feeds twice or not at all."""
    ports, fed = graph.spec["input_ports"], list[str]()
    for number, entry in enumerate(pipeline["input_injector"]):
        input_path = (*path, "input_injector", number)
        port = entry.get("input_port", ports[0] if len(ports) == 1 else None)
        if port is None:
            yield Fault(
                input_path, f"the graph {graph.name!r} has several ports, {', '.join(ports)}: name one as input_port"
            )
            return
        if port not in ports:
            message = f"the graph {graph.name!r} has no port {port!r}; it has {', '.join(ports)}"
            yield Fault((*input_path, "input_port"), message, tuple(ports))
        elif port in fed:
            yield Fault(input_path, f"the port {port!r} is fed by an input before this one already")
        fed.append(port)
    missing = [port for port in ports if port not in fed]
    if missing and all(port in ports for port in fed):
        yield Fault((*path, "input_injector"), f"nothing feeds {', '.join(missing)} of the graph {graph.name!r}")


def input_faults(measure: Definition, columns: Columns, where: str) -> Iterator[Fault]:
    read: list[tuple[KeyPath, str]] = [
        (("inputs", place), name) for place, name in enumerate(measure.spec.get("inputs", ()))
    ]
    read += [(("items",), measure.spec["items"])] if "items" in measure.spec else []
    for path, name in read:
        if columns is not None and name not in columns:
            message = f"there is no {name!r} in {where}; it has {', '.join(columns)}"
            yield Fault((*measure.path, *path), message, tuple(columns))


def models_of(optimizer: dict[str, Any]) -> list[str]:
    """Return the models that an optimizer trains."""
    model = optimizer["model"]
    return list(model) if isinstance(model, list) else [model]
