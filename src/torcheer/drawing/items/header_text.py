"""The title of a drawing, and the facts below it."""

from __future__ import annotations

from math import prod

from torcheer.drawing.items.box_text import number_text
from torcheer.history import ModelHistory
from torcheer.history.backward_flow import BackwardFlow
from torcheer.terminal import first_names, human_bytes, human_count, human_shape, plural


def header_lines(history: ModelHistory, depth: int | None, rolled: bool) -> list[str]:
    """Return the title, and the facts to print below it; `depth` is how many levels are shown, if not all."""
    flow, info = history.facts.backward, history.info
    lines = _backward_facts(history, flow) if flow else _forward_facts(history)
    lines += [
        plural(depth, "level") + " shown" if depth else "",
        "loops rolled" if rolled else "",
        "stopped early" if info.stopped else "",
    ]
    return [line for line in lines if line]


def _forward_facts(history: ModelHistory) -> list[str]:
    facts, info = history.facts, history.info
    stored = [entry for entry in (info.stored or facts.stored).values() if entry.kind == "parameter"]
    count = sum(entry.count for entry in stored)
    trained = count - sum(entry.count for entry in stored if entry.trainable is False)
    inputs, operations, size, sized = [], 0, 0, True
    for op in facts.ops:
        if op.kind == "input":
            inputs += [human_shape(meta.shape) for meta in op.outputs]
        elif op.kind != "output":
            operations += 1
            for meta in op.outputs:
                size += meta.bytes
                sized &= min(meta.shape, default=0) >= 0
    share = "" if trained == count else ", none trainable" if not trained else f", {trained / count:.0%} trainable"
    return [
        info.model or "operations",
        f"{human_count(count)} params{share}" if count else "no params",
        plural(operations, "operation"),
        f"{human_bytes(size)} of results" if sized else "",
        f"input {first_names(inputs, 4)}" if inputs else "",
        f"{info.mode} mode" if info.mode else "",
    ]


def _backward_facts(history: ModelHistory, flow: BackwardFlow) -> list[str]:
    title, value = history.model_name, number_text(history, flow.ops[-1])
    parameters = [op.outputs[0].shape for op in flow.ops if op.kind == "parameter"]
    count = sum(map(prod, parameters))
    numbers = f"{human_count(count)} number{'' if count == 1 else 's'}"
    read_again = flow.kept_bytes("parameter")
    return [
        f"{title} = {value}" if value else title,
        plural(sum(op.kind == "op" for op in flow.ops), "operation"),
        f"{plural(len(parameters), 'parameter')} ({numbers})" if parameters else "no parameters",
        f"{human_bytes(flow.kept_bytes('op', 'constant'))} kept for backward",
        f"{human_bytes(read_again)} of parameters read again" if read_again else "",
    ]
