"""The one note on an exception that passes through us: where in the model it was raised, and with what.

Everything is read from the traceback, after the fact: nothing is kept while a model runs. No torch is imported here;
where a module is on the way, torch is there already.
"""

from __future__ import annotations

import linecache
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from types import FrameType
from typing import Any

from torcheer.errors import TorcheerError
from torcheer.terminal import human_bytes

HEAD = "torcheer: what is known of this error"
NO_HISTORY = "none was kept; tl.log_forward_pass(model, inputs) of the same call keeps one, as error.history"
_FACTS = "_torcheer_facts"
# They hold what a module was given.
_CALLS = frozenset(("_call_impl", "_wrapped_call_impl", "_traced_call", "_direct_call"))
_MOST_ARGUMENTS, _MOST_MODULES = 8, 5
_OURS = os.path.dirname(os.path.dirname(__file__)) + os.sep
_CONTEXTLIB = os.path.join(os.path.dirname(os.__file__), "contextlib.py")
_NO_MEMORY = ("out of memory", "can't allocate memory", "not enough memory", "cannot allocate memory")


def _nothing(frame: FrameType) -> str:
    return ""


def annotate(error: BaseException, **facts: str) -> None:
    """Add facts to the note that an exception carries: one note, whoever adds to it; what is known already stays."""
    with suppress(AttributeError, TypeError):  # exceptions that take no attributes
        known: dict[str, str] = getattr(error, _FACTS, {})
        before = _text(known)
        known = {**known, **{name: text for name, text in facts.items() if text and name not in known}}
        setattr(error, _FACTS, known)
        notes = [note for note in getattr(error, "__notes__", ()) if note != before]
        error.__notes__ = [*notes, _text(known)]


def _text(facts: Mapping[str, str]) -> str:
    return "\n".join([HEAD, *(f"  {name.replace('_', ' ')}: {text}" for name, text in facts.items())])


def explain(
    error: BaseException | None,
    model: Any = None,
    *,
    operation: Callable[[FrameType], str] = _nothing,
    held: Callable[[], Mapping[str, int]] = dict,
    **facts: str | Callable[[], str],
) -> None:
    """Annotate an exception that passes through us with where it was raised; Ctrl-C and the like stay as they are.

    `operation` says what a frame of the traceback was doing, and `held` how many bytes of values each module has, by
    address, which is asked only when memory has run out. `facts` are what else is known, as text or made when needed.
    """
    if not isinstance(error, Exception):
        return
    with suppress(Exception):  # the error itself is what counts
        annotate(error, **located(error, model, operation))
    for name, text in facts.items():
        with suppress(Exception):
            annotate(error, **{name: text if isinstance(text, str) else text()})
    if is_out_of_memory(error):
        with suppress(Exception):
            annotate(error, memory=memory_of(model if model is not None else _root(error), held()))


# -- where -----------------------------------------------------------------------------------------------------------


def located(
    error: BaseException, model: Any = None, operation: Callable[[FrameType], str] = _nothing
) -> dict[str, str]:
    """The module, the operation, the line and what the module was given, as far as the traceback tells."""
    frames = list(frames_of(error))
    modules = [(frame, module) for frame, _ in frames if (module := _module_of(frame)) is not None]
    if not modules:
        if isinstance(error, TorcheerError):  # ours, about what was asked for: its text says it all
            return {}
        return {"module": "none, it was raised outside of any", "operation": failed_in(frames, operation)} | _line(
            frames
        )
    inner = modules[-1][1]
    called = [frame for frame, module in modules if module is inner and frame.f_code.co_name in _CALLS]
    given = called[-1].f_locals if called else {}
    return {
        "module": _named(inner, modules[0][1] if model is None else model),
        "operation": failed_in(frames, operation),
        "it_received": arguments(given.get("args", ()), given.get("kwargs") or {}) if called else "",
    } | _line(frames)


def failed_in(frames: list[tuple[FrameType, int]], operation: Callable[[FrameType], str]) -> str:
    """The operation that was running; none where somebody's own code raised, whatever it had called it from."""
    for frame, _ in reversed(frames):
        if text := operation(frame):
            return text
        if not _is_machinery(frame.f_code.co_filename):
            break
    return ""


def frames_of(error: BaseException) -> Iterator[tuple[FrameType, int]]:
    """The frames that an exception came through, outermost first, with their lines."""
    step = error.__traceback__
    while step is not None:
        yield step.tb_frame, step.tb_lineno
        step = step.tb_next


def _module_of(frame: FrameType) -> Any:
    torch = sys.modules.get("torch")
    owner = frame.f_locals.get("self")
    return owner if torch is not None and issubclass(type(owner), torch.nn.Module) else None


def _root(error: BaseException) -> Any:
    return next((module for frame, _ in frames_of(error) if (module := _module_of(frame)) is not None), None)


def _named(module: Any, root: Any) -> str:
    kind = type(module).__name__
    name = next((name for name, one in root.named_modules() if one is module), "").replace("_orig_mod.", "")
    return f"{name} ({kind})" if name else kind


def _line(frames: list[tuple[FrameType, int]]) -> dict[str, str]:
    """The innermost line that a person would look at first."""
    theirs = [one for one in frames if not one[0].f_code.co_filename.startswith(_OURS)]
    users = [one for one in theirs if not _is_machinery(one[0].f_code.co_filename)]
    for frame, line in (users or theirs)[-1:]:
        file = frame.f_code.co_filename
        code = linecache.getline(file, line, frame.f_globals).strip()
        return {"line": f"{file}:{line} in {frame.f_code.co_qualname}" + (f": {code}" if code else "")}
    return {}


def _is_machinery(file: str) -> bool:
    """Whether a file is torch's, ours or Python's own: not what a person would look at first."""
    torch = sys.modules.get("torch")
    homes = [_OURS, _CONTEXTLIB, "<frozen"] + ([os.path.dirname(str(torch.__file__)) + os.sep] if torch else [])
    return file.startswith(tuple(homes))


# -- with what -------------------------------------------------------------------------------------------------------


def arguments(args: Iterable[Any], kwargs: Mapping[str, Any]) -> str:
    """What a call was given, in one line: shapes and types of tensors, the rest as it is or by type."""
    texts = [described(value) for value in args] + [f"{name}={described(value)}" for name, value in kwargs.items()]
    more = f" and {len(texts) - _MOST_ARGUMENTS} more" if len(texts) > _MOST_ARGUMENTS else ""
    return (", ".join(texts[:_MOST_ARGUMENTS]) or "nothing") + more


def described(value: Any) -> str:
    """One argument in a few words."""
    with suppress(Exception):
        if hasattr(value, "dtype") and hasattr(value, "shape"):
            device = str(getattr(value, "device", "cpu"))
            shape = "×".join(map(str, value.shape)) or "scalar"
            return f"{shape} {str(value.dtype).removeprefix('torch.')}" + (f" on {device}" if device != "cpu" else "")
    if isinstance(value, (tuple, list)):
        inner = ", ".join(described(item) for item in value[:4]) + (", …" if len(value) > 4 else "")
        return f"({inner})" if isinstance(value, tuple) else f"[{inner}]"
    if isinstance(value, dict):
        inner = ", ".join(f"{key}: {described(item)}" for key, item in list(value.items())[:4])
        return f"{{{inner}{', …' if len(value) > 4 else ''}}}"
    if value is None or isinstance(value, (bool, int, float, str)):
        text = repr(value)
        return text if len(text) <= 40 else f"{text[:38]}…"
    return type(value).__name__


# -- memory ----------------------------------------------------------------------------------------------------------


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory has run out, on whatever device."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    return isinstance(error, RuntimeError) and any(words in str(error).lower() for words in _NO_MEMORY)


def memory_of(model: Any, values: Mapping[str, int]) -> str:
    """Which modules hold most: parameters, buffers and gradients of their own, and values that were kept of them."""
    found: dict[str, list[int]] = {}
    seen: set[int] = set()
    for name, module in model.named_modules() if model is not None else ():
        own = [one for group in (module._parameters, module._buffers) for one in group.values() if one is not None]
        fresh = [one for one in own if id(one) not in seen]
        seen.update(map(id, fresh))
        gradients = [one.grad for one in fresh if one.is_leaf and one.grad is not None]
        found[name] = [_bytes(fresh), _bytes(gradients), 0]
    for name, size in values.items():
        found.setdefault(name, [0, 0, 0])[2] += size
    largest = sorted(found.items(), key=lambda one: -sum(one[1]))[:_MOST_MODULES]
    shown = [_shares(name or "the model itself", sizes) for name, sizes in largest if sum(sizes)]
    totals = [sum(sizes[place] for sizes in found.values()) for place in range(3)]
    return "; ".join([_shares("all modules", totals), *shown]) if shown else "no module is known that holds any"


def _shares(name: str, sizes: list[int]) -> str:
    parts = zip(("parameters and buffers", "gradients", "values kept"), sizes)
    return (
        f"{name} {human_bytes(sum(sizes))} ({', '.join(f'{what} {human_bytes(size)}' for what, size in parts if size)})"
    )


def _bytes(tensors: Iterable[Any]) -> int:
    total = 0
    for tensor in tensors:
        with suppress(Exception):  # lazy parameters have no size yet
            total += int(tensor.numel()) * int(tensor.element_size())
    return total
