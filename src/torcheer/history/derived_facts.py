"""What is worked out from the ops once, when somebody asks."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from torcheer.history.flops import count_flops
from torcheer.history.layers.cycles import on_cycles
from torcheer.history.layers.layer_names import Layers, assign_layers
from torcheer.records import ModuleRun, Op, RunInfo, Stored


class Facts:
    """Layers, children, modules and parameters of a fixed list of ops."""

    def __init__(self, ops: list[Op], info: RunInfo, runs: Callable[[], list[ModuleRun]] = list) -> None:
        self.ops = list(ops)
        self.info = info
        self._runs = runs

    def hold_for(self, ops: list[Op]) -> bool:
        """Whether a trace that answers `ops` now has nothing new."""
        return len(ops) == len(self.ops) and (not ops or ops[-1] is self.ops[-1])

    @cached_property
    def layers(self) -> Layers:
        """Layers, passes and labels."""
        return assign_layers(self.ops, self.info)

    @cached_property
    def layer_keys(self) -> dict[str, int]:
        """Full and short label -> position of the layer."""
        keys = {layer.short: position for position, layer in enumerate(self.layers.all)}
        return keys | {layer.label: position for position, layer in enumerate(self.layers.all)}

    @cached_property
    def children(self) -> list[list[int]]:
        """For each op, those that read it."""
        found: list[list[int]] = [[] for _ in self.ops]
        for index, op in enumerate(self.ops):
            for parent in dict.fromkeys(edge.parent for edge in op.parents):
                found[parent].append(index)
        return found

    @cached_property
    def module_types(self) -> dict[str, str]:
        """Every module known, in the model's order: address -> type."""
        found = {address: module.type for address, module in self.info.modules.items()}
        for op in self.ops:
            for call in op.modules + op.output_of:
                if call.address not in found:
                    found[call.address] = call.type
        return found

    @cached_property
    def module_calls(self) -> dict[str, int]:
        """How often each module was called, as far as operations show it."""
        found = dict.fromkeys(self.module_types, 0)
        for op in self.ops:
            for call in op.modules + op.output_of:
                if call.call > found[call.address]:
                    found[call.address] = call.call
        return found

    @cached_property
    def module_outputs(self) -> dict[str, dict[int, list[int]]]:
        """Module address -> call -> the ops whose results it returned."""
        found: dict[str, dict[int, list[int]]] = {}
        for index, op in enumerate(self.ops):
            for call in op.output_of:
                found.setdefault(call.address, {}).setdefault(call.call, []).append(index)
        return found

    @cached_property
    def module_ops(self) -> dict[str, list[int]]:
        """Module address -> the ops that ran inside it; a ModuleList, never called itself, has those of its items."""
        found: dict[str, list[int]] = {"": list(range(len(self.ops)))}
        around: dict[str, list[str]] = {}
        for index, op in enumerate(self.ops):
            inside: dict[str, None] = {}
            for call in op.modules:
                if call.address not in around:
                    parts = call.address.split(".")
                    around[call.address] = [".".join(parts[: n + 1]) for n in range(len(parts))]
                inside.update(dict.fromkeys(around[call.address]))
            for address in inside:
                found.setdefault(address, []).append(index)
        return found

    @cached_property
    def module_runs(self) -> dict[str, dict[int, ModuleRun]]:
        """Module address -> call -> what it received and returned; "" is the model."""
        found: dict[str, dict[int, ModuleRun]] = {}
        for run in self._runs():
            found.setdefault(run.call.address, {})[run.call.call] = run
        return found

    @property
    def has_runs(self) -> bool:
        """Whether it is known what modules received; files of torcheer 0.1.0 do not say."""
        return bool(self.module_runs) or not any(op.modules or op.root_call for op in self.ops)

    @cached_property
    def submodules(self) -> dict[str, list[str]]:
        """Module address -> the modules directly in it; "" is the model."""
        found: dict[str, list[str]] = {"": []}
        for address in self.module_types:
            parent = address.rpartition(".")[0]
            while parent and parent not in self.module_types:
                parent = parent.rpartition(".")[0]
            found.setdefault(parent, []).append(address)
        return found

    @cached_property
    def stored(self) -> dict[str, Stored]:
        """Every parameter and buffer known, by name."""
        used = {stored.name: stored for op in self.ops for stored in op.stored}
        return {**self.info.stored, **{name: stored for name, stored in used.items() if name not in self.info.stored}}

    @cached_property
    def module_parameters(self) -> dict[str, list[str]]:
        """Module address -> the names of the parameters in it, at any depth; "" is the model."""
        held = [(name.rpartition(".")[0], name) for name in self.stored]
        held += [(address, name) for address, module in self.info.modules.items() for name in module.stored]
        found: dict[str, dict[str, None]] = {"": {}}
        for address, name in held:
            if name in self.stored and self.stored[name].kind == "parameter":
                while address:
                    found.setdefault(address, {})[name] = None
                    address = address.rpartition(".")[0]
                found[""][name] = None
        return {address: list(names) for address, names in found.items()}

    @cached_property
    def flops(self) -> list[int | None]:
        """For each op, its floating point operations; None where the formula is not known."""
        return [count_flops(op, self.ops) for op in self.ops]

    @cached_property
    def recurrent(self) -> set[int]:
        """The layers that take their own earlier output."""
        of = self.layers.of
        edges = ((of[edge.parent], of[index]) for index, op in enumerate(self.ops) for edge in op.parents)
        cyclic = on_cycles(edges, len(self.layers.all))
        return {position for position in cyclic if len(self.layers.all[position].ops) > 1}
