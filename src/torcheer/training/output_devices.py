"""Output devices of results: screen, images, texts, tables. Each takes a dict of batches."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import torch
from torch import Tensor

from torcheer.errors import BadArgument

MODES = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}  # channels -> Pillow mode


class Printer:
    """Print each result as `name:value`; what is no mapping, as a post-processor may return, as it is."""

    def __call__(self, results: Mapping[str, Any] | object) -> None:
        if not isinstance(results, Mapping):
            print(results)
            return
        for name, value in results.items():
            print(f"{name}:{value}")


class SaveAsImages:
    """Write each image of each batch as a PNG: `y_hat-00000.png`, `y_hat-00001.png`, …

    An image is height × width or channels × height × width, floats between 0 and 1 or bytes. `mean` and `std` undo a
    normalisation first: 0.5 and 0.5 for the output of a tanh. Images of earlier runs are kept.
    """

    def __init__(self, destination_folder: str | Path, mean: float = 0.0, std: float = 1.0) -> None:
        self.folder, self.mean, self.std = Path(destination_folder), mean, std

    def __call__(self, results: Mapping[str, Any]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        for name, batch in results.items():
            name = re.sub(r"[^\w.-]", "_", name)  # a slash would leave the folder
            start = self._next_number(name)
            for number, image in enumerate(batch, start):
                self._to_image(image, name).save(self.folder / f"{name}-{number:05d}.png")

    def _next_number(self, name: str) -> int:
        taken = [path.stem.removeprefix(f"{name}-") for path in self.folder.glob(f"{name}-*.png")]
        return max((int(number) + 1 for number in taken if number.isdecimal()), default=0)

    def _to_image(self, image: Any, name: str) -> Any:
        if hasattr(image, "save"):  # a Pillow image already
            return image
        try:
            from PIL import Image
        except ImportError:
            raise BadArgument("SaveAsImages needs Pillow, which is not installed: pip install pillow") from None
        pixels = self._pixels(torch.as_tensor(image), name)
        return Image.frombytes(MODES[pixels.shape[2]], (pixels.shape[1], pixels.shape[0]), pixels.tobytes())

    def _pixels(self, image: Tensor, name: str) -> np.ndarray[Any, Any]:
        """Return height × width × channels, in bytes."""
        image = image.detach().cpu()
        image = image[None] if image.ndim == 2 else image
        if image.ndim != 3 or len(image) not in MODES or not image.numel():
            raise BadArgument(f"{name}: an image is height × width or 1 to 4 channels first, not {tuple(image.shape)}")
        if image.is_floating_point():
            image = (image.float() * self.std + self.mean).nan_to_num().clamp(0, 1).mul(255).round()
        elif image.dtype == torch.bool:
            image = image.byte() * 255
        return image.clamp(0, 255).byte().permute(1, 2, 0).contiguous().numpy()


class SaveAsText:
    """Append a line to a text file for each item of each batch."""

    def __init__(self, path: str | Path) -> None:
        self.path = ending(path, ".txt")

    def __call__(self, results: Mapping[str, Any]) -> None:
        with opened(self.path) as file:
            for row in rows_of(results):
                print(*row, sep="\t", file=file)


class SaveAsCSV:
    """Append a row to a CSV file for each item of a batch, with a column for each result."""

    def __init__(self, path: str | Path) -> None:
        self.path = ending(path, ".csv")

    def __call__(self, results: Mapping[str, Any]) -> None:
        is_new = not self.path.exists() or not self.path.stat().st_size
        with opened(self.path) as file:
            table = csv.writer(file, lineterminator="\n")
            if is_new:
                table.writerow(results)
            table.writerows(rows_of(results))


def ending(path: str | Path, suffix: str) -> Path:
    """Return a path; raise for another suffix, so that a config cannot append to just any file."""
    if Path(path).suffix != suffix:
        raise BadArgument(f"{path}: the name of this file ends in {suffix}")
    return Path(path)


def opened(path: Path) -> TextIO:
    """Open a file to append to; make its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return open(path, "a", encoding="utf-8", newline="\n")


def rows_of(results: Mapping[str, Any]) -> Iterable[tuple[Any, ...]]:
    """Return the rows of results, one for each item, with tensors as plain numbers."""
    columns = [value.tolist() if isinstance(value, Tensor) else list(value) for value in results.values()]
    if len({len(column) for column in columns}) > 1:
        sizes = ", ".join(f"{name} {len(column)}" for name, column in zip(results, columns))
        raise BadArgument(f"the results have different numbers of items: {sizes}")
    return zip(*columns)
