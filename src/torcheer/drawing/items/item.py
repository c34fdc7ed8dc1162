"""What is drawn: items, each with a face, and the nets between them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from torcheer.drawing.items.box_text import shape_text
from torcheer.drawing.items.families import PLAIN_RESHAPES
from torcheer.history import ModelHistory
from torcheer.records import ModuleCall, Stored

Net = tuple[int, int]  # an item and which of its results

STILL, FLOWS, KEPT, GRADIENT = range(
    4
)  # what a net carries: a value without or with a gradient, a value that is kept for
# backward, a gradient on its way back (it is laid out as if it came down, too)

SUM = "+="  # written where gradients of several uses meet


class Face(NamedTuple):
    """All that is seen of an item or a folded box, but for its name: equal faces look the same."""

    look: str  # "module", "op", "pill", "merge", "input", "output", "parameter", "buffer", "constant",
    # "gradient", "stop"
    kind: str  # the class or function
    body: str = ""
    family: str = ""
    times: int = 1  # passes of a rolled layer
    entries: tuple[str, ...] = ()  # the name at each entry, "" for none
    exits: tuple[str, ...] = ()  # the shape at each exit, "" for none
    badge: str = ""  # shared weights carry the same one
    marks: tuple[str, ...] = ()  # of "frozen", "partly frozen", "edited", "unseen", "beside", "borrowed"
    fill: str = ""  # colours a user's function asked for
    stroke: str = ""
    folded: bool = False  # a box with something in it
    even: bool = False  # its ports are as far apart above as below, so that lines run straight on
    lines: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())  # what each entry and exit of a folded box carries


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
    carries: tuple[int, ...] = ()  # what each result is: STILL, FLOWS, KEPT or GRADIENT
    parents: list[tuple[Net, str]] = field(default_factory=list)  # and the name of the argument
    badge: str = ""
    fill: str = ""
    stroke: str = ""
    at: int = 0  # its position in the box around it
    form: int = -1  # the same number for the same function, settings and results; -1 for none
    varies: bool = False  # the shapes of later passes are others
    label: str = ""  # what is known of it besides, where it stands for no operation
    notes: tuple[str, ...] | None = None  # what to write at each result, where that is not its shape
    pair: int = -1  # of an operation its backward rule and the other way round: they stand side by side

    @property
    def plain(self) -> bool:
        """Whether it only gives its input another form."""
        return self.look == "pill" and self.pair < 0 and self.kind.rstrip("_") in PLAIN_RESHAPES


def label_of(history: ModelHistory, item: Item) -> str:
    """Its name in the history, "conv2d_3_7"."""
    if not item.ops:
        return item.label
    layers = history.facts.layers
    return layers.all[layers.of[item.ops[0]]].label if len(item.ops) > 1 else layers.label(item.ops[0])


def labels_of(history: ModelHistory, item: Item) -> tuple[str, ...]:
    """The names of all its passes."""
    return tuple([history.facts.layers.label(index) for index in item.ops])


def carried(items: list[Item], net: Net) -> int:
    """What a net carries."""
    carries = items[net[0]].carries
    return carries[net[1]] if net[1] < len(carries) else STILL


def note_at(item: Item, output: int) -> str:
    """What is written where a result leaves a folded box: its shape, unless the item says otherwise."""
    if item.notes is not None:
        return item.notes[output] if output < len(item.notes) else ""
    return shape_text(item.shapes[output]) if output < len(item.shapes) else ""


def face_of(item: Item, exits: list[int], told: bool) -> Face:
    """What is seen of an item; `exits` are the results that are read, `told` says that their shapes matter."""
    shapes = item.shapes
    if item.notes is not None:
        notes: tuple[str, ...] = tuple([note_at(item, n) for n in exits])
    elif not told or not exits:
        notes = ("",) * len(exits)
    else:
        several = len(exits) > 1 or exits[0] > 0
        more = " …" if item.varies else ""
        notes = tuple(
            [(f"{n}: " if several else "") + shape_text(shapes[n]) + more if n < len(shapes) else "" for n in exits]
        )
    names = tuple([name for _, name in item.parents])
    return Face(
        item.look, item.kind, item.body, item.family, len(item.ops) or 1, names, notes, item.badge, item.marks,
        item.fill, item.stroke, even=item.notes is not None,
    )  # fmt: skip
