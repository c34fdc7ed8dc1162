"""State that is computed once and saved.

The parts of splits, what preprocessors have learned.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from torcheer.disk import read_json, write_file
from torcheer.encoding import crc32, refusal, to_bytes
from torcheer.training.checkpoints.random_state import IsolatedRandom

GROUPS = ("datasets", "splits", "preprocessors")
FOLDER = "static"

Static = dict[str, dict[str, Any]]  # group -> name -> state; of a dataset, its size and a checksum of some samples


def read_static(directory: Path | None) -> Static:
    """Read the static state of a run directory; empty where there is none."""
    if directory is None:
        return {}
    states = {group: read_json(directory / FOLDER / f"{group}.json") for group in GROUPS}
    return {group: state for group, state in states.items() if state is not None}


def write_static(directory: Path, static: Mapping[str, Mapping[str, Any]]) -> None:
    """Write the static state to a run directory."""
    for group in GROUPS:
        text = json.dumps(static.get(group, {}), separators=(",", ":"), allow_nan=False)
        write_file(directory / FOLDER / f"{group}.json", text.encode() + b"\n")


def through_json(state: Any) -> Any:
    """Return a state as it comes back from JSON.

    Raise TypeError or ValueError where JSON cannot hold it.
    """
    return json.loads(json.dumps(state, allow_nan=False))


def size_of(dataset: Any) -> int | None:
    """Return the number of samples of a dataset; None where it has no length."""
    try:
        return len(dataset)
    except (TypeError, NotImplementedError):
        return None


def dataset_fingerprint(dataset: Any) -> dict[str, Any]:
    """Return what detects a changed dataset: its size, and checksums of three samples.

    None for unknown.
    """
    size = size_of(dataset)
    if not size or not hasattr(dataset, "__getitem__"):
        return {"size": size, "samples": None}
    try:
        first, second = (_checksums(dataset, size) for _ in range(2))
    except Exception:  # user code: training will report it where it matters
        return {"size": size, "samples": None}
    return {"size": size, "samples": first if first == second else None}


def _checksums(dataset: Any, size: int) -> dict[str, int]:
    with IsolatedRandom(0).active():  # random augmentation gives the same samples
        return {str(index): _checksum(dataset[index], 0) for index in (0, size // 2, size - 1)}


def _checksum(value: Any, start: int) -> int:
    """Return a checksum of a sample; values of unknown types count only as their type."""
    if isinstance(value, dict):
        value = [part for pair in value.items() for part in pair]
    if isinstance(value, (tuple, list)):
        for part in value:
            start = _checksum(part, start)
        return crc32(b"%d" % len(value), start)
    if isinstance(value, (str, bytes, bool, int, float, type(None))):
        return crc32(repr(value).encode(), start)
    if isinstance(value, (torch.Tensor, np.ndarray, np.generic)) and not refusal(value):
        name, shape, payload = to_bytes(value)
        return crc32(payload, crc32(f"{name}{shape}".encode(), start))
    content = value.tobytes() if hasattr(value, "tobytes") and hasattr(value, "size") else b""  # an image
    return crc32(content, crc32(f"{type(value).__name__}{getattr(value, 'size', '')}".encode(), start))
