"""What a person calls things: names of parameters, titles of operations, the modules around them, the line of code."""

from __future__ import annotations

from types import FrameType
from typing import Any

from torch import Tensor
from torch.nn import Module

from torcheer.autograd.tape.nodes import Node
from torcheer.capture.record.source_lines import is_users, line_of
from torcheer.records import ModuleCall, Source


class Names:
    """Names of tensors and calls, as far as anything tells them."""

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
    def around(cls, frame: FrameType | None) -> Names:
        """Learn the variables of the user's function that is asking."""
        while frame is not None and not is_users(frame.f_code):
            frame = frame.f_back
        spaces = [] if frame is None else [frame.f_globals, frame.f_locals]
        return cls({id(value): name for space in spaces for name, value in space.items() if isinstance(value, Tensor)})

    def learn(self, nodes: list[Node]) -> None:
        """Read the scopes of nodes, which are in order of execution."""
        for node in nodes:
            for scope in scopes_of(node):
                self._counts[id(scope)] = self._counts.get(id(scope), 0) + 1
            module = next((scope for scope in scopes_of(node) if isinstance(scope.thing, Module)), None)
            if module is not None and id(module) not in self._roots:
                self._roots[id(module)] = None
                for address, inner in module.thing.named_modules():
                    self._modules.setdefault(id(inner), address)
                    for name, parameter in inner._parameters.items():
                        whole = f"{address}.{name}" if address else name
                        self._parameters.setdefault(id(parameter), (whole, id(inner)))
        for node in nodes:
            path = self.path(node)
            for tensor in [origin(arg) for arg in node.args if isinstance(arg, Tensor)]:
                self._homes.setdefault(id(tensor), path)

    def of(self, tensor: Tensor) -> str:
        """The name of a parameter in its model, or of the variable that holds a tensor."""
        tensor = origin(tensor)
        if id(tensor) in self._parameters:
            return self._parameters[id(tensor)][0]
        return getattr(tensor, "name", None) or self._variables.get(id(tensor), "")

    def home(self, tensor: Tensor) -> tuple[ModuleCall, ...]:
        """Where a parameter or constant is drawn: beside what first read it, if it is a parameter."""
        tensor = origin(tensor)
        return self._homes.get(id(tensor), ()) if id(tensor) in self._parameters else ()

    def path(self, node: Node) -> tuple[ModuleCall, ...]:
        """The modules and composites around an operation, the model itself left out."""
        calls: list[ModuleCall] = []
        address = ""
        for place, scope in enumerate(scopes_of(node)):
            if isinstance(scope.thing, Module):
                address = self._modules.get(id(scope.thing), type(scope.thing).__name__)
                if place == 0 and len(self._roots) == 1:
                    continue
            elif self._counts.get(id(scope), 0) < 2 or (calls and self._same(scope, scopes_of(node)[place - 1])):
                continue  # a composite of one operation is that operation, one that fills another is that other
            else:
                address = f"{address}.{scope.name}" if address else scope.name
            calls.append(self._call(scope, address))
        return tuple(calls)

    def _same(self, inner: Any, outer: Any) -> bool:
        return not isinstance(outer.thing, Module) and self._counts[id(inner)] == self._counts[id(outer)]

    def _call(self, scope: Any, address: str) -> ModuleCall:
        if id(scope) not in self._calls:
            self._times[address] = self._times.get(address, 0) + 1
            kind = scope.name or type(scope.thing).__name__
            self._calls[id(scope)] = ModuleCall(address, self._times[address], kind)
        return self._calls[id(scope)]

    def title(self, node: Node) -> str:
        """What a person calls an operation, where it is not its function's name."""
        scope = unit_of(node)
        alone = scope is not None and self._counts.get(id(scope), 0) < 2
        return str(scope.thing) if alone and scope is not None and hasattr(scope.thing, "line") else ""


def origin(tensor: Tensor) -> Tensor:
    """The user's own tensor, where a node keeps a constant under another name."""
    found: Tensor = getattr(tensor, "_of", tensor)
    return found


def scopes_of(node: Node) -> list[Any]:
    """The calls an operation ran in, outermost first."""
    found: list[Any] = []
    scope = node.scope
    while scope is not None:
        found.append(scope)
        scope = scope.outer
    return found[::-1]


def unit_of(node: Node) -> Any:
    """The outermost composite or operator around an operation: what is one thing to a reader; None for itself alone."""
    return next((scope for scope in scopes_of(node) if not isinstance(scope.thing, Module)), None)


def source_of(node: Node) -> Source | None:
    """The line of code an operation was called from."""
    if node.site is None:
        return None
    code, lasti = node.site
    return Source(code.co_filename, line_of(code, lasti), code.co_qualname)
