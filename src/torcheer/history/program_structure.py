"""The structural hash of a run: its program without the numbers."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256

from torcheer.records import Op


def structural_hash(ops: Iterable[Op]) -> str:
    """Hash functions, connections, shapes, parameters and modules.

    CI can compare the hash across versions.
    """
    digest = sha256()
    for op in ops:
        edges = [(edge.parent, edge.output, edge.where) for edge in op.parents]
        shapes = [tuple(meta.shape) for meta in op.tensors]
        stored = [(item.name, tuple(item.shape)) for item in op.stored]
        addresses = [call.address for call in op.modules]
        digest.update(repr((op.kind, op.name, edges, shapes, stored, addresses)).encode())
    return digest.hexdigest()
