"""Graphs of batch processors: checks of edges, topological order, columns of each frame."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from torcheer.training.spec.read.description import Definition
from torcheer.training.spec.read.value_kinds import Fault

Columns = list[str] | None  # None: only a run can tell


def graph_faults(definition: Definition) -> Iterator[Fault]:
    """Yield faults of the edges of a batch graph."""
    nodes, ports, edges = definition.spec["nodes"], definition.spec["input_ports"], definition.spec["ingoing_edges"]
    path = (*definition.path, "ingoing_edges")
    for number, port in enumerate(ports):
        if port in nodes:
            yield Fault(
                (*definition.path, "input_ports", number), f"{port!r} is one of the nodes, too: a name is one thing"
            )
        elif not any(port in sources for sources in edges.values()):
            yield Fault(
                (*definition.path, "input_ports", number), f"nothing reads from the port {port!r}", tuple(edges)
            )
    for node in nodes:
        if node not in edges:
            yield Fault(path, f"nothing flows into the node {node!r}: say from where", tuple(edges))
    for node, sources in edges.items():
        if node not in nodes:
            yield Fault((*path, node), f"{node!r} is none of the graph's nodes, {', '.join(nodes)}", tuple(nodes))
        for number, source in enumerate(sources):
            if source not in nodes and source not in ports:
                choices = f"{', '.join(ports)}, {', '.join(nodes)}"
                message = f"there is no port or node {source!r} in this graph; there is {choices}"
                yield Fault((*path, node, number), message, (*ports, *nodes))
            elif source in sources[:number]:
                yield Fault((*path, node, number), f"{source!r} flows into {node!r} twice")
    cycle = order_of(nodes, edges)[1]
    if cycle:
        yield Fault(path, f"these nodes feed one another: {' → '.join(cycle)}")


def order_of(nodes: Iterable[str], edges: Mapping[str, Iterable[str]]) -> tuple[list[str], list[str]]:
    """Return the nodes in topological order, and a cycle of those that have none."""
    waiting, done = list(nodes), list[str]()
    while waiting:
        ready = [node for node in waiting if not any(source in waiting for source in edges.get(node, ()))]
        if not ready:
            return done, find_cycle(waiting, edges)
        done += ready
        waiting = [node for node in waiting if node not in ready]
    return done, []


def find_cycle(nodes: list[str], edges: Mapping[str, Iterable[str]]) -> list[str]:
    """Return a cycle among nodes, each of which has a source among them."""
    route = [nodes[0]]
    while True:
        route.append(next(source for source in edges[route[-1]] if source in nodes))
        if route[-1] in route[:-1]:
            return route[route.index(route[-1]) :][::-1]


def frame_columns(
    graph: Mapping[str, Any], ports: Mapping[str, Columns], processors: Mapping[str, Definition]
) -> dict[str, Columns]:
    """Return the columns in the frame of each port and processor.

    None where only a run can tell.
    """
    columns: dict[str, Columns] = dict(ports)
    for name in order_of(graph["nodes"], graph["ingoing_edges"])[0]:
        columns[name] = columns_after(
            processors[name], common_columns([columns.get(source) for source in graph["ingoing_edges"][name]])
        )
    return columns


def common_columns(frames: list[Columns]) -> Columns:
    """Return the columns that all frames have."""
    if any(columns is None for columns in frames):
        return None
    first, *rest_of_frames = [columns or [] for columns in frames]
    return [column for column in first if all(column in columns for columns in rest_of_frames)]


def columns_after(processor: Definition, columns: Columns) -> Columns:
    """Return the columns after a processor has run."""
    if columns is None or "output_adapter" in processor.spec:
        return None
    outputs = [output for node in processor.spec["neural_graph"] for output in node["outputs"]]
    return list(dict.fromkeys([*columns, *outputs]))


def node_faults(processor: Definition, columns: Columns) -> Iterator[Fault]:
    """Yield faults of model inputs that nothing provides; an input adapter may provide any."""
    if columns is None or "input_adapter" in processor.spec:
        return
    available = list(columns)
    for number, node in enumerate(processor.spec["neural_graph"]):
        for place, name in enumerate(node["inputs"]):
            if name not in available:
                path = (*processor.path, "neural_graph", number, "inputs", place)
                yield Fault(
                    path,
                    f"there is no {name!r} for {node['model_name']}; there is {', '.join(available)}",
                    tuple(available),
                )
        available += node["outputs"]
