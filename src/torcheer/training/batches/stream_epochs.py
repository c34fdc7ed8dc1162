"""One epoch of a stream.

Batches come in sequence, and a position is reached by skipping those before it.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch import Tensor
from torch.utils.data import IterableDataset

from torcheer.terminal import notice
from torcheer.training.checkpoints.random_state import IsolatedRandom

MOST_NUMBERS = 4096  # of a tensor, in the checksum of a batch


class IterableWrapper(IterableDataset[Any]):
    """Wrap any iterable as the IterableDataset that torch's DataLoader takes."""

    def __init__(self, source: Any) -> None:
        self._source = source

    def __iter__(self) -> Iterator[Any]:
        return iter(self._source)


class WorkerRepeats:
    """Says that every worker of a stream yields all its samples: its dataset does not share them out.

    The workers' batches come in turn. They are repeats where all have the same first batch, all the same second one,
    and these two differ, as do the samples of most data.
    """

    def __init__(self, loader: str, workers: int) -> None:
        self._loader, self._workers = loader, workers

    def watch(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yield the same batches."""
        seen: list[int | None] = []
        for batch in batches:
            if len(seen) < 2 * self._workers:
                seen.append(_digest(batch))
                if len(seen) == 2 * self._workers and self._are_repeats(seen):
                    self._say()
            yield batch
        if len(seen) < 2 * self._workers and self._are_repeats(seen):
            self._say()

    def _are_repeats(self, seen: list[int | None]) -> bool:
        """Whether all batches of a worker, two at most, are those of every other."""
        rounds = [seen[: self._workers], seen[self._workers :]]
        is_whole = all(len(each) == self._workers and len(set(each)) == 1 and None not in each for each in rounds)
        return is_whole and rounds[0][0] != rounds[1][0]

    def _say(self) -> None:
        notice(
            "training",
            f"loader {self._loader!r}: its {self._workers} workers give the same batches, so that every sample comes "
            f"{self._workers} times in an epoch. An IterableDataset shares its samples out itself: in __iter__, take "
            f"info = torch.utils.data.get_worker_info(), and every info.num_workers-th sample from info.id on; or "
            f"leave out num_workers",
        )


def _digest(batch: Any) -> int | None:
    """A checksum of a batch, of many numbers a part of them; None where there is none."""
    if isinstance(batch, Tensor):
        values = batch.detach().reshape(-1)
        values = values[:: max(1, len(values) // MOST_NUMBERS)]
        return zlib.crc32(f"{batch.shape}{batch.dtype}{values.tolist()}".encode())
    if isinstance(batch, str | bytes | int | float | None):
        return zlib.crc32(repr(batch).encode())
    if isinstance(batch, Mapping):
        batch = [item for pair in batch.items() for item in pair]
    if not isinstance(batch, list | tuple):
        return None
    parts = [_digest(part) for part in batch]
    return None if None in parts else zlib.crc32(repr(parts).encode())


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
