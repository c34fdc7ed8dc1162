"""All that is wrong with a config, found without building anything."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from torcheer.config import Config
from torcheer.config.line_numbers import KeyPath
from torcheer.config.number_fields import number_in
from torcheer.errors import BadArgument, BadConfig
from torcheer.monitor.rules import resolve_rules
from torcheer.training.loop.devices import missing_device
from torcheer.training.preprocessors import ValuePreprocessor
from torcheer.training.spec.builders.preprocessor_fitting import fit_notes
from torcheer.training.spec.checks.adapter_outputs import adapter_faults
from torcheer.training.spec.checks.completion import complete
from torcheer.training.spec.checks.pipeline_checks import sense_faults
from torcheer.training.spec.checks.references import Order, reference_faults, twice
from torcheer.training.spec.read.code_slots import (
    KNOWN,
    Code,
    Finder,
    loader_fault,
    name_fault,
    nested,
    number_faults,
    scheduler_fault,
)
from torcheer.training.spec.read.description import DEFINITIONS, VERSION, Definition, Spec, definitions
from torcheer.training.spec.read.dialects import GROUPS as OLDER_GROUPS
from torcheer.training.spec.read.dialects import translated
from torcheer.training.spec.read.grammar import GROUPS, REFUSED_GROUPS, TOP
from torcheer.training.spec.read.scalar_values import is_device
from torcheer.training.spec.read.value_kinds import Fault, Finding, Named


class Checked(NamedTuple):
    """What a check has found."""

    problems: list[str]
    notes: list[str]  # of a sound config: what is done that it does not say


def check(config: Config, *, trusted: Iterable[str] = (), imports: bool = False) -> list[str]:
    """Everything that is wrong with a training, evaluation or inference config; nothing is built.

    Of torch's own classes the arguments are compared, too; users' classes are imported only with `imports`.
    """
    return checked(config, trusted=trusted, imports=imports).problems


def checked(config: Config, *, trusted: Iterable[str] = (), imports: bool = False) -> Checked:
    """The same, and what people should know of a config that is sound."""
    from torcheer.training.spec.read.config_merge import is_later, saved_spec  # which checks what it has merged

    try:
        spec, faults = saved_spec(config) if is_later(config) else understood(config)
    except BadConfig as error:
        return Checked([str(error)], [])
    finder = Finder(trusted, [Path(), spec.folder])
    faults += [*code_faults(spec.data, finder, imports=imports), *device_faults(spec.data), *watch_faults(spec.data)]
    return Checked(spec.problems(faults), [] if faults else fit_notes(spec.data, partial(learns, finder, imports)))


def learns(finder: Finder, imports: bool, one: Definition) -> bool | None:
    """Whether a preprocessor has a method fit; None where only importing it could tell."""
    name = one.spec.get("class", "")
    if not name or not (imports or name.startswith(KNOWN)):
        return None
    found = finder.find(name)
    fit = getattr(found, "fit", None) if isinstance(found, type) else None
    return None if not isinstance(found, type) else callable(fit) and fit is not ValuePreprocessor.fit


def device_faults(data: dict[str, Any]) -> Iterator[Fault]:
    """A device that this machine does not have."""
    found: list[tuple[KeyPath, Any]] = [(("device",), data.get("device"))]
    found += [((*one.path, "device"), one.spec.get("device")) for one in definitions(data, "batch_processors")]
    for path, device in found:
        if is_device(device) and (said := missing_device(str(device))):
            yield Fault(path, said)


def watch_faults(data: dict[str, Any]) -> Iterator[Fault]:
    """Settings of a watch's rules that the rules do not take."""
    watch = data.get("watch")
    rules = watch.get("rules") if isinstance(watch, dict) else None
    for name, settings in rules.items() if isinstance(rules, dict) else ():
        keys = list(settings) if isinstance(settings, dict) else []
        for key in keys or [""]:
            try:
                resolve_rules({name: {key: settings[key]} if key else settings})
            except BadArgument as error:
                number = number_in(settings[key]) if key and isinstance(settings[key], str) else ""
                path = ("watch", "rules", name, key) if key else ("watch", "rules", name)
                yield Fault(path, f"{error}. Write {number}" if number else str(error))


def understand(config: Config) -> Spec:
    """What a config says, in one dialect and complete but for what a sample decides; raises with all that is wrong."""
    spec, faults = understood(config)
    raise_for(spec, faults)
    return spec


def raise_for(spec: Spec, faults: list[Fault]) -> None:
    """Raise where something is wrong, with all of it."""
    if faults:
        raise BadConfig("\n".join(spec.problems(faults)))


def understood(config: Config) -> tuple[Spec, list[Fault]]:
    """What a config says, and what is wrong with it."""
    spec, faults = translated(config)
    note_source(spec, config)
    return judged(spec, faults)


def note_source(spec: Spec, config: Config) -> None:
    """Note where a description comes from, and what the command line changed in it."""
    source = spec.data.setdefault("source", {})
    if isinstance(source, dict):
        source.setdefault("version", VERSION)
        source.setdefault("config", str(config.path))
        before = source.get("overrides")
        if config.overrides:
            source["overrides"] = [*(before if isinstance(before, list) else ()), *config.overrides]


def judged(spec: Spec, faults: list[Fault]) -> tuple[Spec, list[Fault]]:
    """A description completed, where it is sound so far, and what is wrong with it."""
    found = list(findings(spec.data))
    faults = [*faults, *(one for one in found if isinstance(one, Fault))]
    is_sound = not faults
    faults += [*twice(spec.data), *reference_faults(spec.data, found), *Order(spec.data).cycles]
    if not is_sound:
        return spec, faults
    if not faults:
        spec, faults = complete(spec)
    return spec, faults or sense_faults(spec.data)


def findings(data: dict[str, Any]) -> Iterator[Finding]:
    """All that walking a description finds."""
    yield from TOP.walk(data, ())
    yield from endless(data, ())
    for one in definitions(data):
        if one.group in GROUPS:
            yield from GROUPS[one.group].walk(one.spec, one.path)
        else:
            path = (*DEFINITIONS, one.path[len(DEFINITIONS)], "group")
            message = REFUSED_GROUPS.get(one.group, f"there is no group {one.group!r}; there is {', '.join(GROUPS)}")
            yield Fault(path, message, (*GROUPS, *OLDER_GROUPS))


def endless(value: Any, path: KeyPath) -> Iterator[Fault]:
    """Numbers that YAML and TOML have and JSON, in which a description is kept, has not."""
    if isinstance(value, float) and not math.isfinite(value):
        yield Fault(path, "this is no number that can be kept: write one that is finite")
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from endless(item, (*path, key))


def code_faults(data: dict[str, Any], finder: Finder, *, imports: bool) -> Iterator[Fault]:
    """What is wrong with names of code and their arguments."""
    # Folder by folder: one that is left forgets its modules, so that two may have one of the same name.
    for code in sorted(codes(data), key=lambda one: finder.place(one.name)):
        fault = name_fault(code, finder, imports=imports)
        if fault is not None:
            yield fault
        else:
            yield from number_faults(code, finder, imports=imports)
    for one in definitions(data):
        fault = None
        if one.group == "data_loaders" and is_sound(one):
            fault = loader_fault(one.path, one.spec)
        if one.group == "batch_processors" and is_sound(one):
            yield from adapter_faults(one, finder)
        scheduler = one.spec.get("lr_scheduler") if one.group == "optimizers" else None
        if isinstance(scheduler, dict) and isinstance(scheduler.get("class"), str):
            fault = scheduler_fault((*one.path, "lr_scheduler"), scheduler)
        if fault is not None:
            yield fault


def is_sound(one: Definition) -> bool:
    return not any(isinstance(each, Fault) for each in GROUPS[one.group].walk(one.spec, one.path))


def codes(data: dict[str, Any]) -> Iterator[Code]:
    """All code that a description names, also among arguments."""
    for one in findings(data):
        if isinstance(one, Named):
            code = Code.at(data, one.path, one.slot)
            yield code
            start = one.path[:-1]
            for path, slot in (*nested(code.args, (*start, "args")), *nested(code.kwargs, (*start, "kwargs"))):
                yield Code.at(data, path, slot)
