"""Evaluation and inference configs over a saved description: mappings merge, lists are replaced.

`{"replace_strategy": "override", "override_key": ["name"], "options": […]}` instead of a list has those of its items
merge that the old list has, by their keys, and adds the others; `"replace_strategy": "replace"` replaces a mapping.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from torcheer.config import Config, nearest, override, problem, read
from torcheer.config.line_numbers import KeyPath
from torcheer.errors import BadConfig
from torcheer.training.spec.checks.check_config import judged, note_source, raise_for
from torcheer.training.spec.checks.completion import batch_size_fault
from torcheer.training.spec.checks.references import Order
from torcheer.training.spec.read.description import FILE, Places, Spec, definitions
from torcheer.training.spec.read.dialects import NOTES, translated
from torcheer.training.spec.read.grammar import LATER
from torcheer.training.spec.read.value_kinds import Fault, described, listed

STRATEGIES = ("override", "replace")


def is_later(config: Config) -> bool:
    """Whether a config is one of evaluation or inference, which comes over a saved description."""
    directory = config.data.get("session_dir")
    has_session = isinstance(directory, str) and (Path(directory) / FILE).is_file()
    says_later = any(key in config.data for key in LATER if key != "batch_size")  # that of loaders, too
    return says_later or ("initialize" not in config.data and has_session)


def read_spec(directory: Path, changes: Iterable[str] = ()) -> Spec:
    """The description that a run directory holds, with changes of the command line."""
    spec, faults = opened(directory, changes := list(changes))
    raise_for(spec, faults)
    return replace(spec, changed=differing(opened(directory)[0].data, spec.data)) if changes else spec


def merged(directory: Path, config: Config) -> Spec:
    """The description of a run directory with an evaluation or inference config over it."""
    spec, faults = merge(*opened(directory), config)
    raise_for(spec, faults)
    return spec


def saved_spec(config: Config) -> tuple[Spec, list[Fault]]:
    """What an evaluation or inference config comes to, and what is wrong with it."""
    directory = config.data.get("session_dir")
    if not isinstance(directory, str):
        near = next(filter(None, (nearest(key, ["session_dir"]) for key in config.data)), "")
        raise problem(config, ("session_dir",), f"the folder of the session is missing, or no text.{near}")
    return merge(*opened(Path(directory)), config)


def opened(directory: Path, changes: Iterable[str] = ()) -> tuple[Spec, list[Fault]]:
    path = directory / FILE
    if not path.is_file():
        raise BadConfig(f"{directory}: there is no session here: there is no {FILE} in it")
    config = override(read(path), changes := list(changes))
    spec, faults = translated(config)
    note_source(spec, config)
    spec, faults = judged(spec, faults)
    if not faults and any(one.startswith("batch_size=") for one in changes):
        faults += filter(None, [batch_size_fault(spec)])
    return spec, faults


def merge(saved: Spec, faults: list[Fault], config: Config) -> tuple[Spec, list[Fault]]:
    """One description over another."""
    over, more = translated(config)
    if faults:
        return saved, faults
    merging = Merging(saved, over)
    return judged(merging.spec, more + merging.faults)


def differing(old: dict[str, Any], new: dict[str, Any]) -> frozenset[tuple[str, str]]:
    """The definitions that are not what they were, and the data that is made of data which is not."""
    before, order = {(one.group, one.name): one.spec for one in definitions(old)}, Order(new)
    found: set[tuple[str, str]] = set()
    for one in order.found:
        key = one.group, one.name
        sources = [each for each in order.needed(key) if each[0] in ("datasets", "splits")]
        is_remade = one.group in ("datasets", "splits") and not found.isdisjoint(sources)
        if before.get(key) != one.spec or is_remade:
            found.add(key)
    return frozenset(found)


class Merging:
    """Two descriptions becoming one."""

    def __init__(self, saved: Spec, over: Spec) -> None:
        self._over = over
        self.places: Places = dict(saved.places)
        self.faults: list[Fault] = []
        data = self._value(copy.deepcopy(saved.data), over.data, (), ())
        data["session_dir"] = saved.data.get("session_dir")
        self.spec = Spec(data, self.places, differing(saved.data, data))

    def _value(self, old: Any, new: Any, path: KeyPath, origin: KeyPath) -> Any:
        """A value with another over it; `path` is where it stands in the result, `origin` in what comes over it."""
        strategy, keys, content, inside = self._note(new, origin)
        if isinstance(old, dict) and isinstance(content, dict) and strategy != "replace":
            for key, item in content.items():
                old[key] = self._value(old.get(key), item, (*path, key), (*inside, key))
            return old
        if isinstance(old, list) and isinstance(content, list) and strategy == "override":
            return self._items(old, content, path, inside, keys)
        return self._put(content, path, inside)

    def _note(self, new: Any, origin: KeyPath) -> tuple[str, list[str], Any, KeyPath]:
        """How a value is to be merged, by which keys, the value itself and where it stands."""
        if not isinstance(new, dict) or "options" not in new or not set(new) <= set(NOTES) or len(new) == 1:
            return "", [], new, origin
        keys = new.get("override_key", [])
        keys = [keys] if isinstance(keys, str) else keys
        strategy = new.get("replace_strategy", "replace")
        content = new["options"]
        if strategy not in STRATEGIES:
            message = f"lists and mappings are merged by {listed(STRATEGIES)}"
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
            here = (*origin, number)
            if not isinstance(item, dict) or any(key not in item for key in keys):
                self._fault(
                    here, f"an item that overrides another has {listed(keys, 'and')}, and this is {described(item)}"
                )
                continue
            same = [
                at for at, one in enumerate(old) if isinstance(one, dict) and all(one.get(k) == item[k] for k in keys)
            ]
            if len(same) > 1:
                message = f"there are {len(same)} items with this {listed(keys, 'and')}: override by more keys"
                self._fault(here, message)
                continue
            at = same[0] if same else len(old)
            if not same:
                old.append({})
            old[at] = self._value(old[at], item, (*path, at), here)
        return old

    def _put(self, value: Any, path: KeyPath, origin: KeyPath) -> Any:
        """A value that takes the place of another, and all below it."""
        for known in [one for one in self.places if one[: len(path)] == path]:
            del self.places[known]
        for known, place in self._over.places.items():
            if known[: len(origin)] == origin:
                self.places[(*path, *known[len(origin) :])] = place
        return copy.deepcopy(value)

    def _fault(self, origin: KeyPath, message: str, known: tuple[str, ...] = ()) -> None:
        """Something wrong in what comes over: it is said of its own place."""
        path: KeyPath = ("source", "over", len(self.faults))
        self.places[path] = self._over.place(origin)
        self.faults.append(Fault(path, message, known))
