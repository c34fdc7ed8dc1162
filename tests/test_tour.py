"""The tour of the README: what its files hold, and the terminal that it films."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import av
import numpy as np
import pytest

pytestmark = pytest.mark.house

ROOT = Path(__file__).parents[1]
PICTURE, VIDEO = ROOT / "docs/pictures/tour.webp", ROOT / "docs/pictures/tour.mp4"
sys.path.insert(0, str(ROOT / "docs/_tour"))

from shell import Screen  # noqa: E402  # the folder is no package


def frame_times(data: bytes) -> Iterator[int]:
    """The milliseconds of each frame of an animated WebP, read from its chunks."""
    place = 12
    while place < len(data):
        name, size = data[place : place + 4], int.from_bytes(data[place + 4 : place + 8], "little")
        if name == b"ANMF":
            yield int.from_bytes(data[place + 20 : place + 23], "little")
        place += 8 + size + size % 2


def test_the_tour_is_a_small_picture_of_about_90_seconds_that_moves() -> None:
    data = PICTURE.read_bytes()
    times = list(frame_times(data))
    assert len(data) <= 3_000_000 and data[:4] == b"RIFF" and data[8:12] == b"WEBP"
    assert 80_000 <= sum(times) <= 100_000 and len(times) >= 200
    assert max(times) <= 5_000 and min(times) >= 60


def test_the_video_is_the_same_tour_and_no_part_of_it_is_blank() -> None:
    assert VIDEO.stat().st_size <= 3_000_000
    with av.open(str(VIDEO)) as file:
        stream = file.streams.video[0]
        stream.codec_context.skip_frame = "NONKEY"
        frames = [frame.to_ndarray(format="gray") for frame in file.decode(stream)]
        secs = float(file.duration / av.time_base)
    assert secs == pytest.approx(sum(frame_times(PICTURE.read_bytes())) / 1000, abs=5)
    assert len(frames) >= 5 and min(np.std(frame) for frame in frames) > 5


@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_the_tour_is_shown_where_people_begin(page: str) -> None:
    text = (ROOT / page).read_text()
    assert "pictures/tour.webp)](" in text and "pictures/tour.mp4)" in text


def test_a_terminal_rewrites_a_progress_bar_in_place() -> None:
    screen = Screen()
    screen.write("$ torcheer train\r\n\x1b[?25l\x1b[1mepoch 1\x1b[0m\r\n\x1b[36m━━\x1b[0m 10 / 90\r\n")
    screen.write("\r\x1b[2K\x1b[1A\x1b[2K\x1b[1A\x1b[2K\x1b[1mepoch 2\x1b[0m <90>\r\n")
    assert screen.text() == "$ torcheer train\nepoch 2 <90>\n"
    assert '<span class="bold">epoch 2</span> &lt;90&gt;' in screen.html()


def test_a_terminal_wraps_long_lines_and_shows_the_last() -> None:
    screen = Screen()
    screen.write("x" * 105 + "".join(f"\r\n{number}" for number in range(40)))
    lines = screen.text().split("\n")
    assert lines[0] == "x" * 104 and lines[1] == "x"
    assert screen.html().startswith("13\n14") and screen.html().count("\n") == 26
