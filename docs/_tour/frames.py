"""Frames of the tour: a picture of the page, the pointer, a caption, and how far the tour has come."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from PIL import Image, ImageChops, ImageDraw, ImageFont

WIDTH, HEIGHT, STRIP = 1280, 800, 64  # the page's picture, and the strip with the caption below it
FONTS = Path(__file__).resolve().parents[2] / "src/torcheer/drawing/fonts"
GROUND, PALE, INK, FAINT, ACCENT = "#0b0e13", "#1c222b", "#f2f5f8", "#98a3b0", "#5b9dff"
_FACES = (("Bold", 25), ("Regular", 21))
_POINTER = ((0, 0), (0, 17), (4, 13.4), (6.6, 19.4), (9.4, 18.2), (6.8, 12.4), (12, 12.4))


@dataclass
class Film:
    """A chapter: frames on disk, with the time that each is shown; equal ones are one."""

    folder: Path
    times: list[int] = field(default_factory=list)  # milliseconds
    _last: Image.Image | None = None

    def add(self, image: Image.Image, milliseconds: int) -> None:
        """Add a frame, or show the last one for longer."""
        if self._last is not None and ImageChops.difference(self._last, image).getbbox() is None:
            self.times[-1] += milliseconds
            return
        image.save(self.folder / f"{len(self.times):04}.png", compress_level=1)
        self.times.append(milliseconds)
        self._last = image

    def write(self) -> None:
        (self.folder / "times.json").write_text(json.dumps(self.times))


def new_film(folder: Path) -> Film:
    """A film in an empty folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return Film(folder)


def pictures_in(folder: Path) -> list[tuple[Path, int]]:
    """The frames of a chapter that was filmed, with their milliseconds."""
    times = json.loads((folder / "times.json").read_text())
    return [(folder / f"{number:04}.png", milliseconds) for number, milliseconds in enumerate(times)]


def with_pointer(page: Image.Image, pointer: tuple[float, float, float] | None) -> Image.Image:
    """Put the pointer (its place, and how far its click has come) onto a page's picture."""
    frame = page.convert("RGB")
    if pointer is not None:
        _draw_pointer(frame, *pointer)
    return frame


@dataclass(frozen=True)
class Caption:
    """What stands below a chapter's frames."""

    text: str
    detail: str = ""  # beside it, in grey

    def draw(self, draw: ImageDraw.ImageDraw) -> None:
        bold, regular = (ImageFont.truetype(FONTS / f"{name}.ttf", size) for name, size in _FACES)
        middle = HEIGHT + 4 + (STRIP - 4) / 2
        draw.text((28, middle), self.text, INK, font=bold, anchor="lm")
        place = (28 + draw.textlength(self.text, font=bold) + 20, middle + 1)
        draw.text(place, self.detail, FAINT, font=regular, anchor="lm")


def with_strip(page: Image.Image, caption: Caption, position: float, starts: list[float]) -> Image.Image:
    """Put a strip below a page's picture: a bar with a piece for each chapter, filled up to `position`; a caption."""
    frame = Image.new("RGB", (WIDTH, HEIGHT + STRIP), GROUND)
    frame.paste(page.crop((0, 0, WIDTH, HEIGHT)))
    draw = ImageDraw.Draw(frame)
    for start, end in zip(starts, [*starts[1:], 1.0]):
        left, right = round(start * WIDTH) + 1, round(end * WIDTH) - 2
        draw.rectangle((left, HEIGHT, right, HEIGHT + 3), fill=PALE)
        if (reached := min(right, round(position * WIDTH))) > left:
            draw.rectangle((left, HEIGHT, reached, HEIGHT + 3), fill=ACCENT)
    caption.draw(draw)
    return frame


def _draw_pointer(frame: Image.Image, x: float, y: float, click: float) -> None:
    """Draw an arrow, and a ring that grows while it clicks; four times as large first, for smooth edges."""
    scale, side = 4, 80
    patch = Image.new("RGBA", (side * scale, side * scale), (0, 0, 0, 0))
    draw = ImageDraw.Draw(patch)
    centre = side * scale / 2
    if click > 0:
        radius = (8 + 18 * click) * scale
        box = (centre - radius, centre - radius, centre + radius, centre + radius)
        draw.ellipse(box, outline=(91, 157, 255, round(230 * (1 - click * 0.7))), width=3 * scale)
    points = [(centre + 1.35 * scale * px, centre + 1.35 * scale * py) for px, py in _POINTER]
    draw.polygon(points, fill=(255, 255, 255, 255))
    draw.line([*points, points[0], points[1]], fill=(20, 24, 30, 255), width=round(1.6 * scale), joint="curve")
    patch = patch.resize((side, side), Image.Resampling.LANCZOS)
    frame.paste(patch, (round(x - side / 2), round(y - side / 2)), patch)
