"""W&B's wrappers of what is no number, each as the one of ours that it becomes in the log."""

from __future__ import annotations

import io
import os
import wave
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from torcheer.integrations.wandb_parts.wandb_errors import Error, WrongType
from torcheer.integrations.wandb_parts.wandb_names import PLOT_INSTEAD
from torcheer.runlog.media import media_types
from torcheer.terminal import did_you_mean, human_shape


class Value:
    """What W&B wraps; `logged` is what it is in our log, `left_out` says what of it that log has no place for."""

    logged: Any
    left_out: tuple[str, ...] = ()

    def __getattr__(self, name: str) -> Any:
        names = [each for each in dir(type(self)) if not each.startswith("_")]
        raise AttributeError(f"a wandb.{type(self).__name__} of torcheer has no {name!r}; it is what wandb.log "
                             f"takes, and has {', '.join(names)}.{did_you_mean(name, names)}")  # fmt: skip


class Image(Value):
    """An image: an array (H, W or H, W, C), a tensor (C, H, W), a PIL image, a matplotlib figure, or a file's path."""

    def __init__(
        self, data_or_path: Any, mode: str | None = None, caption: str | None = None, grouping: int | None = None,
        classes: Any = None, boxes: Any = None, masks: Any = None, file_type: str | None = None,
    ) -> None:  # fmt: skip
        self.caption = caption or ""
        if boxes or masks:
            self.left_out = ("wandb.Image: boxes= and masks= are not kept; draw them into the picture",)
        image, layout = pixels(data_or_path)
        shape = tuple(getattr(image, "shape", ()))
        if shape and len(shape) not in (2, 3, 4):
            raise Error(
                f"wandb.Image: the shape {human_shape(shape)}; it is H×W or H×W×C, of a tensor C×H×W or N×C×H×W"
            )
        if len(shape) == 3 and shape[layout.index("C")] not in (1, 3, 4):
            raise Error(f"wandb.Image: the shape {human_shape(shape)}, read as {layout}: C is 1, 3 or 4")
        self.logged = media_types.Image(image, self.caption, layout)


class Video(Value):
    """A film as frames (time, channels, height, width): our log keeps up to sixteen of them as one picture."""

    def __init__(
        self, data_or_path: Any, caption: str | None = None, fps: int | None = None, format: str | None = None
    ) -> None:
        if not hasattr(data_or_path, "ndim"):
            raise Error("wandb.Video: give the frames, an array T×C×H×W; wandb.save keeps a file that is there already")
        frames = data_or_path if data_or_path.ndim == 5 else data_or_path[None]
        if frames.ndim != 5:
            raise Error(f"wandb.Video: the shape {human_shape(tuple(data_or_path.shape))}; frames are T×C×H×W")
        self.logged, self.left_out = frame_grid(frames[0], fps, caption or ""), (VIDEO_NOTE.format("wandb.Video"),)


class Audio(Value):
    """Sound: an array of numbers over time (or numbers × channels), and its rate; or a WAV file."""

    def __init__(self, data_or_path: Any, sample_rate: int | None = None, caption: str | None = None) -> None:
        if isinstance(data_or_path, str | os.PathLike):
            data_or_path, sample_rate = _wav(Path(data_or_path))
        if sample_rate is None:
            raise Error("wandb.Audio: sample_rate= is needed with numbers, and is not guessed")
        self.logged = media_types.Audio(channels_first(data_or_path), sample_rate, caption or "")


class Histogram(Value):
    """A histogram: of numbers, or as numpy has made it (`np_histogram=(counts, edges)`)."""

    MAX_LENGTH = 512

    def __init__(self, sequence: Any = None, np_histogram: Any = None, num_bins: int = 64) -> None:
        if (sequence is None) == (np_histogram is None):
            raise WrongType("wandb.Histogram: give numbers, or np_histogram=(counts, edges)")
        if np_histogram is not None and len(np_histogram) != 2:
            raise Error("wandb.Histogram: np_histogram= is (counts, edges)")
        if num_bins > self.MAX_LENGTH or (np_histogram is not None and len(np_histogram[0]) > self.MAX_LENGTH):
            raise Error(f"wandb.Histogram: at most {self.MAX_LENGTH} bins")
        self.num_bins = (
            num_bins  # of `histogram`: in the log the bins are always the same, so that steps can be compared
        )
        self.numbers, self.counted = sequence, np_histogram

    @property
    def histogram(self) -> list[float]:
        """The counts."""
        return list(np.asarray(self._made()[0]).tolist())

    @property
    def bins(self) -> list[float]:
        """The edges, one more than counts."""
        return list(np.asarray(self._made()[1]).tolist())

    def _made(self) -> Any:
        numbers = self.numbers.detach().float().cpu() if hasattr(self.numbers, "detach") else self.numbers
        return self.counted if self.counted is not None else np.histogram(np.asarray(numbers), self.num_bins)


class Table(Value):
    """A table: `Table(columns=["id", "loss"], data=[[3, 2.5]])`, or `dataframe=`."""

    def __init__(
        self, columns: Sequence[str] | None = None, data: Any = None, rows: Any = None, dataframe: Any = None,
        **_: Any,
    ) -> None:  # fmt: skip
        dataframe = data if hasattr(data, "to_numpy") else dataframe  # pandas in place of rows
        if dataframe is not None:
            columns, data = [str(name) for name in dataframe.columns], dataframe.to_numpy().tolist()
        if isinstance(columns, str):
            raise Error(f"wandb.Table: columns= is a list of names, not the text {columns!r}")
        data = rows if data is None else data
        self.columns = [str(name) for name in columns or ("Input", "Output", "Expected")]
        self.data: list[list[Any]] = []
        self.title = ""
        for row in () if data is None else data:
            self.add_data(*row)

    def add_data(self, *row: Any) -> None:
        """Add a row."""
        if len(row) != len(self.columns):
            raise Error(f"wandb.Table: a row of {len(row)} cells for the columns {', '.join(self.columns)}")
        self.data.append(list(row))

    add_row = add_data

    def add_column(self, name: str, data: Sequence[Any], optional: bool = False) -> None:
        """Add a column."""
        if self.data and len(data) != len(self.data):
            raise Error(f"wandb.Table: {len(data)} cells for {len(self.data)} rows")
        is_new = not self.data
        self.data = [[*row, cell] for row, cell in zip(self.data or [[] for _ in data], data)]
        self.columns = [*(() if is_new else self.columns), str(name)]

    def add_computed_columns(self, fn: Any) -> None:
        """Add columns that a function of a row's number and cells computes."""
        added = [fn(number, dict(zip(self.columns, row))) for number, row in self.iterrows()]
        for name in added[0] if added else ():
            self.add_column(name, [row[name] for row in added])

    def get_column(self, name: str, convert_to: str | None = None) -> Any:
        """The cells of a column, as a list or with `convert_to="numpy"` as an array."""
        if name not in self.columns:
            raise Error(f"wandb.Table: no column {name!r} among {', '.join(self.columns)}")
        cells = [row[self.columns.index(name)] for row in self.data]
        return np.array(cells) if convert_to == "numpy" else cells

    def get_dataframe(self) -> Any:
        """The table as a DataFrame of pandas."""
        import pandas

        return pandas.DataFrame(self.data, columns=self.columns)

    def iterrows(self) -> Iterator[tuple[int, list[Any]]]:
        """The number and the cells of each row."""
        yield from enumerate(self.data)

    @property
    def left_out(self) -> tuple[str, ...]:  # type: ignore[override]
        """What of its cells the log has no place for."""
        cells = [cell for row in self.data for cell in row if isinstance(cell, Value)]
        texts = [text for cell in cells for text in cell.left_out]
        if any(isinstance(cell, Histogram) for cell in cells):
            texts.append(
                "wandb.Table: a Histogram in a cell is left out; wandb.log({name: wandb.Histogram(…)}) keeps it"
            )
        return tuple(dict.fromkeys(texts))

    @property
    def logged(self) -> media_types.TableOf:
        """What is written to the log."""
        rows = [[_cell(cell) for cell in row] for row in self.data]
        columns = {name: [row[place] for row in rows] for place, name in enumerate(self.columns)}
        return media_types.TableOf(columns, self.title)


class Html(Value):
    """A text in HTML, or the path of a file with one; it is kept as text, and never run."""

    def __init__(self, data: Any, inject: bool = True, data_is_not_path: bool = False) -> None:
        if isinstance(data, os.PathLike) or (
            isinstance(data, str) and data.endswith(".html") and not data_is_not_path and Path(data).is_file()
        ):
            data = Path(data).read_text(encoding="utf-8")
        self.html = str(data.read() if isinstance(data, io.IOBase) else data)
        self.logged = media_types.Text(self.html)


class Plots:
    """`wandb.plot`: a confusion matrix as ours, other plots as the table of their numbers, which the studio draws."""

    @staticmethod
    def confusion_matrix(
        probs: Any = None, y_true: Any = None, preds: Any = None, class_names: Sequence[str] | None = None,
        title: str | None = None, split_table: bool = False,
    ) -> media_types.Confusion:  # fmt: skip
        """Count a confusion matrix."""
        if y_true is None or (probs is None) == (preds is None):
            raise WrongType("wandb.plot.confusion_matrix: give y_true=, and either probs= or preds=")
        true = np.asarray(y_true, int)
        predicted = np.asarray(preds, int) if probs is None else np.asarray(probs).argmax(-1)
        count = len(class_names) if class_names else int(max(true.max(), predicted.max())) + 1
        counts = np.zeros((count, count), np.int64)
        np.add.at(counts, (true, predicted), 1)
        return media_types.Confusion(counts, class_names or (), title or "")

    @staticmethod
    def plot_table(
        vega_spec_name: str, data_table: Table, fields: Any, string_fields: Any = None, split_table: bool = False
    ) -> Table:
        """Keep the table; how W&B would draw it is not known here."""
        return _titled(data_table, (string_fields or {}).get("title", ""))

    @staticmethod
    def line(table: Table, x: str, y: str, stroke: str | None = None, title: str = "", **_: Any) -> Table:
        """Keep a line as its table."""
        return _titled(table, title)

    @staticmethod
    def scatter(table: Table, x: str, y: str, title: str = "", **_: Any) -> Table:
        """Keep points as their table."""
        return _titled(table, title)

    @staticmethod
    def bar(table: Table, label: str, value: str, title: str = "", **_: Any) -> Table:
        """Keep bars as their table."""
        return _titled(table, title)

    @staticmethod
    def histogram(table: Table, value: str, title: str = "", **_: Any) -> Table:
        """Keep the values of a histogram as their table."""
        return _titled(table, title)

    @staticmethod
    def line_series(xs: Any, ys: Any, keys: Any = None, title: str = "", xname: str = "x", **_: Any) -> Table:
        """Keep several lines as one table: x, name of the line, y."""
        lines = [list(line) for line in ys]
        xs = [list(x) for x in xs] if xs and hasattr(xs[0], "__iter__") else [list(xs)] * len(lines)
        names = [str(key) for key in keys] if keys is not None else [f"line_{place}" for place in range(len(lines))]
        rows = [[x, name, y] for name, line, own in zip(names, lines, xs) for x, y in zip(own, line)]
        return _titled(Table(columns=["step", "lineKey", "lineVal"], data=rows), title)

    def __getattr__(self, name: str) -> Any:
        names = [each for each in dir(type(self)) if not each.startswith("_")]
        instead = PLOT_INSTEAD.get(name) or f"there are {', '.join(names)}.{did_you_mean(name, names)}"
        raise AttributeError(f"wandb.plot of torcheer has no {name!r}: {instead} Log the numbers, which the studio "
                             "plots, or wandb.Image(figure)")  # fmt: skip


def _titled(table: Any, title: str) -> Table:
    if not isinstance(table, Table):
        raise Error(f"wandb.plot: a wandb.Table is needed, not a {type(table).__name__}")
    table.title = title
    return table


VIDEO_NOTE: Final = "{}: up to 16 of its frames are kept, as one picture; tl.watch(model, video=True) films layers"


def frame_grid(frames: Any, fps: float | None, caption: str) -> media_types.Image:
    """Up to sixteen frames of a film T×C×H×W, evenly spaced, as one picture."""
    count = int(frames.shape[0])
    chosen = [round(place * (count - 1) / max(min(count, 16) - 1, 1)) for place in range(min(count, 16))]
    said = f"{count} frames" + (f", {fps:g} a second" if fps else "")
    return media_types.Image(frames[chosen], f"{caption} ({said})".strip() if caption else said, "NCHW")


def _wav(file: Path) -> tuple[Any, int]:
    try:
        with wave.open(str(file)) as reader:
            kinds = {2: np.int16, 4: np.int32}
            if reader.getsampwidth() in kinds:
                data = np.frombuffer(reader.readframes(reader.getnframes()), kinds[reader.getsampwidth()])
                return data.reshape(-1, reader.getnchannels()), reader.getframerate()
    except wave.Error:
        pass
    raise Error(f"wandb.Audio: {file} is no WAV file of 16 or 32 bits; give its numbers with sample_rate=")


def pixels(image: Any) -> tuple[Any, str]:
    """An image, and what its axes are: of arrays and figures known, of a tensor that of torch."""
    if isinstance(image, str | os.PathLike):
        from PIL import Image as Pillow

        with Pillow.open(Path(image)) as opened:
            image = opened.copy()
    if hasattr(image, "savefig"):
        return figure_pixels(image), "HWC"
    if hasattr(image, "detach"):
        return image, {2: "HW", 3: "CHW", 4: "NCHW"}.get(image.ndim, "")
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
    if isinstance(value, list | tuple) and value and all(isinstance(part, Value) for part in value):
        return [part.logged for part in value]
    if hasattr(value, "savefig"):
        return Image(value).logged
    return value.logged if isinstance(value, Value) else value


def _cell(cell: Any) -> Any:
    return "(Histogram)" if isinstance(cell, Histogram) else logged_value(cell)
