"""From a batch's columns to the inputs of models, for the commonest cases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from torcheer.config import nearest
from torcheer.errors import BadArgument
from torcheer.training.collators import images_to_tensor, is_text, stacked
from torcheer.training.spec.session_parts import Frame


class ToModel:
    """Gives columns to a model, as tensors where they are numbers.

    `columns` are their names, or a dict of the model's inputs and the columns they come from.
    """

    def __init__(self, model: str, columns: Sequence[str] | Mapping[str, str]) -> None:
        self.model = model
        self.columns = dict(columns) if isinstance(columns, Mapping) else {name: name for name in columns}

    def __call__(self, frame: Frame) -> dict[str, Frame]:
        return {self.model: {name: as_tensor(column_of(frame, one)) for name, one in self.columns.items()}}


class StackImages:
    """Gives a column of images, Pillow's, arrays or tensors, to a model as floats between 0 and 1."""

    def __init__(self, column: str, model: str, input: str = "x") -> None:
        self.column, self.model, self.input = column, model, input

    def __call__(self, frame: Frame) -> dict[str, Frame]:
        images = column_of(frame, self.column)
        is_ready = isinstance(images, Tensor) and images.is_floating_point() and images.ndim == 4
        return {self.model: {self.input: images if is_ready else images_to_tensor(images)}}


class DefaultInputAdapter(ToModel):
    """Gives the column `input_1` to a model."""

    def __init__(self, model_name: str) -> None:
        super().__init__(model_name, ["input_1"])


class IdentityAdapter:
    """Leaves what the models made as it is."""

    def __call__(self, frame: Frame) -> Frame:
        return frame


class Rename:
    """Gives columns of the result other names: new to old."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self.names = dict(names)

    def __call__(self, frame: Frame) -> Frame:
        kept = {name: value for name, value in frame.items() if name not in self.names.values()}
        return kept | {new: column_of(frame, old) for new, old in self.names.items()}


def column_of(frame: Frame, name: str) -> Any:
    """A column of a frame, or which there are."""
    if name not in frame:
        raise BadArgument(f"there is no column {name!r} in {', '.join(frame)}.{nearest(name, frame)}")
    return frame[name]


def as_tensor(column: Any) -> Any:
    """A column of numbers as a tensor; anything else as it is."""
    is_numbers = isinstance(column, np.ndarray) or (isinstance(column, (list, tuple)) and not is_text(column))
    return stacked(column) if is_numbers else column
