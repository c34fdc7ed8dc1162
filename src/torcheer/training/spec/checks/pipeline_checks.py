"""What the shape of a description cannot tell: whether its pipelines and stages make sense."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from torcheer.config.line_numbers import KeyPath
from torcheer.training.spec.checks.graph_order import Columns, columns_of, graph_faults, node_faults, shared
from torcheer.training.spec.read.description import DEBUG, PIPELINES, STAGES, Definition, definitions, part
from torcheer.training.spec.read.value_kinds import Fault

TERMS = (("losses", "loss_name", "loss_display_name"), ("metrics", "metric_name", "display_name"))
WATCHING = ("EarlyStopping",)  # stop conditions that look at a column
# The type of a target -> the loss and metric that are filled in, and how the latter is shown.
MEASURES = {
    "whole": ("cross_entropy", "CrossEntropyLoss", "accuracy", "Accuracy", "acc"),
    "float": ("mse", "MSELoss", "mae", "torch.nn.L1Loss", "mae"),
}


def sense_faults(data: dict[str, Any]) -> list[Fault]:
    """All that is wrong with a description whose shape and references are right."""
    sense = Sense(data)
    faults = [fault for one in sense.groups["batch_graphs"].values() for fault in graph_faults(one)]
    if not faults:  # columns can be followed through sound graphs only
        faults = [*sense.pipelines(PIPELINES), *sense.pipelines(DEBUG)]
    return [*faults, *sense.splits(), *sense.processors(), *sense.stages(), *sense.later()]


class Sense:
    """A description, looked at as a whole."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.data = data
        self.groups: dict[str, dict[str, Definition]] = {}
        for group in ("splits", "batch_graphs", "batch_processors", "optimizers", "losses", "metrics"):
            self.groups[group] = {one.name: one for one in definitions(data, group)}

    def splits(self) -> Iterator[Fault]:
        for one in self.groups["splits"].values():
            total = sum(one.spec["ratio"])
            if abs(total - 1) > 0.002:
                yield Fault((*one.path, "ratio"), f"the shares of a split add up to 1, and these to {total:g}")

    def processors(self) -> Iterator[Fault]:
        """Optimizers that train another model than the one they stand beside."""
        for one in self.groups["batch_processors"].values():
            for number, node in enumerate(one.spec["neural_graph"]):
                name, model = node.get("optimizer_name"), node["model_name"]
                trained = models_of(self.groups["optimizers"][name].spec) if name else [model]
                if model not in trained:
                    path = (*one.path, "neural_graph", number, "optimizer_name")
                    fitting = [
                        each.name for each in self.groups["optimizers"].values() if model in models_of(each.spec)
                    ]
                    hint = f"; {', '.join(fitting)} would" if fitting else ""
                    yield Fault(path, f"{name!r} trains {', '.join(trained)}, not {model}{hint}")

    def pipelines(self, path: KeyPath) -> Iterator[Fault]:
        for name, one in (part(self.data, path) or {}).items():
            here = (*path, name)
            graph = self.groups["batch_graphs"][one["graph"]]
            faults = list(port_faults(one, graph, here))
            yield from faults
            if not faults:
                yield from self._columns(one, graph, here)
            yield from self._terms(one, graph, here)

    def _columns(self, one: dict[str, Any], graph: Definition, path: KeyPath) -> Iterator[Fault]:
        """Columns that are read and that nothing makes."""
        processors = self.groups["batch_processors"]
        only = graph.spec["input_ports"][0]
        ports = {each.get("input_port", only): each.get("variable_names") for each in one["input_injector"]}
        columns = columns_of(graph.spec, ports, processors)
        for node in graph.spec["nodes"]:
            into = [columns.get(source) for source in graph.spec["ingoing_edges"][node]]
            yield from node_faults(processors[node], shared(into))
        for kind, key, _ in TERMS:
            for term in one.get(kind, ()):
                if term["node_name"] in graph.spec["nodes"]:
                    where = f"the frame of {term['node_name']!r} in pipeline {path[-1]!r}"
                    yield from input_faults(self.groups[kind][term[key]], columns[term["node_name"]], where)

    def _terms(self, one: dict[str, Any], graph: Definition, path: KeyPath) -> Iterator[Fault]:
        shown: Counter[str] = Counter()
        for kind, key, name_key in TERMS:
            for number, term in enumerate(one.get(kind, ())):
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
            yield from self._trains(stage, path)
            columns = self._stage_columns(stage)
            shown = (*columns, *self._to_come(stage))
            for column, names in columns.items():
                if len(names) > 1:
                    message = (
                        f"the pipelines {' and '.join(names)} both show a column {column!r}: give one another name"
                    )
                    yield Fault(path, message)
            yield from self._watched(stage, path, shown)
            yield from self._monitors(stage, shown)
            steps = stage.get("eval_steps")
            for name in steps if isinstance(steps, dict) else ():
                known = stage.get("validation_pipelines", [])
                if name not in known:
                    yield Fault(
                        (*path, "eval_steps", name), f"{name!r} is none of the validation_pipelines", tuple(known)
                    )
        yield from self._best()

    def _trains(self, stage: dict[str, Any], path: KeyPath) -> Iterator[Fault]:
        pipelines = part(self.data, PIPELINES)
        for number, name in enumerate(stage["training_pipelines"]):
            here = (*path, "training_pipelines", number)
            graph = self.groups["batch_graphs"][pipelines[name]["graph"]]
            nodes = [node for each in graph.spec["nodes"] for node in self._nodes(each)]
            if not any(node.get("optimizer_name") for node in nodes):
                yield Fault(here, "this pipeline trains nothing: none of its nodes names an optimizer")
            if not pipelines[name].get("losses") and self.groups["losses"]:
                yield Fault(here, "this pipeline has no losses to train with")

    def _nodes(self, processor: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.groups["batch_processors"][processor].spec["neural_graph"]
        return found

    def _stage_columns(self, stage: dict[str, Any]) -> dict[str, list[str]]:
        """The columns of a stage, and which of its pipelines show each."""
        found: dict[str, list[str]] = {}
        for name in dict.fromkeys([*stage["training_pipelines"], *stage.get("validation_pipelines", ())]):
            one = part(self.data, PIPELINES)[name]
            for kind, key, shown in TERMS:
                for column in dict.fromkeys(term.get(shown, term[key]) for term in one.get(kind, ())):
                    found.setdefault(column, []).append(name)
        return found

    def _to_come(self, stage: dict[str, Any]) -> list[str]:
        """The columns that a sample may bring where no losses are given: those of whole numbers and those of floats."""
        if self.groups["losses"]:
            return []
        words = ["loss"] if self.groups["metrics"] else ["loss", *(shown for *_, shown in MEASURES.values())]
        return [*words, *(f"val {word}" for word in words if stage.get("validation_pipelines"))]

    def _watched(self, stage: dict[str, Any], path: KeyPath, columns: tuple[str, ...]) -> Iterator[Fault]:
        """A stop condition that looks at a column which is none."""
        stop = stage.get("stop_condition", {})
        is_named = "monitor" in stop.get("kwargs", {})
        monitor = stop["kwargs"]["monitor"] if is_named else next(iter(stop.get("args", ())), None)
        if stop.get("class", "").split(".")[-1] in WATCHING and monitor is not None and monitor not in columns:
            where = (*path, "stop_condition", *(("kwargs", "monitor") if is_named else ("args", 0)))
            yield Fault(where, f"the stage has no column {monitor!r}; it has {', '.join(columns)}", columns)

    def _monitors(self, stage: dict[str, Any], columns: tuple[str, ...]) -> Iterator[Fault]:
        """Schedulers that look at a column which a stage that trains with them has not."""
        graphs = [part(self.data, PIPELINES)[name]["graph"] for name in stage["training_pipelines"]]
        processors = [name for graph in graphs for name in self.groups["batch_graphs"][graph].spec["nodes"]]
        names = {node.get("optimizer_name") for name in processors for node in self._nodes(name)}
        for one in self.groups["optimizers"].values():
            monitor = one.spec.get("lr_scheduler", {}).get("monitor")
            if one.name in names and monitor is not None and monitor not in columns:
                message = f"a stage that trains with it has no column {monitor!r}; there is {', '.join(columns)}"
                yield Fault((*one.path, "lr_scheduler", "monitor"), message, columns)

    def _best(self) -> Iterator[Fault]:
        """A `keep_best` that names a column which no stage has."""
        stages = part(self.data, STAGES) or ()
        columns = {column for stage in stages for column in (*self._stage_columns(stage), *self._to_come(stage))}
        best, known = self.data.get("keep_best", "").removeprefix("-"), tuple(sorted(columns))
        if best and best not in columns:
            yield Fault(("keep_best",), f"no stage has a column {best!r}; there is {', '.join(known)}", known)

    def later(self) -> Iterator[Fault]:
        """What is wrong with what evaluation and inference add."""
        name = self.data.get("inference_pipeline")
        for number, meta in enumerate(self.data.get("inputs_meta", ()) if name else ()):
            ports = self.groups["batch_graphs"][part(self.data, PIPELINES)[name]["graph"]].spec["input_ports"]
            port = meta.get("input_port")
            if port is not None and port not in ports:
                message = f"the graph of {name!r} has no port {port!r}; it has {', '.join(ports)}"
                yield Fault(("inputs_meta", number, "input_port"), message, tuple(ports))


def port_faults(pipeline: dict[str, Any], graph: Definition, path: KeyPath) -> Iterator[Fault]:
    """Ports of a graph that a pipeline feeds twice or not at all."""
    ports, fed = graph.spec["input_ports"], list[str]()
    for number, one in enumerate(pipeline["input_injector"]):
        here = (*path, "input_injector", number)
        port = one.get("input_port", ports[0] if len(ports) == 1 else None)
        if port is None:
            yield Fault(here, f"the graph {graph.name!r} has several ports, {', '.join(ports)}: name one as input_port")
            return
        if port not in ports:
            message = f"the graph {graph.name!r} has no port {port!r}; it has {', '.join(ports)}"
            yield Fault((*here, "input_port"), message, tuple(ports))
        elif port in fed:
            yield Fault(here, f"the port {port!r} is fed by an input before this one already")
        fed.append(port)
    missing = [port for port in ports if port not in fed]
    if missing and all(port in ports for port in fed):
        yield Fault((*path, "input_injector"), f"nothing feeds {', '.join(missing)} of the graph {graph.name!r}")


def input_faults(measure: Definition, columns: Columns, where: str) -> Iterator[Fault]:
    read: list[tuple[KeyPath, str]] = [(("inputs", place), name) for place, name in enumerate(measure.spec["inputs"])]
    read += [(("items",), measure.spec["items"])] if "items" in measure.spec else []
    for path, name in read:
        if columns is not None and name not in columns:
            message = f"there is no {name!r} in {where}; it has {', '.join(columns)}"
            yield Fault((*measure.path, *path), message, tuple(columns))


def models_of(optimizer: dict[str, Any]) -> list[str]:
    """The models that an optimizer trains."""
    model = optimizer["model"]
    return list(model) if isinstance(model, list) else [model]
