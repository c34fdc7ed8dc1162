"""Add up the storages of a step: the peak of each phase, what is held then, and what sharding changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

from torch import nn

from torcheer.memory.memory_plan import LayerMemory, PhaseMemory
from torcheer.memory.planned_step import Run
from torcheer.memory.storage_log import Allocation, StorageLog

LIBRARY_BYTES = 64 << 20  # cuBLAS: 32 MiB for the thread of forward, 32 MiB for that of backward (Hopper)
_SHARDED = frozenset(("parameter", "gradient", "state"))

Held = Counter[tuple[str, str]]  # (layer, kind) -> bytes


@dataclass(slots=True)
class _Phase:
    name: str
    peak_bytes: int
    end_bytes: int
    held: Held
    last: Allocation | None  # the one that reached the peak


def sum_up(run: Run, *, world_size: int, device: str) -> tuple[list[PhaseMemory], list[LayerMemory]]:
    """Return the phases of a step, and what each layer holds at its peak.

    - `world_size`: over how many devices FSDP shards parameters, gradients and optimizer state.
    """
    size_of = _size_of(world_size)
    state: Held = Counter()
    for entry in run.log.allocations:
        if entry.kind == "state" and entry.phase == "step":
            state[entry.layer, entry.kind] += size_of(entry)
    gathered = _gathered_bytes(run.model) if world_size > 1 else {}
    phases = []
    for phase in _phases(run.log, size_of):
        if phase.name != "step":  # it is there from the second step on
            _add(phase, state)
        if device == "cuda":
            _add(phase, {("(cuBLAS)", "workspace"): LIBRARY_BYTES})
        if extra := gathered.get(phase.name):
            _add(phase, {("(FSDP)", "temporary"): extra})
        phases.append(phase)
    highest = max(phases, key=lambda phase: phase.peak_bytes)
    return [_record(phase) for phase in phases], _layers(run, highest.held)


def _size_of(world_size: int) -> Callable[[Allocation], int]:
    def size_of(entry: Allocation) -> int:
        is_shard = entry.kind in _SHARDED or (entry.phase == "step" and entry.kind == "temporary")
        return -(-entry.nbytes // world_size) if is_shard else entry.nbytes

    return size_of


def _phases(log: StorageLog, size_of: Callable[[Allocation], int]) -> Iterator[_Phase]:
    sizes = [size_of(entry) for entry in log.allocations]
    starts = [*log.starts.items()]
    live: set[int] = set()
    total = 0

    def apply(events: list[int]) -> int:
        for event in events:
            (live.add if event > 0 else live.discard)(abs(event))
        return sum(sizes[abs(event) - 1] * (1 if event > 0 else -1) for event in events)

    total += apply(log.events[: starts[0][1]])
    for (name, start), (_, stop) in pairwise(starts):
        now = peak = total
        place = start  # how many events have happened when the peak is reached
        for index in range(start, stop):
            event = log.events[index]
            now += sizes[abs(event) - 1] * (1 if event > 0 else -1)
            if now > peak:
                peak, place = now, index + 1
        total += apply(log.events[start:place])
        held: Held = Counter()
        for number in live:
            entry = log.allocations[number - 1]
            held[entry.layer, entry.kind] += sizes[number - 1]
        total += apply(log.events[place:stop])
        last = log.allocations[log.events[place - 1] - 1] if place > start else None
        yield _Phase(name, peak, total, held, last)


def _add(phase: _Phase, held: Mapping[tuple[str, str], int]) -> None:
    phase.held.update(held)
    phase.peak_bytes += sum(held.values())
    phase.end_bytes += sum(held.values())


def _record(phase: _Phase) -> PhaseMemory:
    kinds = Counter[str]()
    for (_, kind), nbytes in phase.held.items():
        kinds[kind] += nbytes
    layer, op = (phase.last.layer, phase.last.op) if phase.last else ("", "")
    return PhaseMemory(phase.name, phase.peak_bytes, dict(kinds), phase.end_bytes, layer, op)


def _layers(run: Run, held: Held) -> list[LayerMemory]:
    types = {run.paths[id(module)]: type(module).__name__ for module in run.model.modules()}
    order = {path: place for place, path in enumerate(types)}
    layers: dict[str, dict[str, int]] = {}
    for (path, kind), nbytes in held.items():
        layers.setdefault(path, {})[kind] = nbytes
    ordered = sorted(layers.items(), key=lambda item: order.get(item[0], len(order)))
    return [LayerMemory(path, types.get(path, ""), kinds) for path, kinds in ordered]


# Blocks


def repeated_blocks(model: nn.Module) -> dict[str, nn.Module]:
    """Return the blocks that a model is a stack of: outermost parts of a list or sequence that have parts themselves.

    They are what people checkpoint and shard. A class counts where the model has at least two such parts of it.
    """
    candidates: dict[str, nn.Module] = {}
    for path, module in model.named_modules():
        if not isinstance(module, nn.ModuleList | nn.Sequential | nn.ModuleDict):
            continue
        for name, part in module.named_children():
            has_parts = any(True for _ in part.children())
            if has_parts and not isinstance(part, nn.ModuleList | nn.Sequential | nn.ModuleDict):
                candidates[f"{path}.{name}" if path else name] = part
    counts = Counter(type(part) for part in candidates.values())
    blocks: dict[str, nn.Module] = {}
    for path, part in candidates.items():
        is_inside = any(path.startswith(f"{other}.") for other in blocks)
        if counts[type(part)] > 1 and not is_inside:
            blocks[path] = part
    return blocks


def _gathered_bytes(model: nn.Module) -> dict[str, int]:
    """Return what FSDP2 holds whole besides the shards, by phase.

    Of the blocks the one that runs and the next, which is fetched meanwhile; of the rest, the parameters of the root,
    all the time. In backward also the gradients of the part that runs.
    """
    blocks = repeated_blocks(model)
    sizes = [sum(p.nbytes for p in block.parameters()) for block in blocks.values()] or [0]
    inside = {id(p) for block in blocks.values() for p in block.parameters()}
    root = sum(p.nbytes for p in model.parameters() if id(p) not in inside)
    whole = root + 2 * max(sizes)
    return {"forward": whole, "backward": whole + max(root, *sizes)}
