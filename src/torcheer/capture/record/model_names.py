"""Names of a model's modules, parameters and buffers."""

from __future__ import annotations

import torch
from torch import Tensor

from torcheer.capture.record.tensor_facts import meta_of
from torcheer.capture.record.tensor_trees import Path
from torcheer.models import plain_name
from torcheer.records import ModuleInfo, Stored


class ModelNames:
    """Maps modules, parameters and buffers of the root modules to their names."""

    def __init__(self, roots: list[torch.nn.Module]) -> None:
        self._roots = roots
        self.title = type(getattr(roots[0], "_orig_mod", roots[0])).__name__ if roots else "recording"
        self.modules: dict[str, ModuleInfo] = {}
        self.stored: dict[str, Stored] = {}
        self.tensors: dict[str, Tensor] = {}
        self._addresses: dict[int, str] = {}
        self._tensor_names: dict[int, str] = {}
        self._unnamed: dict[int, int] = {}
        self._settled: set[str] = set()
        self._parameters: set[str] = set()  # their names
        for number, root in enumerate(roots):
            prefix = "" if number == 0 else f"{type(root).__name__}_{number}"
            if id(root) not in self._addresses:
                self._read_modules(root, prefix)

    def _read_modules(self, root: torch.nn.Module, prefix: str) -> None:
        for address, module in root.named_modules(prefix=prefix):
            plain = plain_name(address)
            if id(module) in self._addresses:
                continue
            self._addresses[id(module)] = plain
            stored_names = []
            for kind, group in (("parameter", module._parameters), ("buffer", module._buffers)):
                for name, tensor in group.items():
                    if tensor is not None:
                        full_name = f"{plain}.{name}" if plain else name
                        if kind == "parameter":
                            self._parameters.add(full_name)
                        if id(tensor) not in self._tensor_names:
                            self._tensor_names[id(tensor)] = full_name
                            self.tensors[full_name] = tensor
                            self.stored[full_name] = _stored(tensor, full_name, kind, ())
                        stored_names.append(self._tensor_names[id(tensor)])
            if plain:
                self.modules[plain] = ModuleInfo(plain, type(module).__name__, tuple(stored_names))

    def address(self, module: torch.nn.Module) -> str:
        """Return a module's dotted name, or its type if it is in no root module."""
        return self._addresses.get(id(module), type(module).__name__)

    def module_at(self, path: str) -> torch.nn.Module:
        """Return the module at a path."""
        modules = (module for root in self._roots for module in root.modules())
        return next(module for module in modules if self._addresses.get(id(module)) == path)

    def path_of(self, module: torch.nn.Module) -> str:
        """Return the path of a module of the model; "" if it is none."""
        inner = getattr(module, "_orig_mod", module)
        return self._addresses.get(id(module), "") or self._addresses.get(id(inner), "")

    def full_name(self, module: torch.nn.Module, name: str) -> str:
        """Return the full name of a tensor held by a module of the model."""
        return plain_name(".".join(filter(None, (self._addresses.get(id(module), ""), name))))

    def assigned(self, module: torch.nn.Module, name: str) -> tuple[str, str]:
        """Return the name and kind of a value that was assigned to a module."""
        full_name = self.full_name(module, name)
        return full_name, "parameter" if full_name in self._parameters else "buffer"

    def holds(self, tensor: Tensor) -> bool:
        """Whether a tensor is a parameter or buffer of the model."""
        return self.tensors.get(self._tensor_names.get(id(tensor), "")) is tensor

    def keep_name(self, tensor: Tensor, home: tuple[torch.nn.Module, str] | None) -> None:
        """Name a tensor by the attribute it was first read from, even if that was replaced since."""
        if home is None or self.holds(tensor):
            return
        name = self.full_name(*home)
        self._tensor_names[id(tensor)] = name
        if name not in self._settled:  # the first one read stands for all
            self._settled.add(name)
            self._tensor_names.pop(id(self.tensors.get(name)), None)  # a computed value, assigned later
            self.tensors[name] = tensor
            self.stored[name] = _stored(tensor, name, self._kind(tensor, name), ())

    def describe(self, tensor: Tensor, where: Path) -> Stored:
        """Describe a parameter or buffer as an argument of an op."""
        name = self._tensor_names.get(id(tensor), "")
        if not name:  # a parameter that no module of the model holds
            name = f"?{self._unnamed.setdefault(id(tensor), len(self._unnamed) + 1)}"
        return _stored(tensor, name, self._kind(tensor, name), where)

    def _kind(self, tensor: Tensor, name: str) -> str:
        """Return "parameter" or "buffer"; a tensor that replaces a parameter counts as one."""
        return "parameter" if isinstance(tensor, torch.nn.Parameter) or name in self._parameters else "buffer"


def _stored(tensor: Tensor, name: str, kind: str, where: Path) -> Stored:
    meta = meta_of(tensor)
    return Stored(name, kind, meta.shape, meta.dtype, meta.bytes, tensor.requires_grad, where)
