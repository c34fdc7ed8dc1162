"""TorchAssistant's `loss_functions`."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from torcheer.errors import BadArgument
from torcheer_originals.torchassistant.utils import Mask

REDUCTIONS = ("mean", "sum", "none")


class MaskedCrossEntropy:
    """Cross entropy of padded sequences, without what was padded.

    reduction: "mean" or "sum" of all places that count, or "none" for their losses. label_smoothing: as torch's.
    """

    def __init__(self, reduction: str = "mean", label_smoothing: float = 0.0) -> None:
        if reduction not in REDUCTIONS:
            raise BadArgument(f"reduction={reduction!r} is none of {', '.join(REDUCTIONS)}")
        self.reduction, self.label_smoothing = reduction, label_smoothing

    def __call__(self, y_hat: Tensor, ground_true: Tensor, mask: Mask) -> Tensor:
        """Return the loss of scores (sequences × places × classes) and classes (sequences × places)."""
        scores, classes = y_hat[mask.mask], ground_true[mask.mask]
        return F.cross_entropy(scores, classes, reduction=self.reduction, label_smoothing=self.label_smoothing)
