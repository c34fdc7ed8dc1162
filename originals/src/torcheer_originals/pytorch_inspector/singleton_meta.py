"""PyTorch Inspector's metaclass of classes with one instance."""

from __future__ import annotations

from typing import Any


class SingletonMeta(type):
    """Calling a class returns its first instance."""

    _instances: dict[type, Any] = {}

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if cls not in cls._instances:
            cls._instances[cls] = super().__call__(*args, **kwargs)
        return cls._instances[cls]
