"""What happens to predictions and targets before a loss that was filled in."""

from __future__ import annotations

from torch import Tensor


def same_shape(prediction: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """A prediction of items × 1 and a target of items are of one shape: a loss would else compare each with each."""
    if prediction.shape != target.shape and prediction.numel() == target.numel():
        prediction = prediction.reshape(target.shape)
    return prediction, target
