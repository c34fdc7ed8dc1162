"""Postprocessors of results before they are shown.

A dict of batches in, a dict of batches out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from torcheer.errors import BadArgument


class Identity:
    """Return results unchanged."""

    def __call__(self, results: Mapping[str, Any]) -> Mapping[str, Any]:
        return results


class ArgMax:
    """Return the most likely class of each item, by name where names are given.

    Scores are on the last axis.
    """

    def __init__(self, class_names: Sequence[str] = ()) -> None:
        self.class_names = list(class_names)

    def __call__(self, results: Mapping[str, Any]) -> dict[str, Any]:
        return {name: self._classes(name, value) for name, value in results.items()}

    def _classes(self, name: str, scores: Any) -> Any:
        if not isinstance(scores, Tensor):
            return scores
        if not self.class_names:
            return scores.argmax(-1)
        if scores.ndim != 2 or scores.shape[1] != len(self.class_names):
            shape = tuple(scores.shape)
            raise BadArgument(f"{name} has the shape {shape}, not items × the {len(self.class_names)} classes")
        return [self.class_names[number] for number in scores.argmax(-1).tolist()]


DefaultPostProcessor = Identity
