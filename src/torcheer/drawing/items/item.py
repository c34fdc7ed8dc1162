"""Items, the things that are drawn: their appearance (a face), and the nets between them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NamedTuple

from torcheer.drawing.items.families import PLAIN_RESHAPES
from torcheer.history import ModelHistory
from torcheer.network.fold import Net
from torcheer.records import ModuleCall, Stored
from torcheer.terminal import human_shape

# What a net carries: a value without or with a gradient, a value saved for backward, a gradient. Gradients are laid
# out as if they flowed down, too.
STILL, FLOWS, KEPT, GRADIENT = range(4)

MAKES = re.compile(
    "new_|bernoulli|multinomial|.*_like$"
)  # functions whose results are new values: noise, a loop's zeros
SUM = "+="  # written where gradients of several uses meet


class Face(NamedTuple):
    """The appearance of an item or a folded box, without its name: equal faces look the same."""

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
    fill: str = ""  # colours set by the user's style function
    stroke: str = ""
    folded: bool = False  # a closed box with items inside
    even: bool = False  # entries and exits have the same distances, so that lines run straight through
    lines: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())  # what each entry and exit of a folded box carries


@dataclass(slots=True, eq=False)
class Item:
    """One operation, layer, input, output, or bare parameter."""

    number: int
    name: str  # the user's name for it, "" for a function
    ops: tuple[int, ...]  # indices of its operations: all passes of a rolled layer
    path: tuple[ModuleCall, ...]  # the boxes around it, outermost first
    look: str
    kind: str
    body: str = ""
    family: str = ""
    shapes: tuple[tuple[int, ...], ...] = ()
    marks: tuple[str, ...] = ()
    parameters: int = 0  # number of elements of the parameters it holds
    states: frozenset[bool | None] = frozenset()  # whether they are trainable; None: not known
    stored: tuple[Stored, ...] = ()
    carries: tuple[int, ...] = ()  # what each result is: STILL, FLOWS, KEPT or GRADIENT
    parents: list[tuple[Net, str]] = field(default_factory=list)  # and the name of the argument
    badge: str = ""
    fill: str = ""
    stroke: str = ""
    at: int = 0  # its position in the box around it
    joins: bool = False  # several outputs of the model that are drawn as one
    form: int = -1  # the same number for the same function, settings and results; -1 for none
    varies: bool = False  # later passes have other shapes
    label: str = ""  # its hover text, if it stands for no operation of a history
    step: int = -1  # index of the op of a backward pass that it belongs to: also of a rule, a leaf and the loss
    notes: tuple[str, ...] | None = None  # text at each result, if not its shape
    pair: int = -1  # the backward rule of an operation, and the reverse: they are drawn side by side

    @property
    def identity(self) -> object:
        """What it does and how it looks: the same for items that are alike, wherever they stand."""
        if self.form >= 0 and len(self.ops) == 1 and not (self.marks or self.badge or self.fill or self.stroke):
            return self.form  # the common case
        names = [entry.name for entry in self.stored] if self.badge else []
        return (
            self.form, self.look, self.kind, self.body, len(self.ops), self.varies, self.shapes, self.notes, self.marks,
            self.badge, self.fill, self.stroke, *names,
        )  # fmt: skip

    @property
    def plain(self) -> bool:
        """True if it only changes the shape or dtype of its input."""
        return self.look == "pill" and self.pair < 0 and self.kind.rstrip("_") in PLAIN_RESHAPES

    @property
    def is_stored(self) -> bool:
        """True for a parameter or buffer."""
        return self.look in ("parameter", "buffer")

    @property
    def is_function(self) -> bool:
        """True for a function without a look or marks of its own."""
        return self.look in ("op", "merge", "pill") and self.pair < 0 and not self._stands_out

    @property
    def _stands_out(self) -> bool:
        return bool(self.marks or self.badge or self.fill or self.stroke)

    def prepares(self, reader: Item) -> bool:
        """True if it may be written in its only reader's box: a parameter, or simple and computed as often."""
        if self.is_stored:
            return not self._stands_out
        simple = all(item.family in ("arithmetic", "reshape") for item in (self, reader)) and not MAKES.match(self.kind)
        return simple and self.is_function and len(self.ops) == len(reader.ops) and bool(self.parents)


def label_of(history: ModelHistory, item: Item) -> str:
    """Return an item's label in the history, such as "conv2d_3_7"."""
    if not item.ops:
        return item.label
    layers = history.facts.layers
    if item.joins:
        return f"{layers.label(item.ops[0])} … {layers.label(item.ops[-1])}"
    return layers.all[layers.of[item.ops[0]]].label if len(item.ops) > 1 else layers.label(item.ops[0])


def labels_of(history: ModelHistory, item: Item) -> tuple[str, ...]:
    """Return the labels of all its passes; of a backward rule, that of its operation."""
    ops = item.ops or ((item.step,) if item.step >= 0 else ())
    return tuple([history.facts.layers.label(index) for index in ops])


def net_kind(items: list[Item], net: Net) -> int:
    """Return what a net carries: STILL, FLOWS, KEPT or GRADIENT."""
    carries = items[net[0]].carries
    return carries[net[1]] if net[1] < len(carries) else STILL


def note_at(item: Item, output: int) -> str:
    """Return the text where a result leaves a folded box: its note, or its shape."""
    if item.notes is not None:
        return item.notes[output] if output < len(item.notes) else ""
    return human_shape(item.shapes[output]) if output < len(item.shapes) else ""


def face_of(item: Item, exits: list[int], show_shapes: bool) -> Face:
    """Return the face of an item; `exits` are the indices of the results that are read."""
    shapes = item.shapes
    if item.notes is not None:
        notes: tuple[str, ...] = tuple([note_at(item, n) for n in exits])
    elif not show_shapes or not exits:
        notes = ("",) * len(exits)
    else:
        several = len(exits) > 1 or exits[0] > 0
        suffix = " …" if item.varies else ""
        notes = tuple(
            [(f"{n}: " if several else "") + human_shape(shapes[n]) + suffix if n < len(shapes) else "" for n in exits]
        )
    names = ("",) if item.joins else tuple([name for _, name in item.parents])
    passes = 1 if item.joins else len(item.ops) or 1
    return Face(
        item.look, item.kind, item.body, item.family, passes, names, notes, item.badge, item.marks,
        item.fill, item.stroke, even=item.notes is not None,
    )  # fmt: skip
