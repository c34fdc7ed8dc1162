"""Find everything that is wrong with a config, without building anything."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from torcheer.config import Config
from torcheer.config.line_numbers import KeyPath
from torcheer.config.number_fields import format_number
from torcheer.errors import BadArgument, BadConfig
from torcheer.monitor.rules import resolve_rules
from torcheer.training.loop.devices import missing_device
from torcheer.training.preprocessors import ValuePreprocessor
from torcheer.training.spec.builders.preprocessor_fitting import fit_notes
from torcheer.training.spec.checks.adapter_outputs import adapter_faults
from torcheer.training.spec.checks.completion import complete
from torcheer.training.spec.checks.pipeline_checks import pipeline_faults
from torcheer.training.spec.checks.references import BuildOrder, duplicate_names, reference_faults
from torcheer.training.spec.read.code_slots import (
    OUR_PACKAGES,
    Code,
    Finder,
    loader_fault,
    name_fault,
    nested_code,
    number_faults,
    scheduler_fault,
)
from torcheer.training.spec.read.description import DEFINITIONS, VERSION, Definition, Spec, definitions
from torcheer.training.spec.read.dialects import translate
from torcheer.training.spec.read.grammar import GROUPS, REFUSED_GROUPS, TOP
from torcheer.training.spec.read.older_names import GROUPS as OLDER_GROUPS
from torcheer.training.spec.read.scalar_values import is_device
from torcheer.training.spec.read.value_kinds import CodeName, Fault, Finding


class Checked(NamedTuple):
    """The result of a check."""

    problems: list[str]
    notes: list[str]  # of a valid config: what is done implicitly
    long_form: str = ""  # of a valid config, as JSON: short forms expanded, what was left out filled in


def check(config: Config, *, trusted: Iterable[str] = (), imports: bool = False) -> list[str]:
    """Return everything that is wrong with a training, evaluation or inference config.

    Build nothing.

    Arguments of torch's classes are checked, too; users' classes are imported only with `imports`.
    """
    return checked(config, trusted=trusted, imports=imports).problems


def checked(config: Config, *, trusted: Iterable[str] = (), imports: bool = False) -> Checked:
    """Return the problems of a config, and notes on a valid one."""
    from torcheer.training.spec.read.config_merge import is_later, saved_spec  # imported here: it imports this module

    try:
        spec, faults = saved_spec(config) if is_later(config) else parse_config(config)
    except BadConfig as error:
        return Checked([str(error)], [])
    finder = Finder(trusted, [Path(), spec.folder])
    faults += [*code_faults(spec.data, finder, imports=imports), *device_faults(spec.data), *watch_faults(spec.data)]
    faults += notify_faults(spec.data, finder.trusted)
    if faults:
        return Checked(spec.problems(faults), [])
    long_form = {key: value for key, value in spec.data.items() if key != "source"}
    notes = fit_notes(spec.data, partial(has_fit, finder, imports))
    return Checked([], notes, json.dumps(long_form, indent=1, ensure_ascii=False))


def has_fit(finder: Finder, imports: bool, definition: Definition) -> bool | None:
    """Return whether a preprocessor has a method fit; None where only importing it could tell."""
    name = definition.spec.get("class", "")
    if not name or not (imports or name.startswith(OUR_PACKAGES)):
        return None
    target = finder.find(name)
    fit = getattr(target, "fit", None) if isinstance(target, type) else None
    return None if not isinstance(target, type) else callable(fit) and fit is not ValuePreprocessor.fit


def device_faults(data: dict[str, Any]) -> Iterator[Fault]:
    """Yield faults of devices that this machine does not have."""
    devices: list[tuple[KeyPath, Any]] = [(("device",), data.get("device"))]
    devices += [
        ((*definition.path, "device"), definition.spec.get("device"))
        for definition in definitions(data, "batch_processors")
    ]
    for path, device in devices:
        if is_device(device) and (problem := missing_device(str(device))):
            yield Fault(path, problem)


def watch_faults(data: dict[str, Any]) -> Iterator[Fault]:
    """Yield faults of settings that a watch's rules do not take."""
    watch = data.get("watch")
    rules = watch.get("rules") if isinstance(watch, dict) else None
    for name, settings in rules.items() if isinstance(rules, dict) else ():
        keys = list(settings) if isinstance(settings, dict) else []
        for key in keys or [""]:
            try:
                resolve_rules({name: {key: settings[key]} if key else settings})
            except BadArgument as error:
                number = format_number(settings[key]) if key and isinstance(settings[key], str) else ""
                path = ("watch", "rules", name, key) if key else ("watch", "rules", name)
                yield Fault(path, f"{error}. Write {number}" if number else str(error))


def notify_faults(data: dict[str, Any], trusted: Sequence[str]) -> Iterator[Fault]:
    """Yield faults of commands that the user does not trust: a config may come from anybody."""
    notify = data.get("notify")
    for number, target in enumerate(notify if isinstance(notify, list) else [notify]):
        command = target.get("command") if isinstance(target, dict) else None
        if isinstance(command, list) and command and command[0] not in trusted:
            path: KeyPath = ("notify", number, "command") if isinstance(notify, list) else ("notify", "command")
            yield Fault(path, f"a command of a config runs only if you trust it: run with --trust {command[0]}")


def understand(config: Config) -> Spec:
    """Return a config's description, complete but for what a sample decides.

    Raise with all faults.
    """
    spec, faults = parse_config(config)
    raise_for(spec, faults)
    return spec


def raise_for(spec: Spec, faults: list[Fault]) -> None:
    """Raise one error with all faults, where there are any."""
    if faults:
        raise BadConfig("\n".join(spec.problems(faults)))


def parse_config(config: Config) -> tuple[Spec, list[Fault]]:
    """Return a config's description, and its faults."""
    spec, faults = translate(config)
    note_source(spec, config)
    return complete_and_check(spec, faults)


def note_source(spec: Spec, config: Config) -> None:
    """Record the source of a description, and the changes of the command line."""
    source = spec.data.setdefault("source", {})
    if isinstance(source, dict):
        source.setdefault("version", VERSION)
        source.setdefault("config", str(config.path))
        before = source.get("overrides")
        if config.overrides:
            source["overrides"] = [*(before if isinstance(before, list) else ()), *config.overrides]


def complete_and_check(spec: Spec, faults: list[Fault]) -> tuple[Spec, list[Fault]]:
    """Complete a description where it is valid so far; return it with its faults."""
    results = list(findings(spec.data))
    if "initialize" not in spec.data:
        message = "nothing is defined: a training config has a dataset, a model and an optimizer"
        faults = [*faults, Fault((), f"{message} (or the key 'initialize', in the long form)")]
    faults = [*faults, *(finding for finding in results if isinstance(finding, Fault))]
    is_sound = not faults
    faults += [*duplicate_names(spec.data), *reference_faults(spec.data, results), *BuildOrder(spec.data).cycles]
    if not is_sound:
        return spec, faults
    if not faults:
        spec, faults = complete(spec)
    return spec, faults or pipeline_faults(spec.data)


def findings(data: dict[str, Any]) -> Iterator[Finding]:
    """Yield all findings of walking a description."""
    yield from TOP.walk(data, ())
    yield from non_finite_numbers(data, ())
    for definition in definitions(data):
        if definition.group in GROUPS:
            yield from GROUPS[definition.group].walk(definition.spec, definition.path)
        else:
            path = (*DEFINITIONS, definition.path[len(DEFINITIONS)], "group")
            message = REFUSED_GROUPS.get(
                definition.group, f"there is no group {definition.group!r}; there is {', '.join(GROUPS)}"
            )
            yield Fault(path, message, (*GROUPS, *OLDER_GROUPS))


def non_finite_numbers(value: Any, path: KeyPath) -> Iterator[Fault]:
    """Yield faults of infinities and NaN, which YAML and TOML have and spec.json cannot hold."""
    if isinstance(value, float) and not math.isfinite(value):
        yield Fault(path, "this is no number that can be kept: write one that is finite")
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from non_finite_numbers(item, (*path, key))


def code_faults(data: dict[str, Any], finder: Finder, *, imports: bool) -> Iterator[Fault]:
    """Yield faults of code names and their arguments."""
    # Folder by folder: leaving a folder unloads its modules, so that two folders may have one of the same name.
    for code in sorted(named_code(data), key=lambda code: finder.folder_index(code.name)):
        fault = name_fault(code, finder, imports=imports)
        if fault is not None:
            yield fault
        else:
            yield from number_faults(code, finder, imports=imports)
    for definition in definitions(data):
        fault = None
        if definition.group == "data_loaders" and is_well_formed(definition):
            fault = loader_fault(definition.path, definition.spec)
        if definition.group == "batch_processors" and is_well_formed(definition):
            yield from adapter_faults(definition, finder)
        scheduler = definition.spec.get("lr_scheduler") if definition.group == "optimizers" else None
        if isinstance(scheduler, dict) and isinstance(scheduler.get("class"), str):
            fault = scheduler_fault((*definition.path, "lr_scheduler"), scheduler)
        if fault is not None:
            yield fault


def is_well_formed(definition: Definition) -> bool:
    return not any(
        isinstance(finding, Fault) for finding in GROUPS[definition.group].walk(definition.spec, definition.path)
    )


def named_code(data: dict[str, Any]) -> Iterator[Code]:
    """Yield all code that a description names, also among arguments."""
    for finding in findings(data):
        if isinstance(finding, CodeName):
            code = Code.at(data, finding.path, finding.slot)
            yield code
            start = finding.path[:-1]
            for path, slot in (
                *nested_code(code.args, (*start, "args")),
                *nested_code(code.kwargs, (*start, "kwargs")),
            ):
                yield Code.at(data, path, slot)
