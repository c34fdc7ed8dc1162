"""Lay out faces: their text, size and ports. Used for SVG and for the HTML page alike."""

from __future__ import annotations

from functools import lru_cache
from math import ceil
from typing import NamedTuple

from torcheer.drawing.items.item import FLOWS, GRADIENT, KEPT, Face
from torcheer.drawing.layout.box_sizes import Box
from torcheer.drawing.looks.font_metrics import text_width
from torcheer.drawing.looks.formula_typesetting import typeset

TITLE, BODY, NOTE = 11.5, 10.0, 10.0  # font sizes


class FaceShape(NamedTuple):
    """The outline and font of a look."""

    height: float  # of one line
    radius: float
    inset: float  # distance between the border and the text
    font: float
    bar: bool  # a strip of its family's colour at the left
    lines: bool  # the body is below the title, not beside it


SHAPES = {
    "module": FaceShape(24, 4, 10, TITLE, True, True),
    "op": FaceShape(21, 5, 9, 11, False, False),
    "pill": FaceShape(18, 9, 9, 10, False, False),
    "merge": FaceShape(20, 10, 10, 11, False, False),
    "input": FaceShape(24, 12, 14, TITLE, False, False),
    "output": FaceShape(24, 12, 14, TITLE, False, False),
    "parameter": FaceShape(18, 2, 8, 10, False, False),
    "buffer": FaceShape(18, 2, 8, 10, False, False),
    "constant": FaceShape(18, 9, 9, 10, False, False),
    "gradient": FaceShape(21, 5, 9, 10, False, False),
    "stop": FaceShape(24, 4, 10, TITLE, False, True),
}
BODY_LINE = 14.0
FORMULA, FORMULA_LINE = 11.5, 16.0
EVEN_GAP = 40.0  # between the ports of folded boxes with lines in both directions
SHEETS = 6.0  # how far the sheets of a stack extend below the first


class TextRun(NamedTuple):
    """A piece of text in a box."""

    x: float
    y: float  # of its base line
    text: str
    size: float
    tone: str  # "strong", "plain", "soft"


class FaceDrawing(NamedTuple):
    """A face with its size and the positions of its text."""

    box: Box
    runs: tuple[TextRun, ...]
    badge: str


@lru_cache(maxsize=100_000)
def draw_face(name: str, face: Face, down: bool = True) -> FaceDrawing:
    """Lay out a face: its text and its box.

    Where data flows right, the ports are at the sides and need height.
    """
    shape = SHAPES[face.look]
    runs: list[TextRun] = []
    x = shape.inset
    base = shape.height / 2 + shape.font * 0.36
    for text, tone in _title(name, face):
        runs.append(TextRun(x, base, text, shape.font, tone))
        x += text_width(text, shape.font, tone == "strong") + shape.font * 0.45
    x -= shape.font * 0.45
    width, height = x + shape.inset, shape.height
    if face.body and shape.lines:
        runs.append(TextRun(shape.inset, shape.height + BODY_LINE - 6.5, face.body, BODY, "soft"))
        width = max(width, text_width(face.body, BODY) + 2 * shape.inset)
        height += BODY_LINE
    elif face.body and face.look == "gradient":
        formula, width = _formula(face.body, x + 7, base)
        runs += formula
        width += shape.inset
        height += FORMULA_LINE * face.body.count("\n")
    elif face.body:
        runs.append(TextRun(x + 6, base, face.body, BODY, "soft"))
        width = x + 6 + text_width(face.body, BODY) + shape.inset
    if face.folded:
        width += 12  # for the plus sign that opens it
    if face.badge:
        width += 18 + 4 * len(face.badge)
    entry_gap, entry_note = _notes(face.entries, 18.0, down)
    exit_gap, exit_note = _notes(face.exits, 22.0, down)
    if face.even:
        entry_gap = exit_gap = max(entry_gap, exit_gap if any(face.exits) else 0.0)
    if any(face.lines) or face.look in ("gradient", "parameter"):
        exit_note = max(exit_note, 2.0)  # space for the arrowhead of a gradient that enters there
    if not down:
        ports = max((len(face.entries) - 1) * entry_gap, (len(face.exits) - 1) * exit_gap)
        extra = max(0.0, 2.0 * ceil((ports + 14 - height) / 2))
        height += extra
        runs = [run._replace(y=run.y + extra / 2) for run in runs]
        entry_room = exit_room = 0.0
    else:
        entry_room = 12 + entry_gap * len(face.entries) if entry_note else 0.0
        exit_room = exit_gap * len(face.exits) if len(face.exits) > 1 else 0.0
    slots = _slots(face.lines, max(EVEN_GAP, _port_gap(face, exit_note)) if down else entry_gap)
    if down:
        entry_room = max(entry_room, slots.reach + 16)
    else:
        height = max(height, slots.reach + 14)
    natural, width = width, max(width, 34.0, entry_room, exit_room)
    if not shape.bar:
        runs = [run._replace(x=run.x + (width - natural) / 2) for run in runs]
    sheets = SHEETS if face.folded and face.times > 1 else 0.0
    across = 2.0 * ceil(width / 2) if down else height
    box = Box(
        2.0 * ceil((width + sheets) / 2),
        height + sheets,
        slots.places(0, across) if any(face.lines) else len(face.entries),
        slots.places(1, across) if any(face.lines) else len(face.exits),
        entry_gap,
        exit_gap,
        entry_note,
        exit_note,
    )
    return FaceDrawing(box, tuple(runs), face.badge)


class _Slots(NamedTuple):
    """Positions of the ports of a folded box with lines in both directions.

    Values, saved values and gradients have the same positions on both sides.
    """

    numbers: tuple[tuple[int, ...], tuple[int, ...]]
    gap: float
    reach: float

    def places(self, end: int, across: float) -> tuple[float, ...]:
        """Return the positions of the entries (`end` 0) or exits (1)."""
        return tuple(across / 2 - self.reach / 2 + number * self.gap for number in self.numbers[end])


def _port_gap(face: Face, note: float) -> float:
    """Return the distance between the ports of a folded box that the text between them needs."""
    alone = face.lines[1].count(KEPT) == 0 and len(face.lines[1]) <= 2
    return (note + 8) / 2 if alone else note + 8


def _slots(lines: tuple[tuple[int, ...], tuple[int, ...]], gap: float) -> _Slots:
    ends = [[max(line, FLOWS) for line in end] for end in lines]
    start: dict[int, int] = {}
    count = 0
    for kind in (FLOWS, KEPT, GRADIENT):
        start[kind] = count
        count += max(
            kind == KEPT, *(end.count(kind) for end in ends)
        )  # a slot even without saved values, so that gradients of neighbouring boxes are in line
    numbers = [tuple(start[kind] + end[:place].count(kind) for place, kind in enumerate(end)) for end in ends]
    return _Slots((numbers[0], numbers[1]), gap, max(0, count - 1) * gap if any(lines) else 0.0)


def _formula(body: str, x: float, base: float) -> tuple[list[TextRun], float]:
    """Typeset formulas below each other; return their text and right edge."""
    runs: list[TextRun] = []
    reach = x
    for count, line in enumerate(body.split("\n")):
        pieces, width = typeset(line, FORMULA)
        y = base + count * FORMULA_LINE
        runs += [
            TextRun(x + piece.x, y + piece.y, piece.text, piece.size, "strong" if piece.bold else "plain")
            for piece in pieces
        ]
        reach = max(reach, x + width)
    return runs, reach


def _title(name: str, face: Face) -> list[tuple[str, str]]:
    words = []
    if name:
        words.append((name, "strong"))
    if face.kind and face.kind != name:
        words.append((face.kind, "soft" if name or face.look in ("gradient", "constant") else "plain"))
    if face.look in ("input", "output"):
        words = [(text, "strong") for text, _ in words]
    if face.times > 1:
        words.append((f"×{face.times}", "strong"))
    return words or [("?", "plain")]


def _notes(texts: tuple[str, ...], least: float, down: bool) -> tuple[float, float]:
    """Return the distance between ports, and the width of their widest note."""
    widest = max((text_width(text, NOTE) for text in texts if text), default=0.0)
    if not down:
        return 15.0 if widest else 9.0, 2.0 * ceil(widest / 2)
    return (max(least, 2.0 * ceil((widest + 12) / 2)) if widest and len(texts) > 1 else least), 2.0 * ceil(widest / 2)
