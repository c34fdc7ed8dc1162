"""A recorded forward pass as a source with one moment.

Layers and projections come from its graph.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from torcheer.archive import Archive, Entry, load
from torcheer.archive.saved_history import ADDED
from torcheer.control.control_records import Parameter, State
from torcheer.control.loop_messages import Moment
from torcheer.errors import TorcheerError
from torcheer.history.model_history import ModelHistory
from torcheer.network.heads.recorded_heads import weights_of
from torcheer.network.history_network import NO_ACTIVATION, PassDescription, describe_pass
from torcheer.network.network_records import Net, Projection, Variable, weight_name
from torcheer.network.placement import net_of
from torcheer.records import Op, RunInfo, garbage_collection_off
from torcheer.studio.sources.moment_queries import RecordedValue
from torcheer.studio.sources.recordings import home_of, is_temporary
from torcheer.studio.sources.source import Source
from torcheer.studio.sources.stored_moments import Places, StoredMoments
from torcheer.studio.tensors.numpy_code import Opening
from torcheer.vocabulary.variables import ON_PAGE

if TYPE_CHECKING:
    from torcheer.drawing.writers.graph_text import GraphText

Array = NDArray[Any]


class PassSource(Source):
    """A saved history; gradients are "Grad", weights need `parameters=True` when saving."""

    kind = "pass"

    @garbage_collection_off(ages=True)  # 100,000 operations are kept, and would be walked again and again
    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        history = load(self.path)
        trace: Any = history.trace
        ops, info = trace.ops(), trace.info()
        title = info.model or self.path.name
        description = describe_pass(ops, title)
        values = PassValues(history, description, self._problem)
        super().__init__(title, home_of(self.path), values)
        self._history, self._description = history, description
        self.folder = None if is_temporary(self.path.parent) else self.path
        network = description.network
        there = {"Act", *(variable for _, variable in values.places[0] if variable not in ("Wt", "WtGrad"))}
        projections = tuple(
            projection if (projection.name, "Wt") in values.places[0] else _without_weights(projection)
            for projection in network.projections
        )
        variables = tuple(variable for variable in network.variables if variable.name in there)
        variables += tuple(Variable(name, doc="added to the history") for name in values.added)
        self.net = net_of(replace(network, projections=projections, variables=variables))
        self.state = State("idle", {"Name": title}, batch=description.batch.size, message="a recorded pass")
        self.parameters = _facts(info, ops)
        values.moments.append(Moment(0, 0, {"Name": title}))
        self._backward = self._read_backward(history)
        self.backward_steps = len(json.loads(self._backward.partition("\n")[0])["steps"]) if self._backward else 0

    def graph(self, net: Net) -> GraphText:
        """The drawing of all its operations."""
        from torcheer.drawing import draw_history

        return draw_history(self._history).page_text(self._description.layer_of())

    def backward_text(self) -> str:
        """Its steps, as they were saved."""
        return self._backward

    def _read_backward(self, history: ModelHistory) -> str:
        try:
            return history.trace.backward_text()
        except (TorcheerError, OSError, ValueError) as error:  # the rest of the pass may be intact
            self._problem(f"the steps of the backward pass cannot be shown: {error}")
            return ""


class PassValues(StoredMoments):
    """The values of a recorded pass, all of them at moment 0."""

    def __init__(self, history: ModelHistory, description: PassDescription, report: Callable[[str], None]) -> None:
        super().__init__(report)
        trace: Any = history.trace
        archive: Archive = trace.archive
        self._history, self._path = history, archive.path
        self.archive, self._pass = archive, description
        self._saved: Places = {(entry.layer, entry.variable): entry for entry in archive.entries}
        self._damaged: set[tuple[str, str]] = set()
        self._attention: dict[str, RecordedValue | None] = {}  # of the attention shown last
        self.places[0] = {}
        self._added: dict[str, list[tuple[str, Entry]]] = {}  # by operation, variables that were added to it
        for (layer, variable), added in self._saved.items():
            if variable.startswith(ADDED):
                self._added.setdefault(layer, []).append((variable.removeprefix(ADDED), added))
        self.added = list(dict.fromkeys(name for pairs in self._added.values() for name, _ in pairs))
        for name, op in description.inputs.items():
            self._index_values(name, op, op)
        for name, source in description.sources.items():
            self._index_values(name, source.net, source.act)
        for projection in description.network.projections:
            entry = self._saved.get((weight_name(projection), "stored"))
            if projection.kind and entry is not None:
                self.places[0][projection.name, "Wt"] = entry
        for (name, variable), entry in self._saved.items():
            if variable == "stored":
                self.places[0][name, "Wt"] = entry
            elif variable.startswith("gradient of parameter"):  # of several backward calls the last one counts
                self.places[0][name, "WtGrad"] = entry

    def _index_values(self, name: str, net: Op, act: Op) -> None:
        """Index the entries of a layer's values; of several backward calls the last one counts."""
        for variable, op in (("Net", net), ("Act", act)):
            entry = self._saved.get((str(op.index), "value 0"))
            if entry is not None and (variable == "Act" or net is not act):
                self.places[0][name, variable] = entry
        call = 0
        while (entry := self._saved.get((str(act.index), f"gradient 0 {call}"))) is not None:
            self.places[0][name, "Grad"] = entry
            call += 1
        for op in (net, act):  # what follows a layer's activation counts
            self.places[0] |= {(name, variable): entry for variable, entry in self._added.get(str(op.index), ())}

    def value(self, moment: int, name: str, variable: str) -> RecordedValue | None:
        """A value of the pass."""
        if moment == 0 and name in self._pass.heads and variable == "Act":
            return self._heads(name)
        was_there = (name, variable) in self.places.get(moment, {})
        value = super().value(moment, name, variable)
        if value is None and was_there:
            self._damaged.add((name, variable))
        return None if value is None else RecordedValue(-1 if variable in ("Wt", "WtGrad") else 0, value.array)

    def names(self, moment: int) -> list[tuple[str, str]]:
        """The layer or projection, and variable, of each value of the pass."""
        return [*super().names(moment), *((name, "Act") for name in self._pass.heads)]

    def why(self, moment: int, layer: str, variable: str) -> str:
        """The reason according to the operation's record."""
        if variable == "Wt":
            return "the weights were not saved: history.save(path, parameters=True) keeps them"
        if variable == "WtGrad":
            return "no gradient has come to it: run backward() before history.save, or tl.show(model, inputs)"
        source = self._pass.sources.get(layer)
        op = source.act if source is not None else self._pass.inputs.get(layer)
        if layer in self._pass.heads or op is None:
            return (
                "it is worked out beside the pass" if variable == "Grad" else "what it is worked out from was not saved"
            )
        if (layer, variable) in self._damaged:
            return "what was saved of it is damaged"
        if variable == "Net" and (source is None or source.net is source.act):
            return NO_ACTIVATION
        if variable in self.added:
            return "it was not added to this layer"
        if variable != "Grad":
            return "it was not saved: layers_to_save left it out; layers_to_save='all' keeps everything"
        return "no gradient has come to it" if op.grad_fn else "nothing in it or before it asks for a gradient"

    def opening(self, moment: int, name: str, variable: str) -> Opening:
        """Open it in the history: the one in the file, or, of a history that was only shown, the user's."""
        entry = self.places.get(moment, {}).get((name, variable))
        if entry is None:
            return Opening(note="it is worked out beside the pass: history.attention(layer) gives the same weights")
        lines: tuple[str, ...]
        lines, note = ("import torcheer as tl", f"history = tl.load({str(self._path.resolve())!r})"), ""
        if home_of(self._path) != self._path.parent / "recordings":  # a temporary folder, which goes with this viewer
            lines = ("history = …  # as given to tl.show",)
            note = "of a model that was shown, history = tl.log_forward_pass(model, inputs) records it again"
        is_gradient = variable in ON_PAGE and ON_PAGE[variable].made_by == "backward"
        contents = "grad_contents" if is_gradient else "tensor_contents"
        contents = f"variables[{variable!r}]" if variable in self.added else contents
        return Opening(lines, f"{self._item(entry)}.{contents}", torch=True, note=note)

    def _item(self, entry: Entry) -> str:
        """The expression of an operation, a parameter or a buffer."""
        if entry.variable == "stored" or entry.variable.startswith("gradient of"):
            stored = self._history.info.stored.get(entry.layer)
            kind = "buffers" if stored is not None and stored.kind == "buffer" else "parameters"
            return f"history.{kind}[{entry.layer!r}]"
        return f"history[{self._history[int(entry.layer)].label!r}]"

    def _heads(self, name: str) -> RecordedValue | None:
        """Attention weights of a layer; cached, as they may have to be computed."""
        if name not in self._attention:
            weights = weights_of(self._pass.heads[name], self._op_value, self._pass.batch.size)
            self._attention = {name: None if weights is None else RecordedValue(0, weights)}
        return self._attention[name]

    def _op_value(self, index: int, output: int) -> Array | None:
        entry = self._saved.get((str(index), f"value {output}"))
        try:
            return None if entry is None or self.archive is None else self.archive.numbers(entry)
        except (TorcheerError, OSError, ValueError) as error:
            del self._saved[str(index), f"value {output}"]
            self._report(str(error))
            return None


def _facts(info: RunInfo, ops: list[Op]) -> tuple[Parameter, ...]:
    """Facts about the pass, as parameters of the form."""
    count = sum(stored.count for stored in info.stored.values() if stored.kind == "parameter")
    seconds = "launch seconds" if any(op.is_launch_timed for op in ops) else "seconds"
    facts = {
        "model": info.model, "mode": info.mode, "operations": sum(op.kind == "op" for op in ops), "parameters": count,
        seconds: round(info.elapsed_secs, 4), "seed": "not set" if info.seed is None else info.seed,
        "stopped": info.stopped,
    }  # fmt: skip
    kinds = {name: "text" if isinstance(value, str) else "number" for name, value in facts.items()}
    return tuple(Parameter(name, value, kinds[name], group="pass") for name, value in facts.items() if value != "")


def _without_weights(projection: Projection) -> Projection:
    return Projection(projection.name, projection.sender, projection.receiver, "", type=projection.type)
