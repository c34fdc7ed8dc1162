"""A frame while it is drawn: where things stand, and the text above, beside and below a picture."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from torcheer.terminal import human_shape, ordinal
from torcheer.video import frame_plots, palette
from torcheer.video.array_display import Facts
from torcheer.video.frame_plots import Frame, Room
from torcheer.video.frame_text import missing, width, write
from torcheer.video.value_range import Scale, label


@dataclass(frozen=True, slots=True)
class Caption:
    """What is written above a picture."""

    title: str = ""  # "features.3 · output"
    right: str = ""  # "step 120"
    message: str = ""  # "epoch:3"
    shape: tuple[int, ...] | None = None  # where the array is only a part of something
    stride: int = 1  # it is every n-th of its numbers
    colour: palette.Colour | None = None  # of the text


class FrameLayout:
    """A frame while it is drawn: where things stand, and what will be written on it."""

    def __init__(self, size: tuple[int, int], caption: Caption, facts: Facts) -> None:
        self.wide, self.high = size
        self.facts, self.caption = facts, caption
        self.frame: Frame = np.full((self.high, self.wide, 3), 255, np.uint8)
        self.texts: list[tuple[tuple[float, float], str, dict[str, Any]]] = []
        self.lines: list[list[tuple[float, float]]] = []
        self.lettered = self.wide >= 160 and self.high >= 120  # a smaller frame is all picture
        self.em = max(9.0, min(20.0, self.wide / 53, self.high / 40))  # the height of the text, in pixels
        self.edge = round(self.em * 1.2) if self.lettered else 1
        top, bottom = (self.edge + round(self.em * 3.7), round(self.em * 2)) if self.lettered else (1, 1)
        self.room = Room(self.edge, top, self.wide - self.edge, self.high - bottom)

    def say(self, x: float, y: float, text: str, **how: Any) -> None:
        """Write something in the end, over all else."""
        if self.lettered:
            self.texts.append(((x, y), text, {"size": self.em, "colour": palette.SOFT} | how))

    def bar(self, scale: Scale) -> Room:
        """Draw the colours and their range at the right edge; returns what is left for the picture."""
        if not self.lettered:
            return self.room
        thick, foot = round(self.em), round(self.em * 3.2)
        left = frame_plots.even(self.wide - self.edge - thick - round(self.em * 4.4))
        box = Room(left, frame_plots.even(self.room.top + 1), left + thick, self.room.bottom - foot)
        frame_plots.bar(self.frame, box, scale.signed)
        ends = [(box.top, scale.high, "lt"), (box.bottom, scale.low, "ls")]
        middle = [((box.top + box.bottom) / 2, (scale.low + scale.high) / 2, "lm")] if scale.low < scale.high else []
        for y, number, anchor in ends + middle:
            self.say(box.right + self.em / 2, y, label(number), anchor=anchor)
        marks = [(palette.NAN, "NaN")] * bool(self.facts.nans) + [(palette.INFINITE, "Inf")] * bool(self.facts.infs)
        for index, (colour, name) in enumerate(marks):
            y = self.room.bottom - foot + round(self.em * (0.6 + 1.4 * index))
            self.frame[y : y + thick, box.left : box.right] = colour
            self.say(box.right + self.em / 2, y + thick / 2, name, anchor="lm")
        return self.room._replace(right=left - round(self.em))

    def finish(self, note: str) -> Frame:
        """The frame with all its text."""
        if not self.lettered:
            return self.frame
        self._head()
        if note:
            self.say(self.edge, self.high - self.em * 0.7, note, anchor="ls", room=self.wide - 2 * self.edge)
        try:
            from PIL import Image, ImageDraw
        except ImportError:
            raise missing("a picture", "pillow") from None
        image = Image.fromarray(self.frame)
        pen = ImageDraw.Draw(image)
        for line in self.lines:
            pen.line(line, fill=palette.ACCENT, width=2)
        for place, text, how in self.texts:
            write(pen, place, text, **how)
        return np.array(image)

    def _head(self) -> None:
        caption, big = self.caption, self.em * 1.25
        inside = self.wide - 2 * self.edge
        right = width(caption.right, big, True) if caption.right else 0.0
        colour = caption.colour or palette.INK
        above = self.edge + big
        self.say(self.wide - self.edge, above, caption.right, anchor="rs", size=big, bold=True, colour=colour,
                 room=inside * 0.6)  # fmt: skip
        room = inside - min(right, inside * 0.6) - self.em
        self.say(self.edge, above, caption.title, anchor="ls", size=big, bold=True, colour=colour, room=room)
        self.say(self.edge, above + self.em * 1.5, self._described(), anchor="ls", room=inside,
                 colour=caption.colour or palette.SOFT)  # fmt: skip

    def _described(self) -> str:
        """The second line; what matters most stands first, as its end may be cut."""
        facts, caption = self.facts, self.caption
        shape = human_shape(caption.shape if caption.shape is not None else facts.shape)
        every = caption.stride * facts.every
        parts = [
            caption.message,
            f"{facts.nans} NaN" if facts.nans else "",
            f"{facts.infs} Inf" if facts.infs else "",
            f"{shape} {facts.type}".strip(),
            self._range(),
            f"every {ordinal(every)} number" if every > 1 else "",
        ]
        return "  ·  ".join(part for part in parts if part)

    def _range(self) -> str:
        low, high = self.facts.minimum, self.facts.maximum
        if math.isnan(low) or not self.facts.shape:
            return ""
        return f"{label(low)} … {label(high)}" if low < high else f"all {label(low)}"
