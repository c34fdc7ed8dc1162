"""Collators: make batches of samples, as the `collate_fn` of a loader."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torcheer.errors import BadArgument

Columns = list[Any] | dict[str, Any]
NUMBERS = (bool, int, float, complex, list, tuple)
FULL_SCALE = {torch.uint8: 255, torch.uint16: 65535}  # the value of white in an image of integers


class BaseCollator(ABC):
    """Make a batch of a list of samples."""

    @abstractmethod
    def __call__(self, batch: Sequence[Any]) -> Any:
        """Return the batch."""

    def collate_inputs(self, *inputs: Any) -> Any:
        """Return the batch of these samples."""
        return self(inputs)


class BatchDivide(BaseCollator):
    """Divide a batch into its columns.

    A list of tuples becomes a list of lists, of dicts a dict of lists.
    """

    def __call__(self, batch: Sequence[Any]) -> Any:
        return divided(batch)


class StackTensors(BatchDivide):
    """Make a tensor of each column of numbers, arrays or tensors; texts stay a list."""

    def __call__(self, batch: Sequence[Any]) -> Any:
        return each(lambda name, column: column if is_text(column) else stacked(column, name), divided(batch))


class ColumnWiseCollator(BatchDivide):
    """Collate each column separately; None keeps it, a tuple as result makes several columns."""

    def __init__(self, column_transforms: Sequence[Callable[[list[Any]], Any] | None]) -> None:
        self.column_transforms = list(column_transforms)

    def first(self, count: int) -> ColumnWiseCollator:
        """Return the collator of the first columns: inference has no targets."""
        return ColumnWiseCollator(self.column_transforms[:count])

    def __call__(self, batch: Sequence[Any]) -> Any:
        columns, collators = divided(batch), self.column_transforms
        if isinstance(columns, dict) or len(columns) != len(collators):
            raise BadArgument(f"ColumnWiseCollator has {len(collators)} collators, and a sample {len(columns)} columns")
        collated = [column if collate is None else collate(column) for collate, column in zip(collators, columns)]
        return tuple(part for value in collated for part in (value if isinstance(value, tuple) else (value,)))


class PadSequences:
    """Pad sequences to the longest; return the tensor, batch first, and the original lengths."""

    def __init__(self, padding_value: float = 0) -> None:
        self.padding_value = padding_value

    def __call__(self, sequences: Sequence[Any]) -> tuple[Tensor, Tensor]:
        tensors = of_one_type(sequences)
        lengths = torch.tensor([len(tensor) for tensor in tensors])
        return torch.nn.utils.rnn.pad_sequence(tensors, batch_first=True, padding_value=self.padding_value), lengths


class SeqsToOneHot:
    """Pad sequences of classes to the longest and encode them one-hot.

    The result is batch × length × classes.

    Without a `padding_value` a sequence is padded with its last class, the end token where there is one.
    """

    def __init__(self, num_classes: int, padding_value: int | None = None) -> None:
        self.num_classes, self.padding_value = num_classes, padding_value

    def __call__(self, sequences: Sequence[Any]) -> Tensor:
        classes = filled_up(sequences, self.padding_value).long()
        if classes.numel() and (int(classes.min()) < 0 or int(classes.max()) >= self.num_classes):
            wrong = int(classes.min()) if int(classes.min()) < 0 else int(classes.max())
            raise BadArgument(f"class {wrong} is none of num_classes={self.num_classes}, which are 0 and up")
        return torch.nn.functional.one_hot(classes, self.num_classes).float()


def seqs_to_tensor(sequences: Sequence[Any]) -> Tensor:
    """Stack sequences of integers, each padded with its last value."""
    return filled_up(sequences, None).long()


def to_long_tensor(numbers: Sequence[Any]) -> Tensor:
    """Convert a column of numbers to an integer tensor."""
    return stacked(numbers).long()


def to_float_tensor(numbers: Sequence[Any]) -> Tensor:
    """Convert a column of numbers to a float tensor."""
    return stacked(numbers).float()


def no_transform(column: Any) -> Any:
    """Return a column unchanged."""
    return column


def images_to_tensor(images: Sequence[Any]) -> Tensor:
    """Stack images of one size as floats between 0 and 1: batch × channels × height × width."""
    tensors = [image_to_tensor(image) for image in images]
    shapes = {tuple(tensor.shape) for tensor in tensors}
    if len(shapes) > 1:
        raise BadArgument(f"images of different shapes, {shown(shapes)}, make no batch: resize them in the dataset")
    return torch.stack(tensors)


def image_to_tensor(image: Any) -> Tensor:
    """Convert an image to floats between 0 and 1, channels first.

    It is a Pillow image, an array (height × width × channels) or a tensor (channels first).
    """
    if isinstance(image, Tensor):
        pixels = image
    else:
        if getattr(image, "mode", "") == "P":  # a palette image: indices, not colours
            image = image.convert("RGB")
        pixels = torch.from_numpy(np.array(image))  # a copy: Pillow's own memory is read-only
        pixels = pixels.movedim(-1, 0) if pixels.ndim == 3 else pixels
    if pixels.ndim == 2:
        pixels = pixels[None]
    if pixels.ndim != 3:
        raise BadArgument(f"an image has 2 or 3 axes, and this one the shape {tuple(pixels.shape)}")
    return pixels.float().div(FULL_SCALE.get(pixels.dtype, 1)).contiguous()


def divided(batch: Sequence[Any]) -> Columns:
    """Return the columns of a batch; samples that are no tuples are one column."""
    if not len(batch):
        raise BadArgument("a batch of no samples has no columns")
    first = batch[0]
    if isinstance(first, Mapping):
        return {key: [sample[key] for sample in batch] for key in first}
    if not isinstance(first, (tuple, list)):
        return [list(batch)]
    sizes = {len(sample) for sample in batch}
    if len(sizes) > 1:
        raise BadArgument(f"samples of one batch have different numbers of columns: {shown(sizes)}")
    return [list(column) for column in zip(*batch)]


def each(function: Callable[[Any, Any], Any], columns: Columns) -> Columns:
    """Apply a function of name and column to each column."""
    if isinstance(columns, dict):
        return {key: function(key, column) for key, column in columns.items()}
    return [function(number, column) for number, column in enumerate(columns)]


def is_text(column: Sequence[Any]) -> bool:
    """Return whether a column holds texts."""
    return len(column) > 0 and isinstance(column[0], (str, bytes))


def stacked(column: Any, name: object = "") -> Tensor:
    """Stack a column of numbers, arrays or tensors to one tensor."""
    if isinstance(column, (Tensor, np.ndarray)):
        return torch.as_tensor(column)
    where = f"column {name}" if name != "" else "a column"
    first = column[0] if len(column) else 0.0
    try:
        if isinstance(first, Tensor):
            return torch.stack(list(column))
        if isinstance(first, (np.ndarray, np.generic)):
            return torch.from_numpy(np.stack(list(column)))
        if isinstance(first, NUMBERS):
            return torch.tensor(list(column))
    except (RuntimeError, TypeError, ValueError) as error:
        raise BadArgument(
            f"{where} makes no tensor: {error}. For sequences of different lengths: PadSequences"
        ) from None
    raise BadArgument(f"{where} holds {type(first).__name__}, which makes no tensor: see BatchDivide, and StackImages")


def of_one_type(sequences: Sequence[Any]) -> list[Tensor]:
    """Convert sequences to tensors of their common dtype: 1 and 0.5 both become floats."""
    tensors = [sequence if isinstance(sequence, Tensor) else stacked(sequence) for sequence in sequences]
    types = [sequence.dtype for sequence in tensors if len(sequence)] or [torch.float32]  # an empty list has no dtype
    return [sequence.to(reduce(torch.promote_types, types)) for sequence in tensors]


def filled_up(sequences: Sequence[Any], padding_value: int | None) -> Tensor:
    """Pad sequences to the longest, with a value or with the last of each."""
    if padding_value is not None:
        return PadSequences(padding_value)(sequences)[0]
    tensors = of_one_type(sequences)
    if not all(len(tensor) for tensor in tensors):
        raise BadArgument("an empty sequence has no last class to be filled up with: give a padding_value")
    longest = max(len(tensor) for tensor in tensors)
    return torch.stack([torch.cat([tensor, tensor[-1:].expand(longest - len(tensor))]) for tensor in tensors])


def shown(values: set[Any]) -> str:
    """Join sorted values with commas."""
    return ", ".join(str(value) for value in sorted(values))
