"""TorchAssistant's `utils`: padding of sequences, and its mask."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch


class Mask:
    """Which places of padded sequences hold a value: `mask` is sequences × places."""

    def __init__(self, lengths: Sequence[int], max_length: int) -> None:
        self.lengths = list(lengths)
        self.mask = torch.arange(max_length) < torch.tensor(self.lengths).reshape(-1, 1)

    @property
    def device(self) -> torch.device:
        """The device of the mask."""
        return self.mask.device

    def to(self, device: Any) -> Mask:
        """Move the mask to a device."""
        self.mask = self.mask.to(device)
        return self


class Serializable:
    """An object without a state of its own."""

    def state_dict(self) -> dict[str, Any]:
        """Return nothing."""
        return {}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restore nothing."""


def add_padding(seq: Sequence[Any], size: int, filler: Any) -> list[Any]:
    """Return a sequence as a list of at least `size` values, filled up with `filler`."""
    return [*seq, *[filler] * (size - len(seq))]


def pad_sequences(seqs: Sequence[Sequence[Any]], filler: Any) -> tuple[list[list[Any]], Mask]:
    """Fill sequences up to the longest; return them, and the mask of what was there before."""
    lengths = [len(seq) for seq in seqs]
    return [add_padding(seq, max(lengths), filler) for seq in seqs], Mask(lengths, max(lengths))
