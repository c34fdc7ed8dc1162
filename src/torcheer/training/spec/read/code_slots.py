"""Code named in a description.

What each slot accepts, its short names, and checks of arguments.
"""

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

from torcheer.config import bind, describe, downloads, find, read_source
from torcheer.config.arguments import refused_word, unknown_argument
from torcheer.config.code_names import current_name
from torcheer.config.line_numbers import KeyPath
from torcheer.config.source_code import Unclear
from torcheer.errors import BadConfig, TorcheerError
from torcheer.terminal import did_you_mean
from torcheer.training.metrics import LOSSES, METRICS, find_loss, find_metric
from torcheer.training.optimizers import CLOSURES, find_optimizer, find_scheduler, schedule_timing
from torcheer.training.spec.read.value_kinds import Fault, NotChecked

OUR_PACKAGES = ("torch.", "torcheer.", "torcheer_originals.")  # importing these runs no user code
NESTED = {"class", "args", "kwargs"}


@dataclass(frozen=True)
class Slot:
    """How code named at a key path is used."""

    first_argument: str = ""  # name of the first argument, which torcheer passes
    short: Callable[[str, Mapping[str, Any]], Any] | None = None  # resolves a name without dots
    itself: bool = False  # a function is used as it is, not called to make an object
    wants_session: bool = False  # a class that cannot be made otherwise receives the session
    plain_factory: bool = False  # a factory function does not receive the session


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
    "callbacks": ITSELF,
    "input_adapter": ITSELF,
    "output_adapter": ITSELF,
    "input_converter": ITSELF,
    "post_processor": Slot(itself=True, wants_session=True),
    "output_device": ITSELF,
    "stop_condition": Slot(short=lambda name, kwargs: find(f"torcheer.training.stop_conditions.{name}")),
    "object": Slot(),  # an object among the arguments of another
}
OUR_LOADER_KEYS = ("dataset", "sampler", "batch_sampler", "collate_fn", "generator", "worker_init_fn")


@dataclass(frozen=True)
class Code:
    """A class or function named in a description, with its arguments."""

    path: KeyPath  # of the name
    slot: Slot
    name: str
    args: list[Any]
    kwargs: dict[str, Any]

    @classmethod
    def at(cls, data: Any, path: KeyPath, slot: str) -> Code:
        """Return the code named at a path, with the args and kwargs beside it."""
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
    """Resolves names of code: to torch and torcheer, or to the user's modules in some folders."""

    def __init__(self, trusted: Iterable[str] = (), folders: Sequence[Path] = ()) -> None:
        self.trusted = (trusted,) if isinstance(trusted, str) else tuple(trusted)
        self.folders = tuple(dict.fromkeys(folder.resolve() for folder in folders or [Path()]))
        self._cache: dict[str, Any] = {}  # a name keeps its object, also when its folder is unloaded and loaded again

    def find(self, name: str) -> Any:
        """Return the class or function; raise where it is missing or not trusted."""
        if name not in self._cache:
            try:
                self._cache[name] = find(name, trusted=self.trusted, folder=self.folders[self.folder_index(name)])
            except BadConfig as error:
                raise type(error)(self._name_all_folders(str(error))) from error.__cause__
        return self._cache[name]

    def read(self, name: str) -> Any:
        """Return the class or function as its source file describes it, importing nothing.

        Raise where it is missing or not trusted, and Unclear where only an import could tell.
        """
        try:
            return read_source(name, trusted=self.trusted, folder=self.folders[self.folder_index(name)])
        except TorcheerError as error:
            raise type(error)(self._name_all_folders(str(error))) from None

    def _name_all_folders(self, message: str) -> str:
        """Replace the first folder in a message by all folders, where a module is in none of them."""
        first, *others = map(str, self.folders)
        return message.replace(f" in {first}.", f" in {' or '.join([first, *others])}.")

    def folder_index(self, name: str) -> int:
        """Return the index of the first folder that has a name."""
        matches = (
            number
            for number, folder in enumerate(self.folders)
            if not describe(name, trusted=self.trusted, folder=folder)
        )
        return next(matches, 0)


def resolve(code: Code, finder: Finder) -> Any:
    """Return the class or function of a slot, by its short or its dotted name."""
    short = short_name(code)
    if short and code.slot.short is not None:
        return code.slot.short(short, {} if code.args else code.kwargs)
    target = finder.find(code.name)
    if code.slot.first_argument and getattr(target, "__name__", "") in CLOSURES:
        find_optimizer(target.__name__)  # raises with the reason
    return target


def short_name(code: Code) -> str:
    """Return a name without dots, else "".

    Losses of torch.nn also count as short names, since lists of weights become tensors there.
    """
    last = code.name.removeprefix("torch.nn.")
    if code.slot is SLOTS["losses"] and last in LOSSES:
        return last
    return "" if "." in code.name or code.slot.short is None else code.name


def name_fault(
    code: Code, finder: Finder, *, imports: bool, is_word: Callable[[KeyPath], bool]
) -> Fault | NotChecked | None:
    """Return the fault of a name and its arguments; users' code is imported only with `imports`, and read otherwise.

    `is_word`: whether an argument was typed on the command line as a string without quotes.
    """
    name, is_read = code.name, not imports and not is_ours(code)
    short = short_name(code)
    if short and code.slot is SLOTS["metrics"] and not imports and torchmetrics_decides(short, code.kwargs):
        names = torchmetrics_names()
        if short not in METRICS and names and short not in names:
            near = did_you_mean(short, [*METRICS, *names])
            return Fault(code.path, f"there is no metric {short!r}, neither here nor in torchmetrics.{near}")
        name, is_read = f"torchmetrics.{short}", True
    try:
        target = finder.read(name) if is_read else resolve(code, finder)
    except Unclear as error:
        return NotChecked(code.path, str(error))
    except TorcheerError as error:
        problem = str(error).removeprefix(f"{name}: ")
        return Fault(argument_path(code, problem), problem)
    if problem := argument_problem(code, target):
        return Fault(argument_path(code, problem), problem)
    return word_fault(code.path[:-1], code.kwargs, target, is_word) or unnamed_arguments(code, target)


def word_fault(
    path: KeyPath, kwargs: Mapping[str, Any], target: Any, is_word: Callable[[KeyPath], bool]
) -> Fault | None:
    """Return the fault of a word of the command line where a class or function plainly takes no string."""
    for key, value in kwargs.items():
        place = (*path, "kwargs", key)
        if isinstance(value, str) and is_word(place) and (problem := refused_word(target, key, value)):
            return Fault(place, problem)
    return None


def unnamed_arguments(code: Code, target: Any) -> NotChecked | None:
    """Return the arguments that a class or function takes without naming them, as it passes them on."""
    path = (*code.path[:-1], "kwargs")
    try:
        parameters = inspect.signature(target).parameters
    except (TypeError, ValueError):
        message = f"{target.__name__} does not say which arguments it takes"
        return NotChecked(path, message) if code.kwargs else None
    names = [key for key in code.kwargs if key not in parameters]
    if not names or not any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
        return None
    return NotChecked((*path, names[0]), f"{target.__name__} takes it as one of **kwargs, and may refuse it")


def is_ours(code: Code) -> bool:
    """Return whether code is of torch or torcheer, so that importing it runs no user's code."""
    return bool(short_name(code)) or current_name(code.name).startswith(OUR_PACKAGES)


def torchmetrics_decides(name: str, kwargs: Mapping[str, Any]) -> bool:
    """Return whether torchmetrics is installed and only it can tell if a metric exists."""
    builtin = METRICS.get(name)
    return (builtin is None or bool(bind(builtin, kwargs))) and find_spec("torchmetrics") is not None


@cache
def torchmetrics_names() -> frozenset[str]:
    """Return the names in torchmetrics, read from its file without importing it.

    Empty where unreadable.
    """
    spec = find_spec("torchmetrics")
    try:
        tree = ast.parse(Path(str(spec and spec.origin)).read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return frozenset()
    lists = (
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.List)
        and any(isinstance(target, ast.Name) and target.id == "__all__" for target in node.targets)
    )
    names = (item.value for name_list in lists for item in name_list.elts if isinstance(item, ast.Constant))
    return frozenset(name for name in names if isinstance(name, str))


def argument_problem(code: Code, target: Any) -> str:
    """Explain why a class or function does not take its arguments; "" if it does."""
    if code.slot.itself and not code.is_factory and not inspect.isclass(target):
        wrong_args = f"{target.__name__} is used as it is, and takes no args here: write kwargs" if code.args else ""
        return wrong_args or unknown_argument(target, code.kwargs)
    if code.path[-1] not in ("class", "factory_fn") or (code.slot.plain_factory and code.is_factory):
        return ""
    if code.slot.first_argument in code.kwargs:
        return f"{target.__name__} is given {code.slot.first_argument!r} by torcheer: leave it out"
    first: list[Any] = [None] if code.is_factory or code.slot.first_argument else []
    problem = bind(target, code.kwargs, first + code.args)
    if problem and code.slot.wants_session and not bind(target, code.kwargs, [None, *code.args]):
        problem = ""
    return problem or downloads(target, arguments(target, first + code.args, code.kwargs))


def argument_path(code: Code, message: str) -> KeyPath:
    """Return the key path of the argument that a message names, else that of the code."""
    for key in code.kwargs:
        if f"argument {key!r}" in message or f"given {key!r}" in message or f"download {key}" in message:
            return (*code.path[:-1], "kwargs", key)
    return code.path


def loader_fault(path: KeyPath, spec: Mapping[str, Any], is_word: Callable[[KeyPath], bool]) -> Fault | None:
    """Return the fault of a loader's arguments."""
    kwargs, args = spec.get("kwargs", {}), spec.get("args", [])
    for key in kwargs:
        if key in OUR_LOADER_KEYS:
            return Fault((*path, "kwargs", key), f"{key!r} of a DataLoader is torcheer's own: leave it out")
    problem = bind(DataLoader, kwargs, [None, *args])
    if problem:
        key = next((key for key in kwargs if f"argument {key!r}" in problem), None)
        return Fault((*path, "kwargs", key) if key else path, problem)
    values = arguments(DataLoader, [None, *args], kwargs)
    return loader_value_fault(path, values) or word_fault(path, kwargs, DataLoader, is_word)


def loader_value_fault(path: KeyPath, values: Mapping[str, Any]) -> Fault | None:
    wanted = {
        "batch_size": (int, 1, "a whole number of 1 or more"),
        "num_workers": (int, 0, "a whole number of 0 or more"),
    }
    for key, (kind, least, words) in wanted.items():
        value = values.get(key, least)
        if not isinstance(value, kind) or isinstance(value, bool) or value < least:
            return Fault((*path, "kwargs", key), f"{words} is needed here")
    for key in ("shuffle", "drop_last"):
        if not isinstance(values.get(key, False), bool):
            return Fault((*path, "kwargs", key), "true or false is needed here")
    return None


def scheduler_fault(path: KeyPath, spec: Mapping[str, Any]) -> Fault | None:
    """Return the fault of a scheduler's `every` and `monitor`."""
    try:
        schedule_timing(spec["class"].split(".")[-1], spec.get("every", ""), spec.get("monitor", ""))
    except TorcheerError as error:
        return Fault(path, str(error))
    return None


def arguments(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return all arguments by name, as far as the function's signature tells."""
    try:
        return dict(inspect.signature(function).bind_partial(*args).arguments) | dict(kwargs)
    except (TypeError, ValueError):
        return dict(kwargs)


def nested_code(value: Any, path: KeyPath) -> Iterator[tuple[KeyPath, str]]:
    """Yield the code named among arguments.

    `{"class": "my.Thing", "kwargs": {…}}` is an object, `{"function": "my.f"}` a function.
    """
    if is_nested(value):
        yield (*path, "class" if "class" in value else "function"), "object"
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from nested_code(item, (*path, key))


def is_nested(value: Any) -> bool:
    """Return whether a mapping among arguments names code.

    Then its name has a dot, unlike {"class": "cat"}.
    """
    if not isinstance(value, dict):
        return False
    name = value.get("class", value.get("function"))
    keys = NESTED if "class" in value else {"function"}
    return isinstance(name, str) and "." in name.strip(".") and " " not in name and set(value) <= keys


def call_code(target: Any, code: Code, args: Sequence[Any], kwargs: Mapping[str, Any], session: Any) -> Any:
    """Call a class or function as its slot says, or return a function itself."""
    if code.is_factory and not code.slot.plain_factory:
        return target(session, *args, **kwargs)
    is_class = inspect.isclass(target)
    if code.path[-1] == "function" or (not is_class and code.slot.itself):
        return partial(target, **kwargs) if kwargs else target
    if code.slot.wants_session and bind(target, kwargs, args):
        return target(session, *args, **kwargs)
    return target(*args, **kwargs)
