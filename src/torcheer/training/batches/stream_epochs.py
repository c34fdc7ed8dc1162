"""One epoch of a stream.

Batches come in sequence, and a position is reached by skipping those before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch.utils.data import IterableDataset

from torcheer.training.checkpoints.random_state import IsolatedRandom


class IterableWrapper(IterableDataset[Any]):
    """Wrap any iterable as the IterableDataset that torch's DataLoader takes."""

    def __init__(self, source: Any) -> None:
        self._source = source

    def __iter__(self) -> Iterator[Any]:
        return iter(self._source)


class BatchStream:
    """Batches of a dataset that can only be iterated over.

    Without workers it has isolated random generators: skipping batches takes no numbers from a model's dropout, and
    reproduces the same batches.
    """

    def __init__(self, dataset: Any, batches: Callable[[], Iterator[Any]], seed: int, *, workers: bool) -> None:
        self._dataset, self._make_iterator, self._has_workers = dataset, batches, workers
        self._random = IsolatedRandom(seed)
        self._batches: Iterator[Any] | None = None

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self._has_workers:  # workers are seeded by their number
            return next(self._iterator())
        with self._random.active():
            return next(self._iterator())

    def _iterator(self) -> Iterator[Any]:
        if self._batches is None:
            self._batches = self._make_iterator()
        return self._batches

    def end_workers(self) -> None:
        """End its workers, wherever it is: who reads on later opens another stream and seeks."""
        if self._has_workers:
            self._batches = None

    def seek(self, start: int, state: Mapping[str, Any] | None) -> None:
        """Continue after `start` batches.

        From the dataset's state where there is one, else by skipping.
        """
        if state is not None and self._is_stateful():
            self._dataset.load_state_dict(state["dataset"])
            self._random.restore(state["rng"])
            return
        for _ in range(start):
            next(self, None)

    def state(self) -> dict[str, Any] | None:
        """Return the dataset's state; None where it has none, or where workers have copies of it."""
        if not self._is_stateful():
            return None
        return {"dataset": self._dataset.state_dict(), "rng": self._random.state()}

    def _is_stateful(self) -> bool:
        return (
            not self._has_workers and hasattr(self._dataset, "state_dict") and hasattr(self._dataset, "load_state_dict")
        )
