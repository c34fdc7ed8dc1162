"""What `tl.plan` returns: the peak of a step by phase, by kind and by layer, as a record and as text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from torcheer.terminal import format_table, human_bytes, human_count, line_width, plural
from torcheer.terminal.streams import encodable

# Kind -> its heading. What each is: docs/memory.md.
KINDS: dict[str, str] = {
    "parameter": "parameters",
    "buffer": "buffers",
    "gradient": "gradients",
    "state": "optimizer",
    "activation": "activations",
    "temporary": "temporary",
    "workspace": "workspace",
    "input": "inputs",
}


@dataclass(frozen=True, slots=True)
class PhaseMemory:
    """The most that is allocated in one phase of a step."""

    name: str  # "forward", "backward" or "step"
    peak_bytes: int
    kinds: Mapping[str, int]  # kind -> bytes, when the peak is reached
    end_bytes: int  # allocated at the end of the phase
    layer: str = ""  # path of the module that ran when the peak was reached; "(backward)" … where none did
    op: str = ""  # the operation that reached it: "aten.mm.default"


@dataclass(frozen=True, slots=True)
class LayerMemory:
    """What one module holds when the peak of the step is reached, without the modules inside it."""

    path: str  # "" for the model itself; "(loss)", "(backward)", "(inputs)" … for what belongs to no module
    module_type: str
    kinds: Mapping[str, int]  # kind -> bytes

    @property
    def total_bytes(self) -> int:
        """Return the sum over all kinds."""
        return sum(self.kinds.values())


@dataclass(frozen=True, slots=True)
class Saving:
    """What the peak would be with one thing changed."""

    change: str  # "autocast to bfloat16"
    argument: str  # how to plan it: "autocast='bfloat16'"
    peak_bytes: int


@dataclass(frozen=True, slots=True)
class Plan:
    """The memory of one step of a model, by phase, kind and layer.

    >>> plan = tl.plan(model, inputs, optimizer="AdamW")
    >>> plan.peak_bytes, plan.peak_phase
    >>> print(plan)
    """

    model: str  # name of its class
    parameter_count: int
    device: str  # the kind of device it is planned for
    optimizer: str  # name of its class; "" for a forward pass alone
    settings: Mapping[str, Any]  # what was planned: autocast, dtype, checkpoint, world_size
    phases: tuple[PhaseMemory, ...]
    layers: tuple[LayerMemory, ...]  # at the peak, in the model's order
    assumptions: tuple[str, ...]
    savings: tuple[Saving, ...] = field(default=())

    @property
    def peak(self) -> PhaseMemory:
        """Return the phase that needs most."""
        return max(self.phases, key=lambda phase: phase.peak_bytes)

    @property
    def peak_bytes(self) -> int:
        """Return the most that is allocated at any time in the step."""
        return self.peak.peak_bytes

    @property
    def peak_phase(self) -> str:
        """Return the name of the phase that needs most."""
        return self.peak.name

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as what JSON can hold."""
        return {"peak_bytes": self.peak_bytes, "peak_phase": self.peak_phase, **asdict(self)}

    def fits(self, available_bytes: float) -> bool:
        """Return whether the peak is at most so many bytes."""
        return self.peak_bytes <= available_bytes

    def __str__(self) -> str:
        return encodable("\n".join(_lines(self)))

    __repr__ = __str__


def _lines(plan: Plan) -> list[str]:
    trained = f"trained with {plan.optimizer}" if plan.optimizer else "forward only"
    chosen = "".join(f", {key}={value}" for key, value in plan.settings.items() if value not in (None, 1))
    peak = plan.peak
    at = f" of {peak.layer}" if peak.layer and "(" not in peak.layer else ""
    return [
        f"{plan.model}, {human_count(plan.parameter_count)} parameters, {trained}{chosen}: "
        f"{human_bytes(plan.peak_bytes)} on {plan.device}, reached in {peak.name}{at}",
        "",
        *_phase_table(plan),
        "",
        f"At the peak, by layer ({plural(len(plan.layers), 'module')}, * for a number in a path):",
        *_layer_table(plan),
        *(["", *_saving_table(plan)] if plan.savings else []),
        "",
        *(f"Assumed: {text}" for text in plan.assumptions),
    ]


def _phase_table(plan: Plan) -> list[str]:
    kinds = [kind for kind in KINDS if any(phase.kinds.get(kind) for phase in plan.phases)]
    rows = [["phase", "peak", *(KINDS[kind] for kind in kinds)]]
    for phase in plan.phases:
        name = f"{phase.name} *" if phase is plan.peak and len(plan.phases) > 1 else phase.name
        rows.append([name, human_bytes(phase.peak_bytes), *(_cell(phase.kinds.get(kind, 0)) for kind in kinds)])
    return format_table(rows, 1, width=line_width(), drop=("inputs", "buffers", "workspace"))


MOST_ROWS = 14


def numberless(path: str) -> str:
    """Return the pattern of a path: 'layers.*.mlp' for 'layers.7.mlp', 'layer_*' for 'layer_7', 'conv1' as it is."""
    return re.sub(r"(?<![A-Za-z0-9])\d+(?=\.|$)", "*", path)


def _layer_table(plan: Plan) -> list[str]:
    groups: dict[str, list[LayerMemory]] = {}
    for layer in plan.layers:
        groups.setdefault(numberless(layer.path), []).append(layer)
    ordered = sorted(groups.items(), key=lambda item: -sum(layer.total_bytes for layer in item[1]))
    kinds = [kind for kind in KINDS if any(layer.kinds.get(kind) for layer in plan.layers)]
    rows = [["layer", "module", "total", *(KINDS[kind] for kind in kinds)]]
    for path, layers in ordered[:MOST_ROWS]:
        types = sorted({layer.module_type for layer in layers})
        count = f" ×{len(layers)}" if len(layers) > 1 else ""
        sums = [sum(layer.kinds.get(kind, 0) for layer in layers) for kind in kinds]
        name = path or "(model)"
        rows.append([name, f"{types[0]}{count}", human_bytes(sum(sums)), *map(_cell, sums)])
    if left := ordered[MOST_ROWS:]:
        layers = [layer for _, members in left for layer in members]
        sums = [sum(layer.kinds.get(kind, 0) for layer in layers) for kind in kinds]
        rows.append([f"{len(left)} more", "", human_bytes(sum(sums)), *map(_cell, sums)])
    return format_table(
        rows, 2, width=line_width(), shorten="layer", drop=("inputs", "buffers", "workspace", "module", "temporary")
    )


def _saving_table(plan: Plan) -> list[str]:
    rows = [["with", "plan it with", "peak", "saves"]]
    for saving in plan.savings:
        share = 1 - saving.peak_bytes / plan.peak_bytes
        rows.append([saving.change, saving.argument, human_bytes(saving.peak_bytes), f"{share:.0%}"])
    return format_table(rows, 2, width=line_width(), drop=("plan it with",))


def _cell(count: int) -> str:
    return human_bytes(count) if count else "–"
