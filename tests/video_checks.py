"""Frames that hold their own number, and videos read back frame by frame."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from seams import Caption, Running, draw, palette

from torcheer.records import Sample
from torcheer.samples import Delivery

SMALL = (160, 120)


def decoded(path: Path) -> list[np.ndarray]:
    """Every frame of a video that can be read."""
    import av

    frames = []
    with av.open(str(path)) as container:
        try:
            for frame in container.decode(video=0):
                frames.append(frame.to_ndarray(format="rgb24"))
        except av.error.InvalidDataError:
            frames.append(np.zeros(0))  # damage: it must not go unseen
    return frames


def error_db(found: np.ndarray, drawn: np.ndarray) -> float:
    """Peak signal to noise: 40 is hard to see."""
    return float(10 * np.log10(255**2 / max(np.mean((found.astype(float) - drawn) ** 2), 1e-9)))


def steps(many: int, size: tuple[int, int] = (640, 480)) -> Iterator[np.ndarray]:
    """Frames that hold their number: the cells of a matrix are its bits."""
    running = Running()
    for step in range(many):
        yield draw(bits(step), Caption("features.3 · output", f"step {step}", "epoch:3"), size=size, running=running)


def bits(step: int) -> np.ndarray:
    return np.array([step >> place & 1 for place in range(12)], np.float32).reshape(3, 4)


def step_in(frame: np.ndarray, size: tuple[int, int]) -> int:
    """The number that a frame of `steps` holds, read from its colours."""
    clean = [draw(bits(number), size=size) for number in (0b010101010101, 0b101010101010)]
    picture = np.argwhere((clean[0] != clean[1]).any(-1))
    (top, left), (bottom, right) = picture.min(0), picture.max(0) + 1
    height, width = (bottom - top) / 3, (right - left) / 4
    found = 0
    for place in range(12):
        y, x = int(top + (place // 4 + 0.5) * height), int(left + (place % 4 + 0.5) * width)
        found |= int(frame[y, x].astype(int).sum() > palette.table(False)[[0, palette.STEPS - 1]].sum() / 2) << place
    return found


def sent(array: Any, layer: str = "conv", variable: str = "output", step: int = 0, **more: Any) -> Delivery:
    return Delivery(Sample(step, layer, variable, array=np.asarray(array)), **more)


def paths(said: Iterable[dict[str, Any]]) -> list[str]:
    return [Path(one["path"]).name for one in said if one["kind"] == "wrote"]
