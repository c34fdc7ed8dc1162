"""The tour's files: an animated picture for the README, a video for the documentation's site."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction
from pathlib import Path

import av
from frames import HEIGHT, STRIP, WIDTH, Caption, pictures_in, with_strip
from PIL import Image

LIMIT = 3_000_000  # bytes of each
LENGTH_MS = 90_000  # whatever was filmed is shown in this time
SHORT_MS = 150  # of a frame that belongs to a movement
QUALITIES = (45, 35, 25)  # of the picture, until it fits


def picture(chapters: dict[Path, Caption], path: Path) -> Path:
    """Write an animated WebP, in the best quality that fits the limit."""
    frames, times = zip(*thinned(marked(chapters)))
    for quality in QUALITIES:
        frames[0].save(
            path, save_all=True, append_images=frames[1:], duration=list(times), loop=0, quality=quality, method=4,
            kmin=30, kmax=60,
        )  # fmt: skip
        print(f"{path}: {path.stat().st_size / 1e6:.2f} MB at quality {quality}", flush=True)
        if path.stat().st_size <= LIMIT:
            return path
    raise SystemExit(f"{path} is larger than {LIMIT / 1e6:g} MB: show less, or more slowly")


def video(chapters: dict[Path, Caption], path: Path) -> Path:
    """Write an MP4 that browsers play while it loads."""
    with av.open(str(path), "w", options={"movflags": "faststart"}) as file:
        stream = file.add_stream("libx264", rate=30, options={"crf": "32", "preset": "fast", "tune": "animation"})
        stream.time_base = stream.codec_context.time_base = Fraction(1, 1000)
        stream.pix_fmt, stream.width, stream.height = "yuv420p", WIDTH, HEIGHT + STRIP
        start = 0
        for image, milliseconds in marked(chapters):
            frame = av.VideoFrame.from_image(image)
            frame.pts, frame.time_base = start, Fraction(1, 1000)
            file.mux(stream.encode(frame))
            start += milliseconds
        file.mux(stream.encode())
    print(f"{path}: {path.stat().st_size / 1e6:.2f} MB", flush=True)
    return path


def thinned(frames: Iterable[tuple[Image.Image, int]]) -> Iterator[tuple[Image.Image, int]]:
    """Every third frame of a movement, for three times its time; what stands still stays."""
    count = waited = 0
    for image, milliseconds in frames:
        count, waited = count + 1, waited + milliseconds
        if count == 3 or milliseconds > SHORT_MS:
            yield image, waited
            count = waited = 0
    if waited:
        yield image, waited


def marked(chapters: dict[Path, Caption]) -> Iterator[tuple[Image.Image, int]]:
    """Each frame with its caption and the bar that says how far the tour has come, and the milliseconds it is shown."""
    films = {folder: pictures_in(folder) for folder in chapters}
    lengths = [sum(milliseconds for _, milliseconds in film) for film in films.values()]
    total, passed, shown = sum(lengths), 0, 0
    starts = [sum(lengths[:number]) / total for number in range(len(films))]
    for folder, film in films.items():
        for path, milliseconds in film:
            passed += milliseconds
            length = round(LENGTH_MS * passed / total) - shown
            shown += length
            yield with_strip(Image.open(path), chapters[folder], passed / total, starts), length
