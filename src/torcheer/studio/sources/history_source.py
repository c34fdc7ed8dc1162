"""A recorded forward pass as a source with one moment.

Layers and projections come from its graph.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from torcheer.archive import Entry, load
from torcheer.control.control_records import Parameter, State
from torcheer.errors import TorcheerError
from torcheer.network.history_network import NO_ACTIVATION, describe_pass
from torcheer.network.network_records import Projection, weight_name
from torcheer.network.placement import net_of
from torcheer.network.recorded_heads import weights_of
from torcheer.records import Op, RunInfo
from torcheer.studio.connections.messages import Moment
from torcheer.studio.sources.moment_queries import RecordedValue
from torcheer.studio.sources.recordings import home_of
from torcheer.studio.sources.stored_source import Names, StoredSource

Array = NDArray[Any]


class HistorySource(StoredSource):
    """A saved history; gradients are "Grad", weights need `parameters=True` when saving."""

    kind = "pass"

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        trace: Any = load(self.path).trace
        self._archive, ops, info = trace.archive, trace.ops(), trace.info()
        super().__init__(info.model or self.path.name, home_of(self.path))
        self._places: dict[tuple[str, str], Entry] = {
            (entry.layer, entry.variable): entry for entry in self._archive.entries
        }
        self._pass = description = describe_pass(ops, self.title)
        self._entries: dict[tuple[str, str], Entry] = {}
        self._damaged: set[Entry] = set()
        self._attention: dict[str, RecordedValue | None] = {}  # of the attention shown last
        for name, op in description.inputs.items():
            self._index_values(name, op, op)
        for name, source in description.sources.items():
            self._index_values(name, source.net, source.act)
        network = description.network
        for projection in network.projections:
            entry = self._places.get((weight_name(projection), "stored"))
            if projection.kind and entry is not None:
                self._entries[projection.name, "Wt"] = entry
        there = {"Act", *(variable for _, variable in self._entries if variable != "Wt")}
        projections = tuple(
            projection if (projection.name, "Wt") in self._entries else _without_weights(projection)
            for projection in network.projections
        )
        variables = tuple(variable for variable in network.variables if variable.name in there)
        self.net = net_of(replace(network, projections=projections, variables=variables))
        self.state = State("idle", {"Name": self.title}, batch=description.batch.size, message="a recorded pass")
        self.parameters = _facts(info, ops)
        self._moments = [Moment(0, 0, {"Name": self.title})]

    def _index_values(self, name: str, net: Op, act: Op) -> None:
        """Index the entries of a layer's values; of several backward calls the last one counts."""
        for variable, op in (("Net", net), ("Act", act)):
            entry = self._places.get((str(op.index), "value 0"))
            if entry is not None and (variable == "Act" or net is not act):
                self._entries[name, variable] = entry
        call = 0
        while (entry := self._places.get((str(act.index), f"gradient 0 {call}"))) is not None:
            self._entries[name, "Grad"] = entry
            call += 1

    def value(self, moment: int, name: str, variable: str) -> RecordedValue | None:
        """A value of the pass."""
        if moment != 0:
            return None
        if name in self._pass.heads and variable == "Act":
            return self._heads(name)
        entry = self._entries.get((name, variable))
        array = None if entry is None else self._array(entry)
        return None if array is None else RecordedValue(-1 if variable == "Wt" else 0, array)

    def recorded_reason(self, moment: int, layer: str, variable: str) -> str:
        """The reason according to the operation's record."""
        source = self._pass.sources.get(layer)
        op = source.act if source is not None else self._pass.inputs.get(layer)
        if layer in self._pass.heads or op is None:
            return (
                "it is worked out beside the pass" if variable == "Grad" else "what it is worked out from was not saved"
            )
        if self._entries.get((layer, variable)) in self._damaged:
            return "what was saved of it is damaged"
        if variable == "Net" and (source is None or source.net is source.act):
            return NO_ACTIVATION
        if variable != "Grad":
            return "it was not saved: layers_to_save left it out"
        return "no gradient has come to it" if op.grad_fn else "nothing in it or before it asks for a gradient"

    def _heads(self, name: str) -> RecordedValue | None:
        """Attention weights of a layer; cached, as they may have to be computed."""
        if name not in self._attention:
            weights = weights_of(self._pass.heads[name], self._op_value, self._pass.batch.size)
            self._attention = {name: None if weights is None else RecordedValue(0, weights)}
        return self._attention[name]

    def _op_value(self, index: int, output: int) -> Array | None:
        entry = self._places.get((str(index), f"value {output}"))
        return None if entry is None else self._array(entry)

    def _array(self, entry: Entry) -> Array | None:
        """The values of an entry; None, with a problem reported, if they are damaged."""
        try:
            return None if entry in self._damaged else self._archive.array(entry)
        except (TorcheerError, OSError, ValueError) as error:
            self._damaged.add(entry)
            self._changes.problems.append(str(error))
            return None

    def graph(self) -> str:
        """The HTML page of its drawing."""
        from torcheer.studio.graph_page import draw_saved_history

        return draw_saved_history(self.path)

    def names(self, moment: int) -> Names:
        """The (layer or projection, variable) pairs of the pass."""
        return [*self._entries, *((name, "Act") for name in self._pass.heads)]


def _facts(info: RunInfo, ops: list[Op]) -> tuple[Parameter, ...]:
    """Facts about the pass, as parameters of the form."""
    count = sum(stored.count for stored in info.stored.values() if stored.kind == "parameter")
    facts = {
        "model": info.model, "mode": info.mode, "operations": sum(op.kind == "op" for op in ops), "parameters": count,
        "seconds": round(info.elapsed_secs, 4), "seed": "not set" if info.seed is None else info.seed,
        "stopped": info.stopped,
    }  # fmt: skip
    kinds = {name: "text" if isinstance(value, str) else "number" for name, value in facts.items()}
    return tuple(Parameter(name, value, kinds[name], group="pass") for name, value in facts.items() if value != "")


def _without_weights(projection: Projection) -> Projection:
    return Projection(projection.name, projection.sender, projection.receiver, "", type=projection.type)
