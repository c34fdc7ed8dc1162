"""Datasets made of datasets: split, merged, preprocessed. Anything with a length and `[ ]` will do."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np
from torch.utils.data import Dataset, IterableDataset, Subset

from torcheer.errors import BadArgument

PARTS = ("train", "val", "test")
ROUNDING = 0.002  # 0.333 three times is meant to be all


class Split:
    """A dataset divided at random, by a seed: `.train`, `.val` and `.test`, or `[0]`, `[1]`, …

    Which sample is where is its state: lists of numbers that JSON can hold.
    """

    def __init__(self, dataset: Any, ratio: Sequence[float], *, seed: int = 0, shuffle: bool = True) -> None:
        self.dataset, self.ratio = dataset, checked(ratio)
        count = len(dataset)
        order = np.random.default_rng(seed).permutation(count) if shuffle else np.arange(count)
        ends = list(accumulate(sizes(self.ratio, count)))
        # sorted: the loader has an order of its own, and a disk likes this one
        self.indices: list[list[int]] = [sorted(part.tolist()) for part in np.split(order, ends[:-1])]

    def __len__(self) -> int:
        """How many parts there are."""
        return len(self.indices)

    def __getitem__(self, part: int | str) -> Subset[Any]:
        number = PARTS.index(part) if part in PARTS else part
        if not isinstance(number, int) or not 0 <= number < len(self):
            named = ", ".join(PARTS[: len(self)])
            raise BadArgument(f"the split has no part {part!r}: it has {len(self)} parts, {named}, or [0] and up")
        return Subset(self.dataset, self.indices[number])

    def __iter__(self) -> Iterator[Subset[Any]]:
        return (self[number] for number in range(len(self)))

    @property
    def train(self) -> Subset[Any]:
        """The first part."""
        return self["train"]

    @property
    def val(self) -> Subset[Any]:
        """The second part."""
        return self["val"]

    @property
    def test(self) -> Subset[Any]:
        """The third part."""
        return self["test"]

    def state_dict(self) -> dict[str, Any]:
        """Which sample is in which part."""
        return {"size": len(self.dataset), "parts": self.indices}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Divide as it was divided before."""
        size, parts = state["size"], state["parts"]
        if size != len(self.dataset):
            raise BadArgument(f"the dataset had {size} samples when it was split, and now has {len(self.dataset)}")
        if sorted(index for part in parts for index in part) != list(range(size)):
            raise BadArgument("the split that was kept loses samples or has some twice")
        self.indices = [list(part) for part in parts]


class Merged(Dataset[Any]):
    """Datasets one behind the other."""

    def __init__(self, *datasets: Any) -> None:
        if not datasets:
            raise BadArgument("there is nothing to merge")
        self.datasets = datasets
        self._ends = list(accumulate(len(one) for one in datasets))

    def __len__(self) -> int:
        return self._ends[-1]

    def __getitem__(self, index: int) -> Any:
        index = index + len(self) if index < 0 else index
        if not 0 <= index < len(self):
            raise IndexError(f"there is no sample {index} among {len(self)}")
        number = bisect_right(self._ends, index)
        return self.datasets[number][index - (self._ends[number - 1] if number else 0)]


class Steps:
    """What the values at one place of a sample go through, one after the other."""

    def __init__(self, *preprocessors: Any) -> None:
        self.preprocessors = [one for one in preprocessors if one is not None and one != ""]

    def __call__(self, value: Any) -> Any:
        for one in self.preprocessors:
            value = one.process(value) if hasattr(one, "process") else one(value)
        return value


class Preprocessed(Dataset[Any]):
    """A dataset whose samples go through preprocessors, one for each place; None and places left over stay as is.

    Samples that are dicts take a dict of preprocessors.
    """

    def __init__(self, dataset: Any, preprocessors: Sequence[Any] | Mapping[str, Any]) -> None:
        self.dataset, self.preprocessors = dataset, preprocessors
        self._process = process_of(preprocessors)

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        return self._process(self.dataset[index])

    def __getitems__(self, indices: list[int]) -> list[Any]:
        several = getattr(self.dataset, "__getitems__", None)
        samples = several(indices) if several is not None else [self.dataset[index] for index in indices]
        return [self._process(sample) for sample in samples]


class PreprocessedStream(IterableDataset[Any]):
    """The same for a dataset that can only be read from its beginning."""

    def __init__(self, dataset: Any, preprocessors: Sequence[Any] | Mapping[str, Any]) -> None:
        self.dataset, self.preprocessors = dataset, preprocessors
        self._process = process_of(preprocessors)

    def __iter__(self) -> Iterator[Any]:
        return map(self._process, self.dataset)


Linked = Preprocessed


def preprocessed(dataset: Any, preprocessors: Sequence[Any] | Mapping[str, Any]) -> Any:
    """A dataset, whichever kind it is, whose samples go through preprocessors."""
    is_stream = isinstance(dataset, IterableDataset) or not hasattr(dataset, "__getitem__")
    return (PreprocessedStream if is_stream else Preprocessed)(dataset, preprocessors)


def preprocessors_of(dataset: Any) -> list[Steps]:
    """For each place of a raw sample, what it goes through on its way out of a dataset: inputs of inference do too."""
    if isinstance(dataset, Subset):
        return preprocessors_of(dataset.dataset)
    if isinstance(dataset, Merged):
        return preprocessors_of(dataset.datasets[0])
    if not isinstance(dataset, (Preprocessed, PreprocessedStream)) or isinstance(dataset.preprocessors, Mapping):
        return []
    inner, own = preprocessors_of(dataset.dataset), list(dataset.preprocessors)
    inner += [Steps()] * (len(own) - len(inner))
    own += [None] * (len(inner) - len(own))
    return [Steps(*before.preprocessors, after) for before, after in zip(inner, own)]


def process_of(preprocessors: Sequence[Any] | Mapping[str, Any]) -> Callable[[Any], Any]:
    """What makes a sample of a sample."""
    if isinstance(preprocessors, Mapping):
        return partial(_processed_dict, {key: Steps(one) for key, one in preprocessors.items()})
    return partial(_processed, [Steps(one) for one in preprocessors])


def _processed_dict(steps: Mapping[str, Steps], sample: Mapping[str, Any]) -> dict[str, Any]:
    return {key: steps[key](value) if key in steps else value for key, value in sample.items()}


def _processed(steps: Sequence[Steps], sample: Any) -> Any:
    values = sample if isinstance(sample, (tuple, list)) else (sample,)
    if len(steps) > len(values):
        raise BadArgument(f"there are {len(steps)} preprocessors for the {len(values)} places of a sample")
    made = (*(one(value) for one, value in zip(steps, values)), *values[len(steps) :])
    return made if isinstance(sample, (tuple, list)) else made[0]


def checked(ratio: Sequence[float]) -> list[float]:
    """The ratios, if they are shares of a whole."""
    whole = math.fsum(ratio)
    if not ratio or any(not part >= 0 for part in ratio):
        raise BadArgument(f"ratio={list(ratio)}: the shares of a split are not negative, such as [0.8, 0.1, 0.1]")
    if not abs(whole - 1) < ROUNDING:
        raise BadArgument(f"ratio={list(ratio)}: the shares of a split add up to 1, and these to {whole:g}")
    return [part / whole for part in ratio]


def sizes(ratio: Sequence[float], count: int) -> list[int]:
    """Whole numbers that add up to `count`: what is left by rounding down goes where most was cut off."""
    exact = [part * count for part in ratio]
    found = [math.floor(size) for size in exact]
    cut = sorted(range(len(exact)), key=lambda number: found[number] - exact[number])
    for number in cut[: count - sum(found)]:
        found[number] += 1
    return found
