"""Details of items for the HTML page: the text beside the drawing, and values to colour by."""

from __future__ import annotations

from collections import Counter
from math import isfinite, isnan
from typing import Any

from torcheer.drawing.items.box_text import number_text
from torcheer.drawing.items.item import Item, label_of
from torcheer.drawing.looks.colour_scale import WAYS, values_of
from torcheer.drawing.writers.html_page import ItemDetails
from torcheer.history import ModelHistory
from torcheer.history.backward_flow import BackwardFlow
from torcheer.history.text.latex_text import latex_to_text
from torcheer.records import BackwardStep, Op, TensorMeta
from torcheer.terminal import cut, human_bytes, human_place, human_secs, human_shape

MAX_LABELLED = 20_000  # operations; in a longer history, computing all labels takes longer than drawing


def hover_label(history: ModelHistory, item: Item) -> str:
    """Return an item's label for its hover text; in a very long history, its index."""
    if item.step >= 0:
        return item.label  # of a backward rule, why it is so
    if item.joins:
        return "\n".join([label_of(history, item), *_joined_shapes(history, item)])
    if len(history.facts.ops) > MAX_LABELLED and item.ops:
        return f"operation {item.ops[0]}"
    return label_of(history, item)


def details_of(history: ModelHistory, item: Item) -> ItemDetails:
    """Return an item's label, the address around it, and (name, text) pairs to show."""
    flow = history.facts.backward
    details: list[tuple[str, str]] = []
    if item.ops or item.step >= 0:
        op = history.facts.ops[item.ops[0] if item.ops else item.step]
        is_rule = item.look == "gradient"
        details += _rule_details(op) if is_rule else _op_details(history, op, item)
        details += _backward_details(history, flow, op, is_rule) if flow else []
        source = op.source
        details += [("source", f"{source.file}:{source.line} in {source.function}")] if source else []
        details += [("edited", op.edited)] if op.edited else []
        details += [("note", op.note)] if op.note else []
    for entry in item.stored[:12]:
        state = ", frozen" if entry.kind == "parameter" and entry.trainable is False else ""
        details.append((entry.kind, f"{entry.name} {_shape(entry.shape)}{state}"))
    around = item.path[-1].address if item.path else ""
    label = item.name or item.kind if flow else label_of(history, item) or item.name
    return label, around, details


def _shape(shape: tuple[int, ...]) -> str:
    """Return a shape as torch prints it; "?" for a length that is not known."""
    return str(shape).replace("-1", "?")


def _place(meta: TensorMeta) -> str:
    """Return where a result is and its bytes; "" for one of a file, which is nowhere."""
    return f" on {meta.device}, {human_bytes(meta.bytes)}" if meta.device else ""


def _joined_shapes(history: ModelHistory, item: Item) -> list[str]:
    """Return the shapes of outputs that are drawn as one, each with how often it occurs."""
    shapes = Counter(meta.shape for index in item.ops for meta in history.facts.ops[index].outputs)
    return cut([f"{shape} ×{count}" for shape, count in shapes.items()], 6)


def _joined_details(history: ModelHistory, item: Item) -> list[tuple[str, str]]:
    places = [human_place(history.facts.ops[index].returned_at) for index in (item.ops[0], item.ops[-1])]
    size = sum(meta.bytes for index in item.ops for meta in history.facts.ops[index].outputs)
    results = [("result", text) for text in _joined_shapes(history, item)]
    return [("returned as", " … ".join(places)), ("tensors", f"{len(item.ops):,}, {human_bytes(size)}"), *results]


def _op_details(history: ModelHistory, op: Op, item: Item) -> list[tuple[str, str]]:
    if item.joins:
        return _joined_details(history, item)
    facts, passes = history.facts, len(item.ops)
    details = [("function", op.function or op.name)] if op.kind == "op" else []
    details += [
        ("result", f"{_shape(meta.shape)} {meta.dtype.removeprefix('torch.')}{_place(meta)}") for meta in op.outputs[:6]
    ]
    details += [("returned as", human_place(op.returned_at))] if op.returned_at else []
    details += [("passes", str(passes))] if passes > 1 else []
    if op.kind == "op" and op.backward is None:  # a tape takes no times
        details += [(facts.time_name(item.ops), human_secs(sum(facts.ops[n].elapsed_secs for n in item.ops)))]
    flops = facts.flops[op.index]
    details += [("flops", f"{flops * passes:,}")] if flops else []
    details += [("gradient", op.grad_fn)] if op.grad_fn else []
    words = ", ".join(f"{'.'.join(map(str, where))}={value}" for where, value in op.settings)
    return details + ([("arguments", words[:300])] if words else [])


def _rule_details(op: Op) -> list[tuple[str, str]]:
    step = op.backward or BackwardStep()
    details = [("rule", latex_to_text(step.formula))] if step.formula else []
    details += [("why", step.why)] if step.why else []
    return details + ([("by", "torch")] if step.borrowed else [])


def _backward_details(history: ModelHistory, flow: BackwardFlow, op: Op, is_rule: bool) -> list[tuple[str, str]]:
    """Return what a rule keeps or which rules keep a value, how many gradients add up, and a single number."""
    ops, uses, value = flow.ops, flow.uses[op.index], number_text(history, op)
    if is_rule:
        saved = [] if op.backward is None else op.backward.saved
        names = [
            f"{ops[n].name} {human_shape(ops[n].outputs[0].shape)}" if n != op.index else "its result" for n in saved
        ]
        details = [("keeps", ", ".join(names) or "nothing")]
    else:
        readers = [ops[index] for index in reversed(flow.sent)] if op.index in flow.kept else []
        readers = [reader for reader in readers if reader.backward and op.index in reader.backward.saved]
        names = ["itself" if reader is op else reader.name for reader in readers]
        details = [("kept for", ", ".join(names))] if names else []
    details += [("gradient", f"sum of {uses}")] if uses > 1 and (is_rule or op.kind == "parameter") else []
    return details + ([("value", value)] if value and not is_rule else [])


def overlays_of(history: ModelHistory, items: list[Item]) -> dict[str, Any]:
    """Return a value per item, or None, for each way to colour that has any value."""
    overlays: dict[str, Any] = {}
    for way in WAYS[1:] if history.facts.backward is None else ():
        values = values_of(history, items, way)
        if any(value is not None for value in values):
            overlays[way] = [_as_json(value) for value in values]
    return overlays


def _as_json(value: float | None) -> float | str | None:
    """Convert a number for JSON.

    NaN and infinity, which JSON lacks, become names that the page knows.
    """
    if value is None or isfinite(value):
        return None if value is None else float(f"{value:.4g}")
    return "NaN" if isnan(value) else "Infinity"
