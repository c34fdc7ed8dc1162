"""Two questions about a directed graph of small integers: what lies on a cycle, and what descends from what."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def on_cycles(edges: Iterable[tuple[int, int]], count: int) -> set[int]:
    """The nodes of `0 … count-1` that can reach themselves."""
    children: list[list[int]] = [[] for _ in range(count)]
    found: set[int] = set()
    for start, end in edges:
        if start == end:
            found.add(start)
        else:
            children[start].append(end)
    for component in components(children):
        if len(component) > 1:
            found.update(component)
    return found


def components(children: list[list[int]]) -> Iterable[list[int]]:
    """Tarjan's strongly connected components, without recursion: a capture may be 100,000 ops deep."""
    order = [-1] * len(children)  # when a node was first met; -2 once its component is known
    low = [0] * len(children)
    met = 0
    open_nodes: list[int] = []
    for root in range(len(children)):
        if order[root] != -1:
            continue
        work = [(root, 0)]
        while work:
            node, position = work.pop()
            if order[node] == -1:
                order[node] = low[node] = met
                met += 1
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
                    component = _take_from(open_nodes, node)
                    for member in component:
                        order[member] = -2
                    yield component


def _take_from(stack: list[int], node: int) -> list[int]:
    start = len(stack) - 1
    while stack[start] != node:
        start -= 1
    component = stack[start:]
    del stack[start:]
    return component


class Descent:
    """Searches backwards for an ancestor, with one purse for all searches: when it is empty the answer is yes."""

    def __init__(self, parents: Sequence[Sequence[int]]) -> None:
        self._parents = parents
        self._left = 100_000 + 20 * len(parents)

    def reaches(self, start: int, ancestor: int) -> bool:
        """Whether `start` is `ancestor` or was computed from it."""
        stack, seen = [start], set()
        while stack and self._left > 0:
            node = stack.pop()
            if node == ancestor:
                return True
            if node > ancestor and node not in seen:  # a parent never runs after its child
                self._left -= 1
                seen.add(node)
                stack.extend(self._parents[node])
        return bool(stack)
