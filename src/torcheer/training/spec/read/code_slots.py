"""Names of code in a description: what each slot takes, where its short names come from, whether arguments fit."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from torch.utils.data import DataLoader

from torcheer.config import bind, describe, downloads, find, nearest
from torcheer.config.folder_modules import home
from torcheer.config.line_numbers import KeyPath
from torcheer.config.number_fields import misplaced_texts, parameters_of, written_parameters
from torcheer.errors import BadConfig, TorcheerError
from torcheer.training.metrics import LOSSES, METRICS, find_loss, find_metric
from torcheer.training.optimizers import CLOSURES, find_optimizer, find_scheduler, rhythm
from torcheer.training.spec.read.value_kinds import Fault

KNOWN = ("torch.", "torcheer.", "torchassistant.")  # importing these runs nobody's code but ours
NESTED = {"class", "args", "kwargs"}


@dataclass(frozen=True)
class Slot:
    """What becomes of code that is named at a place."""

    given: str = ""  # the first argument, which we give
    short: Callable[[str, Mapping[str, Any]], Any] | None = None  # from a name without dots
    itself: bool = False  # a function is the thing itself, not what makes it
    wants_session: bool = False  # a class that cannot do without it is given the session
    plain_factory: bool = False  # a factory function is not given the session


ITSELF = Slot(itself=True)
SLOTS = {
    "datasets": Slot(),
    "preprocessors": Slot(),
    "models": Slot(),
    "collators": ITSELF,
    "optimizers": Slot("params", lambda name, kwargs: find_optimizer(name)),
    "lr_scheduler": Slot("optimizer", lambda name, kwargs: find_scheduler(name)),
    "losses": Slot(short=find_loss, itself=True),
    "metrics": Slot(short=find_metric, itself=True),
    "transform": Slot(itself=True, wants_session=True),
    "backward_hooks": Slot(itself=True, plain_factory=True),
    "input_adapter": ITSELF,
    "output_adapter": ITSELF,
    "input_converter": ITSELF,
    "post_processor": Slot(itself=True, wants_session=True),
    "output_device": ITSELF,
    "stop_condition": Slot(short=lambda name, kwargs: find(f"torcheer.training.stop_conditions.{name}")),
    "object": Slot(),  # one among the arguments of another
}
OUR_LOADER_KEYS = ("dataset", "sampler", "batch_sampler", "collate_fn", "generator", "worker_init_fn")


@dataclass(frozen=True)
class Code:
    """A class or function with the arguments that a description has for it."""

    path: KeyPath  # of the name
    slot: Slot
    name: str
    args: list[Any]
    kwargs: dict[str, Any]

    @classmethod
    def at(cls, data: Any, path: KeyPath, slot: str) -> Code:
        """The code that is named at a path, with the args and kwargs beside it."""
        beside = data
        for key in path[:-1]:
            beside = beside[key]
        is_called = path[-1] in ("class", "factory_fn")
        args, kwargs = (beside.get("args"), beside.get("kwargs")) if is_called else (None, None)
        args, kwargs = args if isinstance(args, list) else [], kwargs if isinstance(kwargs, dict) else {}
        return cls(path, SLOTS[slot], beside[path[-1]], list(args), dict(kwargs))

    @property
    def is_factory(self) -> bool:
        return self.path[-1] == "factory_fn"


class Finder:
    """Where names of code lead: to torch and its kin, or to the user's own modules in one of some folders."""

    def __init__(self, trusted: Iterable[str] = (), folders: Sequence[Path] = ()) -> None:
        self.trusted = (trusted,) if isinstance(trusted, str) else tuple(trusted)
        self.folders = tuple(dict.fromkeys(one.resolve() for one in folders or [Path()]))
        self._found: dict[str, Any] = {}  # a name is one thing, also where its folder is left and entered again

    def complaint(self, name: str) -> str:
        """What is wrong with a name, as far as can be said without importing anything."""
        return self._everywhere(describe(name, trusted=self.trusted, folder=self.folders[self.place(name)]))

    def find(self, name: str) -> Any:
        """The class or function; raises where it may not be had."""
        if name not in self._found:
            try:
                self._found[name] = find(name, trusted=self.trusted, folder=self.folders[self.place(name)])
            except BadConfig as error:
                raise type(error)(self._everywhere(str(error))) from error.__cause__
        return self._found[name]

    def _everywhere(self, said: str) -> str:
        """What is said of the first folder, of all where a module is in none."""
        first, *others = map(str, self.folders)
        return said.replace(f" in {first}.", f" in {' or '.join([first, *others])}.")

    def place(self, name: str) -> int:
        """Which is the first folder that has it."""
        found = (
            number for number, one in enumerate(self.folders) if not describe(name, trusted=self.trusted, folder=one)
        )
        return next(found, 0)


def resolve(code: Code, finder: Finder) -> Any:
    """The class or function of a slot, by its short or its dotted name."""
    short = short_name(code)
    if short and code.slot.short is not None:
        return code.slot.short(short, {} if code.args else code.kwargs)
    found = finder.find(code.name)
    if code.slot.given and getattr(found, "__name__", "") in CLOSURES:
        find_optimizer(found.__name__)  # which says why not
    return found


def short_name(code: Code) -> str:
    """A name without dots; losses of torch.nn are their short names, too, since their lists become tensors there."""
    last = code.name.removeprefix("torch.nn.")
    if code.slot is SLOTS["losses"] and last in LOSSES:
        return last
    return "" if "." in code.name or code.slot.short is None else code.name


def name_fault(code: Code, finder: Finder, *, imports: bool) -> Fault | None:
    """What is wrong with a name and its arguments; users' code is looked at with `imports` only."""
    short = short_name(code)
    if not short and not code.name.startswith(KNOWN) and not imports:
        said = finder.complaint(code.name)
        return Fault(code.path, said.removeprefix(f"{code.name}: ")) if said else None
    if short and code.slot is SLOTS["metrics"] and not imports and torchmetrics_decides(short, code.kwargs):
        known = torchmetrics_names()
        if short in METRICS or not known or short in known:
            return None
        near = nearest(short, [*METRICS, *known])
        return Fault(code.path, f"there is no metric {short!r}, neither here nor in torchmetrics.{near}")
    try:
        found = resolve(code, finder)
    except TorcheerError as error:
        said = str(error).removeprefix(f"{code.name}: ")
        return Fault(argument_path(code, said), said)
    said = unfit(code, found)
    return Fault(argument_path(code, said), said) if said else None


def torchmetrics_decides(name: str, kwargs: Mapping[str, Any]) -> bool:
    """Whether only torchmetrics, which is there, can tell if a metric exists."""
    ours = METRICS.get(name)
    return (ours is None or bool(bind(ours, kwargs))) and find_spec("torchmetrics") is not None


@cache
def torchmetrics_names() -> frozenset[str]:
    """What torchmetrics has, read from its file and not imported; empty where that cannot be read."""
    found = find_spec("torchmetrics")
    try:
        tree = ast.parse(Path(str(found and found.origin)).read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return frozenset()
    lists = (
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.List)
        and any(isinstance(target, ast.Name) and target.id == "__all__" for target in node.targets)
    )
    names = (item.value for one in lists for item in one.elts if isinstance(item, ast.Constant))
    return frozenset(name for name in names if isinstance(name, str))


def unfit(code: Code, found: Any) -> str:
    """Why what was found does not take the arguments; "" if it does."""
    if code.slot.itself and not code.is_factory and not inspect.isclass(found):
        return f"{found.__name__} is used as it is, and takes no args here: write kwargs" if code.args else ""
    if code.path[-1] not in ("class", "factory_fn") or (code.slot.plain_factory and code.is_factory):
        return ""
    if code.slot.given in code.kwargs:
        return f"{found.__name__} is given {code.slot.given!r} by torcheer: leave it out"
    first: list[Any] = [None] if code.is_factory or code.slot.given else []
    said = bind(found, code.kwargs, first + code.args)
    if said and code.slot.wants_session and not bind(found, code.kwargs, [None, *code.args]):
        said = ""
    return said or downloads(found, arguments(found, first + code.args, code.kwargs))


def number_faults(code: Code, finder: Finder, *, imports: bool) -> Iterator[Fault]:
    """Arguments that are texts, look like numbers, and stand where numbers are wanted."""
    try:
        parameters = parameters_of_code(code, finder, imports=imports)
    except TorcheerError:
        return  # which is a fault of its own
    given = int(code.is_factory or bool(code.slot.given))
    for path, number in misplaced_texts(parameters, code.args, code.kwargs, given):
        yield Fault((*code.path[:-1], *path), text_for_number(code.name.rpartition(".")[2], number))


def parameters_of_code(code: Code, finder: Finder, *, imports: bool) -> list[inspect.Parameter]:
    """What named code takes: asked of it where that runs nobody's code but ours, else read from its source."""
    if imports or short_name(code) or code.name.startswith(KNOWN):
        if code.slot is SLOTS["metrics"] and not imports and torchmetrics_decides(short_name(code), code.kwargs):
            return []
        return parameters_of(resolve(code, finder))
    module, _, name = code.name.rpartition(".")
    files = (home(module, folder) for folder in finder.folders if module)
    return next((written_parameters(one, name) for one in files if one is not None and one.suffix == ".py"), [])


def text_for_number(taker: str, number: str) -> str:
    """What is said of a text that stands where a number is wanted."""
    return f"{taker} takes a number here, and this is a text. Write {number}"


def argument_path(code: Code, said: str) -> KeyPath:
    """The key that a complaint is about, where it is one of the arguments."""
    for key in code.kwargs:
        if f"argument {key!r}" in said or f"given {key!r}" in said or f"download {key}" in said:
            return (*code.path[:-1], "kwargs", key)
    return code.path


def loader_fault(path: KeyPath, spec: Mapping[str, Any]) -> Fault | None:
    """What is wrong with the arguments of a loader."""
    kwargs, args = spec.get("kwargs", {}), spec.get("args", [])
    for key in kwargs:
        if key in OUR_LOADER_KEYS:
            return Fault((*path, "kwargs", key), f"{key!r} of a DataLoader is torcheer's own: leave it out")
    said = bind(DataLoader, kwargs, [None, *args])
    if said:
        key = next((key for key in kwargs if f"argument {key!r}" in said), None)
        return Fault((*path, "kwargs", key) if key else path, said)
    for place, number in misplaced_texts(parameters_of(DataLoader), args, kwargs, 1):
        return Fault((*path, *place), text_for_number("DataLoader", number))
    return loader_value_fault(path, arguments(DataLoader, [None, *args], kwargs))


def loader_value_fault(path: KeyPath, given: Mapping[str, Any]) -> Fault | None:
    wanted = {
        "batch_size": (int, 1, "a whole number of 1 or more"),
        "num_workers": (int, 0, "a whole number of 0 or more"),
    }
    for key, (kind, least, words) in wanted.items():
        value = given.get(key, least)
        if not isinstance(value, kind) or isinstance(value, bool) or value < least:
            return Fault((*path, "kwargs", key), f"{words} is needed here")
    for key in ("shuffle", "drop_last"):
        if not isinstance(given.get(key, False), bool):
            return Fault((*path, "kwargs", key), "true or false is needed here")
    return None


def scheduler_fault(path: KeyPath, spec: Mapping[str, Any]) -> Fault | None:
    """What is wrong with when a scheduler steps."""
    try:
        rhythm(spec["class"].split(".")[-1], spec.get("every", ""), spec.get("monitor", ""))
    except TorcheerError as error:
        return Fault(path, str(error))
    return None


def arguments(thing: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """All arguments by name, as far as their function says what it takes."""
    try:
        return dict(inspect.signature(thing).bind_partial(*args).arguments) | dict(kwargs)
    except (TypeError, ValueError):
        return dict(kwargs)


def nested(value: Any, path: KeyPath) -> Iterator[tuple[KeyPath, str]]:
    """Objects among the arguments: `{"class": "my.Thing", "kwargs": {…}}`, and functions: `{"function": "my.f"}`."""
    if is_nested(value):
        yield (*path, "class" if "class" in value else "function"), "object"
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from nested(item, (*path, key))


def is_nested(value: Any) -> bool:
    """Whether a mapping among arguments stands for an object: its name of code has a dot, as no class of a cat has."""
    if not isinstance(value, dict):
        return False
    name = value.get("class", value.get("function"))
    keys = NESTED if "class" in value else {"function"}
    return isinstance(name, str) and "." in name.strip(".") and " " not in name and set(value) <= keys


def called(thing: Any, code: Code, args: Sequence[Any], kwargs: Mapping[str, Any], session: Any) -> Any:
    """What a class or function of a slot makes, or is."""
    if code.is_factory and not code.slot.plain_factory:
        return thing(session, *args, **kwargs)
    is_class = inspect.isclass(thing)
    if code.path[-1] == "function" or (not is_class and code.slot.itself):
        return partial(thing, **kwargs) if kwargs else thing
    if code.slot.wants_session and bind(thing, kwargs, args):
        return thing(session, *args, **kwargs)
    return thing(*args, **kwargs)
