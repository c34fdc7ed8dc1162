"""Three dialects into one: the names of keys, the shape of the definitions, the place of the device.

| concept | the seed | later | the last release |
|---|---|---|---|
| definitions | a flat list | a flat list | `{"data": […], "computation": […]}` |
| loaders' group | `loader_factories` | `data_loaders` | `data_loaders` |
| pipeline inputs | `input_factories` | `input_injector` | `input_injector` |
| its parts | `input_alias`, `loader_factory` | `input_port`, `data_loader` | as later |
| graph inputs | `input_aliases` | `input_ports` | `input_ports` |
| device | in each batch_processor | the same | one at the top |

Ours is the last, with definitions as a flat list.

Nothing is judged here but what cannot be said in one dialect: what is no part of any stays as it is, for others to
name. Parts of a config, as evaluation and inference have them, are translated the same way.
"""

from __future__ import annotations

from typing import Any

from torcheer.config import Config
from torcheer.config.line_numbers import KeyPath
from torcheer.training.spec.read.description import DEFINITIONS, Places, Spec
from torcheer.training.spec.read.value_kinds import Fault, listed

GROUPS = {"loader_factories": "data_loaders"}
SECTIONS = ("data", "computation", "callbacks")
# What stands at a place -> keys of older dialects and ours; "*" is any key or number.
KEYS: dict[KeyPath, dict[str, str]] = {
    ("initialize", "pipelines", "*"): {"input_factories": "input_injector"},
    ("initialize", "debug_pipelines", "*"): {"input_factories": "input_injector"},
    ("initialize", "pipelines", "*", "input_injector", "*"): {
        "input_alias": "input_port",
        "loader_factory": "data_loader",
    },
    ("initialize", "debug_pipelines", "*", "input_injector", "*"): {
        "input_alias": "input_port",
        "loader_factory": "data_loader",
    },
    ("initialize", "definitions", "*", "spec"): {"input_aliases": "input_ports"},
    ("inputs_meta", "*"): {"input_alias": "input_port", "input_adapter": "input_converter"},
}
NOTES = ("replace_strategy", "override_key", "options")  # how a part is to be merged: `options` is the part itself


class Translation:
    """One config on its way into our dialect."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.places: Places = {}
        self.faults: list[Fault] = []
        data = self.value(config.data, (), ())
        self.spec = Spec(data, self.places)
        self._lift_device(data)

    def value(self, value: Any, path: KeyPath, origin: KeyPath) -> Any:
        """A copy of a value with the keys of our dialect; `path` is where it goes, `origin` where it stood."""
        self.places[path] = self.config, origin
        if path == DEFINITIONS and isinstance(value, dict) and any(key in SECTIONS for key in value):
            return self._sections(value, path, origin)
        if isinstance(value, dict):
            return self._mapping(value, path, origin)
        if isinstance(value, list):
            return [self.value(item, (*path, number), (*origin, number)) for number, item in enumerate(value)]
        return GROUPS.get(value, value) if is_group(path) and isinstance(value, str) else value

    def _mapping(self, value: dict[str, Any], path: KeyPath, origin: KeyPath) -> dict[str, Any]:
        names = KEYS.get(pattern(path), {})
        found: dict[str, Any] = {}
        for key, item in value.items():
            name = names.get(key, key)
            if name in found:
                other = next(old for old in value if names.get(old, old) == name)
                self.faults.append(Fault((*path, key), f"this says the same as {other!r}, in another dialect"))
                continue
            found[name] = self.value(item, (*path, name), (*origin, key))
        return found

    def _sections(self, value: dict[str, Any], path: KeyPath, origin: KeyPath) -> Any:
        """One list of the lists of data, computation and callbacks; with the note on merging that they share."""
        notes = [section_note(items) for items in value.values()]
        if any(note != notes[0] for note in notes):
            self.faults.append(Fault(path, "its lists are to be merged in different ways: say it once, of one list"))
        inside = (*path, "options") if notes[0] else path
        found: list[Any] = []
        for section, items in value.items():
            self.places[(*path, section)] = self.config, (*origin, section)
            start = (*origin, section, "options") if section_note(items) else (*origin, section)
            items = items["options"] if section_note(items) else items
            if section not in SECTIONS:
                message = f"definitions are one list, or have the keys {listed(SECTIONS)}; {section!r} is none"
                self.faults.append(Fault((*path, section), message, SECTIONS))
            elif not isinstance(items, list):
                self.faults.append(Fault((*path, section), "a list of definitions is needed here"))
            else:
                for number, item in enumerate(items):
                    found.append(self.value(item, (*inside, len(found)), (*start, number)))
        return {**notes[0], "options": found} if notes[0] else found

    def _lift_device(self, data: dict[str, Any]) -> None:
        """A device of batch processors becomes the session's: models that pipelines share live in one place."""
        for one in self.spec.definitions("batch_processors"):
            if not isinstance(one.spec.get("device"), str):
                continue
            here = one.spec["device"]
            if "device" not in data:
                data["device"] = here
                self.places[("device",)] = self.places[(*one.path, "device")]
            if data["device"] == here:
                del one.spec["device"]
            else:
                message = f"the session's models live on one device, and elsewhere it is {data['device']!r}"
                self.faults.append(Fault((*one.path, "device"), message))


def translated(config: Config) -> tuple[Spec, list[Fault]]:
    """A config in our dialect, and what could not be said in it."""
    found = Translation(config)
    return found.spec, found.faults


def section_note(items: Any) -> dict[str, Any]:
    """How a section is to be merged, where it says so."""
    is_noted = isinstance(items, dict) and "options" in items and set(items) <= set(NOTES)
    return {key: value for key, value in items.items() if key != "options"} if is_noted else {}


def pattern(path: KeyPath) -> KeyPath:
    """A path with its free names as stars, so that the table of keys knows it; notes on merging are stepped over."""
    plain = [key for key in path if key != "options"]
    is_free = [isinstance(key, int) or (number == 2 and plain[0] == "initialize") for number, key in enumerate(plain)]
    return tuple("*" if free else key for free, key in zip(is_free, plain))


def is_group(path: KeyPath) -> bool:
    return path[:2] == DEFINITIONS and path[-1] == "group" and len(pattern(path)) == 4
