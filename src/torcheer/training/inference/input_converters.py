"""From a text on the command line to a value of a sample: numbers, pictures, or as the dataset itself reads files."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from torcheer.errors import BadArgument
from torcheer.terminal import human_shape, plural
from torcheer.training.collators import image_to_tensor
from torcheer.training.datasets import IMAGE_MODES, preprocessors_of, source_of

if TYPE_CHECKING:
    from torcheer.training.loop.pipeline_runner import PipelineRunner
    from torcheer.training.spec import Inference

ADVICE = "An input converter (infer: {input: my_code.read}) may take anything"


def with_converters(runner: PipelineRunner, inference: Inference, needed: Sequence[str]) -> Inference:
    """Return the settings with a converter for each port that has none, by the value that is needed of a sample."""
    converters = dict(inference.converters)
    for feed, port, input in runner.inputs:
        if converters.get(port) is None:
            place = next((number for number, name in enumerate(input.names) if name in needed), 0)
            converters[port] = _converter_like(feed.loader.dataset, place)
    return replace(inference, converters=converters)


def _converter_like(dataset: Any, place: int) -> Callable[[str], Any] | None:
    """Return a function from a text to the value at this place of a sample; None where it is a text, too."""
    if place == 0 and (reader := _file_reader(source_of(dataset))) is not None:
        return reader
    if preprocessors_of(dataset):  # they take what a sample is before them
        dataset = source_of(dataset)
    sample = dataset[0] if hasattr(dataset, "__getitem__") else None
    value = sample[place] if isinstance(sample, tuple | list) and len(sample) > place else sample
    if isinstance(value, bool | int | float):
        return partial(_read_number, kind=type(value))
    if hasattr(value, "getbands"):  # a Pillow image
        return partial(_open_image, like=value)
    if isinstance(value, torch.Tensor | np.ndarray):
        return partial(_read_numbers, like=torch.as_tensor(value))
    return None


def _file_reader(dataset: Any) -> Callable[[str], Any] | None:
    """Return how a dataset of files reads one of them: torcheer's ImageFolder, and torchvision's."""
    if callable(read := getattr(dataset, "read", None)):
        return partial(_read_file, read=read)
    load, transform = getattr(dataset, "loader", None), getattr(dataset, "transform", None)
    if not callable(load) or not hasattr(dataset, "transform"):
        return None
    return partial(_read_file, read=lambda path: load(path) if transform is None else transform(load(path)))


def _read_file(text: str, read: Callable[[str], Any]) -> Any:
    try:
        return read(text)
    except OSError as error:  # Pillow's, too, of what is no picture
        raise _refusal("a file is needed that the dataset reads, as its path", text) from error


def _read_number(text: str, kind: type[float]) -> float:
    try:
        return kind(text)
    except ValueError:
        wanted = "a whole number is needed, such as 3" if kind is int else "a number is needed, such as 0.5"
        raise BadArgument(f"{wanted}. {ADVICE}") from None


def _read_numbers(text: str, like: Tensor) -> Tensor:
    """Read a tensor from numbers, or from a picture where there are that many channels."""
    words, numbers = [word for word in re.split(r"[\s,;\[\]()]+", text) if word], list[float]()
    takes_pictures = like.ndim == 3 and like.shape[0] in IMAGE_MODES
    with suppress(ValueError):
        numbers = [float(word) for word in words]
    if takes_pictures and (len(numbers) != len(words) or os.path.isfile(text)):
        picture = _open_image(text).convert(IMAGE_MODES[like.shape[0]]).resize((like.shape[2], like.shape[1]))
        return image_to_tensor(picture).to(like.dtype)
    if len(numbers) != like.numel():
        needed = f"{plural(like.numel(), 'number')} ({human_shape(like.shape)}) are needed, such as 0.1, 0.5"
        needed += ", or a picture, as the path of its file" if takes_pictures else ""
        given = f"there are {len(numbers)}" if len(numbers) == len(words) else "this is something else"
        raise BadArgument(f"{needed}; {given}. {ADVICE}")
    return torch.tensor(numbers, dtype=like.dtype).reshape(like.shape)


def _open_image(text: str, like: Any = None) -> Any:
    from PIL import Image

    try:
        image = Image.open(text)
        return image if like is None else image.convert(like.mode).resize(like.size)
    except OSError as error:  # also of what is no picture
        raise _refusal("a picture is needed, as the path of its file, such as photo.png", text) from error


def _refusal(needed: str, text: str) -> BadArgument:
    why = f"{text!r} is a file of another kind" if os.path.isfile(text) else f"there is no file {text!r}"
    return BadArgument(f"{needed}, and {why}. {ADVICE}")
