"""A recorded forward pass as one moment: layers are what modules returned, projections follow its graph."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from torcheer.archive import Entry, load
from torcheer.control.control_records import Parameter, State
from torcheer.errors import TorcheerError
from torcheer.network.history_network import describe_pass
from torcheer.network.network_records import Network, Projection, Variable
from torcheer.network.placement import net_of
from torcheer.network.recorded_heads import weights_of
from torcheer.records import Op, RunInfo
from torcheer.studio.connections.messages import Moment
from torcheer.studio.sources.moment_queries import Value
from torcheer.studio.sources.recordings import home_of
from torcheer.studio.sources.stored_source import Names, Resting

Array = NDArray[Any]


class HistorySource(Resting):
    """What `history.save` wrote; gradients as "Grad", weights where it was saved with `parameters=True`."""

    kind = "pass"

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        trace: Any = load(self.path).trace
        self._archive, ops, info = trace.archive, trace.ops(), trace.info()
        super().__init__(info.model or self.path.name, home_of(self.path))
        self._places: dict[tuple[str, str], Entry] = {(one.layer, one.variable): one for one in self._archive.entries}
        self._found = found = describe_pass(ops)
        self._of: dict[tuple[str, str], Entry] = {}
        self._damaged: set[Entry] = set()
        self._worked_out: dict[str, Value | None] = {}  # of the attention that was looked at last
        for name, op in found.producers.items():
            self._find(name, op)
        for one in found.projections:
            if one.kind and (entry := self._places.get((_stored(one.name), "stored"))) is not None:
                self._of[one.name, "Wt"] = entry
        variables = [Variable("Act", doc="what came out of the layer")]
        if any(variable == "Grad" for _, variable in self._of):
            variables.append(Variable("Grad", doc="the gradient that arrived at it"))
        known = {one.name for one in found.projections if (one.name, "Wt") in self._of}
        shown = tuple(one if one.name in known else _without_weights(one) for one in found.projections)
        self.net = net_of(Network(self.title, tuple(found.layers), shown, tuple(variables)))
        self.state = State("idle", {"Name": self.title}, batch=found.batch, message="a recorded pass")
        self.parameters = _facts(info, ops)
        self._moments = [Moment(0, 0, {"Name": self.title})]

    def _find(self, name: str, op: Op) -> None:
        """Where the values of a layer lie; of several backward calls the last one counts."""
        if (entry := self._places.get((str(op.index), "value 0"))) is not None:
            self._of[name, "Act"] = entry
        call = 0
        while (entry := self._places.get((str(op.index), f"gradient 0 {call}"))) is not None:
            self._of[name, "Grad"] = entry
            call += 1

    def value(self, moment: int, name: str, variable: str) -> Value | None:
        """A value of the pass."""
        if moment != 0:
            return None
        if name in self._found.heads and variable == "Act":
            return self._heads(name)
        entry = self._of.get((name, variable))
        array = None if entry is None else self._array(entry)
        return None if array is None else Value(-1 if variable == "Wt" else 0, array)

    def told_why(self, moment: int, layer: str, variable: str) -> str:
        """What the record of the operation says."""
        op = self._found.producers.get(layer)
        if layer in self._found.heads or op is None:
            return (
                "it is worked out beside the pass" if variable == "Grad" else "what it is worked out from was not saved"
            )
        if self._of.get((layer, variable)) in self._damaged:
            return "what was saved of it is damaged"
        if variable != "Grad":
            return "it was not saved: layers_to_save left it out"
        return "no gradient has come to it" if op.grad_fn else "nothing in it or before it asks for a gradient"

    def _heads(self, name: str) -> Value | None:
        """Where heads looked; kept, as it may have to be worked out."""
        if name not in self._worked_out:
            found = weights_of(self._found.heads[name], self._of_op, self._found.batch)
            self._worked_out = {name: None if found is None else Value(0, found)}
        return self._worked_out[name]

    def _of_op(self, index: int, output: int) -> Array | None:
        entry = self._places.get((str(index), f"value {output}"))
        return None if entry is None else self._array(entry)

    def _array(self, entry: Entry) -> Array | None:
        """The values of an entry; None, and a problem said, where they are damaged."""
        try:
            return None if entry in self._damaged else self._archive.array(entry)
        except (TorcheerError, OSError, ValueError) as error:
            self._damaged.add(entry)
            self._changes.problems.append(str(error))
            return None

    def graph(self) -> str:
        """The page of its drawing."""
        from torcheer.studio.graph_page import drawn

        return drawn(self.path)

    def names(self, moment: int) -> Names:
        """Layers, or projections, and variables there are."""
        return [*self._of, *((name, "Act") for name in self._found.heads)]


def _facts(info: RunInfo, ops: list[Op]) -> tuple[Parameter, ...]:
    """What else is known of the pass, for the form."""
    count = sum(one.count for one in info.stored.values() if one.kind == "parameter")
    facts = {
        "model": info.model, "mode": info.mode, "operations": sum(op.kind == "op" for op in ops), "parameters": count,
        "seconds": round(info.elapsed_secs, 4), "seed": "not set" if info.seed is None else info.seed,
        "stopped": info.stopped,
    }  # fmt: skip
    kinds = {name: "text" if isinstance(value, str) else "number" for name, value in facts.items()}
    return tuple(Parameter(name, value, kinds[name], group="pass") for name, value in facts.items() if value != "")


def _stored(projection: str) -> str:
    """The parameter of a projection: "rnn.weight:2" is the second use of "rnn.weight"."""
    name, colon, number = projection.rpartition(":")
    return name if colon and number.isdecimal() else projection


def _without_weights(one: Projection) -> Projection:
    return Projection(one.name, one.sender, one.receiver, "", type=one.type)
