"""The network of a run directory: its description and its checkpoints' weights."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from torcheer.encoding import from_bytes
from torcheer.errors import ArchiveDamaged, BadArgument
from torcheer.network.network_records import Layer, Network, Variable
from torcheer.network.placement import net_of
from torcheer.safetensors_header import read_header
from torcheer.wire.json_codec import from_json

Array = NDArray[Any]

_MOST_BYTES: Final = 64 << 20  # of a description
_FLOATS: Final = ("float64", "float32", "float16", "bfloat16")


def network_in(run: Path) -> Network | None:
    """Read `network.json`; None if it is missing or invalid."""
    path = run / "network.json"
    try:
        if path.stat().st_size > _MOST_BYTES:
            return None
        return parsed_network(json.loads(path.read_bytes()))
    except (OSError, ValueError, RecursionError):
        return None


def parsed_network(record: Any) -> Network | None:
    """Parse a network's JSON; None if it is invalid."""
    try:
        network = from_json(Network, record)
        net_of(network)  # raises if it cannot be drawn
        return network
    except (ValueError, RecursionError, BadArgument):
        return None


def merge_captured(
    description: Network | None, title: str, captured: dict[str, Layer], variables: list[str]
) -> Network:
    """The described network, with captured layers that the description lacks appended."""
    recorded = tuple(Variable(name) for name in variables)
    if description is None:
        return Network(title, tuple(captured.values()), (), recorded)
    names = {layer.name for layer in description.layers}
    more = tuple(layer for name, layer in captured.items() if name not in names)
    documented = {variable.name: variable for variable in description.variables if variable.of != "weight"}
    return replace(
        description,
        layers=(*description.layers, *more),
        variables=tuple(documented.get(shown.name, shown) for shown in recorded),
    )


class Checkpoints:
    """The weights of a run at its checkpointed steps."""

    def __init__(self, run: Path) -> None:
        self._folder = run / "checkpoints"
        self._files: dict[int, dict[str, Array]] = {}
        self.steps: list[int] = []  # that have a checkpoint

    def refresh(self) -> None:
        """List the checkpoints that exist now."""
        try:
            folders = [folder for folder in self._folder.iterdir() if folder.name.isdecimal()]
        except OSError:
            folders = []
        self.steps = sorted(int(folder.name) for folder in folders if (folder / "MANIFEST.json").is_file())
        self._files = {step: tensors for step, tensors in self._files.items() if step in self.steps}

    def weights(self, step: int, name: str) -> Array | None:
        """A parameter at a step, or at the last checkpoint before it."""
        place = self.place(step, name)
        return None if place is None else self._files[int(place[0].parent.name)][place[1]]

    def place(self, step: int, name: str) -> tuple[Path, str] | None:
        """The file and the name in it of a parameter at a step, or at the last checkpoint before it."""
        before = [saved for saved in self.steps if saved <= step]
        if not before:
            return None
        path = self._folder / str(before[-1]) / "model.safetensors"
        if before[-1] not in self._files:
            self._files[before[-1]] = _read_tensors(path)
        tensors = self._files[before[-1]]
        matches = [key for key in tensors if key == name or key.endswith(f".{name}")]  # prefixed with its model's name
        if name in tensors or len(matches) == 1:
            return path, name if name in tensors else matches[0]
        return None


def _read_tensors(path: Path) -> dict[str, Array]:
    """The memory-mapped numbers of a safetensors file; empty if it is invalid."""
    try:
        with open(path, "rb") as file:
            entries, _ = read_header(file.read, os.path.getsize(path), path)
            data = np.memmap(path, np.uint8, "r")[file.tell() :]
    except (OSError, ArchiveDamaged, BadArgument):
        return {}
    return {
        entry.name: from_bytes(entry.type, entry.shape, data[entry.begin : entry.end])
        for entry in entries
        if entry.type in _FLOATS
    }
