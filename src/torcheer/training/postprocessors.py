"""Postprocessors of results before they are shown.

A dict of batches in, a dict of batches out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from torcheer.errors import BadArgument
from torcheer.training.datasets import source_of


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


class ClassNames:
    """Name the most likely class of results with a score for each class of the data; leave other results as they are.

    What `torcheer infer` does where a config says nothing else and the dataset has `classes`, as a folder of images.
    """

    def __init__(self, class_names: Sequence[str]) -> None:
        self.class_names = list(class_names)
        self._name = ArgMax(class_names)

    @classmethod
    def of(cls, session: Any, pipeline: str) -> ClassNames | None:
        """Return one with the names of a pipeline's dataset; None where it has none."""
        dataset = source_of(session.runners[pipeline].inputs[0][0].loader.dataset)
        names = getattr(dataset, "classes", None)
        return cls([str(name) for name in names]) if isinstance(names, list | tuple) and len(names) > 1 else None

    def __call__(self, results: Mapping[str, Any]) -> dict[str, Any]:
        return {
            name: self._name({name: value})[name] if self._has_scores(value) else value
            for name, value in results.items()
        }

    def _has_scores(self, value: Any) -> bool:
        return isinstance(value, Tensor) and value.ndim == 2 and value.shape[1] == len(self.class_names)


DefaultPostProcessor = Identity
