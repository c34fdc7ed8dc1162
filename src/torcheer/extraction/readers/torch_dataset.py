"""An extraction as a torch Dataset."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

from torcheer.extraction.extraction_reader import Extraction
from torcheer.vocabulary.dtypes import DTYPES


class ExtractionDataset(Dataset[tuple[Any, ...]]):
    """Samples of (a tensor for each layer, id)."""

    def __init__(self, extraction: Extraction, layers: Sequence[str]) -> None:
        self.extraction = extraction
        self.layers = [extraction[name] for name in layers]

    def __len__(self) -> int:
        return len(self.extraction)

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        return (*(_copy_to_tensor(layer.row(index), layer.type) for layer in self.layers), self.extraction.ids[index])


def _copy_to_tensor(row: Any, kind: str) -> torch.Tensor:
    """Copy a row to a tensor, so that writes do not reach the mapped file."""
    array = np.array(row)
    if DTYPES[kind].in_numpy:
        return torch.from_numpy(array)
    bits = torch.from_numpy(array.reshape(-1).view(f"u{array.itemsize}"))  # numpy may lack the type
    return bits.view(getattr(torch, kind)).reshape(array.shape)
