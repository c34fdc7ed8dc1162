"""The settings of a run in YAML, as Lightning leaves them: names and plain values; no object is made."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

from torcheer.errors import TorcheerError
from torcheer.foreign.readers.budget import MOST, Budget, TooLarge
from torcheer.foreign.readers.reading import Reading

FILE: Final = "hparams.yaml"
_MOST_SETTINGS: Final = 300
_MOST_BYTES: Final = 1 << 20
_MOST_STEPS: Final = 20_000  # looks at a value: aliases make a small file endless
_MOST_TEXT, _DEEPEST = 200, 50


def read_settings(reading: Reading) -> tuple[dict[str, Any], list[str]]:
    """Return the settings, nested ones by their path, and what is wrong with them.

    Without PyYAML, or where it is no YAML, those on a line of their own.
    """
    try:
        number = reading.file(FILE)
    except FileNotFoundError:
        return {}, []
    except (TorcheerError, OSError) as error:
        return {}, [f"{FILE}: {error}"]
    if len(reading.data(number)) > _MOST_BYTES:
        return {}, [f"{FILE} has {len(reading.data(number)):,} bytes; at most {_MOST_BYTES:,} are read"]
    text = reading.read(number).decode("utf-8", "replace")
    settings: dict[str, Any] = {}
    try:
        for name, value in islice(_flat("", _parsed(text), Budget({**MOST, "steps": _MOST_STEPS}), 0), _MOST_SETTINGS):
            settings[name] = value
    except TooLarge as error:
        return settings, [str(error)]
    return settings, []


def _parsed(text: str) -> Any:
    """The nodes of the document; without PyYAML a dict of lines."""
    try:
        import yaml

        return yaml.compose(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (ImportError, ValueError, RecursionError):
        return _lines(text)
    except Exception as error:  # YAMLError, of a library that may not be there
        if type(error).__module__.partition(".")[0] != "yaml":
            raise
        return _lines(text)


def _lines(text: str) -> dict[str, Any]:
    """The settings that stand as `name: value` on a line."""
    pairs = (line.partition(": ") for line in text.splitlines() if line[:1].strip() and not line.startswith(("#", "-")))
    return {
        name: plain_cell(value.strip().strip("'\""))
        for name, colon, value in pairs
        if colon and value.strip()[:1] not in "!&*"
    }


def plain_cell(text: str) -> Any:
    """A text as a number, if it is one; None for an empty one."""
    try:
        whole = int(text)
        return whole if abs(whole) < 2**63 else float(text)
    except (ValueError, OverflowError):
        pass
    try:
        return float(text)
    except ValueError:
        return text or None


def _flat(prefix: str, node: Any, budget: Budget, depth: int) -> Iterator[tuple[str, Any]]:
    """Yield the settings in a node; every look at one counts."""
    budget.spend("steps", 1, FILE)
    kind = "lines" if isinstance(node, dict) else getattr(node, "id", "")
    if kind == "lines":
        yield from node.items()
    elif "python/object" in getattr(node, "tag", ""):
        return  # what it is a call of is never called
    elif kind == "mapping" and depth < _DEEPEST:
        for key, value in node.value:
            name = _text(key, budget, depth)
            if name == "<<":  # a mapping whose settings are meant to be here
                yield from _flat(prefix, value, budget, depth + 1)
            else:
                yield from _flat(f"{prefix}.{name}" if prefix else name, value, budget, depth + 1)
    elif kind == "sequence" and prefix:
        yield prefix, _text(node, budget, depth)
    elif kind == "scalar" and prefix and (value := _scalar(node)) is not None:
        yield prefix, value


def _text(node: Any, budget: Budget, depth: int) -> str:
    """A node as one short line."""
    budget.spend("steps", 1, FILE)
    if node.id == "scalar":
        return str(_scalar(node))[:_MOST_TEXT]
    if depth >= _DEEPEST:
        return "…"
    texts, length = [], 0
    for part in node.value:
        pair = part if isinstance(part, tuple) else (part,)
        texts.append(": ".join(_text(each, budget, depth + 1) for each in pair))
        length += len(texts[-1])
        if length > _MOST_TEXT:
            break
    return ", ".join(texts)[:_MOST_TEXT]


def _scalar(node: Any) -> Any:
    """The value of a scalar: a number, a truth value, None or text; of an object of Python its text."""
    import yaml

    kind = node.tag.rpartition(":")[2]
    if kind in ("int", "float", "bool", "null"):
        try:
            value = yaml.constructor.SafeConstructor().construct_object(node)
        except (ValueError, OverflowError, LookupError):
            return node.value[:_MOST_TEXT]
        return str(value) if isinstance(value, float) and not math.isfinite(value) else value
    return node.value[:_MOST_TEXT]
