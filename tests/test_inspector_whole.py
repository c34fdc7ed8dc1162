"""From the model to the file: what users see in the end is what their tensors were, whatever befell the child."""

from __future__ import annotations

import gc
import os
import signal
import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from video_checks import decoded

import torcheer as tl
from torcheer.inspector import DataRecorder, ParallelHandler, palette
from torcheer.inspector.pictures import Running, draw
from torcheer.inspector.scale import Scale
from torcheer.inspector.settings import Transport

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
        gc.collect()
        hooks = len(model._forward_hooks), len(model._forward_pre_hooks), len(model._backward_hooks)
        return len(os.listdir("/proc/self/fd")), threading.active_count(), sorted(os.listdir("/dev/shm")), hooks

    cycle()
    before = left()
    for _ in range(50):
        cycle()
    assert left() == before
