"""`go`: nil, slices, and casts of handles, as gopy shows Go's values to Python."""

from __future__ import annotations

from typing import Any

from torcheer.errors import BadArgument
from torcheer.public_names import PublicClass

nil: Any = None
Slice_int = Slice_int32 = Slice_int64 = Slice_float32 = Slice_float64 = Slice_string = Slice_bool = list


class Handle(PublicClass):
    """The type of classes whose call is a cast: `Layer(handle=layer)` and `Layer(layer)` return the layer itself."""

    def __call__(cls, *values: Any, **fields: Any) -> Any:
        given = fields.get("handle", values[0] if values else None)
        if isinstance(given, cls):
            return given
        if "handle" in fields:
            raise BadArgument(f"{given!r} is no {cls.__name__}, and cannot be taken for one")
        return super().__call__(*values, **fields)


class GoClass(metaclass=Handle):
    """A struct of Go: its fields are given by name."""

    def __init__(self, **fields: Any) -> None:
        for name, value in fields.items():
            setattr(self, name, value)
