"""The places of the roles of one block: its attentions, its mlp, their projections."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from torcheer.roles.module_nodes import ModuleNode

_ATTENTION = re.compile("attn|attention", re.IGNORECASE)
_CROSS = re.compile("cross|enc_?dec|encoder_?att|encdec", re.IGNORECASE)
_MLP = re.compile(r"mlp|ffn|feed_?forward|moe|expert|densereludense|^ff$|^fc\d?$|^lin\d$", re.IGNORECASE)
_OTHER_MIXERS = re.compile("mamba|mixer|ssm|conv|recurrent|rglru|linear_attn|deltanet", re.IGNORECASE)
_EXPERTS = re.compile("expert|moe|router", re.IGNORECASE)
_OUT, _GATES = {"o", "out", "output", "wo", "dense"}, {"gate", "g", "weights", "router"}
_LETTERS = {
    "q": "q", "query": "q", "queries": "q", "wq": "q", "k": "k", "key": "k", "keys": "k", "wk": "k", "v": "v",
    "value": "v", "values": "v", "wv": "v", "kv": "kv", "qk": "qk", "qkv": "qkv", "wqkv": "qkv",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Place:
    """Where a role is: the output or the input of a module, and for heads, which of its columns."""

    role: str  # "attn[1].q"
    path: str
    at: str = "output"  # or "input"
    heads: str = ""  # "q", "k", "v" or "z", where the last axis consists of heads
    attention: str = ""  # the attention module that it is part of, if it is


def attentions_of(block: ModuleNode) -> list[ModuleNode]:
    """Return the outermost attention modules of a block."""
    attentions: list[ModuleNode] = []
    for node in block.inner.values():
        if node.mentions(_ATTENTION) and node.inner and _holds_matrix(node) and not node.is_list:
            attentions.append(node)
        elif not node.mentions(_MLP):
            attentions += attentions_of(node)
    return attentions


def _holds_matrix(node: ModuleNode) -> bool:
    return any(len(shape) > 1 for part in node.walk() for shape in part.shapes.values())


def block_places(block: ModuleNode, index: int) -> Iterator[Place]:
    yield Place(f"resid[{index}]", block.path)
    yield Place(f"resid[{index}].in", block.path, "input")
    attentions = attentions_of(block)
    for role in ("attn", "cross"):
        chosen = [node for node in attentions if _is_cross(node) == (role == "cross")]
        if chosen:
            yield from _attention_places(chosen[0], f"{role}[{index}]")
    yield from _mlp_places(block, attentions, f"mlp[{index}]")


def _is_cross(attention: ModuleNode) -> bool:
    return any(node.mentions(_CROSS) for node in attention.walk() if node.mentions(_ATTENTION))


def _attention_places(attention: ModuleNode, role: str) -> Iterator[Place]:
    linear = [node for node in attention.walk() if node.is_linear and "pos" not in _words(node.name)]
    own = [node for node in attention.walk() if "in_proj_weight" in node.shapes or "q_proj_weight" in node.shapes]
    if own or not linear:  # nn.MultiheadAttention calls no module for its projections
        path = own[0].path if own else attention.path
        yield from (Place(f"{role}{part}", path, attention=path) for part in ("", ".out"))
        return
    lettered = {node.path: _letters(node) for node in linear}
    depth = min((path.count(".") for path, letters in lettered.items() if letters), default=0)
    linear = [node for node in linear if not lettered[node.path] or node.path.count(".") == depth]  # no indexer's
    if not any("q" in letters for letters in lettered.values()):
        fused = [node for node in linear if not lettered[node.path] and node.sizes[1] > node.sizes[0]]
        lettered |= {node.path: "qkv" for node in fused[:1]}
    of = {letter: node.path for node in linear for letter in lettered[node.path]}  # the last of each
    out = _output_projection([node for node in linear if not lettered[node.path]], attention)
    if "q" in of:
        yield Place(f"{role}.in", of["q"], "input")
    for letter in "qkv":
        if letter in of:
            yield Place(f"{role}.{letter}", of[letter], "output", letter, attention.path)
    if out is None:
        yield from (Place(f"{role}{part}", attention.path, attention=attention.path) for part in ("", ".out"))
        return
    yield Place(f"{role}.z", out.path, "input", "z", attention.path)
    yield from (Place(f"{role}{part}", out.path, attention=attention.path) for part in ("", ".out"))


def _output_projection(rest: list[ModuleNode], attention: ModuleNode) -> ModuleNode | None:
    words = {node.path: set(_words(node.path.removeprefix(attention.path))) for node in rest}
    rest = [node for node in rest if not words[node.path] & _GATES]
    return next((node for node in reversed(rest) if words[node.path] & _OUT), rest[-1] if rest else None)


def _words(name: str) -> list[str]:
    return re.findall("[a-z]+", re.sub("([a-z])([A-Z])", r"\1_\2", name).lower())


def _letters(node: ModuleNode) -> str:
    """Return which of queries, keys and values a projection makes, by its name."""
    letters = "".join(_LETTERS.get(word, "") for word in _words(node.name))
    return "".join(letter for letter in "qkv" if letter in letters)


def _mlp_places(block: ModuleNode, attentions: list[ModuleNode], role: str) -> Iterator[Place]:
    elsewhere = {node.path for attention in attentions for node in attention.walk()}
    parts = [node for node in block.walk() if node.path not in elsewhere and node is not block]
    named = [node for node in parts if node.mentions(_MLP) and _holds_matrix(node)]
    named = [node for node in named if not any(node.path.startswith(f"{other.path}.") for other in named)]
    if not named:
        others = {inner.path for node in parts if node.mentions(_OTHER_MIXERS) for inner in node.walk()}
        named = [node for node in parts if node.is_linear and node.path not in others]
    holders = [node for node in named if node.inner]
    named = holders if len(holders) == 1 else named
    whole = named[0] if len(named) == 1 and named[0].inner else None
    inner = [part for node in named for part in node.walk()]
    if whole is None and named:  # its matrices are parts of the block: of BERT, `intermediate` and `output`
        inner = [node for node in parts if node.is_linear]
    matrices = [node for node in inner if node.is_linear]
    has_experts = any(node.mentions(_EXPERTS) or any(len(s) > 2 for s in node.shapes.values()) for node in inner)
    if whole is not None:
        whole = _deepest_with(whole, matrices) if not has_experts else whole
        yield Place(f"{role}.in", whole.path, "input")
        yield from (Place(f"{role}{part}", whole.path) for part in ("", ".out"))
    if has_experts or not matrices:
        return
    width = matrices[0].sizes[0]
    down = [node for node in matrices if node.sizes[1] == width and node is not matrices[0]]
    if not down:
        return
    last = next((node for node in reversed(down) if node.sizes[0] != width), down[-1])
    yield Place(f"{role}.hidden", last.path, "input")
    if whole is None:
        yield Place(f"{role}.in", matrices[0].path, "input")
        yield from (Place(f"{role}{part}", last.path) for part in ("", ".out"))


def _deepest_with(node: ModuleNode, matrices: list[ModuleNode]) -> ModuleNode:
    """Return the innermost module that holds all of these."""
    for inner in node.inner.values():
        paths = {part.path for part in inner.walk()}
        if matrices and inner.inner and all(matrix.path in paths for matrix in matrices):
            return _deepest_with(inner, matrices)
    return node
