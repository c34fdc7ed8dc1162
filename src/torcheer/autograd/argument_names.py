"""Second names of arguments: torchtrace's beside torch's."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from torcheer.errors import BadArgument

Function = TypeVar("Function", bound=Callable[..., Any])


def also_takes(**names: str) -> Callable[[Function], Function]:
    """Decorate a function: `also_takes(in_shape="in_features")` lets callers write `in_shape=` for `in_features=`."""

    def decorate(function: Function) -> Function:
        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            for second, first in names.items():
                if second in kwargs and first in kwargs:
                    raise BadArgument(f"{function.__qualname__}: {second} and {first} are the same argument; give one")
                if second in kwargs:
                    kwargs[first] = kwargs.pop(second)
            return function(*args, **kwargs)

        return call  # type: ignore[return-value]

    return decorate
