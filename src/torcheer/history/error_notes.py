"""The note on an exception: where in the model it was raised, and with which arguments.

Everything is read from the traceback after the error: nothing is recorded while a model runs. Torch is not imported
here; if the traceback contains a module, it is imported already.
"""

from __future__ import annotations

import linecache
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from types import FrameType
from typing import Any

from torcheer.encoding import held_bytes
from torcheer.errors import TorcheerError
from torcheer.terminal import human_bytes, human_shape

HEAD = "torcheer: what is known of this error"
NO_HISTORY = "none was kept; tl.log_forward_pass(model, inputs) of the same call keeps one, as error.history"
_FACTS = "_torcheer_facts"
# Functions whose frames hold the arguments of a module call.
_CALLS = frozenset(("_call_impl", "_wrapped_call_impl", "_traced_call", "_direct_call"))
_MAX_ARGUMENTS, _MAX_MODULES = 8, 5
_TORCHEER = os.path.dirname(os.path.dirname(__file__)) + os.sep
_CONTEXTLIB = os.path.join(os.path.dirname(os.__file__), "contextlib.py")
_NO_MEMORY = ("out of memory", "can't allocate memory", "not enough memory", "cannot allocate memory")


def _no_operation(frame: FrameType) -> str:
    return ""


def annotate(error: BaseException, **facts: str) -> None:
    """Add facts to the one note that an exception carries; facts already in it stay."""
    with suppress(AttributeError, TypeError):  # exceptions that take no attributes
        collected: dict[str, str] = getattr(error, _FACTS, {})
        before = _text(collected)
        collected = {**collected, **{name: text for name, text in facts.items() if text and name not in collected}}
        setattr(error, _FACTS, collected)
        notes = [note for note in getattr(error, "__notes__", ()) if note != before]
        error.__notes__ = [*notes, _text(collected)]


def _text(facts: Mapping[str, str]) -> str:
    return "\n".join([HEAD, *(f"  {name.replace('_', ' ')}: {text}" for name, text in facts.items())])


def explain(
    error: BaseException | None,
    model: Any = None,
    *,
    operation: Callable[[FrameType], str] = _no_operation,
    bytes_by_module: Callable[[], Mapping[str, int]] = dict,
    **facts: str | Callable[[], str],
) -> None:
    """Annotate an exception with where it was raised; skip KeyboardInterrupt and the like.

    `operation` describes the operation of a frame of the traceback; `bytes_by_module` returns the bytes of kept values
    by module address, and is called only if memory has run out. `facts` are further facts, as text or as functions.
    """
    if not isinstance(error, Exception):
        return
    with suppress(Exception):  # never hide the original error
        annotate(error, **locate_error(error, model, operation))
    for name, text in facts.items():
        with suppress(Exception):
            annotate(error, **{name: text if isinstance(text, str) else text()})
    if is_out_of_memory(error):
        with suppress(Exception):
            annotate(error, memory=describe_memory(model if model is not None else _root(error), bytes_by_module()))


# -- location --------------------------------------------------------------------------------------------------------


def locate_error(
    error: BaseException, model: Any = None, operation: Callable[[FrameType], str] = _no_operation
) -> dict[str, str]:
    """Return the module, its arguments, the operation and the line that a traceback shows."""
    frames = list(frames_of(error))
    modules = [(frame, module) for frame, _ in frames if (module := _module_of(frame)) is not None]
    if not modules:
        if isinstance(error, TorcheerError):  # torcheer's own error: its message is complete
            return {}
        return {
            "module": "none, it was raised outside of any",
            "operation": failing_operation(frames, operation),
        } | _line(frames)
    inner = modules[-1][1]
    calls = [frame for frame, module in modules if module is inner and frame.f_code.co_name in _CALLS]
    inputs = calls[-1].f_locals if calls else {}
    return {
        "module": _module_name(inner, modules[0][1] if model is None else model),
        "operation": failing_operation(frames, operation),
        "it_received": describe_arguments(inputs.get("args", ()), inputs.get("kwargs") or {}) if calls else "",
    } | _line(frames)


def failing_operation(frames: list[tuple[FrameType, int]], operation: Callable[[FrameType], str]) -> str:
    """Return the operation that raised; "" if user code did, even called by an operation."""
    for frame, _ in reversed(frames):
        if text := operation(frame):
            return text
        if not _is_machinery(frame.f_code.co_filename):
            break
    return ""


def frames_of(error: BaseException) -> Iterator[tuple[FrameType, int]]:
    """Yield the frames of a traceback, outermost first, with their line numbers."""
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


def _module_name(module: Any, root: Any) -> str:
    kind = type(module).__name__
    name = next((name for name, candidate in root.named_modules() if candidate is module), "").replace("_orig_mod.", "")
    return f"{name} ({kind})" if name else kind


def _line(frames: list[tuple[FrameType, int]]) -> dict[str, str]:
    """Return the innermost line of user code; failing that, of code outside of torcheer."""
    outside = [entry for entry in frames if not entry[0].f_code.co_filename.startswith(_TORCHEER)]
    users = [entry for entry in outside if not _is_machinery(entry[0].f_code.co_filename)]
    for frame, line in (users or outside)[-1:]:
        file = frame.f_code.co_filename
        code = linecache.getline(file, line, frame.f_globals).strip()
        return {"line": f"{file}:{line} in {frame.f_code.co_qualname}" + (f": {code}" if code else "")}
    return {}


def _is_machinery(file: str) -> bool:
    """Whether a file is part of torch, torcheer or Python itself rather than user code."""
    torch = sys.modules.get("torch")
    prefixes = [_TORCHEER, _CONTEXTLIB, "<frozen"] + ([os.path.dirname(str(torch.__file__)) + os.sep] if torch else [])
    return file.startswith(tuple(prefixes))


# -- arguments -------------------------------------------------------------------------------------------------------


def describe_arguments(args: Iterable[Any], kwargs: Mapping[str, Any]) -> str:
    """Describe the arguments of a call in one line.

    Tensors by shape and dtype, other arguments by value or type.
    """
    texts = [describe_argument(value) for value in args] + [
        f"{name}={describe_argument(value)}" for name, value in kwargs.items()
    ]
    more = f" and {len(texts) - _MAX_ARGUMENTS} more" if len(texts) > _MAX_ARGUMENTS else ""
    return (", ".join(texts[:_MAX_ARGUMENTS]) or "nothing") + more


def describe_argument(value: Any) -> str:
    """Describe one argument in a few words."""
    with suppress(Exception):
        if hasattr(value, "dtype") and hasattr(value, "shape"):
            device = str(getattr(value, "device", "cpu"))
            shape = human_shape(value.shape)
            return f"{shape} {str(value.dtype).removeprefix('torch.')}" + (f" on {device}" if device != "cpu" else "")
    if isinstance(value, (tuple, list)):
        inner = ", ".join(describe_argument(item) for item in value[:4]) + (", …" if len(value) > 4 else "")
        return f"({inner})" if isinstance(value, tuple) else f"[{inner}]"
    if isinstance(value, dict):
        inner = ", ".join(f"{key}: {describe_argument(item)}" for key, item in list(value.items())[:4])
        return f"{{{inner}{', …' if len(value) > 4 else ''}}}"
    if value is None or isinstance(value, (bool, int, float, str)):
        text = repr(value)
        return text if len(text) <= 40 else f"{text[:38]}…"
    return type(value).__name__


# -- memory ----------------------------------------------------------------------------------------------------------


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran out, on any device."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    return isinstance(error, RuntimeError) and any(words in str(error).lower() for words in _NO_MEMORY)


def describe_memory(model: Any, values: Mapping[str, int]) -> str:
    """Describe which modules hold most memory: parameters, buffers, gradients and kept values."""
    sizes_by_module: dict[str, list[int]] = {}
    counted: set[int] = set()
    for name, module in model.named_modules() if model is not None else ():
        tensors = [
            tensor for group in (module._parameters, module._buffers) for tensor in group.values() if tensor is not None
        ]
        new = [tensor for tensor in tensors if id(tensor) not in counted]
        counted.update(map(id, new))
        gradients = [tensor.grad for tensor in new if tensor.is_leaf and tensor.grad is not None]
        sizes_by_module[name] = [_bytes(new), _bytes(gradients), 0]
    for name, size in values.items():
        sizes_by_module.setdefault(name, [0, 0, 0])[2] += size
    largest = sorted(sizes_by_module.items(), key=lambda tensor: -sum(tensor[1]))[:_MAX_MODULES]
    shown = [_format_sizes(name or "the model itself", sizes) for name, sizes in largest if sum(sizes)]
    totals = [sum(sizes[place] for sizes in sizes_by_module.values()) for place in range(3)]
    return "; ".join([_format_sizes("all modules", totals), *shown]) if shown else "no module is known that holds any"


def _format_sizes(name: str, sizes: list[int]) -> str:
    parts = zip(("parameters and buffers", "gradients", "values kept"), sizes)
    return (
        f"{name} {human_bytes(sum(sizes))} ({', '.join(f'{kind} {human_bytes(size)}' for kind, size in parts if size)})"
    )


def _bytes(tensors: Iterable[Any]) -> int:
    total = 0
    for tensor in tensors:
        with suppress(Exception):  # lazy parameters have no size yet
            total += held_bytes(tensor)
    return total
