"""Graphs of batch processors: whether their edges make sense, in which order they run, which columns flow where."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from torcheer.training.spec.read.description import Definition
from torcheer.training.spec.read.value_kinds import Fault

Columns = list[str] | None  # None: only a run can tell


def graph_faults(one: Definition) -> Iterator[Fault]:
    """What is wrong with the edges of a batch graph."""
    nodes, ports, edges = one.spec["nodes"], one.spec["input_ports"], one.spec["ingoing_edges"]
    at = (*one.path, "ingoing_edges")
    for number, port in enumerate(ports):
        if port in nodes:
            yield Fault((*one.path, "input_ports", number), f"{port!r} is one of the nodes, too: a name is one thing")
        elif not any(port in sources for sources in edges.values()):
            yield Fault((*one.path, "input_ports", number), f"nothing reads from the port {port!r}", tuple(edges))
    for node in nodes:
        if node not in edges:
            yield Fault(at, f"nothing flows into the node {node!r}: say from where", tuple(edges))
    for node, sources in edges.items():
        if node not in nodes:
            yield Fault((*at, node), f"{node!r} is none of the graph's nodes, {', '.join(nodes)}", tuple(nodes))
        for number, source in enumerate(sources):
            if source not in nodes and source not in ports:
                there = f"{', '.join(ports)}, {', '.join(nodes)}"
                message = f"there is no port or node {source!r} in this graph; there is {there}"
                yield Fault((*at, node, number), message, (*ports, *nodes))
            elif source in sources[:number]:
                yield Fault((*at, node, number), f"{source!r} flows into {node!r} twice")
    circle = order_of(nodes, edges)[1]
    if circle:
        yield Fault(at, f"these nodes feed one another: {' → '.join(circle)}")


def order_of(nodes: Iterable[str], edges: Mapping[str, Iterable[str]]) -> tuple[list[str], list[str]]:
    """The nodes, each after its sources; and a circle of some that have no such order."""
    waiting, done = list(nodes), list[str]()
    while waiting:
        ready = [one for one in waiting if not any(source in waiting for source in edges.get(one, ()))]
        if not ready:
            return done, circle_of(waiting, edges)
        done += ready
        waiting = [one for one in waiting if one not in ready]
    return done, []


def circle_of(nodes: list[str], edges: Mapping[str, Iterable[str]]) -> list[str]:
    """A way through nodes that leads back to where it was; each of them has a source among them."""
    way = [nodes[0]]
    while True:
        way.append(next(source for source in edges[way[-1]] if source in nodes))
        if way[-1] in way[:-1]:
            return way[way.index(way[-1]) :][::-1]


def columns_of(
    graph: Mapping[str, Any], ports: Mapping[str, Columns], processors: Mapping[str, Definition]
) -> dict[str, Columns]:
    """The columns in the frame of each port and processor, where that is plain to see."""
    found: dict[str, Columns] = dict(ports)
    for name in order_of(graph["nodes"], graph["ingoing_edges"])[0]:
        found[name] = after(processors[name], shared([found.get(one) for one in graph["ingoing_edges"][name]]))
    return found


def shared(frames: list[Columns]) -> Columns:
    """The columns of frames that flow together: those that all have."""
    if any(one is None for one in frames):
        return None
    first, *others = [one or [] for one in frames]
    return [column for column in first if all(column in other for other in others)]


def after(processor: Definition, columns: Columns) -> Columns:
    """The columns once a processor has run."""
    if columns is None or "output_adapter" in processor.spec:
        return None
    outputs = [output for node in processor.spec["neural_graph"] for output in node["outputs"]]
    return list(dict.fromkeys([*columns, *outputs]))


def node_faults(processor: Definition, columns: Columns) -> Iterator[Fault]:
    """Inputs of models that nothing gives; an input adapter may give any."""
    if columns is None or "input_adapter" in processor.spec:
        return
    known = list(columns)
    for number, node in enumerate(processor.spec["neural_graph"]):
        for place, name in enumerate(node["inputs"]):
            if name not in known:
                path = (*processor.path, "neural_graph", number, "inputs", place)
                yield Fault(
                    path, f"there is no {name!r} for {node['model_name']}; there is {', '.join(known)}", tuple(known)
                )
        known += node["outputs"]
