"""Facts derived from the ops of a history, each computed once, on first use."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import TYPE_CHECKING

from torcheer.history.backward_flow import BackwardFlow
from torcheer.history.flops import count_flops
from torcheer.history.layers.cycles import nodes_on_cycles
from torcheer.history.layers.layer_names import LayerTable, assign_layers
from torcheer.records import ModuleRun, Op, RunInfo, Stored

if TYPE_CHECKING:
    from torcheer.roles import Roles


class HistoryFacts:
    """Layers, children, modules and parameters of a fixed list of ops."""

    def __init__(self, ops: list[Op], info: RunInfo, runs: Callable[[], list[ModuleRun]] = list) -> None:
        self.ops = list(ops)
        self.info = info
        self._runs = runs

    def is_current(self, ops: list[Op]) -> bool:
        """Whether these facts are up to date for a trace's current `ops`."""
        return len(ops) == len(self.ops) and (not ops or ops[-1] is self.ops[-1])

    @cached_property
    def layers(self) -> LayerTable:
        """Layers, passes and labels."""
        return assign_layers(self.ops, self.info)

    @cached_property
    def layer_keys(self) -> dict[str, int]:
        """Full and short label -> position of the layer."""
        keys = {layer.short: position for position, layer in enumerate(self.layers.all)}
        return keys | {layer.label: position for position, layer in enumerate(self.layers.all)}

    @cached_property
    def children(self) -> list[list[int]]:
        """For each op, the ops that read it."""
        children: list[list[int]] = [[] for _ in self.ops]
        for index, op in enumerate(self.ops):
            for parent in dict.fromkeys(edge.parent for edge in op.parents):
                children[parent].append(index)
        return children

    @cached_property
    def launch_timed(self) -> frozenset[int]:
        """The operations that ran on an accelerator and were timed by the host's clock."""
        return frozenset(op.index for op in self.ops if op.is_launch_timed)

    def time_name(self, indices: Iterable[int] | None = None) -> str:
        """Return what the times of some operations, or of all, are: "launch time" where one is only that."""
        launched = self.launch_timed
        is_launch = bool(launched) if indices is None else not launched.isdisjoint(indices)
        return "launch time" if is_launch else "time"

    @cached_property
    def module_types(self) -> dict[str, str]:
        """Address -> type of every module, in the model's order."""
        types = {address: module.type for address, module in self.info.modules.items()}
        for op in self.ops:
            for call in op.modules + op.output_of:
                if call.address not in types:
                    types[call.address] = call.type
        return types

    @cached_property
    def structure(self) -> dict[str, tuple[str, dict[str, tuple[int, ...]]]]:
        """Address -> type and shapes of parameters of every module, in the model's order."""
        structure: dict[str, tuple[str, dict[str, tuple[int, ...]]]] = {}
        for address, kind in self.module_types.items():
            names = self.info.modules[address].stored if address in self.info.modules else ()
            stored = [self.info.stored[name] for name in names if name in self.info.stored]
            shapes = {item.name.rpartition(".")[2]: item.shape for item in stored if item.kind == "parameter"}
            structure[address] = (kind, shapes)
        return structure

    @cached_property
    def roles(self) -> Roles:
        """What the modules of a transformer are for."""
        from torcheer.roles import roles_of

        return roles_of(self.structure)

    @cached_property
    def module_calls(self) -> dict[str, int]:
        """Address -> number of its calls in which an operation ran."""
        counts = dict.fromkeys(self.module_types, 0)
        for op in self.ops:
            for call in op.modules + op.output_of:
                if call.call > counts[call.address]:
                    counts[call.address] = call.call
        return counts

    @cached_property
    def module_outputs(self) -> dict[str, dict[int, list[int]]]:
        """Module address -> call -> the ops whose results it returned."""
        outputs: dict[str, dict[int, list[int]]] = {}
        for index, op in enumerate(self.ops):
            for call in op.output_of:
                outputs.setdefault(call.address, {}).setdefault(call.call, []).append(index)
        return outputs

    @cached_property
    def module_ops(self) -> dict[str, list[int]]:
        """Module address -> the ops that ran inside it; a ModuleList has those of its items."""
        ops_by_module: dict[str, list[int]] = {"": list(range(len(self.ops)))}
        enclosing: dict[str, list[str]] = {}
        for index, op in enumerate(self.ops):
            addresses: dict[str, None] = {}
            for call in op.modules:
                if call.address not in enclosing:
                    parts = call.address.split(".")
                    enclosing[call.address] = [".".join(parts[: n + 1]) for n in range(len(parts))]
                addresses.update(dict.fromkeys(enclosing[call.address]))
            for address in addresses:
                ops_by_module.setdefault(address, []).append(index)
        return ops_by_module

    @cached_property
    def module_runs(self) -> dict[str, dict[int, ModuleRun]]:
        """Module address -> call -> its inputs and outputs; "" is the model."""
        runs: dict[str, dict[int, ModuleRun]] = {}
        for run in self._runs():
            runs.setdefault(run.call.address, {})[run.call.call] = run
        return runs

    @property
    def has_runs(self) -> bool:
        """Whether inputs of module calls are known; files of torcheer 0.1.0 lack them."""
        return bool(self.module_runs) or not any(op.modules or op.root_call for op in self.ops)

    @cached_property
    def submodules(self) -> dict[str, list[str]]:
        """Module address -> the modules directly in it; "" is the model."""
        children: dict[str, list[str]] = {"": []}
        for address in self.module_types:
            parent = address.rpartition(".")[0]
            while parent and parent not in self.module_types:
                parent = parent.rpartition(".")[0]
            children.setdefault(parent, []).append(address)
        return children

    @cached_property
    def stored(self) -> dict[str, Stored]:
        """Every parameter and buffer, by name."""
        used = {stored.name: stored for op in self.ops for stored in op.stored}
        return {**self.info.stored, **{name: stored for name, stored in used.items() if name not in self.info.stored}}

    @cached_property
    def module_parameters(self) -> dict[str, list[str]]:
        """Module address -> names of its parameters at any depth; "" is the model."""
        holders = [(name.rpartition(".")[0], name) for name in self.stored]
        holders += [(address, name) for address, module in self.info.modules.items() for name in module.stored]
        names_by_module: dict[str, dict[str, None]] = {"": {}}
        for address, name in holders:
            if name in self.stored and self.stored[name].kind == "parameter":
                while address:
                    names_by_module.setdefault(address, {})[name] = None
                    address = address.rpartition(".")[0]
                names_by_module[""][name] = None
        return {address: list(names) for address, names in names_by_module.items()}

    @cached_property
    def flops(self) -> list[int | None]:
        """For each op, its floating point operations; None if no formula is known."""
        return [count_flops(op, self.ops) for op in self.ops]

    @cached_property
    def backward(self) -> BackwardFlow | None:
        """Where gradients flow in the readable backward pass; None if the ops have no backward steps."""
        return BackwardFlow(self.ops) if any(op.backward for op in self.ops) else None

    @cached_property
    def recurrent(self) -> set[int]:
        """Positions of the layers that read their own earlier output."""
        of = self.layers.of
        edges = ((of[edge.parent], of[index]) for index, op in enumerate(self.ops) for edge in op.parents)
        cyclic = nodes_on_cycles(edges, len(self.layers.all))
        return {position for position in cyclic if len(self.layers.all[position].ops) > 1}
