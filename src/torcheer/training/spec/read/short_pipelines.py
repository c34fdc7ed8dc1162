"""Pipelines in the short form: steps such as `net(x) -> y_hat`, the models that they train, and their data."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from torcheer.config.line_numbers import KeyPath
from torcheer.training.spec.read.description import BATCH, OUTPUT, PORT, RATIO
from torcheer.training.spec.read.value_kinds import describe_value, quote_list

if TYPE_CHECKING:
    from torcheer.training.spec.read.short_form import ShortForm

STEP = re.compile(r"\s*([^\s()]+)\s*\(([^()]*)\)\s*(?:->\s*(.*\S))?\s*")
TERMS = {"losses": ("loss_name", "loss_display_name"), "metrics": ("metric_name", "display_name")}
OURS = ("data", "columns", "steps", "trains")  # keys of the short form; all others are the long form's
LOADERS = ("training_loader", "validation_loader")


def expand_pipelines(form: ShortForm, group: str, value: Any) -> None:
    """Add pipelines to a description, each with its processor and graph."""
    form.entries()  # makes `initialize`
    target = form.data["initialize"]
    if not isinstance(target, dict):
        return
    places, config = form.translation.places, form.translation.config
    path: KeyPath = ("initialize", group)
    if not isinstance(value, dict) or not all(isinstance(pipeline, dict) for pipeline in value.values()):
        target[group] = form.translation.value(value, path, (group,))
        return
    pipelines = target.setdefault(group, {})
    places.setdefault(path, (config, (group,)))
    is_trained = {name: "trains" in pipeline for name, pipeline in value.items()}
    if not any(is_trained.values()) and is_trained:  # as where pipelines are filled in: the first one trains
        is_trained[next(iter(is_trained))] = True
    for name, pipeline in value.items():
        long = {key: item for key, item in pipeline.items() if key not in OURS}
        pipelines[name] = form.translation.value(long, (*path, name), (group, name))
        expansion = Pipeline(form, (group, name), pipeline, pipelines[name])
        expansion.expand(is_trained[name], is_split=not all(is_trained.values()))
    if group == "pipelines" and any("trains" in pipeline for pipeline in value.values()):
        _stage(form, is_trained)


def _stage(form: ShortForm, is_trained: dict[str, bool]) -> None:
    """Say which pipelines are trained, where no stage does."""
    train = form.data.setdefault("train", {})
    form.translation.places.setdefault(("train",), (form.translation.config, ()))
    if isinstance(train, dict) and "stages" not in train and "stages" not in form.short:
        stage = {
            "training_pipelines": [name for name, trained in is_trained.items() if trained],
            "validation_pipelines": [name for name, trained in is_trained.items() if not trained],
        }
        train["stages"] = [stage]
        for path in (("train", "stages"), ("train", "stages", 0)):
            form.translation.places[path] = form.translation.config, ("pipelines",)


class Pipeline:
    """One pipeline on its way into the long form."""

    def __init__(self, form: ShortForm, origin: KeyPath, short: dict[str, Any], long: dict[str, Any]) -> None:
        self.form, self.origin, self.short, self.long = form, origin, short, long
        self.name = str(origin[-1])
        self.path: KeyPath = ("initialize", *origin)

    def expand(self, is_trained: bool, *, is_split: bool) -> None:
        """Add the processor, the graph, the input and the terms of this pipeline."""
        if "input_injector" not in self.long and "input_factories" not in self.short:
            self._input(is_trained, is_split)
        if "steps" in self.short:
            nodes = list(self._nodes(is_trained))
            if nodes:
                self._graph(nodes)
        elif "trains" in self.short:
            self.form.fault((*self.origin, "trains"), "a pipeline that says what it trains has steps, too")
        for key in TERMS:
            self._terms(key, is_trained, is_split)

    def _put(self, target: dict[str, Any], path: KeyPath, key: str, value: Any, origin: KeyPath) -> None:
        """Set a value that was made from what stands at `origin`: errors about any of its parts name that place."""
        target[key] = value
        for below in _paths(value):
            self.form.translation.places[(*path, key, *below)] = self.form.translation.config, origin

    # -- data --------------------------------------------------------------------------------------------------------

    def _input(self, is_trained: bool, is_split: bool) -> None:
        loader, where = self._loader(is_trained, is_split)
        if not loader:
            return
        entry: dict[str, Any] = {"data_loader": loader}
        columns = self.short.get("columns", self.form.data.get("columns"))
        self._put(self.long, self.path, "input_injector", [entry], where)
        if columns is not None:
            place = (*self.origin, "columns") if "columns" in self.short else ("columns",)
            self._put(entry, (*self.path, "input_injector", 0), "variable_names", columns, place)

    def _loader(self, is_trained: bool, is_split: bool) -> tuple[str, KeyPath]:
        """Return the loader of this pipeline, defined where there is none, and where the config speaks of it."""
        where: KeyPath = (*self.origin, "data")
        data = self.short.get("data")
        if data is None:
            data, where = self._default_data(is_trained, is_split), self.origin
            if not data:
                return "", where
            name = LOADERS[not is_trained]
        elif not isinstance(data, str):
            message = f"this is {describe_value(data)}, and the name of a dataset, of a part of a split or of a loader"
            self.form.fault(where, f"{message} is needed here; several inputs are written as input_injector")
            return "", where
        else:
            name = data
        if name not in self.form.names("data_loaders"):
            kwargs = {} if "batch_size" in self.form.data else {"kwargs": {"batch_size": BATCH}}
            collators = self.form.names("collators")
            collator = {"collator": collators[0]} if len(collators) == 1 else {}
            self.form.define("data_loaders", name, {"dataset": data, **collator, **kwargs}, where)
        return name, where

    def _default_data(self, is_trained: bool, is_split: bool) -> str:
        """Return the data of a pipeline that names none: of the only split, or of the first and the second dataset."""
        splits, datasets = self.form.names("splits"), self.form.names("datasets")
        if not splits and len(datasets) == 1 and is_split:
            self.form.define("splits", "split", {"dataset_name": datasets[0], "ratio": list(RATIO)}, self.origin)
            splits = ["split"]
        if len(splits) == 1:
            return f"{splits[0]}.{'train' if is_trained else 'val'}"
        if not splits and len(datasets) in (1, 2):
            return datasets[0 if is_trained else -1]
        names = quote_list([*splits, *datasets], "and") or "none"
        self.form.fault(self.origin, f"a pipeline says as 'data' which dataset it takes; there is {names}")
        return ""

    # -- steps -------------------------------------------------------------------------------------------------------

    def _nodes(self, is_trained: bool) -> Iterator[tuple[dict[str, Any], KeyPath]]:
        """Yield a node of the neural graph for each step, and where the step is written."""
        steps, where = self.short["steps"], (*self.origin, "steps")
        steps = [steps] if isinstance(steps, str) else steps
        trained = self._trained() if is_trained else {}
        for number, step in enumerate(steps if isinstance(steps, list) else [steps]):
            place = (*where, number) if isinstance(self.short["steps"], list) else where
            match = STEP.fullmatch(step) if isinstance(step, str) else None
            if match is None:
                self.form.fault(place, "a step is written as MODEL(COLUMN, …) -> COLUMN, such as net(x) -> y_hat")
                continue
            model, inputs, outputs = match[1], _words(match[2]), _words(match[3] or OUTPUT)
            node: dict[str, Any] = {"model_name": model, "inputs": inputs, "outputs": outputs}
            if model in trained:
                node["optimizer_name"] = trained[model]
            yield node, place

    def _trained(self) -> dict[str, str]:
        """Return the models that this pipeline trains, each with its optimizer."""
        optimizer_of: dict[str, str] = {}
        for name in self.form.names("optimizers"):
            model = self.form.spec_of("optimizers", name).get("model")
            optimizer_of.update({each: name for each in (model if isinstance(model, list) else [model]) if each})
        if "trains" not in self.short:
            return optimizer_of
        chosen = self.short["trains"]
        chosen = [chosen] if isinstance(chosen, str) else chosen
        if not isinstance(chosen, list) or not chosen:
            self.form.fault(
                (*self.origin, "trains"), f"this is {describe_value(chosen)}; the names of models are needed"
            )
            return {}
        for number, model in enumerate(chosen):
            if model not in optimizer_of:
                where = (*self.origin, "trains", *([number] if isinstance(self.short["trains"], list) else []))
                message = f"there is no optimizer of a model {model!r}; those of {', '.join(optimizer_of)} are there"
                self.form.fault(where, message, tuple(optimizer_of))
        return {model: name for model, name in optimizer_of.items() if model in chosen}

    def _graph(self, nodes: list[tuple[dict[str, Any], KeyPath]]) -> None:
        """Define the processor and the graph that run the steps, in their order."""
        form, where = self.form, (*self.origin, "steps")
        form.define("batch_processors", self.name, {"neural_graph": [node for node, _ in nodes]}, where)
        edges = {"nodes": [self.name], "input_ports": [PORT], "ingoing_edges": {self.name: [PORT]}}
        form.define("batch_graphs", self.name, edges, where)
        places, config = form.translation.places, form.translation.config
        for number, entry in enumerate(form.entries()):
            if entry.get("name") == self.name and entry.get("group") in ("batch_processors", "batch_graphs"):
                for below in _paths(entry["spec"]):
                    step = nodes[int(below[1])][1] if below[:1] == ("neural_graph",) and len(below) > 1 else where
                    places[(*form.base, number, "spec", *below)] = config, step
        self._put(self.long, self.path, "graph", self.name, where)

    # -- terms -------------------------------------------------------------------------------------------------------

    def _terms(self, key: str, is_trained: bool, is_split: bool) -> None:
        """Write names of losses or metrics as the long form does; of a pipeline that says none, all that fit."""
        name_key, shown_key = TERMS[key]
        names = self.short.get(key)
        names = [names] if isinstance(names, str) else names
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            return  # the long form, or nothing
        prefix = "" if is_trained else "val " if is_split else f"{self.name} "
        terms = [{name_key: name, shown_key: f"{prefix}{name}"} for name in names]
        self._put(self.long, self.path, key, terms, (*self.origin, key))
        if isinstance(self.short[key], list):
            for number, term in enumerate(terms):
                for below in _paths(term):
                    place = self.form.translation.config, (*self.origin, key, number)
                    self.form.translation.places[(*self.path, key, number, *below)] = place


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _paths(value: Any) -> Iterator[KeyPath]:
    """Yield the paths of a value and of all its parts."""
    yield ()
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from ((key, *below) for below in _paths(item))
