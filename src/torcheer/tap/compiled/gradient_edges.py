"""Where sinks wait for gradients in a pass beside compiled code, which must be sent there."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Any

from torch import Tensor
from torch.autograd.graph import get_gradient_edge


class _Collected(threading.local):
    """The edges of the pass that runs in this thread."""

    edges: list[Any] | None = None


_COLLECTED = _Collected()


class CollectedEdges:
    """A context in which the places that `note_edge` is called for are added to a list."""

    __slots__ = ("_edges",)

    def __init__(self, edges: list[Any]) -> None:
        self._edges = edges

    def __enter__(self) -> None:
        _COLLECTED.edges = self._edges

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        _COLLECTED.edges = None


def note_edge(tensor: Tensor) -> None:
    """Note that a sink waits for the gradient of a tensor, of its value now: it may be overwritten."""
    if (edges := _COLLECTED.edges) is not None and tensor.grad_fn is not None:
        edges.append(get_gradient_edge(tensor))
