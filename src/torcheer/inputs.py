"""A model's inputs: what a tensor, a tuple, a dict and `input_kwargs` mean, the same for every verb."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from torcheer.errors import BadArgument, WrongInputs

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)

Call = tuple[tuple[Any, ...], dict[str, Any]]


def call_arguments(model: Any, inputs: Any = (), input_kwargs: Mapping[str, Any] | None = None) -> Call:
    """Positional and keyword arguments for `model(...)`.

    | given | means |
    |---|---|
    | a tuple or list | one positional argument each; a single argument where `forward` takes only one |
    | a dict whose keys are parameters of `forward` | keyword arguments |
    | anything else: a tensor, another dict, an object | one positional argument |
    | `input_kwargs` | keyword arguments, besides `inputs` |
    """
    if input_kwargs is not None and not isinstance(input_kwargs, Mapping):
        raise BadArgument(
            f"input_kwargs is a {type(input_kwargs).__name__}; give a dict of forward's keyword "
            "arguments, or None. Layers to save go into layers_to_save=, several inputs into a tuple: (x, y)"
        )
    keywords = dict(input_kwargs or {})
    if isinstance(inputs, Mapping) and _names_parameters(model, inputs):
        if twice := sorted(inputs.keys() & keywords.keys()):
            raise BadArgument(f"{', '.join(twice)}: given in the inputs and in input_kwargs; give each once")
        return (), {**inputs, **keywords}
    if isinstance(inputs, (tuple, list)) and not _is_one_argument(model, inputs):
        return tuple(inputs), keywords
    return (inputs,), keywords


def check_arguments(model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> WrongInputs | None:
    """The error for arguments that `forward` refused; None where they fit it, or where its signature is unknown."""
    signature = _signature(model)
    if signature is None:
        return None
    taken = ", ".join(str(parameter).split(":")[0] for parameter in signature.parameters.values())
    try:
        signature.bind(*args, **kwargs)
    except TypeError as reason:
        count = f"{len(args)} {'was' if len(args) == 1 else 'were'} given"
        words = f" and the keywords {', '.join(kwargs)}" if kwargs else ""
        hint = unknown_keys(model, args)
        return WrongInputs(
            f"{type(model).__name__}.forward({taken}): {count}{words}: {reason}{f'; {hint}' if hint else ''}"
        )
    takes_more = any(parameter.kind is parameter.VAR_POSITIONAL for parameter in signature.parameters.values())
    if len(args) == 1 and not kwargs and isinstance(args[0], tuple) and not takes_more:
        return WrongInputs(
            f"{type(model).__name__}.forward({taken}): {len(args[0])} were given, as one tuple, since it takes a "
            f"single argument; it does not take a tuple"
        )
    return None


def argument_places(model: Any, paths: Sequence[tuple[int | str, ...]]) -> list[tuple[int | str, ...]]:
    """Places in `(args, kwargs)` by forward's own names: (0, 1, "mask") becomes ("batch", "mask")."""
    signature = _signature(model)
    has_own = signature is not None and getattr(model.forward, "__name__", "") != "_forward_unimplemented"
    names = list(signature.parameters.values()) if signature is not None and has_own else []
    before = [parameter.name for parameter in names if parameter.kind in _POSITIONAL]
    rest = next((parameter.name for parameter in names if parameter.kind is parameter.VAR_POSITIONAL), None)
    places: list[tuple[int | str, ...]] = []
    for side, argument, *inside in paths:
        if side == 0 and isinstance(argument, int) and argument < len(before):
            places.append((before[argument], *inside))
        elif side == 0 and isinstance(argument, int) and rest is not None:
            places.append((rest, argument - len(before), *inside))
        else:
            places.append((argument, *inside))
    return places


def unknown_keys(model: Any, args: tuple[Any, ...]) -> str:
    """What to say where a dict was given as one argument because only some of its keys are parameters; else ""."""
    signature = _signature(model)
    if signature is None or len(args) != 1 or not isinstance(args[0], Mapping):
        return ""
    known = [str(key) for key in args[0] if key in _keywords(signature)]
    unknown = [str(key) for key in args[0] if key not in _keywords(signature)]
    if not known or not unknown:
        return ""
    return (
        f"the dict was given as one argument: {', '.join(known)} are parameters of {type(model).__name__}.forward, "
        f"{', '.join(unknown)} are not. Leave those out to give the rest as keywords"
    )


def _names_parameters(model: Any, inputs: Mapping[Any, Any]) -> bool:
    signature = _signature(model)
    if signature is None or not inputs or not all(isinstance(key, str) for key in inputs):
        return False
    named = _keywords(signature)
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in signature.parameters.values())
    if not takes_any:
        return set(inputs) <= named
    return not named or bool(named & set(inputs))  # forward(**batch), or forward(input_ids, …, **others)


def _keywords(signature: inspect.Signature) -> set[str]:
    by_keyword = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {name for name, parameter in signature.parameters.items() if parameter.kind in by_keyword}


def _is_one_argument(model: Any, inputs: tuple[Any, ...] | list[Any]) -> bool:
    """Whether forward takes the whole sequence as one argument: a detection model takes a list of images."""
    if isinstance(inputs, tuple) and len(inputs) < 2:
        return False
    signature = _signature(model)
    if signature is None:
        return False
    parameters = list(signature.parameters.values())
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return False
    positional = [parameter for parameter in parameters if parameter.kind in _POSITIONAL]
    annotation = str(positional[0].annotation).lower() if positional else ""
    if isinstance(inputs, list) and ("list" in annotation or "sequence" in annotation):
        return True
    # A list may be one argument of several; a tuple is one only where there is no room for a second.
    return len(inputs) > len(positional) and (isinstance(inputs, list) or len(positional) == 1)


def _signature(model: Any) -> inspect.Signature | None:
    """What `forward` takes; of a wrapper that passes everything on (DDP, compiled), what the wrapped model takes."""
    try:
        signature = inspect.signature(model.forward)
    except (AttributeError, TypeError, ValueError):
        return None
    kinds = {parameter.kind for parameter in signature.parameters.values()}
    if kinds == {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}:
        for name in ("_orig_mod", "module"):
            if hasattr(getattr(model, name, None), "forward"):
                return _signature(getattr(model, name))
    return signature
