"""Complete a config: a dataset, a model and an optimizer are enough for a session.

Two halves. The first needs no data: split, loaders, processor, graph, pipelines, stage. The second reads one sample:
the collator by the types of its values, loss and metric by the type of its last value, the target.

| omitted | filled in |
|---|---|
| `splits`, with one dataset | 0.8, 0.1, 0.1 of it, by the seed |
| `data_loaders` | of the split's `train` and `val`, or of the first two datasets; `batch_size` or 32 to a batch |
| `batch_processors` | the only model, with the only optimizer, from the first column to `y_hat` |
| `columns` given | the model takes all of them but the last, the target |
| `batch_graphs`, or a pipeline's `graph` | the only graph; else one around the only processor |
| `node_name` of a loss or metric | the only processor of the pipeline's graph |
| `pipelines` | `training` and `validation`, of the first and the second loader |
| `train`, or a stage's `training_pipelines` | one stage of both |
| `stop_condition` | `train`'s `epochs`, or 20 |
| `collators` | each column as a tensor, images as floats between 0 and 1, texts as they are |
| `inputs` of a loss or metric | what the only model gives, and the last column |
| `losses` and `metrics` | of whole numbers CrossEntropyLoss and Accuracy, of floats MSELoss and L1Loss |
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from torcheer.config.line_numbers import KeyPath
from torcheer.training.spec.read.description import (
    BATCH,
    DEFINITIONS,
    OUTPUT,
    PIPELINES,
    PORT,
    RATIO,
    STAGES,
    Definition,
    Spec,
    label,
    part,
)
from torcheer.training.spec.read.grammar import DATA_GROUPS
from torcheer.training.spec.read.value_kinds import Fault, quote_list

EPOCHS = 20
STOP = "torcheer.training.stop_conditions.EpochsCompleted"
EARLY_STOP = "torcheer.training.stop_conditions.EarlyStopping"
MOST_EPOCHS = 1000  # of a stage that stops early by habit


class Incomplete(Exception):
    """Something is omitted and has no default."""

    def __init__(self, path: KeyPath, message: str) -> None:
        super().__init__(message)
        self.fault = Fault(path, message)


class Completion:
    """A description that is being completed."""

    def __init__(self, spec: Spec) -> None:
        self.data = copy.deepcopy(spec.data)
        self.places, self._changed = dict(spec.places), spec.changed
        source = self.data.setdefault("source", {})
        self.is_new = "completed" not in source  # else it was saved, perhaps by a version with fewer checks
        self.completed: list[list[Any]] = source.setdefault("completed", [])

    @property
    def spec(self) -> Spec:
        return Spec(self.data, self.places, self._changed)

    def names(self, group: str) -> list[str]:
        return [definition.name for definition in self.spec.definitions(group)]

    def define(self, group: str, name: str, spec: dict[str, Any]) -> str:
        """Add a definition; one of data after the last one of data, so that its users come later."""
        listed = part(self.data, DEFINITIONS)
        at = len(listed)
        if group in DATA_GROUPS:
            at = 1 + max((number for number, entry in enumerate(listed) if entry["group"] in DATA_GROUPS), default=-1)
        listed.insert(at, {"group": group, "name": name, "spec": spec})
        self._shift_places(at)
        self.mark_completed((*DEFINITIONS, at, "spec"))
        return name

    def _shift_places(self, at: int) -> None:
        """Shift the places of the definitions after a new one."""
        depth = len(DEFINITIONS)

        def shifted(path: KeyPath) -> KeyPath:
            if path[:depth] != DEFINITIONS or len(path) == depth:
                return path
            number = path[depth]
            return (*DEFINITIONS, number + 1, *path[depth + 1 :]) if isinstance(number, int) and number >= at else path

        self.places = {shifted(path): place for path, place in self.places.items()}

    def mark_completed(self, path: KeyPath) -> None:
        """Record that a part was filled in."""
        if not self.spec.is_completed(path):
            self.completed.append(label(self.data, path))

    def fill(self) -> None:
        """Fill in everything that needs no data."""
        initialize = self.data["initialize"]
        if not initialize.get("pipelines"):
            self._pipelines(self._loaders())
        for kind in ("pipelines", "debug_pipelines"):
            for name, pipeline in initialize.get(kind, {}).items():
                self._graph(pipeline, ("initialize", kind, name))
        stages = self.data.setdefault("train", {}).setdefault("stages", [{}])
        for number, stage in enumerate(stages):
            if "training_pipelines" not in stage:
                self._stage(stage, (*STAGES, number))
        self._stops(part(self.data, STAGES))
        self._measures()
        if self.is_new and (fault := batch_size_fault(self.spec)) is not None:
            raise Incomplete(fault.path, fault.message)

    def _stops(self, stages: list[dict[str, Any]]) -> None:
        """Add a stop condition to each stage without one."""
        epochs = self.data["train"].pop("epochs", None)
        open_ended = [number for number, stage in enumerate(stages) if "stop_condition" not in stage]
        if epochs is not None and not open_ended:  # a session goes on for longer: what was filled in is changed
            open_ended = [number for number in range(len(stages)) if self._is_our_stop(number)]
        if epochs is not None and not open_ended:
            message = (
                "every stage has a stop_condition of its own, so that there is nothing left for epochs to say; change "
                "train.stages.0.stop_condition"
            )
            raise Incomplete(("train", "epochs"), message)
        for number in open_ended:
            stages[number]["stop_condition"] = self._stop(stages[number], epochs)
            self.mark_completed((*STAGES, number, "stop_condition"))

    def _stop(self, stage: dict[str, Any], epochs: int | None) -> dict[str, Any]:
        """The stop condition of a stage: so many epochs, or while the first loss that is validated improves."""
        pipelines = part(self.data, PIPELINES)
        tested = [name for name in stage.get("validation_pipelines", ()) if name not in stage["training_pipelines"]]
        terms = [term for name in tested for term in pipelines[name].get("losses", ())]
        if epochs is None and self.spec.habits.stops_early and tested:
            columns = [term.get("loss_display_name", term["loss_name"]) for term in terms]
            filled = ["val loss"] if self.spec.is_completed((*PIPELINES, tested[0])) else []
            for column in [*columns, *filled][:1]:
                return {"class": EARLY_STOP, "kwargs": {"monitor": column, "max_epochs": MOST_EPOCHS}}
        return {"class": STOP, "kwargs": {"num_epochs": epochs or EPOCHS}}

    def _is_our_stop(self, number: int) -> bool:
        stop = part(self.data, STAGES)[number]["stop_condition"]
        return stop.get("class") in (STOP, EARLY_STOP) and self.spec.is_completed((*STAGES, number, "stop_condition"))

    def _measures(self) -> None:
        """Raise where a loss or metric says no inputs and it is not clear which it takes."""
        for kind, key in (("losses", "loss_name"), ("metrics", "metric_name")):
            for definition in self.spec.definitions(kind):
                for name, pipeline in part(self.data, PIPELINES).items():
                    uses = [term for term in pipeline.get(kind, ()) if term[key] == definition.name]
                    if "inputs" not in definition.spec and uses and not self._is_simple(pipeline):
                        message = f"say as inputs which columns it takes in {name!r}: there are several models"
                        raise Incomplete((*definition.path, "inputs"), message)

    def _is_simple(self, pipeline: dict[str, Any]) -> bool:
        """Return whether a pipeline has one input and runs one model."""
        graph = self._named("batch_graphs", pipeline["graph"])
        nodes = [] if graph is None else graph.spec["nodes"]
        processors = [self._named("batch_processors", name) for name in nodes]
        models = [node for each in processors if each is not None for node in each.spec["neural_graph"]]
        return len(models) == len(pipeline["input_injector"]) == 1

    def _named(self, group: str, name: str) -> Definition | None:
        return next((each for each in self.spec.definitions(group) if each.name == name), None)

    def _loaders(self) -> list[str]:
        collators = self.names("collators")
        if self.names("data_loaders"):
            return self.names("data_loaders")
        if len(collators) > 1:
            message = f"there are no data_loaders, and which of {quote_list(collators)} they take has to be said"
            raise Incomplete(DEFINITIONS, message)
        options = {"collator": collators[0]} if collators else {}
        kwargs = {} if "batch_size" in self.data else {"batch_size": BATCH}
        return [
            self.define("data_loaders", name, {"dataset": dataset, **options, "kwargs": dict(kwargs)})
            for name, dataset in zip(("training_loader", "validation_loader"), self._datasets())
        ]

    def _datasets(self) -> list[str]:
        """Return the data to train with and, where there is more, to validate with."""
        splits, ends = self.names("splits"), list(self._unused_datasets())
        if len(splits) == 1 and not ends:
            ratio = next(self.spec.definitions("splits")).spec["ratio"]
            return [f"{splits[0]}.{word}" for word in ("train", "val")[: len(ratio)]]
        if len(ends) == 1 and not splits:
            self.define("splits", "split", {"dataset_name": ends[0], "ratio": list(RATIO)})
            return ["split.train", "split.val"]
        if len(ends) in (1, 2):
            return ends
        available = f"the datasets {quote_list(ends, 'and')}" if ends else "no dataset"
        message = f"there are no data_loaders and no pipelines, and {available}: which to train with has to be said"
        raise Incomplete(DEFINITIONS, message)

    def _unused_datasets(self) -> Iterator[str]:
        """Return the datasets that no other dataset or split is made of."""
        used: set[Any] = set()
        for definition in self.spec.definitions():
            used |= {
                definition.spec.get("link"),
                definition.spec.get("dataset_name"),
                *definition.spec.get("merge", ()),
            }
        return (name for name in self.names("datasets") if name not in used)

    def _pipelines(self, loaders: list[str]) -> None:
        if len(loaders) > 2 and not self.spec.habits.takes_first:
            message = f"there are no pipelines, and which of the data_loaders {quote_list(loaders)} to train with"
            raise Incomplete(DEFINITIONS, f"{message} has to be said")
        pipelines = self.data["initialize"]["pipelines"] = {}
        for prefix, name, loader in zip(("", "val "), ("training", "validation"), loaders):
            columns = {"variable_names": list(self.data["columns"])} if "columns" in self.data else {}
            pipelines[name] = {"input_injector": [{"data_loader": loader, **columns}]}
            losses, metrics = self.names("losses"), self.names("metrics")
            if self.spec.habits.takes_first:
                losses = losses[:1]
            shown = losses if len(losses) > 1 else ["loss"]
            pipelines[name]["losses"] = [
                {"loss_name": measure, "loss_display_name": f"{prefix}{column}"}
                for measure, column in zip(losses, shown)
            ]
            pipelines[name]["metrics"] = [
                {"metric_name": measure, "display_name": f"{prefix}{self._shown(measure)}"} for measure in metrics
            ]
            self.mark_completed((*PIPELINES, name))

    def _shown(self, metric: str) -> str:
        return metric.lower() if self.spec.habits.lowers_metrics else metric

    def _graph(self, pipeline: dict[str, Any], path: KeyPath) -> None:
        """Complete the graph of a pipeline, and the processors that its losses and metrics read."""
        if "graph" not in pipeline:
            graphs = self.names("batch_graphs")
            if len(graphs) > 1:
                raise Incomplete(path, f"a pipeline says which graph it runs, one of {quote_list(graphs)}")
            pipeline["graph"] = graphs[0] if graphs else self._new_graph(pipeline, path)
            self.mark_completed((*path, "graph"))
        graph = self._named("batch_graphs", pipeline["graph"])
        for kind in ("losses", "metrics"):
            for number, term in enumerate(pipeline.get(kind, ())):
                if "node_name" not in term and graph is not None:
                    nodes = graph.spec["nodes"]
                    if len(nodes) > 1:
                        raise Incomplete(
                            (*path, kind, number), f"say as node_name which node it reads, {quote_list(nodes)}"
                        )
                    term["node_name"] = nodes[0]
                    self.mark_completed((*path, kind, number, "node_name"))

    def _new_graph(self, pipeline: dict[str, Any], path: KeyPath) -> str:
        processors = self.names("batch_processors") or [self._new_processor(pipeline, path)]
        if len(processors) > 1:
            raise Incomplete(
                path, f"there are no batch_graphs, and how {quote_list(processors, 'and')} hang together has to be said"
            )
        inputs = pipeline["input_injector"]
        ports = list(dict.fromkeys(entry.get("input_port", PORT) for entry in inputs))
        if len(ports) > 1:
            raise Incomplete(
                path,
                f"there are no batch_graphs, and what reads from the ports {quote_list(ports, 'and')} has to be said",
            )
        spec = {"nodes": processors, "input_ports": ports, "ingoing_edges": {processors[0]: ports}}
        return self.define("batch_graphs", "default_graph", spec)

    def _new_processor(self, pipeline: dict[str, Any], path: KeyPath) -> str:
        models, optimizers = self.names("models"), self.names("optimizers")
        if len(models) != 1 or len(optimizers) > 1:
            available = f"the models {quote_list(models, 'and')}" if models else "no models"
            available += f" with the optimizers {quote_list(optimizers, 'and')}" if len(optimizers) > 1 else ""
            raise Incomplete(
                path, f"there are no batch_processors, and {available}: how they hang together has to be said"
            )
        named = pipeline["input_injector"][0].get("variable_names", ["input_1"])
        inputs = list(named[:-1]) or list(named) if "columns" in self.data else list(named[:1])
        node = {"model_name": models[0], "inputs": inputs, "outputs": [OUTPUT]}
        adapter = {"class": "torcheer.training.adapters.ToModel", "args": [models[0], inputs]}
        if optimizers:
            node["optimizer_name"] = optimizers[0]
        return self.define("batch_processors", "default_processor", {"input_adapter": adapter, "neural_graph": [node]})

    def _stage(self, stage: dict[str, Any], path: KeyPath) -> None:
        """Complete what a stage trains and validates."""
        names = list(self.data["initialize"]["pipelines"])
        if len(names) > 2:
            raise Incomplete(
                path if stage else PIPELINES, f"which of {quote_list(names)} a stage trains has to be said"
            )
        stage.update({"mode": "interleave", "training_pipelines": names[:1]})
        if names[1:]:
            stage.setdefault("validation_pipelines", names if self.spec.habits.validates_training else names[1:])
        self.mark_completed(path)


def batch_size_fault(spec: Spec) -> Fault | None:
    """Return the fault of a batch_size that no loader uses; inference has its own."""
    if "batch_size" not in spec.data or spec.data.get("inference_pipeline"):
        return None
    loaders = list(spec.definitions("data_loaders"))
    fixed = [loader for loader in loaders if "batch_size" in loader.spec.get("kwargs", {}) or loader.spec.get("args")]
    if not loaders or len(fixed) < len(loaders):
        return None
    names = quote_list([loader.name for loader in fixed], "and")
    message = f"{names} have a batch_size of their own, so that this one would change nothing: change theirs"
    return Fault(("batch_size",), message)


def complete(spec: Spec) -> tuple[Spec, list[Fault]]:
    """Fill in everything that needs no data; return the description and its faults."""
    completion = Completion(spec)
    try:
        completion.fill()
    except Incomplete as error:
        return completion.spec, [error.fault]
    return completion.spec, []
