"""Datasets made of datasets (split, merged, preprocessed), whose sources need `len()` and `[]`; folders of images."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, IterableDataset, Subset

from torcheer.errors import BadArgument
from torcheer.training.collators import image_to_tensor

IMAGE_MODES = {1: "L", 3: "RGB", 4: "RGBA"}  # channels -> Pillow's mode
IMAGE_ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".ppm", ".pgm", ".tif", ".tiff", ".webp")
PARTS = ("train", "val", "test")
ROUNDING = 0.002  # accept 0.333 three times as 1


class Split:
    """A dataset split at random, by a seed: `.train`, `.val` and `.test`, or `[0]`, `[1]`, …

    Its state is the indices of each part, as lists that JSON can hold.
    """

    def __init__(self, dataset: Any, ratio: Sequence[float], *, seed: int = 0, shuffle: bool = True) -> None:
        self.dataset, self.ratio = dataset, checked(ratio)
        count = len(dataset)
        order = np.random.default_rng(seed).permutation(count) if shuffle else np.arange(count)
        ends = list(accumulate(sizes(self.ratio, count)))
        # sorted: the loader shuffles anyway, and sequential reads are faster
        self.indices: list[list[int]] = [sorted(part.tolist()) for part in np.split(order, ends[:-1])]

    def __len__(self) -> int:
        """Return the number of parts."""
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
        """Return the indices of each part."""
        return {"size": len(self.dataset), "parts": self.indices}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore an earlier split."""
        size, parts = state["size"], state["parts"]
        if size != len(self.dataset):
            raise BadArgument(f"the dataset had {size} samples when it was split, and now has {len(self.dataset)}")
        if sorted(index for part in parts for index in part) != list(range(size)):
            raise BadArgument("the split that was kept loses samples or has some twice")
        self.indices = [list(part) for part in parts]


class ImageFolder(Dataset[Any]):
    """Images of a folder with one folder for each class, as `photos/cat/1.png`: samples are (tensor, class number).

    Images are scaled to `size` × `size` pixels, or to (height, width), and made channels × height × width numbers
    between 0 and 1; `channels` 1 for grey, 3 for colours. `mean` and `std` are subtracted and divided by: a number, or
    one for each channel. `classes` are the names of the folders, in alphabetical order.
    """

    def __init__(
        self,
        path: str,
        size: int | Sequence[int] = 224,
        *,
        channels: int = 3,
        mean: float | Sequence[float] = 0.0,
        std: float | Sequence[float] = 1.0,
    ) -> None:
        root = Path(path)
        if channels not in IMAGE_MODES:
            raise BadArgument(f"channels={channels}: images have 1 channel (grey), 3 (colours) or 4")
        self.classes = sorted(folder.name for folder in root.iterdir() if folder.is_dir()) if root.is_dir() else []
        self.files = [
            (file, number)
            for number, name in enumerate(self.classes)
            for file in sorted((root / name).rglob("*"))
            if file.suffix.lower() in IMAGE_ENDINGS
        ]
        if not self.files:
            found = f"the folders {', '.join(self.classes[:8])} without images" if self.classes else "no folders"
            raise BadArgument(f"{path} has {found}; it needs a folder for each class, with images: {path}/cat/1.png")
        height, width = (size, size) if isinstance(size, int) else size
        self.size, self.mode = (width, height), IMAGE_MODES[channels]
        self.mean, self.std = (torch.as_tensor(value).reshape(-1, 1, 1) for value in (mean, std))

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        file, number = self.files[index]
        return self.read(file), number

    def read(self, path: str | Path) -> torch.Tensor:
        """Return the image of a file, scaled and normalised; `torcheer infer` reads its inputs with it."""
        from PIL import Image

        with Image.open(path) as image:
            pixels = image_to_tensor(image.convert(self.mode).resize(self.size))
        return (pixels - self.mean) / self.std


class Merged(Dataset[Any]):
    """Concatenation of datasets."""

    def __init__(self, *datasets: Any) -> None:
        if not datasets:
            raise BadArgument("there is nothing to merge")
        self.datasets = datasets
        self._ends = list(accumulate(len(dataset) for dataset in datasets))

    def __len__(self) -> int:
        return self._ends[-1]

    def __getitem__(self, index: int) -> Any:
        index = index + len(self) if index < 0 else index
        if not 0 <= index < len(self):
            raise IndexError(f"there is no sample {index} among {len(self)}")
        number = bisect_right(self._ends, index)
        return self.datasets[number][index - (self._ends[number - 1] if number else 0)]


class Steps:
    """Preprocessors applied in sequence to the values at one position of a sample."""

    def __init__(self, *preprocessors: Any) -> None:
        self.preprocessors = [
            preprocessor for preprocessor in preprocessors if preprocessor is not None and preprocessor != ""
        ]

    def __call__(self, value: Any) -> Any:
        for preprocessor in self.preprocessors:
            value = preprocessor.process(value) if hasattr(preprocessor, "process") else preprocessor(value)
        return value


class Preprocessed(Dataset[Any]):
    """A dataset with one preprocessor for each position of a sample.

    None leaves a position unchanged.

    So do positions without a preprocessor. Samples that are dicts take a dict of preprocessors.
    """

    def __init__(self, dataset: Any, preprocessors: Sequence[Any] | Mapping[str, Any]) -> None:
        self.dataset, self.preprocessors = dataset, preprocessors
        self._process = process_of(preprocessors)

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        return self._process(self.dataset[index])

    def __getitems__(self, indices: list[int]) -> list[Any]:
        get_items = getattr(self.dataset, "__getitems__", None)
        samples = get_items(indices) if get_items is not None else [self.dataset[index] for index in indices]
        return [self._process(sample) for sample in samples]


class PreprocessedStream(IterableDataset[Any]):
    """Preprocessed samples of an iterable dataset."""

    def __init__(self, dataset: Any, preprocessors: Sequence[Any] | Mapping[str, Any]) -> None:
        self.dataset, self.preprocessors = dataset, preprocessors
        self._process = process_of(preprocessors)

    def __iter__(self) -> Iterator[Any]:
        return map(self._process, self.dataset)


Linked = Preprocessed


def preprocessed(dataset: Any, preprocessors: Sequence[Any] | Mapping[str, Any]) -> Any:
    """Apply preprocessors to the samples of a dataset of either kind."""
    is_stream = isinstance(dataset, IterableDataset) or not hasattr(dataset, "__getitem__")
    return (PreprocessedStream if is_stream else Preprocessed)(dataset, preprocessors)


def preprocessors_of(dataset: Any) -> list[Steps]:
    """Return the preprocessing of each position of a raw sample; inference inputs need it, too."""
    if isinstance(dataset, Subset):
        return preprocessors_of(dataset.dataset)
    if isinstance(dataset, Merged):
        return preprocessors_of(dataset.datasets[0])
    if not isinstance(dataset, (Preprocessed, PreprocessedStream)) or isinstance(dataset.preprocessors, Mapping):
        return []
    inner, outer = preprocessors_of(dataset.dataset), list(dataset.preprocessors)
    inner += [Steps()] * (len(outer) - len(inner))
    outer += [None] * (len(inner) - len(outer))
    return [Steps(*before.preprocessors, after) for before, after in zip(inner, outer)]


def source_of(dataset: Any) -> Any:
    """Return the dataset that parts, joined and preprocessed ones are made of; of several, the first."""
    while isinstance(dataset, Subset | Merged | Preprocessed | PreprocessedStream):
        dataset = dataset.datasets[0] if isinstance(dataset, Merged) else dataset.dataset
    return dataset


def process_of(preprocessors: Sequence[Any] | Mapping[str, Any]) -> Callable[[Any], Any]:
    """Return the function that preprocesses a sample."""
    if isinstance(preprocessors, Mapping):
        return partial(_processed_dict, {key: Steps(preprocessor) for key, preprocessor in preprocessors.items()})
    return partial(_processed, [Steps(preprocessor) for preprocessor in preprocessors])


def _processed_dict(steps: Mapping[str, Steps], sample: Mapping[str, Any]) -> dict[str, Any]:
    return {key: steps[key](value) if key in steps else value for key, value in sample.items()}


def _processed(steps: Sequence[Steps], sample: Any) -> Any:
    values = sample if isinstance(sample, (tuple, list)) else (sample,)
    if len(steps) > len(values):
        raise BadArgument(f"there are {len(steps)} preprocessors for the {len(values)} places of a sample")
    processed = (*(step(value) for step, value in zip(steps, values)), *values[len(steps) :])
    return processed if isinstance(sample, (tuple, list)) else processed[0]


def checked(ratio: Sequence[float]) -> list[float]:
    """Return the ratios, normalised; raise where they do not add up to 1."""
    total = math.fsum(ratio)
    if not ratio or any(not part >= 0 for part in ratio):
        raise BadArgument(f"ratio={list(ratio)}: the shares of a split are not negative, such as [0.8, 0.1, 0.1]")
    if not abs(total - 1) < ROUNDING:
        raise BadArgument(f"ratio={list(ratio)}: the shares of a split add up to 1, and these to {total:g}")
    return [part / total for part in ratio]


def sizes(ratio: Sequence[float], count: int) -> list[int]:
    """Return part sizes that add up to `count`, by the largest-remainder method."""
    exact = [part * count for part in ratio]
    counts = [math.floor(size) for size in exact]
    cut = sorted(range(len(exact)), key=lambda number: counts[number] - exact[number])
    for number in cut[: count - sum(counts)]:
        counts[number] += 1
    return counts
