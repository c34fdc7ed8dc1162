"""Input and output adapters: map a batch's columns to the inputs of models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from torcheer.errors import BadArgument
from torcheer.terminal import did_you_mean
from torcheer.training.collators import images_to_tensor, is_text, stacked
from torcheer.training.session_parts import Frame


class ToModel:
    """Pass columns to a model, as tensors where they are numbers.

    `columns` are their names, or a dict of the model's inputs to column names.
    """

    def __init__(self, model: str, columns: Sequence[str] | Mapping[str, str]) -> None:
        self.model = model
        self.columns = dict(columns) if isinstance(columns, Mapping) else {name: name for name in columns}

    def __call__(self, frame: Frame) -> dict[str, Frame]:
        return {self.model: {name: as_tensor(column_of(frame, column)) for name, column in self.columns.items()}}


class StackImages:
    """Pass a column of images (Pillow, arrays or tensors) to a model as floats between 0 and 1."""

    def __init__(self, column: str, model: str, input: str = "x") -> None:
        self.column, self.model, self.input = column, model, input

    def __call__(self, frame: Frame) -> dict[str, Frame]:
        images = column_of(frame, self.column)
        is_ready = isinstance(images, Tensor) and images.is_floating_point() and images.ndim == 4
        return {self.model: {self.input: images if is_ready else images_to_tensor(images)}}


class DefaultInputAdapter(ToModel):
    """Pass the column `input_1` to a model."""

    def __init__(self, model_name: str) -> None:
        super().__init__(model_name, ["input_1"])


class IdentityAdapter:
    """Return the outputs of the models unchanged."""

    def __call__(self, frame: Frame) -> Frame:
        return frame


class Rename:
    """Rename columns of the result; `names` maps new to old."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self.names = dict(names)

    def __call__(self, frame: Frame) -> Frame:
        others = {name: value for name, value in frame.items() if name not in self.names.values()}
        return others | {new: column_of(frame, old) for new, old in self.names.items()}


def column_of(frame: Frame, name: str) -> Any:
    """Return a column of a frame; raise with the names there are."""
    if name not in frame:
        raise BadArgument(f"there is no column {name!r} in {', '.join(frame)}.{did_you_mean(name, frame)}")
    return frame[name]


def as_tensor(column: Any) -> Any:
    """Convert a column of numbers to a tensor; return anything else unchanged."""
    is_numbers = isinstance(column, np.ndarray) or (isinstance(column, (list, tuple)) and not is_text(column))
    return stacked(column) if is_numbers else column
