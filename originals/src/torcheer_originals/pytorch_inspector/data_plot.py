"""PyTorch Inspector's plots of tensors, drawn as the frames of a video are."""

from __future__ import annotations

import math
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from torcheer.errors import BadArgument
from torcheer.video import frame_plots
from torcheer.video.array_display import numbers
from torcheer.video.array_frames import draw
from torcheer.video.frame_layout import Caption, FrameLayout
from torcheer.video.frame_plots import SIZE, Frame, Room
from torcheer.video.value_range import label
from torcheer_originals.pytorch_inspector.met_differences import meet
from torcheer_originals.pytorch_inspector.neighbour_embedding import embed


class Plot:
    """A picture; `DataPlot.plt2arr` gives its pixels, `savefig` writes a file."""

    def __init__(self, frame: Frame) -> None:
        self.frame = frame  # height × width × red, green, blue

    def savefig(self, fname: str | PathLike[str], **options: Any) -> None:
        """Write it as a picture of the kind that the file's name ends in."""
        from PIL import Image

        Image.fromarray(self.frame).save(fname)


class DataPlot:
    """Plots of tensors."""

    @staticmethod
    def plt2arr(fig: Any, draw: bool = True) -> NDArray[np.uint8]:
        """The pixels of a plot, also of matplotlib's: height × width × red, green, blue, opacity."""
        if isinstance(fig, Plot):
            return np.dstack([fig.frame, np.full(fig.frame.shape[:2], 255, np.uint8)])
        if draw:
            fig.canvas.draw()
        return np.asarray(fig.canvas.buffer_rgba(), np.uint8)

    # Matrices

    @staticmethod
    def tensor_plot2D(tensor_data: Any) -> Plot:
        """A matrix as a heat map."""
        return _plot(tensor_data, "heat")

    @staticmethod
    def tensor_forceplot2D(tensor_data: Any) -> Plot:
        """A tensor of any shape as a heat map of a square."""
        return _plot(DataPlot.convert_to_2d(tensor_data), "heat")

    @staticmethod
    def convert_to_2d(tensor_data: Tensor) -> Tensor:
        """A matrix as it is; the numbers of any other tensor in a square, filled up with zeros."""
        if tensor_data.ndim == 2:
            return tensor_data
        meet("filled up")
        side = math.isqrt(tensor_data.numel()) + 1
        square = tensor_data.new_zeros(side * side)
        square[: tensor_data.numel()] = tensor_data.detach().reshape(-1)
        return square.reshape(side, side)

    @staticmethod
    def tensor_plot_colormesh2D(tensor_data: Any, fname_out: str | PathLike[str]) -> None:
        """Write a matrix as a heat map."""
        DataPlot.tensor_plot2D(tensor_data).savefig(fname_out)

    @staticmethod
    def tensor_plot(tensor_data: Any, fname_out: str | PathLike[str]) -> None:
        """Write the first four matrices of a tensor of three axes, side by side."""
        if len(tensor_data.shape) != 3:
            raise BadArgument(f"tensor_plot takes matrices, (how many, rows, columns), not {tuple(tensor_data.shape)}")
        _plot(tensor_data[:4], "tiles").savefig(fname_out)

    tensor_plot_colormesh = tensor_plot

    # Distributions

    @staticmethod
    def plot_1D(tensor_data: Any, minv: float, maxv: float) -> Plot:
        """The counts of a histogram, as bars from `minv` to `maxv`."""
        counts, facts = numbers(tensor_data)
        page = FrameLayout(SIZE, Caption(), facts)
        room = Room(
            page.room.left + round(page.em * 4), page.room.top, page.room.right, page.room.bottom - round(page.em * 2)
        )
        top = max(facts.maximum, 1e-30)
        frame_plots.bars(page.frame, room, np.clip(np.nan_to_num(counts.reshape(-1) / top), 0, 1))
        for part in (0.0, 0.5, 1.0):
            across, up = room.left + part * room.width, room.bottom - part * room.height
            page.say(across, room.bottom + page.em * 1.6, label(minv + part * (maxv - minv)), anchor="ms")
            page.say(room.left - page.em / 2, up, label(part * top), anchor="rm")
        return Plot(page.finish(f"{counts.size} bins"))

    # Projections

    @staticmethod
    def plot_pca(tensor_data: Any) -> Plot:
        """The rows of the last axes as points on their two principal axes."""
        return _plot(tensor_data, "pca")

    @staticmethod
    def plot_pca_lowrank(tensor_data: Any) -> Plot:
        """The entries of the first axis as points on their two principal axes."""
        return _plot(tensor_data.reshape(len(tensor_data), -1), "pca")

    @staticmethod
    def tsne(X: Any) -> NDArray[np.float64]:
        """Points in the plane, (entries of the first axis, 2), by t-SNE."""
        return embed(numbers(X)[0])

    @staticmethod
    def plot_tsne(tensor_data: Any) -> Plot:
        """The entries of the first axis as points, by t-SNE."""
        return _plot(DataPlot.tsne(tensor_data), "pca")


def _plot(tensor_data: Any, mode: str) -> Plot:
    return Plot(draw(tensor_data, mode=mode, batch=False))
