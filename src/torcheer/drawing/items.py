"""What is drawn: items, each with a face, and the nets between them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from torcheer.drawing.families import PLAIN_RESHAPES
from torcheer.drawing.words import shape_text
from torcheer.history import ModelHistory
from torcheer.records import ModuleCall, Stored

Net = tuple[int, int]  # an item and which of its results


class Face(NamedTuple):
    """All that is seen of an item or a folded box, but for its name: equal faces look the same."""

    look: str  # "module", "op", "pill", "merge", "input", "output", "parameter", "buffer", "stop"
    kind: str  # the class or function
    body: str = ""
    family: str = ""
    times: int = 1  # passes of a rolled layer
    entries: tuple[str, ...] = ()  # the name at each entry, "" for none
    exits: tuple[str, ...] = ()  # the shape at each exit, "" for none
    badge: str = ""  # shared weights carry the same one
    marks: tuple[str, ...] = ()  # of "frozen", "partly frozen", "edited", "unseen"
    fill: str = ""  # colours a user's function asked for
    stroke: str = ""
    folded: bool = False  # a box with something in it


@dataclass(slots=True, eq=False)
class Item:
    """One operation, layer, input, output, or bare parameter."""

    number: int
    name: str  # the user's name for it, "" for a function
    ops: tuple[int, ...]  # all passes, where passes are rolled
    path: tuple[ModuleCall, ...]  # the boxes around it, outermost first
    look: str
    kind: str
    body: str = ""
    family: str = ""
    shapes: tuple[tuple[int, ...], ...] = ()
    marks: tuple[str, ...] = ()
    parameters: int = 0  # numbers in those it holds
    states: frozenset[bool] = frozenset()  # whether they are trained
    stored: tuple[Stored, ...] = ()
    grad: tuple[bool, ...] = ()  # whether gradients flow through each result
    parents: list[tuple[Net, str]] = field(default_factory=list)  # and the name of the argument
    badge: str = ""
    fill: str = ""
    stroke: str = ""
    at: int = 0  # its position in the box around it
    form: int = -1  # the same number for the same function, settings and results; -1 for none
    varies: bool = False  # the shapes of later passes are others
    label: str = ""  # what is known of it besides, where it stands for no operation

    @property
    def plain(self) -> bool:
        """Whether it only gives its input another form."""
        return self.look == "pill" and self.kind.rstrip("_") in PLAIN_RESHAPES


def label_of(history: ModelHistory, item: Item) -> str:
    """Its name in the history, "conv2d_3_7"."""
    if not item.ops:
        return item.label
    layers = history.facts.layers
    return layers.all[layers.of[item.ops[0]]].label if len(item.ops) > 1 else layers.label(item.ops[0])


def face_of(item: Item, exits: list[int], told: bool) -> Face:
    """What is seen of an item; `exits` are the results that are read, `told` says that their shapes matter."""
    shapes = item.shapes
    if not told or not exits:
        notes: tuple[str, ...] = ("",) * len(exits)
    else:
        several = len(exits) > 1 or exits[0] > 0
        more = " …" if item.varies else ""
        notes = tuple(
            [(f"{n}: " if several else "") + shape_text(shapes[n]) + more if n < len(shapes) else "" for n in exits]
        )
    names = tuple([name for _, name in item.parents])
    return Face(
        item.look, item.kind, item.body, item.family, len(item.ops) or 1, names, notes, item.badge, item.marks,
        item.fill, item.stroke,
    )  # fmt: skip
