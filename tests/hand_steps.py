"""Backward passes written by hand, for tests of what reads them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import prod
from typing import Any

from torcheer.records import Edge, ModuleCall, Source, Step

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


class Tape:
    """Steps in the order they ran."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self._stack: tuple[ModuleCall, ...] = ()
        self._calls: dict[str, int] = {}

    def _add(self, name: str, kind: str, shape: tuple[int, ...], **rest: Any) -> int:
        facts = {"dtype": "torch.float32", "bytes": 4 * prod(shape)} | rest
        self.steps.append(Step(len(self.steps), name, kind, shape=shape, **facts))
        return len(self.steps) - 1

    def constant(self, name: str, *shape: int) -> int:
        return self._add(name, "constant", shape)

    def parameter(self, name: str, *shape: int) -> int:
        return self._add(name, "parameter", shape, modules=self._stack)

    def op(self, name: str, *parents: int, shape: tuple[int, ...] | None = None, **rest: Any) -> int:
        """One operation, of the shape of what it reads first unless told."""
        formula, reads = RULES.get(name, ("", ()))
        saved = (len(self.steps),) if reads == "own" else tuple(dict.fromkeys(parents[int(n)] for n in reads))
        facts = {
            "parents": tuple(Edge(parent, 0, (place,)) for place, parent in enumerate(parents)),
            "saved": saved,
            "formula": formula,
            "why": f"the slope of {name}.",
            "modules": self._stack,
            "source": Source("train.py", 10 + len(self.steps), "loss"),
        }
        return self._add(name, "op", self.steps[parents[0]].shape if shape is None else shape, **facts | rest)

    @contextmanager
    def inside(self, address: str, kind: str) -> Iterator[None]:
        """Run the block inside a module or composite."""
        self._calls[address] = self._calls.get(address, 0) + 1
        before = self._stack
        self._stack = (*before, ModuleCall(address, self._calls[address], kind))
        yield
        self._stack = before

    def linear(self, address: str, x: int, out: int) -> int:
        """Call a Linear module."""
        shape = self.steps[x].shape
        with self.inside(address, "Linear"):
            weight = self.parameter(f"{address}.weight", out, shape[-1])
            bias = self.parameter(f"{address}.bias", out)
            return self.op("linear", x, weight, bias, shape=(*shape[:-1], out))


def chain() -> list[Step]:
    """sum(exp(a) * c)."""
    tape = Tape()
    a, c = tape.parameter("a", 3), tape.constant("c", 3)
    tape.op("sum", tape.op("mul", tape.op("exp", a), c), shape=(), value=3.25)
    return tape.steps


def diamond() -> list[Step]:
    """sum(t * a + exp(t)) where t = tanh(a): both are used twice."""
    tape = Tape()
    a = tape.parameter("a", 3)
    t = tape.op("tanh", a)
    tape.op("sum", tape.op("add", tape.op("mul", t, a), tape.op("exp", t)), shape=())
    return tape.steps


def perceptron() -> list[Step]:
    """Two Linears with a Tanh between them, and a mean square loss."""
    tape = Tape()
    x, target = tape.constant("x", 4, 8), tape.constant("target", 4, 3)
    hidden = tape.linear("0", x, 16)
    with tape.inside("1", "Tanh"):
        hidden = tape.op("tanh", hidden)
    out = tape.linear("2", hidden, 3)
    with tape.inside("mse_loss", "mse_loss"):
        tape.op("mean", tape.op("pow", tape.op("sub", out, target)), shape=(), value=0.731)
    return tape.steps


def residual(blocks: int = 3) -> list[Step]:
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
    return tape.steps


def attention() -> list[Step]:
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
    return tape.steps


ALL: dict[str, Callable[[], list[Step]]] = {
    "chain": chain, "diamond": diamond, "perceptron": perceptron, "residual": residual, "attention": attention,
}  # fmt: skip
