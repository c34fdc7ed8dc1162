"""Translate three config dialects into one.

Key names, the form of definitions, the place of the device.

| concept | the seed | later | the last release |
|---|---|---|---|
| definitions | a flat list | a flat list | `{"data": […], "computation": […]}` |
| loaders' group | `loader_factories` | `data_loaders` | `data_loaders` |
| pipeline inputs | `input_factories` | `input_injector` | `input_injector` |
| its parts | `input_alias`, `loader_factory` | `input_port`, `data_loader` | as later |
| graph inputs | `input_aliases` | `input_ports` | `input_ports` |
| device | in each batch_processor | the same | one at the top |

Ours is the last, with definitions as a flat list. Keys of the short form at the top are expanded by `short_form.py`.

Only what cannot be expressed in one dialect is a fault here: unknown keys stay as they are and are reported by the
checks. Partial configs, as for evaluation and inference, are translated in the same way.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torcheer.config import Config, where
from torcheer.config.line_numbers import KeyPath
from torcheer.errors import ConfigWarning
from torcheer.terminal import did_you_mean, warn
from torcheer.training.spec.read.description import DEFINITIONS, Places, Spec
from torcheer.training.spec.read.grammar import SHORT, TOP
from torcheer.training.spec.read.short_form import ShortForm
from torcheer.training.spec.read.value_kinds import Fault, quote_list
from torcheer.training.spec.torchassistant.older_names import GROUPS, KEYS, MERGE_KEYS, SECTIONS


def is_torchassistants(value: Any, path: KeyPath = ()) -> bool:
    """Return whether a config was written for TorchAssistant.

    It names `torchassistant.…`, or has its definitions in `data` and `computation`.
    """
    if path == DEFINITIONS and isinstance(value, dict) and any(key in SECTIONS for key in value):
        return True
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return any(is_torchassistants(item, (*path, key)) for key, item in items) or (
        isinstance(value, str) and value.startswith("torchassistant.")
    )


class Translation:
    """Translation of one config into our dialect."""

    def __init__(self, config: Config, saved: Spec | None) -> None:
        self.config = config
        self.places: Places = {}
        self.faults: list[Fault] = []
        unknown = self._unknown_keys(saved)
        known = {key: value for key, value in config.data.items() if key not in (*SHORT, *unknown)}
        data = self.value(known, (), ())
        short = {key: value for key, value in config.data.items() if key in SHORT}
        ShortForm(self, data, short, saved).expand()
        self.spec = Spec(data, self.places)
        self._lift_device(data)
        self.faults += self._own_processors()

    def _unknown_keys(self, saved: Spec | None) -> list[str]:
        """Return the keys at the top of a file that TorchAssistant would ignore; here a warning says so."""
        if not is_torchassistants(self.config.data) and (saved is None or not saved.is_torchassistants):
            return []
        given = {override.partition("=")[0] for override in self.config.overrides}  # whoever types one means it
        unknown = [key for key in self.config.data if key not in (*TOP.fields, *SHORT, *given)]
        for key in unknown:
            near = did_you_mean(key, [*TOP.fields, *SHORT])
            text = f"{where(self.config, (key,))}: a config has no key {key!r}, and it is ignored.{near}"
            warn(text, ConfigWarning)
        return unknown

    def value(self, value: Any, path: KeyPath, origin: KeyPath) -> Any:
        """Copy a value with the keys of our dialect.

        `path` is its new key path, `origin` the old one.
        """
        self.places[path] = self.config, origin
        if path == DEFINITIONS and isinstance(value, dict) and any(key in SECTIONS for key in value):
            return self._sections(value, path, origin)
        if isinstance(value, dict):
            return self._mapping(value, path, origin)
        if isinstance(value, list):
            return [self.value(item, (*path, number), (*origin, number)) for number, item in enumerate(value)]
        return GROUPS.get(value, value) if is_group(path) and isinstance(value, str) else value

    def _mapping(self, value: dict[str, Any], path: KeyPath, origin: KeyPath) -> dict[str, Any]:
        names = KEYS.get(path_pattern(path), {})
        translated: dict[str, Any] = {}
        for key, item in value.items():
            name = names.get(key, key)
            if name in translated:
                first_key = next(old for old in value if names.get(old, old) == name)
                self.faults.append(Fault((*path, key), f"this says the same as {first_key!r}, in another dialect"))
                continue
            translated[name] = self.value(item, (*path, name), (*origin, key))
        return translated

    def _sections(self, value: dict[str, Any], path: KeyPath, origin: KeyPath) -> Any:
        """Concatenate the lists of data, computation and callbacks, with their shared merge note."""
        notes = [merge_note(items) for items in value.values()]
        if any(note != notes[0] for note in notes):
            self.faults.append(Fault(path, "its lists are to be merged in different ways: say it once, of one list"))
        inside = (*path, "options") if notes[0] else path
        definitions: list[Any] = []
        for section, items in value.items():
            self.places[(*path, section)] = self.config, (*origin, section)
            start = (*origin, section, "options") if merge_note(items) else (*origin, section)
            items = items["options"] if merge_note(items) else items
            if section not in SECTIONS:
                message = f"definitions are one list, or have the keys {quote_list(SECTIONS)}; {section!r} is none"
                self.faults.append(Fault((*path, section), message, SECTIONS))
            elif not isinstance(items, list):
                self.faults.append(Fault((*path, section), "a list of definitions is needed here"))
            else:
                for number, item in enumerate(items):
                    definitions.append(self.value(item, (*inside, len(definitions)), (*start, number)))
        return {**notes[0], "options": definitions} if notes[0] else definitions

    def _own_processors(self) -> Iterator[Fault]:
        """Yield the faults of batch processors that are of a class, as TorchAssistant's may be."""
        for definition in self.spec.definitions("batch_processors"):
            for key in ("class", "factory_fn"):
                if key in definition.spec and "neural_graph" not in definition.spec:
                    message = (
                        "a batch processor runs the models of its neural_graph, and has no class: name this one as the "
                        "output_adapter of the processor before it, or leave out optimizer_name to freeze a model"
                    )
                    yield Fault((*definition.path, key), message)

    def _lift_device(self, data: dict[str, Any]) -> None:
        """Move the device of batch processors to the session.

        Models that pipelines share are on one device.
        """
        for definition in self.spec.definitions("batch_processors"):
            if not isinstance(definition.spec.get("device"), str):
                continue
            device = definition.spec["device"]
            if "device" not in data:
                data["device"] = device
                self.places[("device",)] = self.places[(*definition.path, "device")]
            if data["device"] == device:
                del definition.spec["device"]
            else:
                message = f"the session's models live on one device, and elsewhere it is {data['device']!r}"
                self.faults.append(Fault((*definition.path, "device"), message))


def translate(config: Config, saved: Spec | None = None) -> tuple[Spec, list[Fault]]:
    """Return a config in our dialect, and the faults of the translation; `saved` is what it is to be merged over."""
    translation = Translation(config, saved)
    return translation.spec, translation.faults


def merge_note(items: Any) -> dict[str, Any]:
    """Return how to merge a section, where it says so."""
    is_noted = isinstance(items, dict) and "options" in items and set(items) <= set(MERGE_KEYS)
    return {key: value for key, value in items.items() if key != "options"} if is_noted else {}


def path_pattern(path: KeyPath) -> KeyPath:
    """Return a path with its free names as stars, as in `KEYS`; merge notes are skipped."""
    plain = [key for key in path if key != "options"]
    is_free = [isinstance(key, int) or (number == 2 and plain[0] == "initialize") for number, key in enumerate(plain)]
    return tuple("*" if free else key for free, key in zip(is_free, plain))


def is_group(path: KeyPath) -> bool:
    return path[:2] == DEFINITIONS and path[-1] == "group" and len(path_pattern(path)) == 4
