"""PyTorch Inspector's decorators."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable
from functools import wraps
from typing import Any

from torcheer_originals.pytorch_inspector.dict_queue_memory import DictOp

Function = Callable[..., Any]


def exception_decorator(func: Function) -> Function:
    """Print the traceback of an error of `func` before it goes on to the caller."""

    @wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        try:
            return func(*args, **kwargs)
        except Exception:
            print(f"{func.__name__} failed, in {inspect.getsourcefile(func)}")
            traceback.print_exc()
            raise

    return wrapper


def wrapper_multiple_process_decorator(func: Function) -> Function:
    """Call `func` of (self, number, items, …) `num_process` times, with the items shared out; return the last."""
    known = inspect.signature(func).parameters

    @wraps(func)
    def track_multiple_process(*args: Any, **kwargs: Any) -> Any:
        items = kwargs["list_items"] if "list_items" in kwargs else args[2]
        shares = max(1, min(kwargs.get("num_process", 1), len(items)))
        kwargs = {name: value for name, value in kwargs.items() if name in known}
        result = None
        for part in DictOp.split_dict(items, shares):
            if "list_items" in kwargs:
                result = func(*args, **(kwargs | {"list_items": part}))
            else:
                result = func(*args[:2], part, *args[3:], **kwargs)
        return result

    return track_multiple_process
