"""Build the items of a history: operations or layers, inputs, outputs, parameters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import cached_property
from heapq import heappop, heappush
from operator import attrgetter
from typing import NamedTuple

from torcheer.drawing.items.box_text import argument_names, body_text, frozen_text, parameter_text
from torcheer.drawing.items.families import family_of
from torcheer.drawing.items.item import FLOWS, STILL, Item
from torcheer.history import ModelHistory
from torcheer.history.layers.cycles import components
from torcheer.network.fold import Net, add_badges
from torcheer.network.op_places import Path, Place, Places, address_of
from torcheer.network.pass_fold import OpForms, shown_parameters
from torcheer.network.pass_graph import apart_from, given_name
from torcheer.records import BESIDE, ModuleCall, Op, Stored
from torcheer.terminal import plural


def items_of(history: ModelHistory, *, rolled: bool) -> tuple[list[Item], Mapping[ModuleCall, int]]:
    """Return all items, parents before children except where a rolled loop closes.

    Also return for each box of a rolled loop how many calls it stands for.
    """
    builder = _ItemBuilder(history, rolled)
    items = builder.build()
    add_badges(items)
    return items, builder.places.times


class _Form(NamedTuple):
    """What equal operations have in common, in the order of an item's fields."""

    look: str
    kind: str
    body: str
    family: str
    shapes: tuple[tuple[int, ...], ...]
    marks: tuple[str, ...]
    parameters: int
    states: frozenset[bool | None]


def look_of(name: str, leaf: bool, family: str, body: str, several: bool) -> tuple[str, str]:
    """Return the look of an operation, and the function name to write in it."""
    if leaf:
        return "pill" if name == "dropout" and body in ("off", "p 0") else "module", ""
    name = name.strip("_") if name.startswith("__") else name
    if family == "reshape" and not several:
        return "pill", name
    return "merge" if several and family in ("arithmetic", "reshape") else "op", name


class _ItemBuilder:
    def __init__(self, history: ModelHistory, rolled: bool) -> None:
        self.facts = history.facts
        self.info = history.info
        self.rolled = rolled
        self.places, self.numbers = Places(self.facts, rolled=rolled), OpForms()
        self.ends = Counter(map(attrgetter("kind"), self.facts.ops))
        self.items: list[Item] = []
        self.item_of: list[int] = [-1] * len(self.facts.ops)
        self.standalone: dict[tuple[str, Path], int] = {}
        self.forms: dict[int, _Form] = {}

    def build(self) -> list[Item]:
        ops = self.facts.ops
        for members in self.places.passes:
            op = ops[members[0]]
            if self.places.is_counter(op):
                continue
            place = self.places.of(op)
            standalone = self._standalone_items(op, place) if op.stored else []
            item = self._item(op, place, members)
            item.number = len(self.items)
            self.items.append(item)
            for member in members:
                self.item_of[member] = item.number
            if standalone:
                item.parents = [((number, 0), "") for number in standalone]
        for item in self.items:
            if item.look == "output":
                item.parents = self._parents(item) + item.parents
            elif len(item.ops) == 1 and len(edges := ops[item.ops[0]].parents) == 1:  # the common case
                item.parents.insert(0, ((self.item_of[edges[0].parent], edges[0].output), ""))
            elif item.ops:
                item.parents = self._parents(item) + item.parents
        if self.info.stopped:
            self._add_stop()
        return _sort_by_parents(self.items) if self.rolled else self.items

    def _item(self, op: Op, place: Place, members: tuple[int, ...]) -> Item:
        number = self.numbers.number(op, place.kind)
        form = self.forms.get(number) or self._new_form(op, place.kind, number)
        if op.kind in ("input", "output"):
            form = form._replace(look=op.kind, kind=self._end_name(op), body="")
            item = Item(-1, "", members, (), *form)
            if self.places.joins(op):
                return self._joined(item)
        else:
            item = Item(-1, place.name, members, place.path, *form)
            item.form = number
            if op.stored:
                stored = shown_parameters(op)
                item.stored = stored if place.leaf else tuple([entry for entry in stored if _holds(op, entry, False)])
        item.carries = tuple([FLOWS if meta.requires_grad else STILL for meta in op.outputs])
        if len(members) > 1:
            self._merge_passes(item, op, place)
        if op.edited or op.kind == "unseen":
            item.marks += ("edited",) if op.edited else ("unseen",)
        elif op.note == BESIDE:
            item.marks += ("beside",)
        return item

    def _merge_passes(self, item: Item, op: Op, place: Place) -> None:
        """Drop the settings that differ between passes, and mark shapes that vary."""
        later = [self._form(self.facts.ops[n], place.kind) for n in item.ops[1:]]
        outputs = [self.facts.ops[n].outputs for n in item.ops]
        item.carries = tuple(  # the first pass may read initial values without gradients
            [FLOWS if any(meta.requires_grad for meta in metas) else STILL for metas in zip(*outputs)]
        )
        item.varies = any(form.shapes != item.shapes for form in later)
        if any(form.body != item.body for form in later):
            item.body = parameter_text(item.parameters, item.states) if item.states else ""

    def _form(self, op: Op, module: str) -> _Form:
        """Return the form of an operation; `module` is the type of a module that has no other."""
        number = self.numbers.number(op, module)
        return self.forms.get(number) or self._new_form(op, module, number)

    def _new_form(self, op: Op, module: str, number: int) -> _Form:
        leaf = bool(module)
        family = "" if op.kind in ("input", "output") else family_of(op.name)
        body = body_text(op) if op.kind == "op" else ""
        standalone = sum(not _holds(op, entry, leaf) for entry in shown_parameters(op))
        look, kind = look_of(op.name, leaf, family, body, len(op.parents) + standalone > 1)
        held = [entry for entry in shown_parameters(op) if entry.kind == "parameter" and _holds(op, entry, leaf)]
        count, states = sum(entry.count for entry in held), frozenset(entry.trainable for entry in held)
        if states and look not in ("pill", "merge"):
            words = parameter_text(count, states)
            body = f"{body} · {words}" if body else words
        frozen = frozen_text(states).strip()
        form = self.forms[number] = _Form(
            look, module or kind, body, family, tuple(meta.shape for meta in op.outputs), (frozen,) if frozen else (),
            count, states,
        )  # fmt: skip
        return form

    def _joined(self, item: Item) -> Item:
        """Return the item of several outputs that are drawn as one."""
        ops = [self.facts.ops[index] for index in item.ops]
        part = ops[0].returned_at[0]
        item.kind = part if isinstance(part, str) else f"{item.kind} … {self._number(ops[-1])}"
        item.joins, item.body, item.shapes = True, plural(len(ops), "tensor"), ()
        item.carries = (max(FLOWS if meta.requires_grad else STILL for op in ops for meta in op.outputs),)
        return item

    def _end_name(self, op: Op) -> str:
        """Return the name of an input or output: as forward takes or returns it, or its number if of several."""
        if len(op.returned_at) == 1 and isinstance(op.returned_at[0], str):
            return op.returned_at[0]
        if op.given_at and self.ends["input"] > 1:
            return apart_from(self.modules, given_name(op))
        return f"{op.name} {self._number(op)}" if self.ends[op.kind] > 1 else op.name

    @cached_property
    def modules(self) -> set[str]:
        """The addresses of all modules that ran."""
        return {call.address for op in self.facts.ops for call in op.modules}

    def _number(self, op: Op) -> int:
        layers = self.facts.layers
        return layers.all[layers.of[op.index]].number

    def _standalone_items(self, op: Op, place: Place) -> list[int]:
        """Add small items for parameters and buffers that are not part of a function's box."""
        if op.kind == "input" or place.leaf is not None:
            return []
        entering = []
        drawn = {edge.where for edge in op.parents}  # what an operation such as `weight.float()` gave back as it was
        for entry in shown_parameters(op):
            if entry.where in drawn or (op.kind == "op" and _holds(op, entry, False)):
                continue
            key = (entry.name, place.path)
            if key not in self.standalone:
                name = entry.name.removeprefix(f"{address_of(place.path)}.")
                item = Item(len(self.items), name, (), place.path, entry.kind, "", stored=(entry,))
                if entry.kind == "parameter":
                    item.parameters, item.states = entry.count, frozenset({entry.trainable})
                    item.body = parameter_text(item.parameters, item.states)
                item.shapes, item.carries = (entry.shape,), (FLOWS if entry.trainable else STILL,)
                item.marks = ("frozen",) if entry.kind == "parameter" and entry.trainable is False else ()
                self.standalone[key] = item.number
                self.items.append(item)
            entering.append(self.standalone[key])
        return entering

    def _parents(self, item: Item) -> list[tuple[Net, str]]:
        ops, item_of = self.facts.ops, self.item_of
        labels_by_net: dict[Net, list[str]] = {}
        outputs: dict[object, int] = {}  # of `unbind`, each pass may read another
        for index in item.ops:
            op = ops[index]
            names = argument_names(op) if item.look not in ("input", "output") else {}
            for edge in self.places.read_by(op) if item.look == "output" else op.parents:
                source = item_of[edge.parent]
                argument = (source, edge.where, edge.output if item.joins else -1)
                labels = labels_by_net.setdefault((source, outputs.setdefault(argument, edge.output)), [])
                label = names.get(edge.where, "")
                if label and label not in labels[-3:]:
                    labels.append(label)
        return [(net, _labels_text(labels)) for net, labels in labels_by_net.items()]

    def _add_stop(self) -> None:
        reason = self.info.stopped
        short = reason if len(reason) <= 90 else reason[:89] + "…"
        stop = Item(len(self.items), "stopped", (), (), "stop", "", short, label=reason)
        numbers = [number for number in self.item_of if number >= 0]
        stop.parents = [((numbers[-1], 0), "")] if numbers else []
        self.items.append(stop)


def _sort_by_parents(items: list[Item]) -> list[Item]:
    """Sort parents before children where possible.

    A rolled layer stands where it first ran, which may be too early.
    """
    children: list[list[int]] = [[] for _ in items]
    for item in items:
        for (parent, _), _ in item.parents:
            children[parent].append(item.number)
    component = [0] * len(items)  # items on one cycle have the same number
    for number, members in enumerate(components(children)):
        for member in members:
            component[member] = number
    waiting = [0] * len(items)
    onward: list[list[int]] = [[] for _ in items]
    for parent, targets in enumerate(children):
        for target in targets:
            if component[parent] != component[target] or parent < target:  # other edges close a loop
                onward[parent].append(target)
                waiting[target] += 1
    ready = [number for number, count in enumerate(waiting) if not count]
    order: list[int] = []
    while ready:
        order.append(heappop(ready))
        for target in onward[order[-1]]:
            waiting[target] -= 1
            if not waiting[target]:
                heappush(ready, target)
    place = {number: position for position, number in enumerate(order)}
    for item in items:
        item.number = place[item.number]
        item.parents = [((place[parent], output), name) for (parent, output), name in item.parents]
    return sorted(items, key=attrgetter("number"))


WEIGHTED = frozenset(
    "linear bilinear embedding embedding_bag batch_norm layer_norm group_norm instance_norm rms_norm prelu lstm gru "
    "rnn_tanh rnn_relu lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell conv1d conv2d conv3d conv_transpose1d "
    "conv_transpose2d conv_transpose3d _transformer_encoder_layer_fwd _native_multi_head_attention "
    "Conv ConvTranspose Gemm BatchNormalization LayerNormalization InstanceNormalization PRelu LSTM GRU RNN".split()
)  # functions whose weights are written in their box, as settings are


def _labels_text(labels: list[str]) -> str:
    """Return the arguments that one value is passed as: "query, key, value", or of a long list "0 … 99"."""
    labels = list(dict.fromkeys(labels))
    return ", ".join(labels) if len(labels) <= 3 else f"{labels[0]} … {labels[-1]}"


def _holds(op: Op, entry: Stored, leaf: bool) -> bool:
    """True if a parameter is part of the box of its function or module, not a standalone item."""
    if leaf:
        return True
    if op.name not in WEIGHTED or (entry.kind == "buffer" and not op.name.lower().endswith(("norm", "normalization"))):
        return False
    return "embedding" in op.name or entry.where[:1] not in ((0,), ("input",))
