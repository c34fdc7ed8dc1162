"""From a description to a session: every name is found and its arguments compared before anything is built."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from torcheer.config.line_numbers import KeyPath
from torcheer.training.loop.batch_order import mix_seeds, seed_everything
from torcheer.training.session import Session
from torcheer.training.spec.builders.build_definitions import MAKERS, article, base, divided
from torcheer.training.spec.builders.build_pipelines import debug_pipelines, pipelines, stages
from torcheer.training.spec.builders.static_state import Static, plain, read_static
from torcheer.training.spec.checks.check_config import code_faults, raise_for, watch_faults
from torcheer.training.spec.checks.pipeline_checks import sense_faults
from torcheer.training.spec.checks.references import Order, split_part
from torcheer.training.spec.checks.sample_completion import complete_from, needs_sample, training_loader
from torcheer.training.spec.read.code_slots import Code, Finder, called, is_nested, resolve
from torcheer.training.spec.read.description import Definition, Spec
from torcheer.training.spec.read.grammar import GROUPS
from torcheer.training.spec.read.session_options import OPTIONS
from torcheer.training.spec.session_parts import Options, Schedule


class SoFar:
    """What is built so far, by group: what factory functions are given as the session."""

    def __init__(self, device: str) -> None:
        self.device = torch.device(
            "cuda" if device == "auto" and torch.cuda.is_available() else device.replace("auto", "cpu")
        )
        for group in GROUPS:
            setattr(self, group, {})

    def __getattr__(self, name: str) -> Any:  # the seed's name; and for type checkers
        if name == "loader_factories":
            return self.data_loaders
        raise AttributeError(f"the session has no {name!r} when it is being built; it has {', '.join(vars(self))}")


@dataclass(frozen=True)
class Built:
    """A session, and what it was built from."""

    session: Session
    spec: Spec  # complete: also with what a sample decided
    parts: SoFar
    static: Static  # to be kept, so that a resumed session divides and preprocesses its data the same
    finder: Finder
    notes: tuple[str, ...] = ()  # what people should know of how it was built


def build(
    spec: Spec,
    *,
    trusted: Iterable[str] = (),
    folder: str | os.PathLike[str] | None = None,
    directory: str | os.PathLike[str] | None = None,
) -> Session:
    """The session that a description describes; `directory` is where it lives and what it kept is read from.

    Users' classes come from the working directory or from `folder`, which is that of the config unless it is given.
    """
    return assemble(spec, trusted=trusted, folder=folder, directory=directory).session


def assemble(
    spec: Spec,
    *,
    trusted: Iterable[str] = (),
    folder: str | os.PathLike[str] | None = None,
    directory: str | os.PathLike[str] | None = None,
    is_new: bool = False,
) -> Built:
    """The same, with what it was built from; a session that is new does not look at what another kept there."""
    home = None if directory is None else Path(directory)
    finder = Finder(trusted, [Path(), spec.folder if folder is None else Path(folder)])
    raise_for(spec, [*code_faults(spec.data, finder, imports=True), *watch_faults(spec.data)])
    builder = Builder(spec, finder, {} if is_new else read_static(home))
    builder.complete()
    for one in builder.order.found:
        builder.get(one.group, one.name)
    session = builder.session(home)
    if builder.seed is not None:
        seed_everything(builder.seed)  # where a session begins, whatever was drawn while it was built
    return Built(session, builder.spec, builder.parts, builder.static, finder, tuple(builder.notes))


class Builder:
    """A session that is being built."""

    def __init__(self, spec: Spec, finder: Finder, kept: Static) -> None:
        self.spec, self.finder, self._kept = spec, finder, kept
        self.seed: int | None = spec.data.get("seed", Options.seed)
        self.parts = SoFar(spec.data.get("device", "auto"))
        self.static: Static = {group: {} for group in ("datasets", "splits", "preprocessors")}
        self.schedules: dict[str, Schedule] = {}
        self.notes: list[str] = []  # what people should know of how it was built
        self._bases: dict[str, Any] = {}  # datasets before their preprocessors, which may be fitted on them
        self._index(spec)

    def _index(self, spec: Spec) -> None:
        self.spec, self.order = spec, Order(spec.data)
        self._definitions = {(one.group, one.name): one for one in spec.definitions()}

    def complete(self) -> None:
        """Look at a sample where that decides something."""
        if not needs_sample(self.spec):
            return
        loader = self._definitions["data_loaders", training_loader(self.spec)]
        sample = self.attempt((*loader.path, "dataset"), first_of, self.data(loader.spec["dataset"]))
        spec, faults = complete_from(self.spec, sample)
        raise_for(spec, faults or sense_faults(spec.data))
        self._index(spec)

    def get(self, group: str, name: str) -> Any:
        """What a definition makes, built when it is first asked for."""
        table = getattr(self.parts, group)
        if name not in table:
            one = self._definitions[group, name]
            for needed in self.order.needed((group, name)):
                self.get(*needed)
            self._seed(one)
            table[name] = MAKERS[group](self, one)
        return table[name]

    def _seed(self, one: Definition) -> None:
        """Each by itself: weights depend on nothing that was drawn before them."""
        if self.seed is not None:
            seed_everything(mix_seeds(self.seed, zlib.crc32(f"{one.group}.{one.name}".encode())))

    def base(self, one: Definition) -> Any:
        """A dataset before its own preprocessors, made once."""
        if one.name not in self._bases:
            self._seed(one)
            self._bases[one.name] = base(self, one)
        return self._bases[one.name]

    def split(self, one: Definition, whole: Any) -> Any:
        """A split of `whole`, which is its data, or that data before preprocessors."""
        return divided(self, one, whole)

    def data(self, name: str) -> Any:
        """A dataset, or a part of a split."""
        if ("datasets", name) in self._definitions:
            return self.get("datasets", name)
        split, part = split_part(name)
        return self.get("splits", split)[part]

    def made(
        self,
        path: KeyPath,
        spec: Mapping[str, Any],
        slot: str,
        *,
        first: Sequence[Any] = (),
        must_be: Callable[[Any], bool] | None = None,
        words: str = "",
    ) -> Any:
        """What the class or function at a path makes."""
        key = "class" if "class" in spec else "factory_fn"
        found = self.named((*path, key), slot, first=first)
        if must_be is not None and not must_be(found):
            raise self.spec.problem((*path, key), f"this makes {article(found)}, and {words}")
        return found

    def named(self, path: KeyPath, slot: str, *, first: Sequence[Any] = ()) -> Any:
        """What the name at a path stands for, called with the arguments beside it."""
        code = Code.at(self.spec.data, path, slot)
        thing = resolve(code, self.finder)
        args, kwargs = self._values(code.args, (*path[:-1], "args")), self._values(code.kwargs, (*path[:-1], "kwargs"))
        return self.attempt(path, called, thing, code, [*first, *args], kwargs, self.parts)

    def _values(self, value: Any, path: KeyPath) -> Any:
        """Arguments, with the objects among them built."""
        if is_nested(value):
            return self.named((*path, "class" if "class" in value else "function"), "object")
        if isinstance(value, dict):
            return {key: self._values(item, (*path, key)) for key, item in value.items()}
        if isinstance(value, list):
            return [self._values(item, (*path, number)) for number, item in enumerate(value)]
        return value

    def attempt(self, path: KeyPath, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """What a function returns; what it raises is said of a place in the config."""
        try:
            return function(*args, **kwargs)
        except Exception as error:  # whatever the user's own code does
            said = f"{type(error).__name__}: {error}".rstrip(": ")
            raise self.spec.problem(path, f"building this failed with {said}") from error

    def kept(self, group: str, one: Definition) -> Any:
        """What an earlier session found out about a definition that is still the same; None where nothing."""
        if one.name in self.static[group]:  # found out by this one itself
            return self.static[group][one.name]
        return None if (one.group, one.name) in self.spec.changed else self._kept.get(group, {}).get(one.name)

    def keep(self, group: str, name: str, state: Any) -> None:
        self.static[group][name] = state

    def with_state(self, group: str, one: Definition, found: Any) -> None:
        """Give something the state that was kept, or keep the one it has; both ways it is what JSON can hold."""
        state = self.kept(group, one)
        if state is None:
            state = self.attempt(one.path, lambda: plain(found.state_dict()))
        self.attempt(one.path, found.load_state_dict, state)
        self.keep(group, one.name, state)

    def session(self, directory: Path | None) -> Session:
        """The session of all that was built."""
        parts, data = self.parts, self.spec.data
        options = {"device": "auto"} | {key: data[key] for key in OPTIONS if key in data}
        return Session(
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
            directory=directory,
        )


def first_of(dataset: Any) -> Any:
    """The first sample of a dataset."""
    return dataset[0] if hasattr(dataset, "__getitem__") else next(iter(dataset))
