"""Do the arguments of a config fit what it names."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from torcheer.config.problems import nearest


def bind(thing: Any, kwargs: Mapping[str, Any], args: Sequence[Any] = ()) -> str:
    """Why a class or function does not take these arguments; "" if it does, or does not say what it takes."""
    try:
        signature = inspect.signature(thing)
    except (TypeError, ValueError):
        return ""
    parameters = list(signature.parameters.values())
    known = [each.name for each in parameters if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)]
    anything = any(each.kind is each.VAR_KEYWORD for each in parameters)
    for key in kwargs:
        if key not in known and not anything:
            takes = f"it takes {', '.join(known)}" if known else "it takes nothing"
            return f"{thing.__name__} has no argument {key!r}; {takes}.{nearest(key, known)}"
    missing = [each for each in without(parameters, len(args)) if each not in kwargs]
    if missing:
        return f"{thing.__name__} also needs {' and '.join(map(repr, missing))}."
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:  # too many, or the same one twice
        return f"{thing.__name__}: {error}."
    return ""


def without(parameters: Sequence[inspect.Parameter], count: int) -> list[str]:
    """The required parameters that are left when the first `count` are given by position."""
    by_position = [each for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    by_name = [each for each in parameters if each.kind is each.KEYWORD_ONLY]
    return [each.name for each in by_position[count:] + by_name if each.default is each.empty]


def downloads(thing: Any, kwargs: Mapping[str, Any]) -> str:
    """Why calling something of torchvision would fetch what the config does not ask for; "" if it would not.

    A dataset may download where the config says so. Weights never come this way, and detection models would fetch
    those of their backbone even when nobody asked.
    """
    origin = str(getattr(thing, "__module__", ""))
    if not origin.startswith(("torchvision.models.", "torchvision.datasets.")):
        return ""
    given = {each.name: each.default for each in inspect.signature(thing).parameters.values()} | dict(kwargs)
    for key, value in given.items():
        if value in (None, False, inspect.Parameter.empty):
            continue
        if key.startswith(("weights", "pretrained")):
            return f"{thing.__name__} would download {key}: write {key} as null, and load weights of your own."
        if key == "download" and key not in kwargs:
            return f"{thing.__name__} downloads unless it is told not to: write download as true or false."
    return ""
