"""The tour's files: an animated picture for the README, a video for the documentation's site."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import av
from frames import GROUND, HEIGHT, STRIP, WIDTH, Caption, pictures_in, with_strip
from PIL import Image, ImageColor

LIMIT = 3_000_000  # bytes of each
LENGTH_MS = 90_000  # whatever was filmed is shown in this time
SHORT_MS = 150  # of a frame that belongs to a movement
QUALITIES = (40, 35, 30, 25)  # of the picture, until it fits


def picture(chapters: dict[Path, Caption], path: Path) -> Path:
    """Write an animated WebP, in the best quality that fits the limit."""
    frames = list(thinned(marked(chapters)))
    for quality in QUALITIES:
        path.write_bytes(joined([animation(scene, quality) for scene in scenes_of(frames)]))
        print(f"{path}: {path.stat().st_size / 1e6:.2f} MB at quality {quality}", flush=True)
        if path.stat().st_size <= LIMIT:
            return path
    raise SystemExit(f"{path} is larger than {LIMIT / 1e6:g} MB: show less, or more slowly")


def scenes_of(frames: list[tuple[Image.Image, int]]) -> list[list[tuple[Image.Image, int]]]:
    """Cut where terminal and page follow each other: a scene begins anew, with no shadow of the one before."""
    keys = [image.getpixel((5, 5)) == ImageColor.getrgb(GROUND) for image, _ in frames]
    cuts = [0, *(number for number in range(1, len(frames)) if keys[number] != keys[number - 1]), len(frames)]
    return [frames[start:end] for start, end in pairwise(cuts)]


def animation(frames: list[tuple[Image.Image, int]], quality: int) -> bytes:
    """One scene as a WebP; a second frame makes an animation of a scene that has one only."""
    images, times = [image for image, _ in frames], [milliseconds for _, milliseconds in frames]
    if len(images) == 1:
        images, times = [images[0], images[0].point(lambda value: value ^ 1)], [times[0] // 2, times[0] - times[0] // 2]
    file = io.BytesIO()
    options = {"save_all": True, "append_images": images[1:], "duration": times, "loop": 0, "kmin": 30, "kmax": 60}
    images[0].save(file, "WEBP", quality=quality, method=4, **options)
    return file.getvalue()


def joined(animations: list[bytes]) -> bytes:
    """Put the frames of several animations of one size into the first."""
    head = [part for part in parts_of(animations[0]) if part[:4] != b"ANMF"]
    frames = [part for data in animations for part in parts_of(data) if part[:4] == b"ANMF"]
    body = b"WEBP" + b"".join((*head, *frames))
    return b"RIFF" + len(body).to_bytes(4, "little") + body


def parts_of(data: bytes) -> Iterator[bytes]:
    """The chunks of a WebP."""
    place = 12
    while place < len(data):
        size = int.from_bytes(data[place + 4 : place + 8], "little")
        end = place + 8 + size + size % 2
        yield data[place:end]
        place = end


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
