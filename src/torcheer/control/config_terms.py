"""A completed config in the terms of who wrote it: what torcheer filled in to connect the parts is left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

_OURS: Final = ("torcheer.training.", "torchassistant.")
_CONNECTIONS: Final = ("batch_processors", "batch_graphs", "pipelines", "train")  # filled in for most configs
_NAMES: Final = (  # what a part of a list is called by, the best first
    "loss_display_name", "display_name", "model_name", "loss_name", "metric_name", "data_loader", "name",
)  # fmt: skip
_SINGULAR: Final = {
    "datasets": "dataset", "splits": "split", "preprocessors": "preprocessor", "collators": "collator",
    "data_loaders": "data loader", "models": "model", "optimizers": "optimizer", "schedulers": "scheduler",
    "losses": "loss", "metrics": "metric", "batch_processors": "batch processor", "batch_graphs": "batch graph",
    "pipelines": "pipeline", "debug_pipelines": "debug pipeline",
}  # fmt: skip


class Section(NamedTuple):
    """A part of a config."""

    name: str  # its parameters' names begin with it: "net", or "models.net" where two parts are called net
    heading: str
    values: Mapping[str, Any]


def sections_of(config: Mapping[str, Any]) -> Iterator[Section]:
    """The parts of a config, in its order; a malformed one is left out."""
    completed = _completed(config)
    initialize = _mapping(config.get("initialize"))
    definitions = [part for part in _list(initialize.get("definitions")) if isinstance(part, Mapping)]
    shown = [part for part in definitions if (part.get("group"), part.get("name")) not in completed]
    names = Counter(str(part.get("name")) for part in shown)
    ports = _ports(part for part in definitions if part not in shown)
    for part in shown:
        group, name = str(part.get("group")), str(part.get("name"))
        if isinstance(spec := part.get("spec"), Mapping):
            values = {**_terms(spec), **(ports.get(name, {}) if group == "models" else {})}
            heading = f"{name} · {_SINGULAR.get(group, group)}"
            yield Section(name if names[name] == 1 else f"{group}.{name}", heading, values)
    for group in ("pipelines", "debug_pipelines"):
        for name, spec in _mapping(initialize.get(group)).items():
            if (group, name) not in completed and isinstance(spec, Mapping):
                yield Section(f"{group}.{name}", f"{name} · {_SINGULAR[group]}", _terms(spec))
    yield from _stages(_mapping(config.get("train")), completed)


def _completed(config: Mapping[str, Any]) -> set[tuple[Any, ...]]:
    """The connections that torcheer filled in: losses and metrics that it chose are facts of their own."""
    parts = _list(_mapping(config.get("source")).get("completed"))
    return {tuple(part) for part in parts if isinstance(part, list) and part and part[0] in _CONNECTIONS}


def _ports(processors: Any) -> dict[str, dict[str, Any]]:
    """What goes into and out of each model of these processors."""
    nodes = [node for part in processors for node in _list(_mapping(part.get("spec")).get("neural_graph"))]
    return {str(node.get("model_name")): _without_name(_terms(node)) for node in nodes if isinstance(node, Mapping)}


def _stages(train: Mapping[str, Any], completed: set[tuple[Any, ...]]) -> Iterator[Section]:
    stages = _list(train.get("stages"))
    rest = {key: value for key, value in train.items() if key != "stages"}
    for number, stage in enumerate(stages):
        if not isinstance(stage, Mapping):
            continue
        stop = _mapping(stage.get("stop_condition"))
        if ("train", "stages", number) in completed and str(stop.get("class", "")).endswith(".EpochsCompleted"):
            rest["epochs"] = _mapping(stop.get("kwargs")).get("num_epochs")
        else:
            name = "train" if len(stages) == 1 else f"train.{number + 1}"
            yield Section(name, "train" if len(stages) == 1 else f"{name} · stage", _terms(stage))
    yield Section("train", "train", rest)


def _terms(spec: Mapping[str, Any]) -> dict[str, Any]:
    """A definition's values: keyword arguments by their names, what is to be called as it is written in Python."""
    values: dict[str, Any] = {}
    for key, value in spec.items():
        if key == "class" and isinstance(value, str):
            values[key] = _short(value)
        elif key == "kwargs" and isinstance(value, Mapping):
            values |= _terms(value)
        elif key == "args" and isinstance(value, list):
            values["arguments"] = ", ".join(map(_text, value))
        elif isinstance(value, Mapping):
            values[str(key)] = _call(value) if _is_call(value) else _terms(value)
        elif key == "neural_graph" and isinstance(nodes := _named(_list(value)), dict):
            values |= nodes
        elif isinstance(value, list):
            values["data" if key == "input_injector" else str(key)] = _named(value)
        else:
            values[str(key).removesuffix("_name") or str(key)] = value
    return values


def _named(parts: list[Any]) -> Any:
    """A list of mappings by what each is called; other lists as they are."""
    if not parts or not all(isinstance(part, Mapping) for part in parts):
        return [_text(part) if isinstance(part, list | Mapping) else part for part in parts]
    if all(map(_is_call, parts)):
        return [_call(part) for part in parts]
    named: dict[str, Any] = {}
    for number, part in enumerate(parts, 1):
        key = next((key for key in _NAMES if isinstance(part.get(key), str)), None)
        name = str(number) if key is None or part[key] in named else str(part[key])
        named[name] = _terms({other: value for other, value in part.items() if other != key}) or name
    return named


def _without_name(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key != "model"}


def _is_call(part: Mapping[str, Any]) -> bool:
    return bool({"class", "function"} & part.keys()) and part.keys() <= {"class", "function", "args", "kwargs"}


def _call(part: Mapping[str, Any]) -> str:
    """`EpochsCompleted(num_epochs=40)`; a function that is given nothing more by its name."""
    keywords = [f"{key}={_text(value)}" for key, value in _mapping(part.get("kwargs")).items()]
    arguments = ", ".join([*map(_text, _list(part.get("args"))), *keywords])
    name = _short(str(part.get("class", part.get("function"))))
    return f"{name}({arguments})" if arguments or "class" in part else name


def _text(value: Any, depth: int = 0) -> str:
    if depth > 4:
        return "…"
    if isinstance(value, list):
        return f"[{', '.join(_text(part, depth + 1) for part in value)}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key}: {_text(part, depth + 1)}' for key, part in value.items())}}}"
    return str(value)


def _short(name: str) -> str:
    return name.rpartition(".")[2] if name.startswith(_OURS) else name


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
