"""W&B's wrappers of what is no number, each as the one of ours that it becomes in the log."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from torcheer.errors import BadArgument
from torcheer.runlog.media import media_types


class Image:
    """An image: an array (H, W or H, W, C), a tensor (C, H, W), a PIL image, a matplotlib figure, or a file's path."""

    def __init__(self, data_or_path: Any, mode: str | None = None, caption: str | None = None, **other: Any) -> None:
        self.caption = caption or ""
        if other:
            raise BadArgument(f"wandb.Image: {', '.join(other)}= has no place in our log; draw it into the picture")
        image, layout = pixels(data_or_path)
        self.logged = media_types.Image(image, self.caption, layout)


class Audio:
    """Sound: an array of numbers over time (or numbers × channels), and its rate."""

    def __init__(self, data_or_path: Any, sample_rate: int | None = None, caption: str | None = None) -> None:
        if isinstance(data_or_path, str | os.PathLike):
            raise BadArgument("wandb.Audio: read the file yourself, and give its numbers with sample_rate=")
        self.logged = media_types.Audio(channels_first(data_or_path), sample_rate, caption or "")


class Histogram:
    """A histogram: of numbers, or as numpy has made it (`np_histogram=(counts, edges)`)."""

    def __init__(
        self, sequence: Any = None, np_histogram: tuple[Any, Any] | None = None, num_bins: int = 64
    ) -> None:  # `num_bins`: our bins are always the same, so that steps can be compared
        if (sequence is None) == (np_histogram is None):
            raise BadArgument("wandb.Histogram: give numbers, or np_histogram=(counts, edges)")
        self.numbers, self.counted = sequence, np_histogram


class Table:
    """A table: `Table(columns=["id", "loss"], data=[[3, 2.5]])`, or `dataframe=`."""

    def __init__(
        self, columns: Sequence[str] | None = None, data: Sequence[Sequence[Any]] | None = None, dataframe: Any = None,
        rows: Sequence[Sequence[Any]] | None = None, **_: Any,
    ) -> None:  # fmt: skip
        dataframe = data if hasattr(data, "to_numpy") else dataframe  # pandas in place of rows
        if dataframe is not None:
            columns, data = [str(name) for name in dataframe.columns], dataframe.to_numpy().tolist()
        data = rows if data is None else data
        self.columns = [str(name) for name in columns or ("Input", "Output", "Expected")]
        self.data: list[list[Any]] = []
        for row in data or ():
            self.add_data(*row)

    def add_data(self, *row: Any) -> None:
        """Add a row."""
        if len(row) != len(self.columns):
            raise BadArgument(f"wandb.Table: a row of {len(row)} cells for the columns {', '.join(self.columns)}")
        self.data.append(list(row))

    def add_column(self, name: str, data: Sequence[Any]) -> None:
        """Add a column."""
        if self.data and len(data) != len(self.data):
            raise BadArgument(f"wandb.Table: {len(data)} cells for {len(self.data)} rows")
        self.data = [[*row, cell] for row, cell in zip(self.data or [[] for _ in data], data)]
        self.columns = [*(self.columns if len(self.columns) < len(self.data[0]) else ()), str(name)]

    def get_column(self, name: str) -> list[Any]:
        """The cells of a column."""
        place = self.columns.index(name)
        return [row[place] for row in self.data]

    @property
    def logged(self) -> media_types.TableOf:
        """What is written to the log."""
        rows = [[_cell(cell) for cell in row] for row in self.data]
        return media_types.TableOf({name: [row[place] for row in rows] for place, name in enumerate(self.columns)})


class Html:
    """A text in HTML; it is kept as text, and never run."""

    def __init__(self, data: Any, **_: Any) -> None:
        text = data.read() if isinstance(data, io.IOBase) else data
        self.logged = media_types.Text(str(text))


class Plots:
    """`wandb.plot`: those of its plots that our log has a kind for."""

    @staticmethod
    def confusion_matrix(
        probs: Any = None, y_true: Any = None, preds: Any = None, class_names: Sequence[str] | None = None,
        title: str | None = None, **_: Any,
    ) -> media_types.Confusion:  # fmt: skip
        """Count a confusion matrix."""
        true = np.asarray(y_true, int)
        predicted = np.asarray(preds, int) if probs is None else np.asarray(probs).argmax(-1)
        count = len(class_names) if class_names else int(max(true.max(), predicted.max())) + 1
        counts = np.zeros((count, count), np.int64)
        np.add.at(counts, (true, predicted), 1)
        return media_types.Confusion(counts, class_names or (), title or "")

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"wandb.plot.{name} has no counterpart here; there is confusion_matrix. Log the numbers, "
                             "which the studio plots, or wandb.Image(figure)")  # fmt: skip


def pixels(image: Any) -> tuple[Any, str]:
    """An image, and what its axes are: of arrays and figures known, of a tensor that of torch."""
    if isinstance(image, str | os.PathLike):
        from PIL import Image as Pillow

        with Pillow.open(Path(image)) as opened:
            image = opened.copy()
    if hasattr(image, "savefig"):
        return figure_pixels(image), "HWC"
    if hasattr(image, "detach"):
        return image, {3: "CHW", 4: "NCHW"}.get(image.ndim, "")
    if isinstance(image, np.ndarray) and image.ndim == 3:
        return image, "HWC"
    return image, ""


def figure_pixels(figure: Any) -> Any:
    """A figure of matplotlib as it is drawn, H×W×4."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba()).copy()


def channels_first(sound: Any) -> Any:
    """Sound as our log has it, channels × numbers, from W&B's and TensorBoard's numbers × channels."""
    array = sound if hasattr(sound, "detach") else np.asarray(sound)
    if array.ndim == 2 and array.shape[0] > array.shape[1]:
        return array.T
    return array


def logged_value(value: Any) -> Any:
    """What our log takes in place of a value that W&B's does."""
    if isinstance(value, list | tuple) and value and all(hasattr(part, "logged") for part in value):
        return [part.logged for part in value]
    if isinstance(value, Mapping):
        return {name: logged_value(part) for name, part in value.items()}
    if hasattr(value, "savefig"):
        return Image(value).logged
    return getattr(value, "logged", value) if type(value).__module__ == __name__ else value


def _cell(cell: Any) -> Any:
    return f"({type(cell).__name__})" if type(cell).__module__ == __name__ else cell
