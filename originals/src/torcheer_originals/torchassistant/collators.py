"""TorchAssistant's `collators`."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from torcheer.errors import BadArgument as CollationError
from torcheer.training.collators import (
    BaseCollator,
    BatchDivide,
    ColumnWiseCollator,
    SeqsToOneHot,
    StackTensors,
    images_to_tensor,
    no_transform,
    seqs_to_tensor,
    to_float_tensor,
    to_long_tensor,
)
from torcheer.training.collators import stacked as stack_tensors
from torcheer_originals.torchassistant.utils import pad_sequences

__all__ = [
    "BaseCollator",
    "BatchDivide",
    "CollationError",
    "ColumnWiseCollator",
    "SeqsToOneHot",
    "StackTensors",
    "images_to_tensor",
    "no_transform",
    "one_hot_tensor",
    "pad_sequences",
    "seqs_to_tensor",
    "stack_tensors",
    "to_float_tensor",
    "to_long_tensor",
]


def one_hot_tensor(classes: Sequence[Sequence[int]], num_classes: int) -> Tensor:
    """Encode sequences of classes of one length: sequences × places × classes."""
    return SeqsToOneHot(num_classes)(classes)
