"""One epoch of a stream: its batches come one after the other, and a place in it is reached by passing the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch.utils.data import IterableDataset

from torcheer.training.checkpoints.random_state import Apart


class Iterated(IterableDataset[Any]):
    """Anything that can be iterated over, as torch's DataLoader takes it."""

    def __init__(self, source: Any) -> None:
        self._source = source

    def __iter__(self) -> Iterator[Any]:
        return iter(self._source)


class Stream:
    """The batches of a dataset that can only be iterated over.

    Without workers it draws its random numbers apart from all others: passing over batches takes none from a model's
    dropout, and gives the same batches again.
    """

    def __init__(self, dataset: Any, batches: Callable[[], Iterator[Any]], seed: int, *, workers: bool) -> None:
        self._dataset, self._make, self._workers = dataset, batches, workers
        self._apart = Apart(seed)
        self._batches: Iterator[Any] | None = None

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self._workers:  # theirs are seeded by their number
            return next(self._begun())
        with self._apart.drawing():
            return next(self._begun())

    def _begun(self) -> Iterator[Any]:
        if self._batches is None:
            self._batches = self._make()
        return self._batches

    def go_to(self, start: int, state: Mapping[str, Any] | None) -> None:
        """Go on after `start` batches: from the dataset's own state where there is one."""
        if state is not None and self._keeps_state():
            self._dataset.load_state_dict(state["dataset"])
            self._apart.restore(state["rng"])
            return
        for _ in range(start):
            next(self, None)

    def state(self) -> dict[str, Any] | None:
        """What the dataset says of its place; None where it says nothing, or where workers have copies of it."""
        if not self._keeps_state():
            return None
        return {"dataset": self._dataset.state_dict(), "rng": self._apart.state()}

    def _keeps_state(self) -> bool:
        return not self._workers and hasattr(self._dataset, "state_dict") and hasattr(self._dataset, "load_state_dict")
