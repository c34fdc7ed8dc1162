"""What a sample is, in a line: where it comes from, its shapes and numbers; and a small picture of an image."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import ConcatDataset, Subset

from torcheer.encoding import array_of
from torcheer.terminal import human_number, human_shape, short_repr
from torcheer.training.datasets import Merged

_PATHS = ("path", "file", "filename", "root")  # attributes of a dataset that may say where it lies
_MOST_PICTURE = 128  # pixels along each side
_MOST_PARTS = 6


class SampleFacts(NamedTuple):
    """A sample as people see it."""

    text: str  # "float32 3×32×32 from -1.2 to 3.4; 7"
    is_finite: bool
    largest: float  # of its finite numbers, without their sign
    picture: Any = None  # channels × height × width, uint8; None where it is no image


def origin_of(dataset: Any, index: int) -> str:
    """Name a sample by the innermost dataset and its place there: "row 32 of data/train.csv"."""
    while True:
        if isinstance(dataset, Subset):
            dataset, index = dataset.dataset, int(dataset.indices[index])
        elif isinstance(dataset, Merged | ConcatDataset):
            sizes = np.cumsum([len(part) for part in dataset.datasets]).tolist()  # type: ignore[arg-type]
            number = bisect_right(sizes, index)
            dataset, index = dataset.datasets[number], index - (sizes[number - 1] if number else 0)
        elif (inner := getattr(dataset, "dataset", None)) is not None and _length(inner) == _length(dataset):
            dataset = inner
        else:
            return _place(dataset, index)


def _place(dataset: Any, index: int) -> str:
    files = getattr(dataset, "samples", None)  # torchvision's folders: (path, class)
    if isinstance(files, list) and index < len(files) and isinstance(files[index], tuple):
        if isinstance(path := files[index][0], str | os.PathLike):
            return os.fspath(path)
    named = (value for name in _PATHS if isinstance(value := getattr(dataset, name, None), str | os.PathLike))
    return f"row {index} of {next((os.fspath(value) for value in named), type(dataset).__name__)}"


def _length(dataset: Any) -> int:
    try:
        return len(dataset)
    except TypeError:
        return -1


def describe_samples(items: list[Any]) -> list[SampleFacts]:
    """Describe the items of a batch; a collate function, so that only this leaves the process that reads them."""
    return [describe_sample(item) for item in items]


def describe_sample(item: Any) -> SampleFacts:
    """Describe one item of a dataset."""
    parts = list(_parts(item))
    arrays = [array for _, array in parts if array is not None]
    text = "; ".join(text for text, _ in parts[:_MOST_PARTS]) + ("; …" if len(parts) > _MOST_PARTS else "")
    pictures = (picture for array in arrays if (picture := _picture(array)) is not None)
    largest = max((_largest(array) for array in arrays), default=0.0)
    return SampleFacts(text, all(_is_finite(array) for array in arrays), largest, next(pictures, None))


def _parts(item: Any, name: str = "") -> Any:
    if isinstance(item, Mapping):
        for key, value in item.items():
            yield from _parts(value, f"{name}{key} ")
    elif isinstance(item, tuple | list) and not all(isinstance(value, int | float) for value in item):
        for value in item:
            yield from _parts(value, name)
    else:
        array = _array(item)
        yield f"{name}{short_repr(item) if array is None else _text(array)}", array


def _array(value: Any) -> Any:
    """The value as a numpy array; None where it is none."""
    if isinstance(value, torch.Tensor):
        return array_of(value)
    if isinstance(value, np.ndarray | np.generic | int | float | list | tuple) or hasattr(value, "__array_interface__"):
        array = np.asarray(value)
        return array if array.dtype.kind in "biufc" else None
    return None


def _text(array: Any) -> str:
    if array.ndim == 0:
        return human_number(float(array)) if array.dtype.kind == "f" else str(array)
    counts = {"NaN": _count(np.isnan, array), "infinite": _count(np.isinf, array)}
    bad = [f"{count:,} {kind}" for kind, count in counts.items() if count]
    finite = array[np.isfinite(array)] if array.dtype.kind in "fc" else array
    span = (
        f"from {human_number(finite.min())} to {human_number(finite.max())}"
        if finite.size and array.dtype.kind != "c"
        else ""
    )
    return " ".join(filter(None, (str(array.dtype), human_shape(array.shape), span, ", ".join(bad))))


def _count(function: Any, array: Any) -> int:
    return int(function(array).sum()) if array.dtype.kind in "fc" else 0


def _largest(array: Any) -> float:
    numbers = np.abs(array[np.isfinite(array)].astype(np.float64)) if array.dtype.kind in "iuf" else array[:0]
    return float(numbers.max()) if numbers.size else 0.0


def _is_finite(array: Any) -> bool:
    return array.dtype.kind not in "fc" or bool(np.isfinite(array).all())


def _picture(array: Any) -> Any:
    """The first three channels of an image, small, from 0 to 255; None of anything else."""
    if (
        array.ndim != 3
        or array.dtype.kind not in "uf"
        or min(array.shape[1:] if array.shape[0] <= 4 else array.shape[:2]) < 4
    ):
        return None
    image = (
        array if array.shape[0] in (1, 3, 4) else np.moveaxis(array, -1, 0) if array.shape[-1] in (1, 3, 4) else None
    )
    if image is None:
        return None
    step = -(-max(image.shape[1:]) // _MOST_PICTURE)
    image = image[: 1 if image.shape[0] == 1 else 3, ::step, ::step]
    if image.dtype == np.uint8:
        return image
    image = np.nan_to_num(image.astype(np.float32), nan=0.0, posinf=0.0, neginf=0.0)
    low, high = float(image.min()), float(image.max())
    return ((image - low) / ((high - low) or 1.0) * 255).astype(np.uint8)
