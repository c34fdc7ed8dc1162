"""Build the items of a history: operations or layers, inputs, outputs, parameters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable
from heapq import heappop, heappush
from operator import attrgetter
from typing import NamedTuple

from torcheer.drawing.items.box_text import argument_names, body_text, frozen_text, parameter_text
from torcheer.drawing.items.families import family_of
from torcheer.drawing.items.item import FLOWS, STILL, Item, Net
from torcheer.history import ModelHistory
from torcheer.history.layers.cycles import components
from torcheer.network.function_frames import FUNCTION, paths_with_functions
from torcheer.network.rolled_passes import rolled_passes
from torcheer.records import BESIDE, KERNEL, ModuleCall, Op, Stored


def items_of(history: ModelHistory, *, rolled: bool) -> tuple[list[Item], dict[ModuleCall, int]]:
    """Return all items, parents before children except where a rolled loop closes.

    Also return for each box of a rolled loop how many calls it stands for.
    """
    builder = _ItemBuilder(history, rolled)
    items = builder.build()
    _add_badges(items)
    return items, Counter(builder.calls.values())


class _Place(NamedTuple):
    """Where operations with the same module stack are drawn."""

    path: tuple[ModuleCall, ...]
    leaf: bool  # a module with a single operation is drawn as one box
    name: str  # of that module
    kind: str


class _Form(NamedTuple):
    """What equal operations have in common, in the order of an item's fields."""

    look: str
    kind: str
    body: str
    family: str
    shapes: tuple[tuple[int, ...], ...]
    marks: tuple[str, ...]
    parameters: int
    states: frozenset[bool]
    number: int


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
        ops = self.facts.ops
        self.boxed_root = len(set(map(attrgetter("root_call"), ops))) > 1 and (
            len({op.root_call for op in ops if op.kind == "op"}) > 1
        )
        buffer_updates = [index for index, op in enumerate(ops) if not op.parents and _is_buffer_update(op)]
        self.buffer_updates = {index for index in buffer_updates if not self.facts.children[index]}
        stacks = _stacks(ops, self.buffer_updates)
        self.leaf_modules = leaf_modules(stacks)
        self.ends = Counter(map(attrgetter("kind"), ops))
        self.items: list[Item] = []
        self.item_of: list[int] = [-1] * len(ops)
        self.standalone: dict[tuple[str, tuple[ModuleCall, ...]], int] = {}
        self.places: dict[object, _Place] = {}
        self.last: tuple[object, _Place] = (None, _Place((), False, "", ""))  # the path and place of the last operation
        self.forms: dict[object, _Form] = {}
        self.paths = paths_with_functions(ops, self.info)
        self.passes = rolled_passes(self.facts) if rolled else list(zip(range(len(ops))))
        self.calls = _same_calls(map(self._path, ops), self.passes) if rolled else {}
        self.several = several_calls(self.calls.get(modules[-1], modules[-1]) for modules in stacks)

    def build(self) -> list[Item]:
        ops = self.facts.ops
        for members in self.passes:
            op = ops[members[0]]
            if members[0] in self.buffer_updates and op.modules[-1] in self.leaf_modules:
                continue  # part of the box of its module
            place = self._place(op)
            standalone = self._standalone_items(op, place) if op.stored else []
            item = self._item(op, place, members)
            item.number = len(self.items)
            self.items.append(item)
            for member in members:
                self.item_of[member] = item.number
            if standalone:
                item.parents = [((number, 0), "") for number in standalone]
        for item in self.items:
            if len(item.ops) == 1 and len(edges := ops[item.ops[0]].parents) == 1:  # the common case
                item.parents.insert(0, ((self.item_of[edges[0].parent], edges[0].output), ""))
            elif item.ops:
                item.parents = self._parents(item) + item.parents
        if self.info.stopped:
            self._add_stop()
        return _sort_by_parents(self.items) if self.rolled else self.items

    def _item(self, op: Op, place: _Place, members: tuple[int, ...]) -> Item:
        if op.kind in ("input", "output"):
            several = self.ends[op.kind] > 1
            form = self._form(op, False)._replace(
                look=op.kind, kind=self._end_name(op) if several else op.name, body=""
            )
            item = Item(-1, "", members, (), *form[:-1])
            item.form = -1
        else:
            form = self._form(op, place.leaf)
            item = Item(-1, place.name, members, place.path, *form[:-1])
            if place.leaf:
                item.kind = place.kind
            item.form = form.number
            if op.stored:
                item.stored = tuple([entry for entry in _drawn_parameters(op) if _holds(op, entry, place.leaf)])
        item.carries = tuple([FLOWS if meta.requires_grad else STILL for meta in op.outputs])
        if len(members) > 1:
            self._merge_passes(item, op, place)
        if op.edited or op.kind == "unseen":
            item.marks += ("edited",) if op.edited else ("unseen",)
        elif op.note == BESIDE:
            item.marks += ("beside",)
        return item

    def _merge_passes(self, item: Item, op: Op, place: _Place) -> None:
        """Drop the settings that differ between passes, and mark shapes that vary."""
        later = [self._form(self.facts.ops[n], place.leaf) for n in item.ops[1:]]
        outputs = [self.facts.ops[n].outputs for n in item.ops]
        item.carries = tuple(  # the first pass may read initial values without gradients
            [FLOWS if any(meta.requires_grad for meta in metas) else STILL for metas in zip(*outputs)]
        )
        item.varies = any(form.shapes != item.shapes for form in later)
        if any(form.body != item.body for form in later):
            item.body = parameter_text(item.parameters, item.states) if item.states else ""

    def _form(self, op: Op, leaf: bool) -> _Form:
        """Return the form of an operation, cached by function, settings, weights and results."""
        outputs = op.outputs
        held: tuple[object, ...] = ()
        if len(outputs) == 1:  # the common case
            results: object = (outputs[0].shape, outputs[0].dtype)
        else:
            results = tuple([(meta.shape, meta.dtype) for meta in outputs])
        if op.stored:
            held = tuple([(entry.kind, entry.shape, entry.trainable, entry.where) for entry in _drawn_parameters(op)])
        key: object = (op.name, op.settings, results, held, leaf, len(op.parents) > 1)
        try:
            form = self.forms.get(key)
        except (TypeError, NotImplementedError):  # a slice or a packed weight among the arguments
            key = repr(key)
            form = self.forms.get(key)
        if form is None:
            form = self.forms[key] = self._new_form(op, leaf)
        return form

    def _new_form(self, op: Op, leaf: bool) -> _Form:
        family = "" if op.kind in ("input", "output") else family_of(op.name)
        body = body_text(op) if op.kind == "op" else ""
        standalone = sum(not _holds(op, entry, leaf) for entry in _drawn_parameters(op))
        look, kind = look_of(op.name, leaf, family, body, len(op.parents) + standalone > 1)
        held = [entry for entry in _drawn_parameters(op) if entry.kind == "parameter" and _holds(op, entry, leaf)]
        count, states = sum(entry.count for entry in held), frozenset(entry.trainable for entry in held)
        if states and look not in ("pill", "merge"):
            words = parameter_text(count, states)
            body = f"{body} · {words}" if body else words
        frozen = frozen_text(states).strip()
        return _Form(
            look, kind, body, family, tuple(meta.shape for meta in op.outputs), (frozen,) if frozen else (), count,
            states, len(self.forms),
        )  # fmt: skip

    def _end_name(self, op: Op) -> str:
        """Return the name of one of several inputs or outputs, with its number."""
        layers = self.facts.layers
        return f"{op.name} {layers.all[layers.of[op.index]].number}"

    def _place(self, op: Op) -> _Place:
        """Return the boxes around an operation; a module of one operation is a single box."""
        key = self._path(op)
        if key is self.last[0]:  # the common case; hashing a path takes longer
            return self.last[1]
        place = self.places.get(key)
        if place is None:
            path = key
            if self.rolled:
                path = tuple(self.calls.get(call, call) for call in path)
            place = _Place(path, False, "", "")
            if op.modules and op.modules[-1] in self.leaf_modules:
                place = _Place(path[:-1], True, call_name(path[-1], path[:-1], self.several), path[-1].type)
            self.places[key] = place
        self.last = key, place
        return place

    def _path(self, op: Op) -> tuple[ModuleCall, ...]:
        """Return the functions, the call of the model if there are several, and the modules around an operation."""
        path = self.paths.get(op.index, op.modules) if self.paths else op.modules
        if op.root_call and self.boxed_root and op.kind == "op":
            return (ModuleCall("", op.root_call, self.info.model), *path)
        return path

    def _standalone_items(self, op: Op, place: _Place) -> list[int]:
        """Add small items for parameters and buffers that are not part of a function's box."""
        if op.kind == "input" or place.leaf:
            return []
        entering = []
        drawn = {edge.where for edge in op.parents}  # what an operation such as `weight.float()` gave back as it was
        for entry in _drawn_parameters(op):
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
                item.marks = ("frozen",) if entry.kind == "parameter" and not entry.trainable else ()
                self.standalone[key] = item.number
                self.items.append(item)
            entering.append(self.standalone[key])
        return entering

    def _parents(self, item: Item) -> list[tuple[Net, str]]:
        ops, item_of = self.facts.ops, self.item_of
        labels_by_net: dict[Net, list[str]] = {}
        outputs: dict[tuple[int, tuple[int | str, ...]], int] = {}  # of `unbind`, each pass may read another
        for index in item.ops:
            op = ops[index]
            names = argument_names(op) if item.look not in ("input", "output") else {}
            for edge in op.parents:
                source = item_of[edge.parent]
                labels = labels_by_net.setdefault((source, outputs.setdefault((source, edge.where), edge.output)), [])
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
    "conv_transpose2d conv_transpose3d _transformer_encoder_layer_fwd _native_multi_head_attention".split()
)  # functions whose weights are written in their box, as settings are


def _labels_text(labels: list[str]) -> str:
    """Return the arguments that one value is passed as: "query, key, value", or of a long list "0 … 99"."""
    labels = list(dict.fromkeys(labels))
    return ", ".join(labels) if len(labels) <= 3 else f"{labels[0]} … {labels[-1]}"


def _drawn_parameters(op: Op) -> tuple[Stored, ...]:
    """Return the parameters and buffers to draw.

    Those of a fused kernel are drawn in its inside, where it is shown.
    """
    return op.stored if op.note != KERNEL else ()


def _holds(op: Op, entry: Stored, leaf: bool) -> bool:
    """True if a parameter is part of the box of its function or module, not a standalone item."""
    if leaf:
        return True
    if op.name not in WEIGHTED or (entry.kind == "buffer" and not op.name.endswith("norm")):
        return False
    return "embedding" in op.name or entry.where[:1] not in ((0,), ("input",))


def _same_calls(
    paths: Iterable[tuple[ModuleCall, ...]], passes: Iterable[tuple[int, ...]]
) -> dict[ModuleCall, ModuleCall]:
    """Map each call that is a pass of another, as the operations in it are, to the first pass; and that to itself."""
    paths = list(paths)
    first: dict[ModuleCall, ModuleCall] = {}

    def find(call: ModuleCall) -> ModuleCall:
        while first.get(call, call) != call:
            call = first[call]
        return call

    for members in passes:
        for index in members[1:]:
            for call, later_call in zip(paths[members[0]], paths[index]):
                if call.address != later_call.address:
                    break  # a function that is a frame in only one of the passes
                low, high = sorted((find(call), find(later_call)))
                first[high] = low
    return {call: find(call) for call in {*first, *first.values()}}


def several_calls(calls: Iterable[ModuleCall]) -> set[tuple[str, str]]:
    """Return the modules and functions, by address and type, of which there is more than one call among these."""
    first: dict[tuple[str, str], ModuleCall] = {}
    return {(call.address, call.type) for call in calls if first.setdefault((call.address, call.type), call) != call}


def address_of(path: Iterable[ModuleCall]) -> str:
    """Return the address of the innermost module of a path."""
    return next((call.address for call in reversed(tuple(path)) if call.type != FUNCTION), "")


def call_name(call: ModuleCall, around: tuple[ModuleCall, ...], several: Container[tuple[str, str]]) -> str:
    """Return a module's name relative to the boxes around it, with its call if there are several."""
    is_numbered = (call.address, call.type) in several
    if not call.address:  # the model itself
        return f"call {call.call}" if is_numbered else ""
    name = call.address.removeprefix(f"{address_of(around)}.")
    return f"{name}:{call.call}" if is_numbered else name


def _is_buffer_update(op: Op) -> bool:
    """True for a counter in a buffer, such as batch norm's `num_batches_tracked += 1`."""
    return bool(op.modules and op.stored and not op.parents and op.name.endswith("_") and op.stored[0].kind == "buffer")


def _stacks(ops: list[Op], buffer_updates: set[int]) -> dict[tuple[ModuleCall, ...], int]:
    """Count the operations in each module stack, without updates of buffers."""
    count: dict[tuple[ModuleCall, ...], int] = {}
    for index, op in enumerate(ops):
        if op.modules and index not in buffer_updates:
            count[op.modules] = count.get(op.modules, 0) + 1
    return count


def leaf_modules(stacks: dict[tuple[ModuleCall, ...], int]) -> set[ModuleCall]:
    """Return the module calls in which exactly one operation ran, directly."""
    inner = {call for modules in stacks for call in modules[:-1]}
    return {modules[-1] for modules, number in stacks.items() if number == 1 and modules[-1] not in inner}


def _add_badges(items: list[Item]) -> None:
    """Give items that share weights the same badge."""
    users: dict[str, list[Item]] = {}
    for item in items:
        for entry in item.stored:
            if entry.kind == "parameter":
                users.setdefault(entry.name, []).append(item)
    badges: dict[tuple[int, ...], str] = {}
    for members in users.values():
        if len(members) > 1:
            badge = badges.setdefault(tuple(item.number for item in members), _letters(len(badges)))
            for item in members:
                item.badge = item.badge or badge


def _letters(number: int) -> str:
    """Return a number as letters: A, B, …, Z, AA, …"""
    text = ""
    number += 1
    while number:
        number, letter = divmod(number - 1, 26)
        text = chr(65 + letter) + text
    return text
