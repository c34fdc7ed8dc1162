"""Backward passes written by hand, for tests of what reads them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
from fake_trace import FakeTrace

from torcheer.history import ModelHistory
from torcheer.records import BackwardStep, ModuleInfo

# The formula of each rule, and what it reads again: its own result, or the arguments at these places.
RULES: dict[str, tuple[str, str | tuple[int, ...]]] = {
    "exp": (r"\bar x = \bar y \odot y", "own"),
    "tanh": (r"\bar x = \bar y \odot (1 - y^2)", "own"),
    "relu": (r"\bar x = \bar y \odot [y > 0]", "own"),
    "softmax": (r"\bar x = y \odot (\bar y - \sum y \odot \bar y)", "own"),
    "mul": (r"\bar a = \bar y \odot b, \bar b = \bar y \odot a", (0, 1)),
    "pow": (r"\bar x = \bar y \odot n\,x^{n-1}", (0,)),
    "sum": (r"\bar x_i = \bar y", ()),
    "mean": (r"\bar x_i = \bar y / n", ()),
    "add": (r"\bar a = \bar y, \bar b = \bar y", ()),
    "sub": (r"\bar a = \bar y, \bar b = -\bar y", ()),
    "matmul": (r"\bar A = \bar Y B^\top, \bar B = A^\top \bar Y", (0, 1)),
    "linear": (r"\bar X = \bar Y W, \bar W = \bar Y^\top X, \bar b = \sum \bar Y", (0, 1)),
    "log_softmax": (r"\bar x = \bar y - e^y \sum \bar y", "own"),
}


class Tape(FakeTrace):
    """Operations with backward steps, in the order they ran; the last is the loss."""

    def __init__(self, loss: str = "loss") -> None:
        super().__init__(loss)

    def constant(self, name: str, *shape: int) -> int:
        return self.add(name, kind="constant", shape=shape)

    def parameter(self, name: str, *shape: int) -> int:
        return self.add(name, kind="parameter", shape=shape)

    def op(self, name: str, *parents: int, shape: tuple[int, ...] | None = None, **rest: Any) -> int:
        """One operation, of the shape of what it reads first unless told; keywords are its step's, and `value=`."""
        formula, reads = RULES.get(name, ("", ()))
        saved = (len(self.list),) if reads == "own" else tuple(dict.fromkeys(parents[int(n)] for n in reads))
        value = {"value": np.array(rest.pop("value"))} if "value" in rest else {}
        facts = {"formula": formula, "saved": saved, "why": f"the slope of {name}."}
        shape = self.list[parents[0]].outputs[0].shape if shape is None else shape
        return self.add(name, *parents, shape=shape, backward=BackwardStep(**facts | rest), **value)

    def inside(self, address: str, kind: str = "Module") -> AbstractContextManager[None]:
        """Run the block inside a module or composite."""
        self.facts["modules"].setdefault(address, ModuleInfo(address, kind))
        return super().inside(address)

    def linear(self, address: str, x: int, out: int = 3) -> int:  # type: ignore[override]
        """Call a Linear module."""
        shape = self.list[x].outputs[0].shape
        with self.inside(address, "Linear"):
            weight = self.parameter(f"{address}.weight", out, shape[-1])
            bias = self.parameter(f"{address}.bias", out)
            return self.op("linear", x, weight, bias, shape=(*shape[:-1], out))


def chain() -> ModelHistory:
    """sum(exp(a) * c)."""
    tape = Tape()
    a, c = tape.parameter("a", 3), tape.constant("c", 3)
    tape.op("sum", tape.op("mul", tape.op("exp", a), c), shape=(), value=3.25)
    return tape.history()


def diamond() -> ModelHistory:
    """sum(t * a + exp(t)) where t = tanh(a): both are used twice."""
    tape = Tape()
    a = tape.parameter("a", 3)
    t = tape.op("tanh", a)
    tape.op("sum", tape.op("add", tape.op("mul", t, a), tape.op("exp", t)), shape=())
    return tape.history()


def perceptron() -> ModelHistory:
    """Two Linears with a Tanh between them, and a mean square loss."""
    tape = Tape()
    x, target = tape.constant("x", 4, 8), tape.constant("target", 4, 3)
    hidden = tape.linear("0", x, 16)
    with tape.inside("1", "Tanh"):
        hidden = tape.op("tanh", hidden)
    out = tape.linear("2", hidden, 3)
    with tape.inside("mse_loss", "mse_loss"):
        tape.op("mean", tape.op("pow", tape.op("sub", out, target)), shape=(), value=0.731)
    return tape.history()


def residual(blocks: int = 3) -> ModelHistory:
    """x + relu(fc(x)), some times; then one matrix twice, and what is left squared."""
    tape = Tape()
    x, target = tape.constant("x", 4, 8), tape.constant("target", 4, 8)
    x = tape.linear("stem", x, 8)
    for number in range(blocks):
        with tape.inside(f"blocks.{number}", "Block"):
            y = tape.linear(f"blocks.{number}.fc", x, 8)
            with tape.inside(f"blocks.{number}.act", "ReLU"):
                y = tape.op("relu", y)
            x = tape.op("add", y, x)
    tied = tape.parameter("tied", 8, 8)
    x = tape.op("matmul", tape.op("matmul", x, tied), tied)
    rest = tape.op("sub", x, target)
    tape.op("mean", tape.op("mul", rest, rest), shape=())
    return tape.history()


def attention() -> ModelHistory:
    """Modules in modules, a mask without a name, and a rule of torch's own."""
    tape = Tape()
    x, target = tape.constant("x", 4, 8), tape.constant("target", 4)
    with tape.inside("block", "Block"):
        with tape.inside("block.attn", "Attention"):
            query, key, value = (tape.linear(f"block.attn.{name}", x, 8) for name in "qkv")
            turned = tape.op("transpose", key, shape=(8, 4), formula=r"\bar x = \bar y^\top")
            mask = tape.constant("constant", 4, 4)
            scores = tape.op("add", tape.op("matmul", query, turned, shape=(4, 4)), mask)
            mixed = tape.op("matmul", tape.op("softmax", scores), value, shape=(4, 8))
        x = tape.op("add", mixed, x)
    with tape.inside("cross_entropy", "cross_entropy"):
        tape.op("nll_loss", tape.op("log_softmax", x), target, shape=(), borrowed=True)
    return tape.history()


ALL: dict[str, Callable[[], ModelHistory]] = {
    "chain": chain, "diamond": diamond, "perceptron": perceptron, "residual": residual, "attention": attention,
}  # fmt: skip
