"""What becomes of a definition: a function for each group."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from itertools import chain
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.utils.data import DataLoader

from torcheer.training import hooks
from torcheer.training.datasets import Merged, Split, preprocessed
from torcheer.training.metrics import loss
from torcheer.training.optimizers import rhythm
from torcheer.training.spec.builders.preprocessor_fitting import OFF, fit, needs_fit
from torcheer.training.spec.builders.static_state import known_of, plain
from torcheer.training.spec.checks.graph_order import order_of
from torcheer.training.spec.checks.pipeline_checks import models_of
from torcheer.training.spec.read.code_slots import Code, arguments, short_name
from torcheer.training.spec.read.description import Definition
from torcheer.training.spec.session_parts import Clip, Graph, Loader, Measure, Node, Processor, Schedule

if TYPE_CHECKING:
    from torcheer.training.spec.builders.build_session import Builder


def base(builder: Builder, one: Definition) -> Any:
    """A dataset before its own preprocessors."""
    found = _dataset(builder, one)
    if not (hasattr(found, "__getitem__") or hasattr(found, "__iter__")):
        raise builder.spec.problem(
            one.path, f"this makes {article(found)}, and a dataset has samples by number, or iterates"
        )
    _notice_change(builder, one, found)
    return found


def dataset(builder: Builder, one: Definition) -> Any:
    found = builder.base(one)
    names = one.spec.get("preprocessors")
    if not names:
        return found
    if isinstance(names, dict):
        return preprocessed(found, {key: builder.get("preprocessors", name) for key, name in names.items() if name})
    return preprocessed(found, [builder.get("preprocessors", name) if name else None for name in names])


def _notice_change(builder: Builder, one: Definition, found: Any) -> None:
    """Refuse a dataset that is not the one the session began with."""
    now, before = known_of(found), builder.kept("datasets", one)
    builder.keep("datasets", one.name, now)
    if before is None:
        return
    name, back = f"the dataset {one.name!r}", "bring the old one back, or begin a new session in another directory"
    size, samples = before["size"], before["samples"]
    if None not in (size, now["size"]) and size != now["size"]:
        message = f"{name} has {now['size']} samples, and had {size} when this session began: {back}"
        raise builder.spec.problem(one.path, message)
    if samples and now["samples"] and (others := [key for key in samples if samples[key] != now["samples"].get(key)]):
        message = f"sample {others[0]} of {name} is not what it was when this session began: {back}"
        raise builder.spec.problem(one.path, message)


def _dataset(builder: Builder, one: Definition) -> Any:
    if "link" in one.spec:
        return builder.data(one.spec["link"])
    if "merge" in one.spec:
        return builder.attempt((*one.path, "merge"), Merged, *(builder.data(name) for name in one.spec["merge"]))
    return builder.made(one.path, one.spec, "datasets")


def split(builder: Builder, one: Definition) -> Any:
    return builder.split(one, builder.data(one.spec["dataset_name"]))


def divided(builder: Builder, one: Definition, whole: Any) -> Split:
    """A dataset divided as a definition says; any of its length is divided in the same way."""
    seed = one.spec.get("seed", builder.seed)
    given = {"seed": torch.seed() % 2**32 if seed is None else seed, "shuffle": one.spec.get("shuffle", True)}
    found = builder.attempt(one.path, Split, whole, one.spec["ratio"], **given)
    builder.with_state("splits", one, found)
    return found  # type: ignore[no-any-return]


def preprocessor(builder: Builder, one: Definition) -> Any:
    found = builder.made(one.path, one.spec, "preprocessors")
    if not hasattr(found, "process") and not callable(found):
        raise builder.spec.problem(
            one.path, f"this makes {article(found)}, and a preprocessor has a method process(value)"
        )
    has_state = hasattr(found, "state_dict") and hasattr(found, "load_state_dict")
    if builder.kept("preprocessors", one) is None:
        _fit(builder, one, found)
    if has_state:
        builder.with_state("preprocessors", one, found)
    elif hasattr(found, "fit") and hasattr(found, "__dict__"):
        _keep_attributes(builder, one, found)
    return found


def _fit(builder: Builder, one: Definition, found: Any) -> None:
    """Fit a preprocessor on what `fit` names; where nothing does, on the training samples as they come to it."""
    if "fit" not in one.spec:
        if needs_fit(found):
            fit(builder, one, found)
    elif one.spec["fit"] not in OFF:
        if not hasattr(found, "fit"):
            raise builder.spec.problem((*one.path, "fit"), f"{article(found)} has no method fit(dataset)")
        builder.attempt((*one.path, "fit"), found.fit, builder.data(one.spec["fit"]))


def _keep_attributes(builder: Builder, one: Definition, found: Any) -> None:
    """What something without a state_dict has learned, where JSON can hold it; else it is fitted again each time."""
    state = builder.kept("preprocessors", one)
    if state is not None:
        vars(found).update(state)
    else:
        state = vars(found)
    try:
        is_plain = plain(state) == state
    except (TypeError, ValueError):
        is_plain = False
    if is_plain:
        builder.keep("preprocessors", one.name, plain(state))


def collator(builder: Builder, one: Definition) -> Any:
    return builder.made(one.path, one.spec, "collators", must_be=callable, words="a collator is called with samples")


def data_loader(builder: Builder, one: Definition) -> Loader:
    given = arguments(DataLoader, [None, *one.spec.get("args", [])], one.spec.get("kwargs", {}))
    del given["dataset"]
    shuffle = given.pop("shuffle", True)
    plainly = {key: given.pop(key) for key in ("batch_size", "drop_last") if key in given}
    if "batch_size" in builder.spec.data:
        plainly.setdefault("batch_size", builder.spec.data["batch_size"])
    collate = builder.get("collators", one.spec["collator"]) if one.spec.get("collator") else None
    whole = builder.data(one.spec["dataset"])
    builder.attempt((*one.path, "kwargs"), DataLoader, whole, **given)  # which knows what goes together
    return Loader(whole, shuffle=shuffle, collate=collate, options=given, **plainly)


def model(builder: Builder, one: Definition) -> nn.Module:
    words = "a model is a torch.nn.Module"
    return builder.made(one.path, one.spec, "models", must_be=lambda found: isinstance(found, nn.Module), words=words)  # type: ignore[no-any-return]


def optimizer(builder: Builder, one: Definition) -> torch.optim.Optimizer:
    models = [builder.get("models", name) for name in models_of(one.spec)]
    parameters = list(dict.fromkeys(chain(*(each.parameters() for each in models))))
    found = builder.made(one.path, one.spec, "optimizers", first=[parameters])
    if "lr_scheduler" in one.spec:
        path, spec = (*one.path, "lr_scheduler"), one.spec["lr_scheduler"]
        scheduler = builder.made(path, spec, "lr_scheduler", first=[found])
        when = rhythm(spec["class"].split(".")[-1], spec.get("every", ""), spec.get("monitor", ""))
        builder.schedules[one.name] = Schedule(scheduler, *when)
    return found  # type: ignore[no-any-return]


def clipper(builder: Builder, one: Definition) -> Clip:
    return Clip(one.spec["model"], one.spec.get("clip_value"), one.spec.get("clip_norm"))


def backward_hook(builder: Builder, one: Definition) -> list[Any]:
    """Hooks on the gradients of a model: the function is called with a parameter's name and returns its hook."""
    maker = builder.made(
        one.path, one.spec, "backward_hooks", must_be=callable, words="it is called with a parameter's name"
    )
    return builder.attempt(one.path, hooks.install, builder.get("models", one.spec["model"]), maker)  # type: ignore[no-any-return]


def measure(builder: Builder, one: Definition) -> Measure:
    function, transform = _function(builder, one), None
    if not callable(function) and not hasattr(function, "update"):
        raise builder.spec.problem(one.path, f"this makes {article(function)}, which cannot be called")
    count = len(one.spec["inputs"])
    if "transform" in one.spec:
        transform = builder.named((*one.path, "transform"), "transform")
        said = uncalled(transform, count)
    else:
        said = uncalled(getattr(function, "update", getattr(function, "forward", function)), count)
    if said:
        what = "transform" if "transform" in one.spec else type(function).__name__
        raise builder.spec.problem((*one.path, "inputs"), f"{what} is called with {count} columns: {said}")
    return Measure(function, tuple(one.spec["inputs"]), transform, one.spec.get("items", ""))


def _function(builder: Builder, one: Definition) -> Any:
    code = Code.at(builder.spec.data, (*one.path, "class"), one.group) if "class" in one.spec else None
    short = short_name(code) if code is not None and one.group == "losses" else ""
    if code is None or not short:
        return builder.made(one.path, one.spec, one.group)
    given = arguments(getattr(nn, short), code.args, code.kwargs)
    return builder.attempt(one.path, loss, short, **given)  # which makes tensors of lists of weights


def processor(builder: Builder, one: Definition) -> Processor:
    nodes = tuple(
        Node(
            node["model_name"],
            tuple(node["inputs"]),
            tuple(node["outputs"]),
            node.get("optimizer_name") or None,
            node.get("alias", ""),
        )
        for node in one.spec["neural_graph"]
    )
    for number, node in enumerate(nodes):
        said = uncalled(builder.get("models", node.model).forward, len(node.inputs))
        if said:
            path = (*one.path, "neural_graph", number, "inputs")
            raise builder.spec.problem(path, f"{node.model} is called with {len(node.inputs)} inputs: {said}")
    adapters = {
        key: builder.made(
            (*one.path, key), one.spec[key], key, must_be=callable, words="an adapter is called with a frame"
        )
        for key in ("input_adapter", "output_adapter")
        if key in one.spec
    }
    return Processor(nodes, device=one.spec.get("device"), **adapters)


def graph(builder: Builder, one: Definition) -> Graph:
    edges = {node: tuple(sources) for node, sources in one.spec["ingoing_edges"].items()}
    return Graph(tuple(order_of(one.spec["nodes"], edges)[0]), tuple(one.spec["input_ports"]), edges)


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
}


def uncalled(function: Any, count: int) -> str:
    """Why something cannot be called with so many values; "" if it can, or does not say."""
    try:
        inspect.signature(function).bind(*[None] * count)
    except TypeError as error:
        return str(error)
    except ValueError:
        pass
    return ""


def article(found: Any) -> str:
    """A thing by its type: "a list", "an int"."""
    word = type(found).__name__
    return f"{'an' if word[:1].lower() in 'aeiou' else 'a'} {word}"
