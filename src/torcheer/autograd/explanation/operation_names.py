"""Names for people: of parameters, variables and operations, their modules and source."""

from __future__ import annotations

from types import FrameType
from typing import Any

from torch import Tensor
from torch.nn import Module

from torcheer.autograd.tape.nodes import Node
from torcheer.capture.record.source_lines import is_user_code, line_of
from torcheer.records import ModuleCall, Source


class OperationNames:
    """Names of tensors and calls, from the user's variables and the recorded modules."""

    def __init__(self, variables: dict[int, str]) -> None:
        self._variables = variables  # id of a tensor -> the variable that holds it
        self._parameters: dict[int, tuple[str, int]] = {}  # id -> its name in the model, id of the module that holds it
        self._modules: dict[int, str] = {}  # id of a module -> its address
        self._calls: dict[int, ModuleCall] = {}  # id of a scope -> the call
        self._homes: dict[int, tuple[ModuleCall, ...]] = {}
        self._counts: dict[int, int] = {}  # id of a scope -> how many nodes ran in it
        self._roots: dict[int, None] = {}
        self._times: dict[str, int] = {}

    @classmethod
    def around(cls, frame: FrameType | None) -> OperationNames:
        """Collect the variables of the nearest user function on the stack."""
        while frame is not None and not is_user_code(frame.f_code):
            frame = frame.f_back
        namespaces = [] if frame is None else [frame.f_globals, frame.f_locals]
        return cls(
            {
                id(value): name
                for namespace in namespaces
                for name, value in namespace.items()
                if isinstance(value, Tensor)
            }
        )

    def learn(self, nodes: list[Node]) -> None:
        """Collect modules and parameters from the scopes of nodes, given in order of execution."""
        for node in nodes:
            for scope in scopes_of(node):
                self._counts[id(scope)] = self._counts.get(id(scope), 0) + 1
            module = next((scope for scope in scopes_of(node) if isinstance(scope.owner, Module)), None)
            if module is not None and id(module) not in self._roots:
                self._roots[id(module)] = None
                for address, inner in module.owner.named_modules():
                    self._modules.setdefault(id(inner), address)
                    for name, parameter in inner._parameters.items():
                        full_name = f"{address}.{name}" if address else name
                        self._parameters.setdefault(id(parameter), (full_name, id(inner)))
        for node in nodes:
            path = self.path(node)
            for tensor in [origin(arg) for arg in node.args if isinstance(arg, Tensor)]:
                self._homes.setdefault(id(tensor), path)

    def of(self, tensor: Tensor) -> str:
        """Return the name of a parameter in its model, or of the variable that holds a tensor."""
        tensor = origin(tensor)
        if id(tensor) in self._parameters:
            return self._parameters[id(tensor)][0]
        return getattr(tensor, "name", None) or self._variables.get(id(tensor), "")

    def home(self, tensor: Tensor) -> tuple[ModuleCall, ...]:
        """Return the calls in which a parameter is drawn, those of its first reader.

        A constant has none.
        """
        tensor = origin(tensor)
        return self._homes.get(id(tensor), ()) if id(tensor) in self._parameters else ()

    def path(self, node: Node) -> tuple[ModuleCall, ...]:
        """Return the modules and composites around an operation, without the model itself."""
        calls: list[ModuleCall] = []
        address = ""
        for place, scope in enumerate(scopes_of(node)):
            if isinstance(scope.owner, Module):
                address = self._modules.get(id(scope.owner), type(scope.owner).__name__)
                if place == 0 and len(self._roots) == 1:
                    continue
            elif self._counts.get(id(scope), 0) < 2 or (
                calls and self._counts[id(scope)] == self._counts[id(scopes_of(node)[place - 1])]
            ):
                continue  # a composite of one operation, or with the same operations as the box around it
            else:
                address = f"{address}.{scope.name}" if address else scope.name
            calls.append(self._call(scope, address))
        return tuple(calls)

    def _call(self, scope: Any, address: str) -> ModuleCall:
        if id(scope) not in self._calls:
            self._times[address] = self._times.get(address, 0) + 1
            kind = scope.name or type(scope.owner).__name__
            self._calls[id(scope)] = ModuleCall(address, self._times[address], kind)
        return self._calls[id(scope)]

    def title(self, node: Node) -> str:
        """Return an operator's own title, or "" where the function's name serves."""
        scope = unit_of(node)
        is_single = scope is not None and self._counts.get(id(scope), 0) < 2
        return str(scope.owner) if is_single and scope is not None and hasattr(scope.owner, "line") else ""


def origin(tensor: Tensor) -> Tensor:
    """Return the user's tensor for a constant that a node saved as an alias."""
    original: Tensor = getattr(tensor, "_of", tensor)
    return original


def scopes_of(node: Node) -> list[Any]:
    """Return the calls an operation ran in, outermost first."""
    scopes: list[Any] = []
    scope = node.scope
    while scope is not None:
        scopes.append(scope)
        scope = scope.outer
    return scopes[::-1]


def unit_of(node: Node) -> Any:
    """Return the scope of the outermost composite or operator around an operation, or None."""
    return next((scope for scope in scopes_of(node) if not isinstance(scope.owner, Module)), None)


def source_of(node: Node) -> Source | None:
    """Return the line of code an operation was called from, or None."""
    if node.site is None:
        return None
    code, lasti = node.site
    return Source(code.co_filename, line_of(code, lasti), code.co_qualname)
