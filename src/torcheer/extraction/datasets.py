"""An extraction as a torch Dataset."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

from torcheer.extraction.reading import Extraction


class ExtractionDataset(Dataset[tuple[Any, ...]]):
    """Samples of (a tensor for each layer, id)."""

    def __init__(self, extraction: Extraction, layers: Sequence[str]) -> None:
        self.extraction = extraction
        self.layers = [extraction[name] for name in layers]

    def __len__(self) -> int:
        return len(self.extraction)

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        return (*(_tensor(layer[index]) for layer in self.layers), self.extraction.ids[index])


def _tensor(array: np.ndarray[Any, Any]) -> torch.Tensor:
    """A copy: nothing that is done to it reaches the file."""
    kind = getattr(torch, array.dtype.name)
    bits = array.view(f"u{array.itemsize}") if array.dtype.kind == "V" else array
    return torch.from_numpy(bits.copy()).view(kind) if bits is not array else torch.from_numpy(array.copy())
