"""From the model to the file: what users see in the end is what their tensors were, whatever befell the child."""

from __future__ import annotations

import os
import signal
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from leftovers import nothing_added, traces
from seams import Running, Scale, draw, palette
from torch import nn
from video_checks import decoded

import torcheer as tl
from torcheer.inspector import DataRecorder, ParallelHandler, Transport

SIZE = (640, 480)


def numbers_in(frame: np.ndarray, shape: tuple[int, int], scale: Scale) -> np.ndarray:
    """The numbers of a heat map, read from the colours in the middle of its cells."""
    running = Running(Scale(-1.0, 1.0, True))
    ends = [draw(np.full(shape, end), size=SIZE, running=running)[80:] for end in (-1.0, 1.0)]
    picture = np.argwhere((ends[0] != ends[1]).any(-1))
    (top, left), (bottom, right) = picture.min(0) + (80, 0), picture.max(0) + (81, 1)
    rows = (top + (np.arange(shape[0]) + 0.5) * (bottom - top) / shape[0]).astype(int)
    columns = (left + (np.arange(shape[1]) + 0.5) * (right - left) / shape[1]).astype(int)
    colours = palette.table(scale.signed)[: palette.STEPS].astype(int)
    found = frame[rows[:, None], columns].astype(int)
    places = np.abs(found[..., None, :] - colours).sum(-1).argmin(-1)
    return np.asarray(scale.low + places / (palette.STEPS - 1) * (scale.high - scale.low))


def check(path: Path, sent: list[torch.Tensor]) -> None:
    """Whether every frame shows its tensor: a matrix, in the colours of its range."""
    frames, scale = decoded(path), Scale()
    assert len(frames) == len(sent)
    for frame, tensor in zip(frames, sent):
        matrix = tensor.numpy().astype(np.float64)
        scale.follow(float(matrix.min()), float(matrix.max()))
        shown = numbers_in(frame, matrix.shape, scale)
        assert np.abs(shown - matrix).max() < 0.06 * (scale.high - scale.low)


def test_the_frames_of_the_seeds_videos_are_the_tensors(tmp_path: Path) -> None:
    recorder = DataRecorder(SIZE, 20.0, 100, tmp_path)
    handler = ParallelHandler(recorder.tensor_plot2D, recorder.flush, frequency=2.0, timeout=30.0)
    layer, sent = nn.Linear(8, 10), []
    handler.track_model(-1, {"output": layer})
    handler.track_layer(-1, {"grad": layer})
    gradients = []
    for step in range(12):
        weight = torch.randn(6, 10)
        output = layer(torch.randn(6, 8) * (step + 1))
        if step % 2 == 0:
            sent.append(output.detach().clone())
            gradients.append(weight)
        (output * weight).sum().backward()
        with torch.no_grad():
            output.zero_()  # a snapshot does not notice
    handler.stop(True)
    check(tmp_path / "output_cpu_0_1_video.mp4", sent)
    check(tmp_path / "grad_cpu_1_1_video.mp4", gradients)


def test_the_frames_of_a_watchs_videos_are_the_tensors(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(8, 12), nn.ReLU(inplace=True))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    weights, outputs = [], []
    with tl.watch(model, every=3, to=tmp_path, video=["0.weight/weight", "1/output"], tell=lambda text: None):
        for step in range(10):
            if step % 3 == 0:
                weights.append(model[0].weight.detach().clone())
            output = model(torch.randn(5, 8))
            if step % 3 == 0:
                outputs.append(output.detach().clone())
            optimizer.zero_grad()
            output.pow(2).mean().backward()
            optimizer.step()
    check(tmp_path / "videos" / "0.weight_weight_1.mp4", weights)
    check(tmp_path / "videos" / "1_output_1.mp4", outputs)


def cells_of(shape: tuple[int, ...]) -> list[tuple[int, int]]:
    """Where each number of an array is drawn: what changes below the text when it alone does."""
    numbers, found = np.zeros(shape), []
    blank = draw(numbers, size=SIZE, running=Running(Scale(-1.0, 1.0, True)))[80:]
    for place in np.ndindex(shape):
        numbers[place] = 1.0
        other = draw(numbers, size=SIZE, running=Running(Scale(-1.0, 1.0, True)))[80:]
        numbers[place] = 0.0
        rows, columns = np.nonzero((other != blank).any(-1))
        found.append((80 + int(np.median(rows)), int(np.median(columns))))
    return found


def bars_in(frame: np.ndarray, scale: Scale) -> tuple[np.ndarray, np.ndarray]:
    """The numbers below each column of a histogram's room, and how high its bar stands there."""
    ends = [draw(np.full(9, end), size=SIZE, running=Running(replace(scale)))[80:] for end in (scale.low, scale.high)]
    sides = [np.nonzero((end == palette.ACCENT).all(-1))[1] for end in ends]
    left, right = sides[0].min(), sides[1].max() + 2
    close = np.abs(frame[80:, left:right].astype(int) - palette.ACCENT).sum(-1) < 60
    return scale.low + (np.arange(right - left) + 0.5) / (right - left) * (scale.high - scale.low), close.sum(0)


def test_the_frames_of_tiles_and_of_a_matrix_in_a_batch_of_one_are_the_tensors(tmp_path: Path) -> None:
    class Pages(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x[:1, :2].reshape(1, 3, 6)

    model = nn.Sequential(nn.Conv2d(1, 4, 3), Pages())
    maps, pages = [], []
    model[0].register_forward_hook(lambda module, args, output: maps.append(output.detach().clone()))
    with tl.watch(model, what="output", every=1, to=tmp_path, video=True, tell=lambda text: None):
        for step in range(5):
            pages.append(model(torch.randn(2, 1, 5, 5) * (step + 1)).detach().clone())
    check(tmp_path / "videos" / "1_output_1.mp4", [page[0] for page in pages])
    places, scale = np.array(cells_of((4, 3, 3))), Scale()
    frames = decoded(tmp_path / "videos" / "0_output_1.mp4")
    assert len(frames) == len(maps) == 5 and len(set(map(tuple, places))) == 36
    for frame, tensor in zip(frames, maps):
        values = tensor[0].numpy().astype(np.float64).reshape(-1)  # the first of two items
        scale.follow(float(values.min()), float(values.max()))
        colours = palette.table(scale.signed)[: palette.STEPS].astype(int)
        found = np.abs(frame[places[:, 0], places[:, 1]].astype(int)[:, None] - colours).sum(-1).argmin(-1)
        shown = scale.low + found / (palette.STEPS - 1) * (scale.high - scale.low)
        assert np.abs(shown - values).max() < 0.06 * (scale.high - scale.low)


def test_the_bars_of_a_videos_histograms_are_the_numbers_of_the_tensors(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Flatten(0))
    sent = [torch.randn(40, 50) * 0.5 + shift for shift in (0.0, 2.0, -2.0, 1.0)]
    with tl.watch(model, what="output", every=1, to=tmp_path, video="0", tell=lambda text: None):
        for tensor in sent:
            model(tensor)
    frames, scale = decoded(tmp_path / "videos" / "0_output_1.mp4"), Scale()
    assert len(frames) == len(sent)
    for frame, tensor in zip(frames, sent):
        scale.follow(tensor.min().item(), tensor.max().item())
        below, heights = bars_in(frame, scale)
        bin_width = (scale.high - scale.low) / 58
        mean = np.average(below, weights=heights)
        assert abs(mean - tensor.mean().item()) < bin_width
        assert abs(np.sqrt(np.average((below - mean) ** 2, weights=heights)) - tensor.std().item()) < bin_width
        most = below[heights > 0.8 * heights.max()]
        assert abs(float(np.median(most)) - tensor.median().item()) < 4 * bin_width


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSEGV])
def test_a_child_that_dies_leaves_losses_and_weights_bit_for_bit(how: signal.Signals) -> None:
    def train(kill: bool) -> list[float]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(), nn.ReLU(), nn.Linear(8, 1))
        optimizer, losses = torch.optim.Adam(model.parameters()), []
        with tl.watch(model, every=1, transport={"bytes": 1 << 20}) if kill else warnings.catch_warnings() as w:
            for step in range(15):
                loss = model(torch.randn(6, 4)).pow(2).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
                if kill and step == 5:
                    os.kill(w._link.process.pid, how)
                    w._link.process.join(10)
        if kill:
            assert w.account.restarts == 1
        return [*losses, *(number for weight in model.parameters() for number in weight.flatten().tolist())]

    with pytest.warns(RuntimeWarning, match=f"was ended by {how.name} and was started again"):
        watched = train(kill=True)
    assert watched == train(kill=False)


@pytest.mark.faults
def test_fifty_watches_and_handlers_leave_nothing_behind() -> None:
    model = nn.Linear(2, 2)

    def cycle() -> None:
        with tl.watch(model, transport=Transport(bytes=1 << 20), tell=lambda text: None):
            model(torch.ones(1, 2)).sum().backward()
        handler = ParallelHandler(None, ring_bytes=1 << 20)
        handler.track_model(-1, {"model": model})
        model(torch.ones(1, 2)).sum().backward()
        handler.stop(True)

    def left() -> tuple[Any, ...]:
        hooks = len(model._forward_hooks), len(model._forward_pre_hooks), len(model._backward_hooks)
        return *traces(), *hooks

    cycle()
    before = left()
    for _ in range(50):
        cycle()
    assert nothing_added(left(), before)
