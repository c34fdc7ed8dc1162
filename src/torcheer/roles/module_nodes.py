"""The tree of a model's modules: their classes, the shapes of their parameters, what they contain. Without torch."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

Shape = tuple[int, ...]

EMBEDDING = re.compile("embed", re.IGNORECASE)
_NORM = re.compile(r"norm|^ln|_ln", re.IGNORECASE)


@dataclass(slots=True)
class ModuleNode:
    """A module of the tree: its class, the shapes of its own parameters, the modules in it."""

    path: str
    kind: str
    shapes: dict[str, Shape] = field(default_factory=dict)
    inner: dict[str, ModuleNode] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The last segment of its path."""
        return self.path.rpartition(".")[2]

    def walk(self) -> Iterator[ModuleNode]:
        """Yield it and every module below it, in the model's order."""
        yield self
        for node in self.inner.values():
            yield from node.walk()

    @property
    def count(self) -> int:
        """How many parameters it holds itself, without the modules in it."""
        total = 0
        for shape in self.shapes.values():
            size = 1
            for length in shape:
                size *= length
            total += size
        return total

    def mentions(self, words: re.Pattern[str]) -> bool:
        """Whether its name or class has one of these words."""
        return bool(words.search(self.name) or words.search(self.kind))

    @property
    def is_list(self) -> bool:
        """Whether it is a list of modules."""
        return bool(self.inner) and all(name.isdecimal() for name in self.inner)

    @property
    def is_embedding(self) -> bool:
        """Whether it looks up rows of a matrix."""
        return len(self.shapes.get("weight", ())) == 2 and bool(EMBEDDING.search(self.kind))

    @property
    def is_linear(self) -> bool:
        """Whether it multiplies by a matrix."""
        return len(self.shapes.get("weight", ())) == 2 and not self.is_embedding and not self.inner

    @property
    def is_norm(self) -> bool:
        """Whether it normalises: it has a vector of weights, and says so."""
        return not self.inner and len(self.shapes.get("weight", ())) <= 1 and self.mentions(_NORM)

    @property
    def sizes(self) -> tuple[int, int]:
        """The lengths of what a matrix receives and returns; a bias says which side is which."""
        first, second = self.shapes["weight"]
        bias = self.shapes.get("bias", (first,))[0]
        return (second, first) if bias == first else (first, second)


def skeleton(modules: Mapping[str, Any]) -> ModuleNode:
    """Return the tree of the modules by path: modules, their classes' names, or (class, shapes of parameters)."""
    root = ModuleNode("", "")
    for path, module in modules.items():
        node = root
        for name in path.split("."):
            inner = f"{node.path}.{name}" if node.path else name
            node = node.inner.setdefault(name, ModuleNode(inner, ""))
        node.kind, node.shapes = facts_of(module)
    return root


def facts_of(module: Any) -> tuple[str, dict[str, Shape]]:
    """Return the class of a module, and the shapes of its own parameters."""
    if isinstance(module, str):
        return module, {}
    if isinstance(module, tuple):
        return module
    module = getattr(module, "_orig_mod", module)
    parameters = {name: value for name, value in module._parameters.items() if value is not None}
    return type(module).__name__, {name: tuple(value.shape) for name, value in parameters.items()}


def node_at(root: ModuleNode, path: str) -> ModuleNode:
    """Return the module at a path."""
    node = root
    for name in path.split(".") if path else ():
        node = node.inner[name]
    return node
