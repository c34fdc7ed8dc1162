"""Build a session from a description.

All names and arguments are checked before anything is built.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from torcheer.config.line_numbers import KeyPath
from torcheer.training.batches.batch_order import mix_seeds, seed_everything
from torcheer.training.parallel.process_group import join_ranks
from torcheer.training.session import Session
from torcheer.training.session_parts import Options, Schedule
from torcheer.training.spec.builders.build_definitions import MAKERS, base, split_dataset, type_with_article
from torcheer.training.spec.builders.build_pipelines import debug_pipelines, pipelines, stages
from torcheer.training.spec.builders.static_state import Static, read_static, through_json
from torcheer.training.spec.checks.check_config import code_faults, notify_faults, raise_for, watch_faults
from torcheer.training.spec.checks.pipeline_checks import pipeline_faults
from torcheer.training.spec.checks.references import BuildOrder, split_part
from torcheer.training.spec.checks.sample_completion import complete_from, needs_sample, training_loader
from torcheer.training.spec.read.code_slots import Code, Finder, call_code, is_nested, resolve
from torcheer.training.spec.read.description import STAGES, Definition, Spec, part
from torcheer.training.spec.read.grammar import GROUPS
from torcheer.training.spec.read.session_options import OPTIONS
from torcheer.training.spec.torchassistant.data_completion import complete_from_data, fill_steps
from torcheer.training.spec.torchassistant.differences import differences


class PartialSession:
    """The parts built so far, by group; factory functions receive it as the session."""

    def __init__(self, device: str) -> None:
        self.device = torch.device(
            "cuda" if device == "auto" and torch.cuda.is_available() else device.replace("auto", "cpu")
        )
        for group in GROUPS:
            setattr(self, group, {})

    def __getattr__(self, name: str) -> Any:  # the seed's name of a group; and for type checkers
        if name == "loader_factories":
            return self.data_loaders
        raise AttributeError(f"the session has no {name!r} when it is being built; it has {', '.join(vars(self))}")


@dataclass(frozen=True)
class Built:
    """A session with what it was built from."""

    session: Session
    spec: Spec  # complete, also with what a sample decided
    parts: PartialSession
    static: Static  # saved, so that a resumed session splits and preprocesses its data the same way
    finder: Finder
    notes: tuple[str, ...] = ()  # messages for the user about the build

    @property
    def differences(self) -> list[str]:
        """What the session, as it stands, does otherwise than TorchAssistant would, where it is for its config."""
        return differences(self.spec, self.session)


def build(
    spec: Spec,
    *,
    trusted: Iterable[str] = (),
    folder: str | os.PathLike[str] | None = None,
    directory: str | os.PathLike[str] | None = None,
) -> Session:
    """Build the session of a description.

    `directory` is its run directory, whose static state is read.

    Users' classes come from the working directory or from `folder`, by default that of the config.
    """
    return assemble(spec, trusted=trusted, folder=folder, directory=directory).session


def assemble(
    spec: Spec,
    *,
    trusted: Iterable[str] = (),
    folder: str | os.PathLike[str] | None = None,
    directory: str | os.PathLike[str] | None = None,
    is_new: bool = False,
    on_meta: bool = False,
) -> Built:
    """Build a session, with what it was built from.

    A new one ignores static state in the directory. On meta, models have shapes and no weights: a plan needs no more.
    """
    home = None if directory is None else Path(directory)
    finder = Finder(trusted, [Path(), spec.folder if folder is None else Path(folder)])
    faults = [*code_faults(spec, finder), *watch_faults(spec.data)]
    raise_for(spec, [*faults, *notify_faults(spec.data, finder.trusted)])
    ranks = join_ranks(spec.data.get("device", "auto"))
    # Of several ranks the first splits and fits; the others take what it has found.
    saved = {} if is_new else read_static(home)
    if ranks is not None and is_new and not ranks.is_main:
        saved = ranks.from_main()
    builder = Builder(spec, finder, saved, on_meta=on_meta)
    builder.build_parts()
    if ranks is not None and is_new and ranks.is_main:
        ranks.from_main(builder.static)
    session = builder.session(home)
    if builder.seed is not None:
        seed_everything(builder.seed)  # a session begins from its seed, whatever the build has drawn
    return Built(session, builder.spec, builder.parts, builder.static, finder, tuple(builder.notes))


class Builder:
    """Builds the parts of a session on demand, each once."""

    def __init__(self, spec: Spec, finder: Finder, saved: Static, *, on_meta: bool = False) -> None:
        self.spec, self.finder, self._saved, self.on_meta = spec, finder, saved, on_meta
        self.seed: int | None = spec.data.get("seed", Options.seed)
        self.parts = PartialSession("meta" if on_meta else spec.data.get("device", "auto"))
        self.static: Static = {group: {} for group in ("datasets", "splits", "preprocessors")}
        self.schedules: dict[str, Schedule] = {}
        self.notes: list[str] = []  # messages for the user about the build
        self._bases: dict[str, Any] = {}  # datasets before their preprocessors, which may be fitted on them
        self.index(spec)

    def index(self, spec: Spec) -> None:
        """Go on with a description in which more is filled in."""
        self.spec, self.order = spec, BuildOrder(spec.data)
        self._definitions = {(definition.group, definition.name): definition for definition in spec.definitions()}

    def complete(self) -> None:
        """Complete the description from a sample, where it needs one."""
        complete_from_data(self)
        if not needs_sample(self.spec):
            return
        loader = self._definitions["data_loaders", training_loader(self.spec)]
        sample = self.first_sample(self.data(loader.spec["dataset"]))
        spec, faults = complete_from(self.spec, sample)
        raise_for(spec, faults or pipeline_faults(spec.data))
        self.index(spec)

    def first_sample(self, dataset: Any) -> Any:
        """Return the first sample of a dataset; report what its code raises at the training data."""
        loader = self._definitions["data_loaders", training_loader(self.spec)]
        return self.attempt((*loader.path, "dataset"), first_sample, dataset)

    def build_parts(self) -> None:
        """Build all that the description defines."""
        self.complete()
        for definition in self.order.definitions:
            self.get(definition.group, definition.name)
        fill_steps(self)

    def get(self, group: str, name: str) -> Any:
        """Return the object of a definition, built at the first call."""
        table = getattr(self.parts, group)
        if name not in table:
            definition = self._definitions[group, name]
            for needed in self.order.dependencies((group, name)):
                self.get(*needed)
            self._seed(definition)
            table[name] = MAKERS[group](self, definition)
        return table[name]

    def _seed(self, definition: Definition) -> None:
        """Seed for one definition: its weights do not depend on what was built before."""
        if self.seed is not None:
            seed_everything(mix_seeds(self.seed, zlib.crc32(f"{definition.group}.{definition.name}".encode())))

    def base(self, definition: Definition) -> Any:
        """Return a dataset without its own preprocessors, built once."""
        if definition.name not in self._bases:
            self._seed(definition)
            self._bases[definition.name] = base(self, definition)
        return self._bases[definition.name]

    def split(self, definition: Definition, dataset: Any) -> Any:
        """Split a dataset: the definition's data, or that data without preprocessors."""
        return split_dataset(self, definition, dataset)

    def data(self, name: str) -> Any:
        """Return a dataset, or a part of a split."""
        if ("datasets", name) in self._definitions:
            return self.get("datasets", name)
        split, part = split_part(name)
        return self.get("splits", split)[part]

    def file_path(self, name: str) -> Path:
        """Return the path of a file that the config names: in the working directory, or in the config's folder."""
        return Path(name) if Path(name).exists() else self.spec.folder / name

    @property
    def changes_data(self) -> bool:
        """Whether the data may be other than at the beginning, as something runs before epochs."""
        return any(stage.get("run_before_epoch") for stage in part(self.spec.data, STAGES) or ())

    @property
    def is_reopened(self) -> bool:
        """Whether the session is there already."""
        return bool(self._saved)

    def make(
        self,
        path: KeyPath,
        spec: Mapping[str, Any],
        slot: str,
        *,
        first: Sequence[Any] = (),
        must_be: Callable[[Any], bool] | None = None,
        words: str = "",
    ) -> Any:
        """Make an object with the class or function at a path."""
        key = "class" if "class" in spec else "factory_fn"
        value = self.call_named((*path, key), slot, first=first)
        if must_be is not None and not must_be(value):
            raise self.spec.problem((*path, key), f"this makes {type_with_article(value)}, and {words}")
        return value

    def call_named(self, path: KeyPath, slot: str, *, first: Sequence[Any] = ()) -> Any:
        """Call the code named at a path with the arguments beside it."""
        code = Code.at(self.spec.data, path, slot)
        target = resolve(code, self.finder)
        args, kwargs = self._values(code.args, (*path[:-1], "args")), self._values(code.kwargs, (*path[:-1], "kwargs"))
        return self.attempt(path, call_code, target, code, [*first, *args], kwargs, self.parts)

    def _values(self, value: Any, path: KeyPath) -> Any:
        """Return arguments with nested objects built."""
        if is_nested(value):
            return self.call_named((*path, "class" if "class" in value else "function"), "object")
        if isinstance(value, dict):
            return {key: self._values(item, (*path, key)) for key, item in value.items()}
        if isinstance(value, list):
            return [self._values(item, (*path, number)) for number, item in enumerate(value)]
        return value

    def attempt(self, path: KeyPath, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a function; report its exception at a place in the config."""
        try:
            return function(*args, **kwargs)
        except Exception as error:  # user code may raise anything
            reason = f"{type(error).__name__}: {error}".rstrip(": ")
            raise self.spec.problem(path, f"building this failed with {reason}") from error

    def saved_state(self, group: str, definition: Definition) -> Any:
        """Return the saved state of an unchanged definition; None where there is none."""
        if definition.name in self.static[group]:  # computed in this build
            return self.static[group][definition.name]
        return (
            None
            if (definition.group, definition.name) in self.spec.changed
            else self._saved.get(group, {}).get(definition.name)
        )

    def save_state(self, group: str, name: str, state: Any) -> None:
        self.static[group][name] = state

    def restore_or_save_state(self, group: str, definition: Definition, value: Any) -> None:
        """Load the saved state, or save the current one; either way it has been through JSON."""
        state = self.saved_state(group, definition)
        if state is None:
            state = self.attempt(definition.path, lambda: through_json(value.state_dict()))
        self.attempt(definition.path, value.load_state_dict, state)
        self.save_state(group, definition.name, state)

    def session(self, directory: Path | None) -> Session:
        """Assemble the session of all parts."""
        parts, data = self.parts, self.spec.data
        options = {"device": "auto"} | {key: data[key] for key in OPTIONS if key in data}
        if self.on_meta:
            plain = dict.fromkeys(("watch", "capture", "parallel", "activation_checkpointing"))
            options |= {"device": "meta", "compile": False, **plain}
        session = Session(
            models=parts.models,
            optimizers=parts.optimizers,
            loaders=parts.data_loaders,
            losses=parts.losses,
            metrics=parts.metrics,
            processors=parts.batch_processors,
            graphs=parts.batch_graphs,
            pipelines=pipelines(data),
            debug_pipelines=debug_pipelines(self),
            stages=stages(self),
            schedules=self.schedules,
            clips=list(parts.gradient_clippers.values()),
            options=Options(**options),
            to=directory,
        )
        session.datasets, session.preprocessors = dict(parts.datasets), dict(parts.preprocessors)
        return session


def first_sample(dataset: Any) -> Any:
    """Return the first sample of a dataset."""
    return dataset[0] if hasattr(dataset, "__getitem__") else next(iter(dataset))
