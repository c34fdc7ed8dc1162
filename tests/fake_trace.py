"""Histories without torch: a trace built from lists, for tests of the readers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from seams import Trace

from torcheer.errors import ValueUnavailable
from torcheer.history import ModelHistory
from torcheer.records import Edge, ModuleCall, ModuleInfo, Op, RunInfo, Source, Stored, TensorMeta


class FakeTrace(Trace):
    """A trace over a list of ops and a dictionary of values."""

    def __init__(self, model: str = "Fake") -> None:
        self.list: list[Op] = []
        self.values: dict[tuple[int, int], Any] = {}
        self.grads: dict[tuple[int, int], list[Any]] = {}
        self.facts: dict[str, Any] = {"model": model, "modules": {}, "stored": {}}
        self.asked = 0
        self._stack: list[ModuleCall] = []
        self._calls: dict[str, int] = {}

    # What a history asks

    def ops(self) -> list[Op]:
        self.asked += 1
        return self.list

    def info(self) -> RunInfo:
        return RunInfo(**self.facts)

    def is_saved(self, index: int, output: int) -> bool:
        return (index, output) in self.values

    def value(self, index: int, output: int) -> Any:
        if (index, output) not in self.values:
            raise ValueUnavailable("it was not among layers_to_save")
        return self.values[index, output]

    def gradients(self, index: int, output: int) -> list[Any]:
        return self.grads.get((index, output), [])

    def stored_gradients(self, name: str) -> list[Any]:
        return [np.ones(2, np.float32)] if name.endswith("weight") else []

    def stored_value(self, name: str) -> Any:
        return None

    # Building one

    def module(self, address: str, type: str, **parameters: tuple[int, ...]) -> None:
        """Give the model a module, with its parameters' shapes."""
        names = []
        for name, shape in parameters.items():
            stored = Stored(f"{address}.{name}", "parameter", shape, "torch.float32", 4 * math.prod(shape), True)
            self.facts["stored"][stored.name] = stored
            names.append(stored.name)
        self.facts["modules"][address] = ModuleInfo(address, type, tuple(names))

    @contextmanager
    def inside(self, address: str) -> Iterator[None]:
        """Run the block inside a call of a module."""
        self._calls[address] = self._calls.get(address, 0) + 1
        known = self.facts["modules"].get(address)
        call = ModuleCall(address, self._calls[address], known.type if known else "Module")
        self._stack.append(call)
        yield
        self._stack.pop()
        if self.list:
            self.change(-1, output_of=(call, *self.list[-1].output_of))

    def add(self, name: str, *parents: int, shape: tuple[int, ...] = (2, 3), kind: str = "op", **rest: Any) -> int:
        """Append one op; keywords are Op's own, and `value=`, `line=`, `stored=` as names."""
        index = len(self.list)
        value = rest.pop("value", None)
        line = rest.pop("line", 1000 + index)
        stored = tuple(self.facts["stored"][name] for name in rest.pop("stored", ()))
        if value is not None:
            shape = value.shape
            self.values[index, 0] = value
        metas = (TensorMeta(shape, "torch.float32", "cpu", 4 * math.prod(shape)),)
        fields = {
            "parents": tuple(Edge(parent, 0, (place,)) for place, parent in enumerate(parents)),
            "outputs": metas,
            "stored": stored,
            "modules": tuple(self._stack),
            "site": ("model.py", line, 0) if kind in ("op", "alias") else (),
            "source": Source("model.py", line, "Model.forward") if kind == "op" else None,
            "function": f"torch.{name}",
        }
        self.list.append(Op(index, name, kind, **{**fields, **rest}))
        return index

    def change(self, index: int, **fields: Any) -> None:
        """Replace fields of one op."""
        old = self.list[index]
        self.list[index] = Op(**{name: getattr(old, name) for name in old.__slots__} | fields)

    def input(self, **rest: Any) -> int:
        return self.add("input", kind="input", **rest)

    def output(self, parent: int, **rest: Any) -> int:
        return self.add("output", parent, kind="output", shape=self.list[parent].outputs[0].shape, **rest)

    def linear(self, address: str, x: int, **rest: Any) -> int:
        """Call a Linear module."""
        if address not in self.facts["modules"]:
            self.module(address, "Linear", weight=(3, 3), bias=(3,))
        with self.inside(address):
            stored = (f"{address}.weight", f"{address}.bias")
            self.add("linear", x, stored=stored, line=125, **rest)
        return len(self.list) - 1

    def history(self) -> ModelHistory:
        return ModelHistory(self)


def small_network() -> FakeTrace:
    """input → body (two linears, each with a relu) → head → output, all values saved."""
    trace = FakeTrace("Small")
    trace.facts |= {"seed": 7, "elapsed_secs": 0.125}
    for address, kind in (("body", "Sequential"), ("body.1", "ReLU"), ("body.3", "ReLU")):
        trace.module(address, kind)
    values = [np.linspace(-1, 1, 6 * (index + 1), dtype=np.float32).reshape(index + 1, 6) for index in range(7)]
    x = trace.input(value=values[0])
    with trace.inside("body"):
        for place in (0, 2):
            x = trace.linear(f"body.{place}", x, value=values[len(trace.list)], grad_fn="AddmmBackward0")
            with trace.inside(f"body.{place + 1}"):
                x = trace.add("relu", x, value=values[len(trace.list)], elapsed_secs=0.00025, line=55)
    x = trace.linear("head", x, value=values[5])
    trace.values[trace.output(x), 0] = values[5]
    order = ("body", "body.0", "body.1", "body.2", "body.3", "head")
    trace.facts["modules"] = {address: trace.facts["modules"][address] for address in order}
    return trace


def recurrent_network(passes: int = 5) -> FakeTrace:
    """x = relu(fc(x)), so many times."""
    trace = FakeTrace("Recurrent")
    x = trace.input()
    for _ in range(passes):
        x = trace.add("relu", trace.linear("fc", x), line=7)
    trace.output(x)
    return trace
