"""Which layers: the one grammar of every verb that takes layers.

A layer is named by its label ('relu_1'), the path of a module ('features.6'), either with one pass ('relu_1:2'), a
position (7, -1), a pattern ('features.*'), a role ('resid[5]', 'attn[5].q', 'unembed': see `roles`), a module class
('Conv2d', nn.Conv2d), a module, a function of torch ('relu', 'max_pool2d'), or a predicate: a function that receives
one layer and reads its label, module, shape, dtype, flops … 'all' and 'none' are what they say; a list is any of
these. A verb that cannot take a form refuses it by one text.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase, translate
from functools import cache
from typing import TYPE_CHECKING, Any

from torcheer.errors import BadArgument, UnknownLayer
from torcheer.records import Stored
from torcheer.terminal import did_you_mean

if TYPE_CHECKING:
    from torcheer.roles import Place

# One key; modules and their classes are functions to a type checker, as predicates are.
Layer = str | int | slice | Callable[[Any], object]
Layers = Layer | Iterable[Layer]

# Form -> what it is called, and an example, as errors and the table in the docs write them.
FORMS: dict[str, tuple[str, str]] = {
    "all": ("'all'", "'all'"),
    "none": ("'none'", "'none'"),
    "label": ("an operation's label", "'relu_1'"),
    "module": ("a module's path", "'features.6'"),
    "pass": ("one pass of a layer", "'relu_1:2', 'features.6:2'"),
    "position": ("a position", "7"),
    "position from the end": ("a position from the end", "-1"),
    "slice": ("a slice of positions", "slice(2, 5)"),
    "pattern": ("a pattern", "'features.*'"),
    "role": ("a role", "'resid[5]', 'attn[5]', 'unembed'"),
    "part": ("a part of a role", "'attn[5].q', 'mlp[5].in'"),
    "class": ("a module class", "'Conv2d', nn.Conv2d"),
    "object": ("a module", "model.head"),
    "function": ("a function's name", "'relu'"),
    "predicate": ("a predicate", "lambda layer: layer.shape[-1] == 512"),
}
_MODULES_ONLY = dict.fromkeys(
    ("label", "function", "position", "position from the end", "slice"), "it follows modules, not single operations"
) | {"pass": "it sees every call of a module", "part": "it follows what whole modules return"}
_SLICES = {"slice": "positions are counted while the model runs"}
_TEXT_ONLY = dict.fromkeys(("object", "predicate"), "a config holds texts and numbers")
_WHOLE = {"part": "it keeps what whole modules return"}
_BY_NAME = {form: why for form, why in _MODULES_ONLY.items() if form != "part"} | {
    "all": "values of different shapes are no table", "none": "there would be nothing to read",
    "predicate": "it hooks modules before the model has run",
}  # fmt: skip
# Verb -> the forms that it cannot take, and why.
REFUSALS: dict[str, dict[str, str]] = {
    "layers_to_save": _SLICES,
    "layers_to_save (structure=False)": _MODULES_ONLY | {"pass": "it keeps every call of a module"},
    "edits": _SLICES
    | {"position from the end": "the end is not known while the model runs", "none": "an edit needs a layer"},
    "find": {},
    "extract": _SLICES | _WHOLE | {"none": "there would be nothing to extract"},
    "watch": _MODULES_ONLY,
    "checkpoint": _MODULES_ONLY,
    "live": _MODULES_ONLY,
    "patch_sweep": _BY_NAME,
    "lens": _BY_NAME,
    "attribute": _MODULES_ONLY,
    "capture (config)": _SLICES | _TEXT_ONLY,
    "extract (config)": _SLICES | _WHOLE | _TEXT_ONLY | {"none": "there would be nothing to extract"},
    "watch (config)": _MODULES_ONLY | _TEXT_ONLY,
}

_LABEL = re.compile(r"([a-z0-9]+)_(\d+)(?:_(\d+))?(?::(\d+))?$")
WILD = frozenset("*?[")
# What of a pattern can stand for ':' and the number of a pass, and not for the end of a module's path.
_NAMES_A_PASS = re.compile(r":|(\*|(\?|\[[^]]*\])(?=.))([0-9?*]|\[[^]]*\])*$")


@dataclass(frozen=True, slots=True)
class Selector:
    """One parsed key: what a person typed for one or several layers."""

    key: Any
    form: str  # of FORMS; "pass" is "label" or "module" with a `call`, "object" is "module"
    name: str = ""  # "conv2d" of a label, the path of a module, the name of a class, or the pattern (of labels)
    number: int = 0  # 3 of 'conv2d_3'
    index: int = -1  # the position; 7 of 'conv2d_3_7'
    call: int = 0  # number of the pass; 0 for all
    test: Callable[[Any], object] | None = None
    places: tuple[Place, ...] = ()  # of a role

    @property
    def for_modules(self) -> bool:
        """Whether it can select the output of a module."""
        return self.form in ("module", "class", "pattern", "role")

    @property
    def for_ops(self) -> bool:
        """Whether it can select an operation by itself."""
        return self.form not in ("module", "class", "none", "role")

    @property
    def is_pattern(self) -> bool:
        """Whether `name` is a pattern that labels are compared with."""
        return self.form in ("pattern", "function")

    def matches_name(self, names: Iterable[str]) -> bool:
        """Whether a pattern matches one of these names."""
        return any(fnmatchcase(name, self.name) for name in names)

    def modules_among(self, modules: Mapping[str, Any]) -> Iterable[str]:
        """Return the paths of the modules of which it may select a call."""
        if self.form == "role":
            return [place.path for place in self.places if place.at == "output"]
        if self.form == "module":
            return [self.name] if self.name in modules else []
        if self.form == "class":
            return [path for path, module in modules.items() if class_name(module) == self.name]
        if not self.means_every_call:
            return list(modules)
        matches = re.compile(translate(self.name)).match
        if not self.reads_class:
            return [path for path in modules if matches(path)]
        return [path for path, module in modules.items() if matches(path) or matches(class_name(module))]

    @property
    def means_every_call(self) -> bool:
        """Whether it selects all calls of a module or none; a pattern may match the name of one, 'features.6:2'."""
        if self.form != "pattern":
            return not self.call
        begin = self.name.rstrip("*")
        return _NAMES_A_PASS.search(begin if begin == self.name else f"{begin}0") is None

    @property
    def reads_class(self) -> bool:
        """Whether it compares names of classes, which have no dots."""
        return self.form == "class" or (self.form == "pattern" and "." not in self.name)

    def matches_call(self, address: str, call: int, kind: str) -> bool:
        """Whether it selects the result of one call of a module of class `kind`."""
        if self.form == "class":
            return kind == self.name
        if self.form == "role":
            return self.call in (0, call) and self.place_at(address, "output") is not None
        if self.form == "module":
            return address == self.name and self.call in (0, call)
        return self.form == "pattern" and self.matches_name((address, f"{address}:{call}", kind))

    def place_at(self, address: str, side: str) -> Place | None:
        """Return the place of a role at the output or the input of a module."""
        return next((place for place in self.places if place.path == address and place.at == side), None)


def parse_all(layers: Any, modules: Mapping[str, Any], verb: str) -> list[Selector]:
    """Parse what was given as layers: one key or several.

    - `modules`: the model's modules by path, or the names of their classes by path.
    - `verb`: a key of REFUSALS; forms that it cannot take raise BadArgument.
    """
    return [parse(key, modules, verb) for key in keys_of(layers, verb)]


def keys_of(layers: Any, verb: str) -> Iterable[Any]:
    """Return the single keys of what was given as layers."""
    if isinstance(layers, Mapping):
        raise BadArgument(f"{verb}: a mapping has no meaning here; give layers or a list of them")
    if isinstance(layers, str | int | slice) or is_module(layers) or callable(layers):
        return (layers,)
    if isinstance(layers, Iterable):
        return layers
    raise BadArgument(f"{verb}: {_not_a_layer(layers, verb)}")


def parse(key: Any, modules: Mapping[str, Any], verb: str) -> Selector:
    """Parse one key."""
    selector = _parse(key, modules, verb)
    is_pass = selector.call and selector.form in ("label", "module")
    is_object = not isinstance(key, str) and selector.form == "module"
    from_end = selector.form == "position" and selector.index < 0
    form = "pass" if is_pass else "object" if is_object else "position from the end" if from_end else selector.form
    if selector.places and any(place.heads or place.at == "input" for place in selector.places):
        form = "part"
    if form in REFUSALS[verb]:
        raise BadArgument(refusal(verb, form, key))
    return selector


def refusal(verb: str, form: str, key: Any) -> str:
    """Return the text by which a verb refuses a form: what was given, why not, and what works."""
    honoured = ", ".join(example for other, (_, example) in FORMS.items() if other not in REFUSALS[verb])
    return f"{verb} cannot take {FORMS[form][0]}, {key!r}: {REFUSALS[verb][form]}. It takes {honoured}"


def is_module(key: Any) -> bool:
    """Whether something is a module (known without torch), not a module class."""
    return hasattr(key, "named_modules") and not isinstance(key, type)


def _parse(key: Any, modules: Mapping[str, Any], verb: str) -> Selector:
    if isinstance(key, str):
        return _parse_text(key, modules, verb)
    if isinstance(key, slice):
        return Selector(key, "slice")
    if not isinstance(key, bool) and hasattr(key, "__index__"):
        return Selector(key, "position", index=key.__index__())
    if isinstance(key, type):
        return Selector(key, "class", key.__name__)
    if is_module(key):
        return Selector(key, "module", _path_of(key, modules, verb))
    if callable(key):
        _check_predicate(key, verb)
        return Selector(key, "predicate", test=key)
    raise BadArgument(f"{verb}: {_not_a_layer(key, verb)}")


def _parse_text(key: str, modules: Mapping[str, Any], verb: str) -> Selector:
    if key in ("all", "none"):
        return Selector(key, key)
    if key in modules:
        return Selector(key, "module", key)
    if re.match(r"lambda\b", key):
        raise BadArgument(refusal(verb, "predicate", key) if "predicate" in REFUSALS[verb] else
                          f"{verb}: {key!r} is a string; give the function itself")  # fmt: skip
    address, _, call = key.rpartition(":") if ":" in key else (key, "", "")
    if address in modules and call.isdecimal():
        return Selector(key, "module", address, call=int(call))
    if role := _parse_role(key, modules):
        return role
    if label := _LABEL.match(key):
        name, number, index, passes = label.groups()
        return Selector(key, "label", name, int(number), int(index) if index else -1, int(passes or 0))
    if not WILD.isdisjoint(key):
        return Selector(key, "pattern", key)
    classes = {class_name(module) for module in modules.values()}
    if key in classes:
        return Selector(key, "class", key)
    if key.islower() and label_name(key) in function_names():
        return Selector(key, "function", f"{label_name(key)}_*")
    some = ", ".join(repr(name) for name in list(modules)[:4])
    hint = did_you_mean(address, [*modules, *classes], 3) or (f" There are {some} …" if modules else "")
    raise UnknownLayer(f"no layer or module named {key!r} among {len(modules)} modules.{hint}")


def label_name(function: str) -> str:
    """Return a function's name in labels: "maxpool2d" for `max_pool2d`."""
    return "".join(letter for letter in function.lower() if letter.isalnum()) or "op"


@cache
def function_names() -> frozenset[str]:
    """Return the names in labels of torch's functions; none where torch is not loaded."""
    torch = sys.modules.get("torch")
    if torch is None:
        return frozenset()
    homes = (torch, torch.Tensor, torch.nn.functional, torch.special, torch.fft, torch.linalg)
    return frozenset(label_name(name) for home in homes for name in dir(home) if callable(getattr(home, name, None)))


def _parse_role(key: str, modules: Mapping[str, Any]) -> Selector | None:
    from torcheer.roles import is_role, roles_of

    if not is_role(key):
        return None
    call = key.rpartition(":")[2] if re.search(r":\d+$", key) else ""
    return Selector(key, "role", call=int(call or 0), places=roles_of(modules).resolve(key))


def class_name(module: Any) -> str:
    """Return the name of a module's class; of a name, or a name with shapes of parameters, the name."""
    if isinstance(module, tuple):
        return str(module[0])
    return module if isinstance(module, str) else type(module).__name__


def _path_of(module: Any, modules: Mapping[str, Any], verb: str) -> str:
    for path, candidate in modules.items():  # most often; a module that is asked for what it has not takes its time
        if candidate is module:
            return path
    inner = getattr(module, "_orig_mod", module)
    for path, candidate in modules.items():
        if getattr(candidate, "_orig_mod", candidate) is inner:
            return path
    raise UnknownLayer(f"{verb}: the {type(module).__name__} given is no part of this model of {len(modules)} modules")


def _check_predicate(predicate: Any, verb: str) -> None:
    try:
        inspect.signature(predicate).bind(None)
    except TypeError:
        raise BadArgument(
            f"{verb}: a predicate receives one layer and reads layer.label, layer.module, layer.shape …; "
            f"{getattr(predicate, '__name__', predicate)!r} cannot be called with one argument"
        ) from None
    except ValueError:  # a builtin without a signature
        pass


def _not_a_layer(key: Any, verb: str) -> str:
    honoured = ", ".join(example for form, (_, example) in FORMS.items() if form not in REFUSALS[verb])
    return f"{key!r} names no layer; give {honoured}"


@dataclass(frozen=True, slots=True)
class ModuleLayer:
    """A layer as a predicate receives it where layers are chosen before the model has run."""

    label: str  # the module's path
    module: str
    module_type: str  # "Conv2d"
    stored: tuple[Stored, ...] = ()  # its own parameters and buffers

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise BadArgument(
            f"a predicate asked for layer.{name}, but the layers are chosen before the model has run: only "
            "layer.label, layer.module, layer.module_type and layer.stored are known here"
        )


def matches_module(pattern: str | type, path: str, kind: str) -> bool:
    """Whether a pattern over paths or class names, or a module class, means a module, where no model is at hand."""
    if isinstance(pattern, type):
        return kind == pattern.__name__
    return fnmatchcase(path, pattern) or fnmatchcase(kind, pattern)


def matches_value(pattern: str, layer: str, variable: str) -> bool:
    """Whether a pattern over watched values matches one: 'features.*/output', or 'features.*' for all of a layer."""
    return fnmatchcase(f"{layer}/{variable}", pattern) or ("/" not in pattern and fnmatchcase(layer, pattern))


def config_fault(value: Any, verb: str) -> str:
    """Return what is wrong with a config's value for layers, without knowing the model; "" if nothing is."""
    keys = value if isinstance(value, list | tuple) else [value]
    if not keys:
        return f"{verb}: the list of layers is empty"
    for key in keys:
        if (is_module(key) and "object" in REFUSALS[verb]) or callable(key) or re.match(r"lambda\b", str(key)):
            return refusal(verb, "object" if is_module(key) else "predicate", key)
        if isinstance(key, bool) or not isinstance(key, str | int):
            return f"{verb}: {_not_a_layer(key, verb)}"
    return ""
