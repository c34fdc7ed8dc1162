"""What a run directory knows of its network: a description where there is one, and the weights of its checkpoints."""

from __future__ import annotations

import json
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from torcheer.encoding import from_bytes
from torcheer.errors import BadArgument
from torcheer.network.network_records import Layer, Network, Variable
from torcheer.network.placement import net_of
from torcheer.wire.json_codec import read

Array = NDArray[Any]

_MOST_BYTES: Final = 64 << 20  # of a description, or of the head of a file of weights
_TYPES: Final = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}


def network_in(run: Path) -> Network | None:
    """What `network.json` says; None where there is none that can be understood."""
    path = run / "network.json"
    try:
        if path.stat().st_size > _MOST_BYTES:
            return None
        found = read(Network, json.loads(path.read_bytes()))
        net_of(found)  # raises where it cannot be drawn
        return found
    except (OSError, ValueError, RecursionError, BadArgument):
        return None


def merged(known: Network | None, title: str, captured: dict[str, Layer], variables: list[str]) -> Network:
    """The network with all that was captured: what the description does not know comes behind it."""
    shown = tuple(Variable(name) for name in variables)
    if known is None:
        return Network(title, tuple(captured.values()), (), shown)
    there = {layer.name for layer in known.layers}
    more = tuple(layer for name, layer in captured.items() if name not in there)
    documented = {one.name: one for one in known.variables if one.of != "weight"}
    return replace(
        known, layers=(*known.layers, *more), variables=tuple(documented.get(one.name, one) for one in shown)
    )


class Checkpoints:
    """The weights of a run at the steps at which they were saved."""

    def __init__(self, run: Path) -> None:
        self._folder = run / "checkpoints"
        self._files: dict[int, dict[str, Array]] = {}
        self.steps: list[int] = []  # at which there is one

    def look(self) -> None:
        """Find out which there are now."""
        try:
            folders = [one for one in self._folder.iterdir() if one.name.isdecimal()]
        except OSError:
            folders = []
        self.steps = sorted(int(one.name) for one in folders if (one / "MANIFEST.json").is_file())
        self._files = {step: found for step, found in self._files.items() if step in self.steps}

    def weights(self, step: int, name: str) -> Array | None:
        """A parameter as it was at a step, or at the last checkpoint before it."""
        before = [one for one in self.steps if one <= step]
        if not before:
            return None
        if before[-1] not in self._files:
            path = self._folder / str(before[-1]) / "model.safetensors"
            self._files[before[-1]] = _opened(path)
        found = self._files[before[-1]]
        alike = [key for key in found if key == name or key.endswith(f".{name}")]  # behind the name of its model
        return found[name if name in found else alike[0]] if name in found or len(alike) == 1 else None


def _opened(path: Path) -> dict[str, Array]:
    """The tensors of a file, over its memory; nothing where it is not what it says."""
    try:
        raw = np.memmap(path, np.uint8, "r")
        length = int.from_bytes(raw[:8].tobytes(), "little")
        if length > min(_MOST_BYTES, len(raw) - 8):
            return {}
        head = json.loads(raw[8 : 8 + length].tobytes())
        found = {name: _tensor(raw[8 + length :], about) for name, about in head.items() if name != "__metadata__"}
    except (OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return {}
    return {name: array for name, array in found.items() if array is not None}


def _tensor(data: Array, about: Any) -> Array | None:
    kind, shape, (begin, end) = _TYPES.get(about["dtype"]), tuple(about["shape"]), about["data_offsets"]
    if kind is None or not all(type(one) is int and one >= 0 for one in (*shape, begin, end)) or end > len(data):
        return None
    size = 2 if kind in ("float16", "bfloat16") else 4 if kind == "float32" else 8
    return from_bytes(kind, shape, data[begin:end]) if end - begin == prod(shape) * size else None
