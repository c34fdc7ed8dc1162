"""Graph algorithms on nodes 0 … n-1: nodes on cycles, strong components, ancestor search."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def nodes_on_cycles(edges: Iterable[tuple[int, int]], count: int) -> set[int]:
    """Return the nodes of `0 … count-1` that can reach themselves."""
    children: list[list[int]] = [[] for _ in range(count)]
    cyclic: set[int] = set()
    for start, end in edges:
        if start == end:
            cyclic.add(start)
        else:
            children[start].append(end)
    for component in components(children):
        if len(component) > 1:
            cyclic.update(component)
    return cyclic


def components(children: list[list[int]]) -> Iterable[list[int]]:
    """Yield Tarjan's strong components, without recursion: a capture may be 100,000 ops deep."""
    order = [-1] * len(children)  # order of the first visit; -2 once the component is known
    low = [0] * len(children)
    visited = 0
    open_nodes: list[int] = []
    for root in range(len(children)):
        if order[root] != -1:
            continue
        work = [(root, 0)]
        while work:
            node, position = work.pop()
            if order[node] == -1:
                order[node] = low[node] = visited
                visited += 1
                open_nodes.append(node)
            for next_position in range(position, len(children[node])):
                child = children[node][next_position]
                if order[child] == -1:
                    work += ((node, next_position), (child, 0))
                    break
                if order[child] >= 0:
                    low[node] = min(low[node], low[child])
            else:
                if low[node] == order[node]:
                    component = _pop_component(open_nodes, node)
                    for member in component:
                        order[member] = -2
                    yield component


def _pop_component(stack: list[int], node: int) -> list[int]:
    start = len(stack) - 1
    while stack[start] != node:
        start -= 1
    component = stack[start:]
    del stack[start:]
    return component


class AncestorSearch:
    """Searches for ancestors, with one budget of steps; once it is spent the answer is yes."""

    def __init__(self, parents: Sequence[Sequence[int]]) -> None:
        self._parents = parents
        self._budget = 100_000 + 20 * len(parents)

    def reaches(self, start: int, ancestor: int) -> bool:
        """Whether `start` is `ancestor` or is computed from it."""
        stack, visited = [start], set()
        while stack and self._budget > 0:
            node = stack.pop()
            if node == ancestor:
                return True
            if node > ancestor and node not in visited:  # a parent never runs after its child
                self._budget -= 1
                visited.add(node)
                stack.extend(self._parents[node])
        return bool(stack)
