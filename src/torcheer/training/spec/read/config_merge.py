"""Merge evaluation and inference configs over a saved description.

Mappings merge, lists are replaced.

`{"replace_strategy": "override", "override_key": ["name"], "options": […]}` in place of a list merges its items into
the old items with the same keys, and appends the others; `"replace_strategy": "replace"` replaces a mapping.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from torcheer.config import Config, problem, read
from torcheer.config.line_numbers import KeyPath
from torcheer.errors import BadConfig
from torcheer.terminal import did_you_mean
from torcheer.training.spec.checks.check_config import complete_and_check, note_source, parse_config, raise_for
from torcheer.training.spec.checks.completion import batch_size_fault
from torcheer.training.spec.checks.references import BuildOrder
from torcheer.training.spec.read.description import FILE, Places, Spec, definitions
from torcheer.training.spec.read.grammar import LATER, MAKERS, SINGULAR
from torcheer.training.spec.read.key_addresses import with_changes
from torcheer.training.spec.read.value_kinds import Fault, describe_value, quote_list
from torcheer.training.spec.torchassistant.dialects import translate
from torcheer.training.spec.torchassistant.older_names import MERGE_KEYS, STRATEGIES


def is_later(config: Config) -> bool:
    """Return whether a config is for evaluation or inference, over a saved description."""
    directory = config.data.get("session_dir")
    has_session = isinstance(directory, str) and os.path.isfile(f"{directory}/{FILE}")
    # batch_size is also a key of training configs.
    says_later = any(key in config.data for key in LATER if key != "batch_size")
    is_short = all(key in config.data or SINGULAR[key] in config.data for key in ("dataset", "model", "optimizer"))
    return not is_short and (says_later or ("initialize" not in config.data and has_session))


def read_spec(directory: Path, changes: Iterable[str] = ()) -> Spec:
    """Read the description of a run directory, with changes of the command line."""
    spec, faults = open_spec(directory, changes := list(changes))
    raise_for(spec, faults)
    return replace(spec, changed=changed_definitions(open_spec(directory)[0].data, spec.data)) if changes else spec


def merged(directory: Path, config: Config) -> Spec:
    """Read the description of a run directory, merged with an evaluation or inference config.

    A training config describes all of it: over lists of the saved one, names that were filled in would be missing.
    """
    spec, faults = parse_config(config) if _is_whole(config) else merge(*open_spec(directory), config)
    raise_for(spec, faults)
    return spec


def _is_whole(config: Config) -> bool:
    """Return whether a config trains by definitions of its own, and overrides none."""
    parts = config.data.get("initialize")
    return "train" in config.data and isinstance(parts, dict) and isinstance(parts.get("definitions"), list)


def saved_spec(config: Config) -> tuple[Spec, list[Fault]]:
    """Return the merged description of an evaluation or inference config, and its faults."""
    directory = config.data.get("session_dir")
    if not isinstance(directory, str):
        near = next(filter(None, (did_you_mean(key, ["session_dir"]) for key in config.data)), "")
        raise problem(config, ("session_dir",), f"the folder of the session is missing, or not a string.{near}")
    return merge(*open_spec(Path(directory)), config)


def open_spec(directory: Path, changes: Iterable[str] = ()) -> tuple[Spec, list[Fault]]:
    path = directory / FILE
    if not path.is_file():
        raise BadConfig(f"{directory}: there is no session here: there is no {FILE} in it")
    config = with_changes(read(path), changes := list(changes))
    if "source" not in config.data and any(directory.glob("checkpoints/*/checkpoint.pt")):
        raise BadConfig(
            f"{directory}: TorchAssistant began this session, and its checkpoints are pickled: reading one may run "
            "anything. Train it anew in another folder: torcheer train CONFIG session_dir=OTHER"
        )
    spec, faults = translate(config)
    note_source(spec, config)
    spec, faults = complete_and_check(spec, faults)
    if not faults and any(change.startswith("batch_size=") for change in changes):
        faults += filter(None, [batch_size_fault(spec)])
    return spec, faults


def merge(saved: Spec, faults: list[Fault], config: Config) -> tuple[Spec, list[Fault]]:
    """Merge a config over a saved description."""
    over, more = translate(config, saved)
    if faults:
        return saved, faults
    merging = Merge(saved, over)
    return complete_and_check(merging.spec, more + merging.faults)


def changed_definitions(old: dict[str, Any], new: dict[str, Any]) -> frozenset[tuple[str, str]]:
    """Return the definitions that changed, and the datasets and splits made of changed ones."""
    before, order = (
        {(definition.group, definition.name): definition.spec for definition in definitions(old)},
        BuildOrder(new),
    )
    changed: set[tuple[str, str]] = set()
    for definition in order.definitions:
        key = definition.group, definition.name
        sources = [dependency for dependency in order.dependencies(key) if dependency[0] in ("datasets", "splits")]
        is_remade = definition.group in ("datasets", "splits") and not changed.isdisjoint(sources)
        if before.get(key) != definition.spec or is_remade:
            changed.add(key)
    return frozenset(changed)


class Merge:
    """Merge of two descriptions."""

    def __init__(self, saved: Spec, over: Spec) -> None:
        self._over = over
        self.places: Places = dict(saved.places)
        self.faults: list[Fault] = []
        data = self._value(copy.deepcopy(saved.data), over.data, (), ())
        data["session_dir"] = saved.data.get("session_dir")
        self.spec = Spec(data, self.places, changed_definitions(saved.data, data))

    def _value(self, old: Any, new: Any, path: KeyPath, origin: KeyPath) -> Any:
        """Merge a value over another.

        `path` is its key path in the result, `origin` in the new config.
        """
        strategy, keys, content, inside = self._note(new, origin)
        if isinstance(old, dict) and isinstance(content, dict) and strategy != "replace":
            for maker, other in (MAKERS, MAKERS[::-1]):  # a class says it anew, where a function made it before
                if maker in content and other not in content:
                    old.pop(other, None)
            for key, item in content.items():
                old[key] = self._value(old.get(key), item, (*path, key), (*inside, key))
            return old
        if isinstance(old, list) and isinstance(content, list) and strategy == "override":
            return self._items(old, content, path, inside, keys)
        return self._put(content, path, inside)

    def _note(self, new: Any, origin: KeyPath) -> tuple[str, list[str], Any, KeyPath]:
        """Return how to merge a value, by which keys, the value itself and its key path."""
        if not isinstance(new, dict) or "options" not in new or not set(new) <= set(MERGE_KEYS) or len(new) == 1:
            return "", [], new, origin
        keys = new.get("override_key", [])
        keys = [keys] if isinstance(keys, str) else keys
        strategy = new.get("replace_strategy", "replace")
        content = new["options"]
        if strategy not in STRATEGIES:
            message = f"lists and mappings are merged by {quote_list(STRATEGIES)}"
            self._fault((*origin, "replace_strategy"), message, STRATEGIES)
        elif not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
            self._fault((*origin, "override_key"), 'a list of keys is needed here, such as ["name"]')
        elif strategy == "override" and isinstance(content, list) and not keys:
            self._fault(origin, 'to override items of a list, say by which of their keys: "override_key": ["name"]')
        else:
            return strategy, keys, content, (*origin, "options")
        return "replace", [], content, (*origin, "options")

    def _items(self, old: list[Any], new: list[Any], path: KeyPath, origin: KeyPath, keys: list[str]) -> list[Any]:
        for number, item in enumerate(new):
            item_path = (*origin, number)
            if not isinstance(item, dict) or any(key not in item for key in keys):
                self._fault(
                    item_path,
                    f"an item that overrides another has {quote_list(keys, 'and')}, and this is {describe_value(item)}",
                )
                continue
            same = [
                index
                for index, entry in enumerate(old)
                if isinstance(entry, dict) and all(entry.get(k) == item[k] for k in keys)
            ]
            if len(same) > 1:
                message = f"there are {len(same)} items with this {quote_list(keys, 'and')}: override by more keys"
                self._fault(item_path, message)
                continue
            index = same[0] if same else len(old)
            if not same:
                old.append({})
            old[index] = self._value(old[index], item, (*path, index), item_path)
        return old

    def _put(self, value: Any, path: KeyPath, origin: KeyPath) -> Any:
        """Replace a value and everything below it."""
        for old_path in [key_path for key_path in self.places if key_path[: len(path)] == path]:
            del self.places[old_path]
        for old_path, place in self._over.places.items():
            if old_path[: len(origin)] == origin:
                self.places[(*path, *old_path[len(origin) :])] = place
        return copy.deepcopy(value)

    def _fault(self, origin: KeyPath, message: str, choices: tuple[str, ...] = ()) -> None:
        """Add a fault of the new config, located there."""
        path: KeyPath = ("source", "over", len(self.faults))
        self.places[path] = self._over.place(origin)
        self.faults.append(Fault(path, message, choices))
