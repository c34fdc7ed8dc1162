"""Roles: what the modules of a transformer are for, found from the model's structure.

A stack is the list of a model's blocks. Its roles are `resid[i]` (what block i returns), `attn[i]`, `cross[i]` and
`mlp[i]` with their parts (`attn[i].q`, `mlp[i].hidden` …); outside of it there are `embed`, `norm` and `unembed`.
They are read from the tree of modules, the names of their parts and the shapes of their parameters, not from a list of
model classes. Which columns of a projection belong to which head is found later, from a pass (`capture`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cached_property, lru_cache
from itertools import takewhile
from typing import Any

from torcheer.errors import UnknownLayer
from torcheer.roles.block_places import Place, attentions_of, block_places
from torcheer.roles.module_nodes import EMBEDDING, ModuleNode, Shape, facts_of, node_at, skeleton
from torcheer.terminal import did_you_mean

# Role, part -> what it is, as the docs list them.
PARTS: dict[str, dict[str, str]] = {
    "resid": {"": "what block i returns", "in": "what it receives"},
    "attn": {
        "": "the same as out",
        "in": "what its projections receive",
        "q": "queries, as projected",
        "k": "keys, as projected",
        "v": "values, as projected",
        "z": "the heads' results, before the output projection",
        "out": "what the output projection returns",
    },
    "mlp": {
        "": "the same as out",
        "in": "what it receives",
        "hidden": "its neurons: what the last projection receives",
        "out": "what it returns",
    },
}
PARTS["cross"] = PARTS["attn"]  # attention to another sequence
SINGLE = {"embed": "token embeddings", "norm": "the norm after the last block", "unembed": "the logits"}
ROLE = re.compile(
    r"(?:(?P<prefix>[\w.]+)\.)?(?:(?P<role>resid|attn|cross|mlp)\[(?P<index>-?\d+|\*|-?\d*:-?\d*)\](?:\.(?P<part>[a-z]+))?"
    r"|(?P<single>embed|unembed|norm))(?::(?P<call>\d+))?"
)
_POSITIONS = re.compile("pos|token_?type|segment", re.IGNORECASE)
_FINAL = re.compile(r"final|_f$|out|^(layer_?)?norm$|^ln$", re.IGNORECASE)


class Roles:
    """The roles of a model's modules."""

    def __init__(self, modules: Mapping[str, Any]) -> None:
        self.root = skeleton(modules)

    @cached_property
    def stacks(self) -> list[list[ModuleNode]]:
        """Lists of blocks, the model's main one last."""
        stacks = [stack for stack in _stacks(self.root) if any(block.inner for block in stack)]
        attending = [stack for stack in stacks if any(attentions_of(block) for block in stack)]
        if not attending:
            return sorted(stacks, key=lambda stack: sum(node.count for block in stack for node in block.walk()))[-1:]
        longest = max(map(len, attending))
        return sorted(attending, key=lambda stack: 2 * len(stack) >= longest)  # stable: the last long one is the main

    @cached_property
    def places(self) -> dict[str, Place]:
        """Every role of the main stack, then those of the others, by name."""
        places: dict[str, Place] = {}
        for number, stack in enumerate(reversed(self.stacks)):
            prefix = f"{_stack_name(stack, self.stacks)}." if number else ""
            for index, block in enumerate(stack):
                places |= {f"{prefix}{place.role}": place for place in block_places(block, index)}
        return places | {place.role: place for place in self._single_places()}

    def _single_places(self) -> Iterator[Place]:
        inside = {node.path for stack in self.stacks for block in stack for node in block.walk()}
        outside = [node for node in self.root.walk() if node.path not in inside]
        embeddings = [node for node in outside if node.is_embedding and not node.mentions(_POSITIONS)]
        if not embeddings:
            return
        embed = max(embeddings, key=lambda node: (node.shapes["weight"][0], self._nearness(node)))
        yield Place("embed", embed.path)
        if norm := self._final_norm(inside):
            yield Place("norm", norm.path)
        words = embed.shapes["weight"][0]
        heads = [node for node in outside if node.is_linear and node.sizes[1] == words]
        if heads:
            yield Place("unembed", heads[-1].path)

    def _nearness(self, node: ModuleNode) -> int:
        """Count the modules around both a module and the main stack: an encoder may have embeddings of its own."""
        around = self.stacks[-1][0].path.split(".") if self.stacks else []
        return len(list(takewhile(lambda names: names[0] == names[1], zip(node.path.split("."), around))))

    def _final_norm(self, inside: set[str]) -> ModuleNode | None:
        """Return the norm beside the main stack, or beside the nearest module around it."""
        around = self.stacks[-1][0].path.rpartition(".")[0] if self.stacks else ""
        while around:
            around = around.rpartition(".")[0]
            beside = node_at(self.root, around).inner.values()
            norms = [n for n in beside if n.is_norm and n.path not in inside and not EMBEDDING.search(n.name)]
            if norms:
                likely = [norm for norm in norms if _FINAL.search(norm.name)]
                return (likely or norms)[-1]
        return None

    def resolve(self, key: str) -> tuple[Place, ...]:
        """Return the places of a role; several for `resid[*]` and `resid[2:5]`."""
        match = ROLE.fullmatch(key)
        assert match is not None
        prefix, role, index, part, single, _ = match.groups()
        if single:
            name = f"{prefix}.{single}" if prefix else single
            return (self.places[name],) if name in self.places else self._unknown(key)
        names = [
            name
            for number in self._numbers(prefix, index)
            if (name := _role_name(prefix, role, number, part)) in self.places
        ]
        return tuple(self.places[name] for name in names) or self._unknown(key)

    def _numbers(self, prefix: str | None, index: str) -> list[int]:
        count = self.count(prefix or "")
        if index == "*":
            return list(range(count))
        if ":" in index:
            first, _, last = index.partition(":")
            return list(range(count))[slice(int(first) if first else None, int(last) if last else None)]
        number = int(index)
        return [number + count if number < 0 else number]

    def projections(self, place: Place) -> dict[str, str]:
        """Return the modules that make "q", "k", "v" of the attention of a place, and that receive its "z"."""
        parts = [other for other in self.places.values() if other.heads and other.attention == place.attention]
        return {part.heads: part.path for part in parts}

    def count(self, prefix: str = "") -> int:
        """Return the number of blocks of the main stack, or of the one with this prefix."""
        start = f"{prefix}.resid[" if prefix else "resid["
        return sum(name.startswith(start) and name.endswith("]") for name in self.places)

    def _unknown(self, key: str) -> Any:
        raise UnknownLayer(f"no role {key!r} in this model. {self.describe()}{did_you_mean(key, self.places)}")

    def describe(self) -> str:
        """Return which roles there are, in one sentence."""
        kinds: dict[str, list[int]] = {}
        for name in self.places:
            start, bracket, rest = name.partition("[")
            number, _, part = rest.partition("]")
            kinds.setdefault(f"{start}[{{}}]{part}" if bracket else start, []).append(int(number or 0))
        names = [kind.format(_span(numbers)) for kind, numbers in kinds.items()]
        return f"It has {', '.join(names)}." if names else "It has no list of blocks in which roles could be found."


def roles_of(modules: Mapping[str, Any]) -> Roles:
    """Return the roles of the modules by path; found once for each structure, as they depend on nothing else."""
    facts = [(path, *facts_of(module)) for path, module in modules.items()]
    return _found_roles(tuple([(path, kind, tuple(shapes.items())) for path, kind, shapes in facts]))


@lru_cache(maxsize=8)
def _found_roles(facts: tuple[tuple[str, str, tuple[tuple[str, Shape], ...]], ...]) -> Roles:
    return Roles({path: (kind, dict(shapes)) for path, kind, shapes in facts})


def is_role(key: Any) -> bool:
    """Whether a text is written like a role: 'resid[5]', 'attn[5].q', 'unembed'."""
    match = ROLE.fullmatch(key) if isinstance(key, str) else None
    if match is None:
        return False
    role, part = match["role"], match["part"]
    return bool(match["single"]) or part is None or part in PARTS[role]


def _role_name(prefix: str | None, role: str, number: int, part: str | None) -> str:
    return f"{f'{prefix}.' if prefix else ''}{role}[{number}]{f'.{part}' if part else ''}"


def _span(numbers: list[int]) -> str:
    if len(numbers) == 1:
        return str(numbers[0])
    whole = numbers == list(range(numbers[0], numbers[-1] + 1))
    return f"{numbers[0]}…{numbers[-1]}" if whole else ",".join(map(str, numbers))


def _stacks(node: ModuleNode) -> list[list[ModuleNode]]:
    """Return the outermost lists of blocks below a module; of stages with blocks in them, the blocks."""
    if not node.is_list or not any(inner.inner for inner in node.inner.values()):
        return [stack for inner in node.inner.values() for stack in _stacks(inner)]
    deeper = [stack for block in node.inner.values() for inner in block.inner.values() for stack in _stacks(inner)]
    deeper = [stack for stack in deeper if len({block.kind for block in stack}) == 1 and all(map(attentions_of, stack))]
    return [[block for stack in deeper for block in stack]] if deeper else [list(node.inner.values())]


def _stack_name(stack: list[ModuleNode], stacks: list[list[ModuleNode]]) -> str:
    """Return the first segment of its path that no other stack has."""
    others = {name for other in stacks if other is not stack for name in other[0].path.split(".")}
    own = stack[0].path.split(".")
    return next((name for name in own if name not in others and not name.isdecimal()), ".".join(own[:-1]))
