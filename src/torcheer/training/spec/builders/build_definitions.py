"""Build the object of a definition: one function for each group."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import nullcontext
from itertools import chain
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.utils.data import DataLoader

from torcheer.training import hooks
from torcheer.training.datasets import Merged, Split, preprocessed
from torcheer.training.metrics import loss
from torcheer.training.optimizers import schedule_timing
from torcheer.training.session_parts import Clip, Graph, Loader, Measure, Node, Processor, Schedule
from torcheer.training.spec.builders.preprocessor_fitting import OFF, fit, needs_fit
from torcheer.training.spec.builders.pretrained_weights import load_weights
from torcheer.training.spec.builders.static_state import dataset_fingerprint, through_json
from torcheer.training.spec.checks.graph_order import order_of
from torcheer.training.spec.checks.pipeline_checks import models_of
from torcheer.training.spec.read.code_slots import Code, arguments, short_name
from torcheer.training.spec.read.description import Definition

if TYPE_CHECKING:
    from torcheer.training.spec.builders.build_session import Builder


def base(builder: Builder, definition: Definition) -> Any:
    """Build a dataset without its own preprocessors."""
    dataset = _dataset(builder, definition)
    if not (hasattr(dataset, "__getitem__") or hasattr(dataset, "__iter__")):
        raise builder.spec.problem(
            definition.path,
            f"this makes {type_with_article(dataset)}, and a dataset has samples by number, or iterates",
        )
    _check_unchanged(builder, definition, dataset)
    return dataset


def dataset(builder: Builder, definition: Definition) -> Any:
    samples = builder.base(definition)
    names = definition.spec.get("preprocessors")
    if not names:
        return samples
    if isinstance(names, dict):
        return preprocessed(samples, {key: builder.get("preprocessors", name) for key, name in names.items() if name})
    return preprocessed(samples, [builder.get("preprocessors", name) if name else None for name in names])


def _check_unchanged(builder: Builder, definition: Definition, dataset: Any) -> None:
    """Raise where a dataset is not the one that the session began with."""
    current, saved = dataset_fingerprint(dataset), builder.saved_state("datasets", definition)
    builder.save_state("datasets", definition.name, current)
    if saved is None or builder.changes_data:
        return
    name, advice = (
        f"the dataset {definition.name!r}",
        "bring the old one back, or begin a new session in another directory",
    )
    size, samples = saved["size"], saved["samples"]
    if None not in (size, current["size"]) and size != current["size"]:
        message = f"{name} has {current['size']} samples, and had {size} when this session began: {advice}"
        raise builder.spec.problem(definition.path, message)
    if (
        samples
        and current["samples"]
        and (changed := [key for key in samples if samples[key] != current["samples"].get(key)])
    ):
        message = f"sample {changed[0]} of {name} is not what it was when this session began: {advice}"
        raise builder.spec.problem(definition.path, message)


def _dataset(builder: Builder, definition: Definition) -> Any:
    if "link" in definition.spec:
        return builder.data(definition.spec["link"])
    if "merge" in definition.spec:
        return builder.attempt(
            (*definition.path, "merge"), Merged, *(builder.data(name) for name in definition.spec["merge"])
        )
    return builder.make(definition.path, definition.spec, "datasets")


def split(builder: Builder, definition: Definition) -> Any:
    return builder.split(definition, builder.data(definition.spec["dataset_name"]))


def split_dataset(builder: Builder, definition: Definition, dataset: Any) -> Split:
    """Split a dataset as a definition says.

    Any dataset of the same length is split in the same way.
    """
    seed = definition.spec.get("seed", builder.seed)
    options = {"seed": torch.seed() % 2**32 if seed is None else seed, "shuffle": definition.spec.get("shuffle", True)}
    split = builder.attempt(definition.path, Split, dataset, definition.spec["ratio"], **options)
    builder.restore_or_save_state("splits", definition, split)
    return split  # type: ignore[no-any-return]


def preprocessor(builder: Builder, definition: Definition) -> Any:
    preprocessor = builder.make(definition.path, definition.spec, "preprocessors")
    if not hasattr(preprocessor, "process") and not callable(preprocessor):
        raise builder.spec.problem(
            definition.path,
            f"this makes {type_with_article(preprocessor)}, and a preprocessor has a method process(value)",
        )
    has_state = hasattr(preprocessor, "state_dict") and hasattr(preprocessor, "load_state_dict")
    if builder.saved_state("preprocessors", definition) is None:
        _fit(builder, definition, preprocessor)
    if has_state:
        builder.restore_or_save_state("preprocessors", definition, preprocessor)
    elif hasattr(preprocessor, "fit") and hasattr(preprocessor, "__dict__"):
        _save_attributes(builder, definition, preprocessor)
    return preprocessor


def _fit(builder: Builder, definition: Definition, preprocessor: Any) -> None:
    """Fit a preprocessor on what `fit` names.

    Without `fit`, on the training samples that reach it.
    """
    if "fit" not in definition.spec:
        if needs_fit(preprocessor):
            fit(builder, definition, preprocessor)
    elif definition.spec["fit"] not in OFF:
        if not hasattr(preprocessor, "fit"):
            raise builder.spec.problem(
                (*definition.path, "fit"), f"{type_with_article(preprocessor)} has no method fit(dataset)"
            )
        builder.attempt((*definition.path, "fit"), preprocessor.fit, builder.data(definition.spec["fit"]))


def _save_attributes(builder: Builder, definition: Definition, preprocessor: Any) -> None:
    """Save the attributes of a preprocessor without state_dict.

    Where JSON cannot, it is fitted each time.
    """
    state = builder.saved_state("preprocessors", definition)
    if state is not None:
        vars(preprocessor).update(state)
    else:
        state = vars(preprocessor)
    try:
        is_plain = through_json(state) == state
    except (TypeError, ValueError):
        is_plain = False
    if is_plain:
        builder.save_state("preprocessors", definition.name, through_json(state))


def collator(builder: Builder, definition: Definition) -> Any:
    return builder.make(
        definition.path, definition.spec, "collators", must_be=callable, words="a collator is called with samples"
    )


def data_loader(builder: Builder, definition: Definition) -> Loader:
    options = arguments(DataLoader, [None, *definition.spec.get("args", [])], definition.spec.get("kwargs", {}))
    del options["dataset"]
    shuffle = options.pop("shuffle", True)
    batching = {key: options.pop(key) for key in ("batch_size", "drop_last") if key in options}
    if "batch_size" in builder.spec.data:
        batching.setdefault("batch_size", builder.spec.data["batch_size"])
    if "num_workers" in builder.spec.data:
        options.setdefault("num_workers", builder.spec.data["num_workers"])
    collate = builder.get("collators", definition.spec["collator"]) if definition.spec.get("collator") else None
    dataset = builder.data(definition.spec["dataset"])
    # Made only to be checked: it raises for options that exclude each other.
    builder.attempt((*definition.path, "kwargs"), DataLoader, dataset, **options)
    return Loader(dataset, shuffle=shuffle, collate=collate, options=options, **batching)


def model(builder: Builder, definition: Definition) -> nn.Module:
    words = "a model is a torch.nn.Module"
    with torch.device("meta") if builder.on_meta else nullcontext():
        made: nn.Module = builder.make(
            definition.path, definition.spec, "models", must_be=lambda made: isinstance(made, nn.Module), words=words
        )
    if "weights_file" in definition.spec and not builder.on_meta:
        path = builder.file_path(definition.spec["weights_file"])
        if path.exists() or not builder.is_reopened:  # of a session that goes on, a checkpoint has them
            place = (*definition.path, "weights_file")
            builder.notes.append(f"{definition.name}: {builder.attempt(place, load_weights, made, path)}")
    return made


def optimizer(builder: Builder, definition: Definition) -> torch.optim.Optimizer:
    models = [builder.get("models", name) for name in models_of(definition.spec)]
    parameters = list(dict.fromkeys(chain(*(each.parameters() for each in models))))
    optimizer = builder.make(definition.path, definition.spec, "optimizers", first=[parameters])
    if "lr_scheduler" in definition.spec:
        path, spec = (*definition.path, "lr_scheduler"), definition.spec["lr_scheduler"]
        scheduler = builder.make(path, spec, "lr_scheduler", first=[optimizer])
        when = schedule_timing(spec["class"].split(".")[-1], spec.get("every", ""), spec.get("monitor", ""))
        builder.schedules[definition.name] = Schedule(scheduler, *when)
    return optimizer  # type: ignore[no-any-return]


def clipper(builder: Builder, definition: Definition) -> Clip:
    return Clip(definition.spec["model"], definition.spec.get("clip_value"), definition.spec.get("clip_norm"))


def backward_hook(builder: Builder, definition: Definition) -> list[Any]:
    """Install gradient hooks on a model.

    The function takes a parameter's name and returns its hook.
    """
    maker = builder.make(
        definition.path,
        definition.spec,
        "backward_hooks",
        must_be=callable,
        words="it is called with a parameter's name",
    )
    return builder.attempt(definition.path, hooks.install, builder.get("models", definition.spec["model"]), maker)  # type: ignore[no-any-return]


def measure(builder: Builder, definition: Definition) -> Measure:
    function, transform = _function(builder, definition), None
    if not callable(function) and not hasattr(function, "update"):
        raise builder.spec.problem(definition.path, f"this makes {type_with_article(function)}, which cannot be called")
    count = len(definition.spec["inputs"])
    if "transform" in definition.spec:
        transform = builder.call_named((*definition.path, "transform"), "transform")
        problem = call_problem(transform, count)
    else:
        problem = call_problem(getattr(function, "update", getattr(function, "forward", function)), count)
    if problem:
        callee = "transform" if "transform" in definition.spec else type(function).__name__
        raise builder.spec.problem((*definition.path, "inputs"), f"{callee} is called with {count} columns: {problem}")
    return Measure(function, tuple(definition.spec["inputs"]), transform, definition.spec.get("items", ""))


def _function(builder: Builder, definition: Definition) -> Any:
    code = (
        Code.at(builder.spec.data, (*definition.path, "class"), definition.group)
        if "class" in definition.spec
        else None
    )
    short = short_name(code) if code is not None and definition.group == "losses" else ""
    if code is None or not short:
        return builder.make(definition.path, definition.spec, definition.group)
    parameters = arguments(getattr(nn, short), code.args, code.kwargs)
    return builder.attempt(definition.path, loss, short, **parameters)  # converts lists of weights to tensors


def processor(builder: Builder, definition: Definition) -> Processor:
    nodes = tuple(
        Node(
            node["model_name"],
            tuple(node["inputs"]),
            tuple(node["outputs"]),
            node.get("optimizer_name") or None,
            node.get("alias", ""),
            ignores_rest=builder.spec.habits.ignores_rest,
        )
        for node in definition.spec["neural_graph"]
    )
    for number, node in enumerate(nodes):
        problem = call_problem(builder.get("models", node.model).forward, len(node.inputs))
        if problem:
            path = (*definition.path, "neural_graph", number, "inputs")
            raise builder.spec.problem(path, f"{node.model} is called with {len(node.inputs)} inputs: {problem}")
    adapters = {
        key: builder.make(
            (*definition.path, key),
            definition.spec[key],
            key,
            must_be=callable,
            words="an adapter is called with a frame",
        )
        for key in ("input_adapter", "output_adapter")
        if key in definition.spec
    }
    return Processor(nodes, device=definition.spec.get("device"), **adapters)


def graph(builder: Builder, definition: Definition) -> Graph:
    edges = {node: tuple(sources) for node, sources in definition.spec["ingoing_edges"].items()}
    return Graph(tuple(order_of(definition.spec["nodes"], edges)[0]), tuple(definition.spec["input_ports"]), edges)


def callback(builder: Builder, definition: Definition) -> Any:
    words = "a callback is called with the session and the epoch"
    made = builder.make(definition.path, definition.spec, "callbacks", must_be=callable, words=words)
    if problem := call_problem(made, 2):
        raise builder.spec.problem(definition.path, f"{words}: {problem}")
    return made


MAKERS: dict[str, Callable[[Builder, Definition], Any]] = {
    "datasets": dataset,
    "splits": split,
    "preprocessors": preprocessor,
    "collators": collator,
    "data_loaders": data_loader,
    "models": model,
    "optimizers": optimizer,
    "gradient_clippers": clipper,
    "backward_hooks": backward_hook,
    "losses": measure,
    "metrics": measure,
    "batch_processors": processor,
    "batch_graphs": graph,
    "callbacks": callback,
}


def call_problem(function: Any, count: int) -> str:
    """Explain why a function cannot take `count` arguments; "" if it can, or has no signature."""
    try:
        inspect.signature(function).bind(*[None] * count)
    except TypeError as error:
        return str(error)
    except ValueError:
        pass
    return ""


def type_with_article(value: Any) -> str:
    """Return the type of a value with its article: "a list", "an int"."""
    word = type(value).__name__
    return f"{'an' if word[:1].lower() in 'aeiou' else 'a'} {word}"
