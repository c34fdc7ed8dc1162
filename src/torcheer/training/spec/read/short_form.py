"""The short form of a config: definitions at the top, by group, expanded into the long form in this one place.

| short | long |
|---|---|
| `model: data.Net`, `optimizer: {class: Adam, lr: 0.01}` | a definition of that group, called as the key |
| `models: {net: data.Net}` | definitions by their names; any group |
| `metrics: [Accuracy, F1]` | definitions named by their classes: `accuracy`, `f1` |
| a text in place of a definition | its `class`; of a data loader, its `dataset` |
| keys that the group does not have: `lr: 0.01` | `kwargs` |
| `split: [0.8, 0.2]` | a split of the only dataset |
| `optimizer` without `model` | that of the only model |
| `lr_scheduler` at the top | that of the only optimizer |
| `epochs`, `stop_condition`, `stages` | those of `train` |
| `infer: {input: data.encode, output: data.answer}` | `inputs_meta` and `post_processor` of an inference config |
| `pipelines`: `steps`, `trains`, `data` | a batch processor and a batch graph (`short_pipelines.py`) |

Over a saved session, as KEY=VALUE or in an evaluation config, a definition that is there already is changed:
`optimizer.lr=0.001` is the rate of its only optimizer.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from torcheer.config.line_numbers import KeyPath
from torcheer.training.spec.read.description import DEFINITIONS, STAGES, definitions, part
from torcheer.training.spec.read.grammar import GROUPS, SCHEDULER, SINGULAR
from torcheer.training.spec.read.short_pipelines import expand_pipelines
from torcheer.training.spec.read.value_kinds import Fault, describe_value, quote_list

if TYPE_CHECKING:
    from torcheer.training.spec.read.description import Spec
    from torcheer.training.spec.torchassistant.dialects import Translation

Piece = tuple[KeyPath, Any, KeyPath]  # where a value goes in a definition, the value, and where it was written
MODEL_USERS = ("optimizers", "gradient_clippers", "backward_hooks")
CALL = ("class", "factory_fn", "args", "kwargs")
# `infer` of the short form -> keys of an inference config
INFER = {"input": "inputs_meta", "output": "post_processor", "pipeline": "inference_pipeline", "results": "results"}


class ShortForm:
    """The short keys of one config, on their way into a translated description."""

    def __init__(self, translation: Translation, data: dict[str, Any], short: dict[str, Any], saved: Spec | None):
        self.translation, self.data, self.short = translation, data, short
        self._saved = saved.data if saved is not None else {}

    def expand(self) -> None:
        """Add what the short keys say to the description."""
        if not self.short:
            return
        for key, group in SINGULAR.items():
            if key in self.short and group in self.short:
                self.fault((key,), f"{key!r} and {group!r} are both given: write all of them under {group!r}")
        for key, value in self.short.items():
            if key in SINGULAR and SINGULAR[key] not in self.short:
                self._single(key, SINGULAR[key], value)
            elif key in GROUPS:
                self._several(key, value)
        self._defaults()
        if "lr_scheduler" in self.short:
            self._scheduler(self.short["lr_scheduler"])
        for key in ("pipelines", "debug_pipelines"):
            if key in self.short:
                expand_pipelines(self, key, self.short[key])
        self._train()
        if "infer" in self.short:
            self._infer(self.short["infer"])
        if not self.entries() and not part(self.data, ("initialize", "pipelines")):
            self.data.pop("initialize", None)  # nothing is defined: the checks say what is missing

    # -- definitions -------------------------------------------------------------------------------------------------

    def entries(self) -> list[dict[str, Any]]:
        """Return the list of definitions, which is made where there is none; a malformed one is left alone."""
        initialize = self.data.setdefault("initialize", {})
        self.translation.places.setdefault(("initialize",), (self.translation.config, ()))
        if not isinstance(initialize, dict):
            return []
        if "definitions" not in initialize:
            initialize["definitions"] = [] if not self._saved else {
                "replace_strategy": "override", "override_key": ["group", "name"], "options": [],
            }  # fmt: skip
            self.translation.places[DEFINITIONS] = self.translation.config, ()
        listed = initialize["definitions"]
        listed = listed.get("options") if isinstance(listed, dict) else listed
        return listed if isinstance(listed, list) else []

    @property
    def base(self) -> KeyPath:
        """The path of the list of definitions; over a saved session it stands in a note on how to merge it."""
        return (*DEFINITIONS, "options") if isinstance(part(self.data, DEFINITIONS), dict) else DEFINITIONS

    def names(self, group: str) -> list[str]:
        """Return the names of a group, in this config and in the session that it goes over."""
        here = [
            str(entry.get("name"))
            for entry in self.entries()
            if isinstance(entry, dict) and entry.get("group") == group
        ]
        return list(dict.fromkeys([*(each.name for each in definitions(self._saved, group)), *here]))

    def spec_of(self, group: str, name: str) -> Mapping[str, Any]:
        """Return what this config says of a definition."""
        for entry in self.entries():
            if isinstance(entry, dict) and (entry.get("group"), entry.get("name")) == (group, name):
                return entry["spec"] if isinstance(entry.get("spec"), dict) else {}
        return {}

    def _single(self, key: str, group: str, value: Any) -> None:
        names = self.names(group)
        if len(names) > 1:
            self.fault((key,), f"there are several {group}, {quote_list(names, 'and')}: write {group}.{names[0]}")
        else:
            self.define(group, names[0] if names else key, value, (key,))

    def _several(self, group: str, value: Any) -> None:
        if isinstance(value, dict):
            for name, spec in value.items():
                self.define(group, str(name), spec, (group, name))
        elif isinstance(value, list):
            for number, spec in enumerate(value):
                name = named_by_class(spec)
                if name:
                    self.define(group, name, spec, (group, number))
                else:
                    self.fault(
                        (group, number), "this names no class that it could be called by: write NAME: {class: …}"
                    )
        elif isinstance(value, str) and group == "metrics":
            self.define(group, named_by_class(value), value, (group,))
        else:
            self.fault((group,), f"this is {describe_value(value)}, and a mapping of names is needed here")

    def define(self, group: str, name: str, value: Any, origin: KeyPath) -> None:
        """Add a definition, or change the one of that name."""
        listed, places, config = self.entries(), self.translation.places, self.translation.config
        number = next((place for place, entry in enumerate(listed) if is_entry(entry, group, name)), len(listed))
        path: KeyPath = (*self.base, number)
        if number == len(listed):
            listed.append({"group": group, "name": name, "spec": {}})
            for below in ((), ("group",), ("name",), ("spec",)):
                places[(*path, *below)] = config, origin
        pieces = self._pieces(group, value, origin)
        if pieces is None:
            listed[number]["spec"] = self.translation.value(value, (*path, "spec"), origin)
            return
        for inside, content, written in pieces:
            self.store((*path, "spec"), listed[number]["spec"], inside, content, written)

    def store(self, path: KeyPath, target: dict[str, Any], inside: KeyPath, value: Any, origin: KeyPath) -> None:
        """Put a value into a mapping at `path`; errors about it name where it was written."""
        for key in map(str, inside[:-1]):
            if not isinstance(target.get(key), dict):
                target[key] = {}
            target, path = target[key], (*path, key)
            self.translation.places.setdefault(path, (self.translation.config, origin[:-1]))
        target[str(inside[-1])] = self.translation.value(value, (*path, inside[-1]), origin)

    def _pieces(self, group: str, value: Any, origin: KeyPath) -> list[Piece] | None:
        """Return the pieces of a definition's spec; None where it is left as it is, for the checks to refuse."""
        schema = GROUPS[group]
        if isinstance(value, str):
            first = "class" if "class" in schema.fields else "dataset" if group == "data_loaders" else ""
            return [((first,), value, origin)] if first else None
        if isinstance(value, list) and group == "splits":
            return [(("ratio",), value, origin)]
        return list(self.flat(schema.fields, value, origin)) if isinstance(value, dict) else None

    def flat(self, keys: Collection[str], value: Mapping[str, Any], origin: KeyPath) -> Iterator[Piece]:
        """Yield the pieces of a mapping; what is none of the keys is a keyword argument."""
        kwargs = value.get("kwargs")
        for key, item in value.items():
            written = (*origin, key)
            if key == "kwargs" and isinstance(item, dict):
                yield from ((("kwargs", name), each, (*written, name)) for name, each in item.items())
            elif key == "lr_scheduler" and key in keys:
                yield from self._below(key, SCHEDULER.fields, item, written)
            elif key in keys or "kwargs" not in keys:
                yield (key,), item, written
            elif isinstance(kwargs, dict) and key in kwargs:
                self.fault(written, f"{key!r} is also given in kwargs")
            else:
                yield ("kwargs", key), item, written

    def _below(self, key: str, keys: Collection[str], value: Any, origin: KeyPath) -> Iterator[Piece]:
        """Yield the pieces of a class named below a definition: a text is its name."""
        if isinstance(value, dict):
            yield from (((key, *inside), item, written) for inside, item, written in self.flat(keys, value, origin))
        else:
            yield ((key, "class") if isinstance(value, str) else (key,)), value, origin

    # -- what the other keys mean ------------------------------------------------------------------------------------

    def _defaults(self) -> None:
        """Fill in references where there is one thing that they can mean."""
        datasets, models = self.names("datasets"), self.names("models")
        for entry in self.entries():
            if not isinstance(entry, dict) or not isinstance(spec := entry.get("spec"), dict):
                continue
            if self._is_saved(entry):
                continue
            if entry.get("group") == "splits" and len(datasets) == 1:
                spec.setdefault("dataset_name", datasets[0])
            if entry.get("group") in MODEL_USERS and len(models) == 1:
                spec.setdefault("model", models[0])

    def _is_saved(self, entry: Mapping[str, Any]) -> bool:
        """Return whether a definition only changes one of the saved session."""
        return any(each.name == entry.get("name") for each in definitions(self._saved, str(entry.get("group"))))

    def _scheduler(self, value: Any) -> None:
        optimizers = self.names("optimizers")
        if len(optimizers) != 1:
            available = f"the optimizers {quote_list(optimizers, 'and')}" if optimizers else "no optimizer"
            self.fault(("lr_scheduler",), f"there is {available}: write it as lr_scheduler of one of them")
            return
        if "lr_scheduler" in self._written("optimizers", optimizers[0]):
            self.fault(
                ("lr_scheduler",), f"the optimizer {optimizers[0]!r} has an lr_scheduler of its own: write it once"
            )
            return
        self.define("optimizers", optimizers[0], {}, ("optimizers",))
        number = next(n for n, entry in enumerate(self.entries()) if is_entry(entry, "optimizers", optimizers[0]))
        spec, path = self.entries()[number]["spec"], (*self.base, number, "spec")
        for inside, item, written in self._below("lr_scheduler", SCHEDULER.fields, value, ("lr_scheduler",)):
            self.store(path, spec, inside, item, written)

    def _written(self, group: str, name: str) -> Mapping[str, Any]:
        """Return what the short form says of a definition."""
        single = next(key for key, plural in SINGULAR.items() if plural == group)
        several = self.short.get(group)
        value = self.short.get(single, several.get(name) if isinstance(several, dict) else None)
        return value if isinstance(value, dict) else {}

    def _train(self) -> None:
        """Put `epochs`, `stop_condition` and `stages` into `train`."""
        places, config = self.translation.places, self.translation.config
        if not any(key in self.short for key in ("epochs", "stop_condition", "stages")):
            return
        train = self.data.setdefault("train", {})
        places.setdefault(("train",), (config, ()))
        if not isinstance(train, dict):
            return
        stop = self.short.get("stop_condition")
        if isinstance(stop, dict) and str(stop.get("class")).endswith("EarlyStopping") and "epochs" in self.short:
            self.short["stop_condition"] = {"max_epochs": self.short.pop("epochs"), **stop}
        for key in ("epochs", "stages"):
            if key in self.short and key in train and not self._saved:
                self.fault((key,), "this is also said in 'train': write it once")
            elif key in self.short:
                train[key] = self.translation.value(self.short[key], ("train", key), (key,))
        if "stop_condition" in self.short:
            self._stop(train, self.short["stop_condition"])

    def _stop(self, train: dict[str, Any], value: Any) -> None:
        stages = train.setdefault("stages", [{}])
        if not isinstance(stages, list) or len(stages) != 1 or not isinstance(stages[0], dict):
            self.fault(("stop_condition",), "there are several stages: write it as stop_condition of each")
            return
        self.translation.places.setdefault(STAGES, (self.translation.config, ()))
        path: KeyPath = (*STAGES, 0)
        self.translation.places.setdefault(path, (self.translation.config, ()))
        for inside, item, written in self._below("stop_condition", CALL, value, ("stop_condition",)):
            self.store(path, stages[0], inside, item, written)

    def _infer(self, value: Any) -> None:
        """Write `infer` as the keys of an inference config."""
        if not isinstance(value, dict):
            self.fault(
                ("infer",),
                f"this is {describe_value(value)}, and a mapping with {quote_list(list(INFER))} is needed here",
            )
            return
        for key, item in value.items():
            name, origin = INFER.get(key, ""), ("infer", key)
            if not name:
                self.fault(origin, f"infer has no key {key!r}; it has {', '.join(INFER)}", tuple(INFER))
            elif key == "input":
                self.data["inputs_meta"] = [{}]
                for path in ((name,), (name, 0)):
                    self.translation.places[path] = self.translation.config, origin
                for inside, content, written in self._below("input_converter", CALL, item, origin):
                    self.store((name, 0), self.data[name][0], inside, content, written)
            elif key == "output":
                for inside, content, written in self._below(name, CALL, item, origin):
                    self.store((), self.data, inside, content, written)
            else:
                self.data[name] = self.translation.value(item, (name,), origin)

    def fault(self, path: KeyPath, message: str, choices: tuple[str, ...] = ()) -> None:
        """Add a fault at a place of the config as it was written."""
        place: KeyPath = ("source", "short", len(self.translation.faults))
        self.translation.places[place] = self.translation.config, path
        self.translation.faults.append(Fault(place, message, choices))


def is_entry(entry: Any, group: str, name: str) -> bool:
    return isinstance(entry, dict) and (entry.get("group"), entry.get("name")) == (group, name)


def named_by_class(spec: Any) -> str:
    """Return the name of a definition that has none: its class in small letters, `F1Score` as "f1_score"."""
    kind = spec.get("class") if isinstance(spec, dict) else spec
    last = kind.rpartition(".")[2] if isinstance(kind, str) else ""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z][a-z])", "_", last).lower()
