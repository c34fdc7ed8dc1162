"""The printout of a history, in TorchLens's layout."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torcheer.records import NO_STRUCTURE
from torcheer.terminal import cut, human_bytes, plural

if TYPE_CHECKING:
    from torcheer.history.model_history import ModelHistory

LINES = 60  # limit of layers, and of modules, unless `full`
COLUMNS = 100


def describe(history: ModelHistory, *, full: bool = False) -> str:
    """Return what `print(history)` shows."""
    info, facts = history.info, history.facts
    limit = 10**9 if full else LINES
    modules = list(_hierarchy(facts.submodules, "", 0))
    lines = [
        f"Log of {info.model} forward pass{', stopped early' if info.stopped else ''}:",
        *([f"\tStopped {_where(history)}: {info.stopped}"] if info.stopped else []),
        f"\tModel structure: {_structure(history)}; {len(facts.module_types)} total modules.",
        f"\t{_tensors(history)}",
        f"\t{_parameters(history)}",
        f"\tRandom seed: {'not set' if info.seed is None else info.seed}",
        f"\t{'Launch time' if facts.launch_timed else 'Time elapsed'}: "
        + (f"{info.elapsed_secs:.3f}s" if info.elapsed_secs else "not known"),
        *_edits(history),
        *(f"\tNote: {note}" for note in info.notes),
        "\tModule Hierarchy:",
        *cut([f"\t\t{line}" for line in modules or ["none"]], limit),
        "\tLayers:",
        *cut([f"\t\t{line}" for line in _layers(history)], limit),
    ]
    return "\n".join(lines)


def _edits(history: ModelHistory) -> Iterator[str]:
    edited = [(history.facts.layers.label(op.index), op.edited) for op in history.facts.ops if op.edited]
    if edited:
        shown = ", ".join(f"{label} ({edit})" for label, edit in edited[:8])
        yield f"\tEdited: {shown}{f' and {len(edited) - 8} more' if len(edited) > 8 else ''}."


def _where(history: ModelHistory) -> str:
    count = plural(len(history), "operation")
    return f"after {history[-1].label} ({count})" if len(history) else "before any operation"


def _structure(history: ModelHistory) -> str:
    """Describe whether the model is recurrent, and whether it branches."""
    if NO_STRUCTURE in history.info.notes:
        return "not recorded"
    facts = history.facts
    recurrent_passes = max((len(facts.layers.all[position].ops) for position in facts.recurrent), default=0)
    max_passes = max((len(layer.ops) for layer in facts.layers.all), default=0)
    if recurrent_passes:
        flow = f"recurrent (up to {recurrent_passes} passes of a layer)"
    else:
        flow = "purely feedforward" + (f" (up to {max_passes} passes of a layer)" if max_passes > 1 else "")
    branching = any(len(children) > 1 for children in facts.children) or any(
        len({edge.parent for edge in op.parents}) > 1 for op in facts.ops if op.kind != "output"
    )
    return f"{flow}, {'with' if branching else 'without'} branching"


def _tensors(history: ModelHistory) -> str:
    sizes = [(op.index, n, meta.bytes) for op in history.facts.ops for n, meta in enumerate(op.outputs)]
    saved = [size for index, n, size in sizes if history.trace.is_saved(index, n)]
    computed = f"{plural(len(sizes), 'tensor')} ({human_bytes(sum(size for _, _, size in sizes))})"
    return f"{computed} computed in forward pass; {plural(len(saved), 'tensor')} ({human_bytes(sum(saved))}) saved."


def _parameters(history: ModelHistory) -> str:
    using = sum(any(stored.kind == "parameter" for stored in op.stored) for op in history.facts.ops)
    parameters = [stored for stored in history.facts.stored.values() if stored.kind == "parameter"]
    count, size = sum(stored.count for stored in parameters), sum(stored.bytes for stored in parameters)
    tensors = plural(len(parameters), "parameter tensor")
    return f"{plural(using, 'parameter operation')} ({tensors}, {count} params total; {human_bytes(size)})."


def _hierarchy(submodules: dict[str, list[str]], address: str, level: int) -> Iterator[str]:
    """Yield the module tree, indented; siblings without submodules share lines."""
    children, indent = submodules.get(address, []), "    " * level
    if not any(submodules.get(child) for child in children):
        wrapped = textwrap.wrap(", ".join(children), COLUMNS, break_long_words=False, break_on_hyphens=False)
        yield from (indent + line for line in wrapped)
        return
    for child in children:
        yield f"{indent}{child}{':' if submodules.get(child) else ''}"
        yield from _hierarchy(submodules, child, level + 1)


def _layers(history: ModelHistory) -> Iterator[str]:
    for layer in history.facts.layers.all:
        yield f"{layer.ops[0]}: {layer.label}" + (f" ×{len(layer.ops)}" if len(layer.ops) > 1 else "")
