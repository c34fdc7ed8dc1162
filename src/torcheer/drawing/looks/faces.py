"""How a face is drawn: its lines of text, its size, its outline. One home for paper and page."""

from __future__ import annotations

from functools import lru_cache
from math import ceil
from typing import NamedTuple

from torcheer.drawing.items.item import FLOWS, GRADIENT, KEPT, Face
from torcheer.drawing.layout.box_sizes import Box
from torcheer.drawing.looks.font_metrics import text_width
from torcheer.drawing.looks.formula_typesetting import typeset

TITLE, BODY, NOTE = 11.5, 10.0, 10.0  # font sizes


class Shape(NamedTuple):
    """The form of a look."""

    height: float  # of one line
    radius: float
    inset: float  # between the border and the text
    font: float
    bar: bool  # a strip of its family's colour at the left
    lines: bool  # the body stands below the title, not beside it


SHAPES = {
    "module": Shape(24, 4, 10, TITLE, True, True),
    "op": Shape(21, 5, 9, 11, False, False),
    "pill": Shape(18, 9, 9, 10, False, False),
    "merge": Shape(20, 10, 10, 11, False, False),
    "input": Shape(24, 12, 14, TITLE, False, False),
    "output": Shape(24, 12, 14, TITLE, False, False),
    "parameter": Shape(18, 2, 8, 10, False, False),
    "buffer": Shape(18, 2, 8, 10, False, False),
    "constant": Shape(18, 9, 9, 10, False, False),
    "gradient": Shape(21, 5, 9, 10, False, False),
    "stop": Shape(24, 4, 10, TITLE, False, True),
}
BODY_LINE = 14.0
FORMULA, FORMULA_LINE = 11.5, 16.0
EVENLY = 40.0  # between the ports of folded boxes through which lines run both ways
SHEETS = 6.0  # how far the sheets of a stack show below the first


class Run(NamedTuple):
    """A piece of text in a box."""

    x: float
    y: float  # of its base line
    text: str
    size: float
    tone: str  # "strong", "plain", "soft"


class Drawn(NamedTuple):
    """A face laid out."""

    box: Box
    runs: tuple[Run, ...]
    badge: str


@lru_cache(maxsize=100_000)
def draw_face(name: str, face: Face, down: bool = True) -> Drawn:
    """Lines of text and the room they take; where data flows right, ports stand at the sides and need height."""
    shape = SHAPES[face.look]
    runs: list[Run] = []
    x = shape.inset
    base = shape.height / 2 + shape.font * 0.36
    for text, tone in _title(name, face):
        runs.append(Run(x, base, text, shape.font, tone))
        x += text_width(text, shape.font, tone == "strong") + shape.font * 0.45
    x -= shape.font * 0.45
    width, height = x + shape.inset, shape.height
    if face.body and shape.lines:
        runs.append(Run(shape.inset, shape.height + BODY_LINE - 6.5, face.body, BODY, "soft"))
        width = max(width, text_width(face.body, BODY) + 2 * shape.inset)
        height += BODY_LINE
    elif face.body and face.look == "gradient":
        rule, width = _rule(face.body, x + 7, base)
        runs += rule
        width += shape.inset
        height += FORMULA_LINE * face.body.count("\n")
    elif face.body:
        runs.append(Run(x + 6, base, face.body, BODY, "soft"))
        width = x + 6 + text_width(face.body, BODY) + shape.inset
    if face.folded:
        width += 12  # for the cross that says it opens
    if face.badge:
        width += 18 + 4 * len(face.badge)
    entry_gap, entry_note = _notes(face.entries, 18.0, down)
    exit_gap, exit_note = _notes(face.exits, 22.0, down)
    if face.even:
        entry_gap = exit_gap = max(entry_gap, exit_gap if any(face.exits) else 0.0)
    if any(face.lines) or face.look in ("gradient", "parameter"):
        exit_note = max(exit_note, 2.0)  # room for the head of a gradient that comes in there
    if not down:
        ports = max((len(face.entries) - 1) * entry_gap, (len(face.exits) - 1) * exit_gap)
        taller = max(0.0, 2.0 * ceil((ports + 14 - height) / 2))
        height += taller
        runs = [run._replace(y=run.y + taller / 2) for run in runs]
        entry_room = exit_room = 0.0
    else:
        entry_room = 12 + entry_gap * len(face.entries) if entry_note else 0.0
        exit_room = exit_gap * len(face.exits) if len(face.exits) > 1 else 0.0
    slots = _slots(face.lines, max(EVENLY, _room(face, exit_note)) if down else entry_gap)
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
    return Drawn(box, tuple(runs), face.badge)


class _Slots(NamedTuple):
    """Places for the ports of a folded box through which lines run both ways: values, what is kept, gradients, each as
    far along below as above."""

    numbers: tuple[tuple[int, ...], tuple[int, ...]]
    gap: float
    reach: float

    def places(self, end: int, across: float) -> tuple[float, ...]:
        """Where the entries (0) or exits (1) stand."""
        return tuple(across / 2 - self.reach / 2 + number * self.gap for number in self.numbers[end])


def _room(face: Face, note: float) -> float:
    """How far apart the ports of a folded box must be for what is written between them."""
    alone = face.lines[1].count(KEPT) == 0 and len(face.lines[1]) <= 2
    return (note + 8) / 2 if alone else note + 8


def _slots(lines: tuple[tuple[int, ...], tuple[int, ...]], gap: float) -> _Slots:
    ends = [[max(line, FLOWS) for line in end] for end in lines]
    start: dict[int, int] = {}
    count = 0
    for kind in (FLOWS, KEPT, GRADIENT):
        start[kind] = count
        count += max(kind == KEPT, *(end.count(kind) for end in ends))  # so that gradients stand in line with others
    numbers = [tuple(start[kind] + end[:place].count(kind) for place, kind in enumerate(end)) for end in ends]
    return _Slots((numbers[0], numbers[1]), gap, max(0, count - 1) * gap if any(lines) else 0.0)


def _rule(body: str, x: float, base: float) -> tuple[list[Run], float]:
    """Formulas below each other, and how far they reach."""
    runs: list[Run] = []
    reach = x
    for count, line in enumerate(body.split("\n")):
        pieces, width = typeset(line, FORMULA)
        y = base + count * FORMULA_LINE
        runs += [Run(x + one.x, y + one.y, one.text, one.size, "strong" if one.bold else "plain") for one in pieces]
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
    """How far apart ports stand, and how wide the widest of their notes is."""
    widest = max((text_width(text, NOTE) for text in texts if text), default=0.0)
    if not down:
        return 15.0 if widest else 9.0, 2.0 * ceil(widest / 2)
    return (max(least, 2.0 * ceil((widest + 12) / 2)) if widest and len(texts) > 1 else least), 2.0 * ceil(widest / 2)
