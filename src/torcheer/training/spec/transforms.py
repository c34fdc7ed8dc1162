"""Transforms of predictions and targets for losses that were filled in.

The file spec.json names them.
"""

from __future__ import annotations

from torch import Tensor


def same_shape(prediction: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Reshape a prediction of items × 1 to a target of items.

    Else a loss would broadcast each with each.
    """
    if prediction.shape != target.shape and prediction.numel() == target.numel():
        prediction = prediction.reshape(target.shape)
    return prediction, target
