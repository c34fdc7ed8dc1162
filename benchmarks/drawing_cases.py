"""What is drawn: two models, and histories of any size that no model had to run for."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))

from fake_trace import FakeTrace

WIDTHS = (64, 96, 128, 192)
KINDS = ("attention", "gated", "convolution", "branches", "bottleneck")
FLAT = ("relu", "add", "mul", "tanh", "matmul", "softmax", "cat", "dropout")


# -- models: torch is imported only for these ------------------------------------------------------------------------


def model(name: str) -> tuple[Any, tuple[Any, ...]]:
    """A model in eval mode and its inputs; weights are random and always the same."""
    import torch

    torch.manual_seed(0)
    built, inputs = {"swin_v2_t": _swin_v2_t, "translator": _translator}[name]()
    return built.eval(), inputs


def _swin_v2_t() -> tuple[Any, tuple[Any, ...]]:
    import torch
    from zoo_torchvision import load

    return load().models.swin_v2_t(weights=None), (torch.randn(1, 3, 256, 256),)


def _translator() -> tuple[Any, tuple[Any, ...]]:
    """nn.Transformer between embeddings and a head: 1,932 operations, inputs and outputs included."""
    import torch
    from gallery import Translator

    return Translator(), (torch.randint(0, 100, (1, 8)), torch.randint(0, 100, (1, 6)))


# -- histories without a model ---------------------------------------------------------------------------------------


def nested(ops: int) -> FakeTrace:
    """About so many operations: stages of blocks of parts of layers, residual edges, five kinds of block."""
    chance = random.Random(0)
    trace = FakeTrace("Nested")
    x, stage, skipped = trace.input(shape=(1, 16, WIDTHS[0])), 0, []
    while len(trace.list) < ops - 1:
        width = WIDTHS[stage % len(WIDTHS)]
        address = f"stages.{stage}"
        trace.module(address, "Stage")
        with trace.inside(address):
            x = _layer(trace, f"{address}.enter", x, "linear", width)
            for number in range(24):
                if len(trace.list) >= ops - 1:
                    break
                x = _block(trace, f"{address}.blocks.{number}", x, chance.choice(KINDS), width)
        if stage % 6 == 5:  # a long edge, as between the halves of a U-Net
            x = trace.add("cat", x, skipped[-3], shape=(1, 16, width), line=12)
        skipped.append(x)
        stage += 1
    trace.output(x)
    return trace


def flat(ops: int) -> FakeTrace:
    """So many operations and no module: a chain with residual edges, short and long."""
    chance = random.Random(0)
    trace = FakeTrace("Flat")
    x = trace.input(shape=(1, 64))
    while len(trace.list) < ops - 1:
        index, name = len(trace.list), chance.choice(FLAT)
        back = 8 if index % 8 == 0 else 100 if index % 100 == 7 else 0
        parents = (x, x - back) if 0 < back <= x else (x,)
        x = trace.add("add" if len(parents) == 2 else name, *parents, shape=(1, 64), line=20 + index % 50)
    trace.output(x)
    return trace


def _block(trace: FakeTrace, address: str, x: int, kind: str, width: int) -> int:
    """Two parts, each with a residual around it."""
    trace.module(address, f"{kind.title()}Block")
    with trace.inside(address):
        for part, build in ((kind, PARTS[kind]), ("mlp", _mlp)):
            inside = f"{address}.{part}"
            trace.module(inside, part.title())
            with trace.inside(inside):
                y = build(trace, inside, x, width)
            x = trace.add("add", x, y, shape=(1, 16, width), line=31)
    return x


def _layer(trace: FakeTrace, address: str, x: int, name: str, width: int) -> int:
    """A module of one operation with parameters."""
    types = {"linear": "Linear", "layer_norm": "LayerNorm", "conv1d": "Conv1d"}
    weight = (width,) if name == "layer_norm" else (width, width)
    trace.module(address, types[name], weight=weight, bias=(width,))
    with trace.inside(address):
        stored = (f"{address}.weight", f"{address}.bias")
        trace.add(name, x, stored=stored, shape=(1, 16, width), line=125)
    return len(trace.list) - 1


def _plain(trace: FakeTrace, name: str, width: int, line: int, *parents: int) -> int:
    return trace.add(name, *parents, shape=(1, 16, width), line=line)


def _mlp(trace: FakeTrace, address: str, x: int, width: int) -> int:
    x = _layer(trace, f"{address}.norm", x, "layer_norm", width)
    x = _plain(trace, "gelu", width, 41, _layer(trace, f"{address}.up", x, "linear", width))
    return _plain(trace, "dropout", width, 42, _layer(trace, f"{address}.down", x, "linear", width))


def _attention(trace: FakeTrace, address: str, x: int, width: int) -> int:
    x = _layer(trace, f"{address}.norm", x, "layer_norm", width)
    heads = []
    for place, name in enumerate(("query", "key", "value")):
        y = _layer(trace, f"{address}.{name}", x, "linear", width)
        heads.append(_plain(trace, "transpose", width, 54 + place, _plain(trace, "view", width, 51 + place, y)))
    weights = _plain(trace, "matmul", width, 57, heads[0], heads[1])
    weights = _plain(trace, "softmax", width, 59, _plain(trace, "div", width, 58, weights))
    y = _plain(trace, "reshape", width, 61, _plain(trace, "matmul", width, 60, weights, heads[2]))
    return _layer(trace, f"{address}.out", y, "linear", width)


def _gated(trace: FakeTrace, address: str, x: int, width: int) -> int:
    gate = _plain(trace, "sigmoid", width, 71, _layer(trace, f"{address}.gate", x, "linear", width))
    value = _plain(trace, "tanh", width, 72, _layer(trace, f"{address}.value", x, "linear", width))
    kept = _plain(trace, "mul", width, 73, gate, value)
    rest = _plain(trace, "mul", width, 75, _plain(trace, "rsub", width, 74, gate), x)
    return _plain(trace, "add", width, 76, kept, rest)


def _convolution(trace: FakeTrace, address: str, x: int, width: int) -> int:
    for number in range(3):
        x = _layer(trace, f"{address}.convs.{number}", x, "conv1d", width)
        x = _plain(trace, "relu", width, 81, _layer(trace, f"{address}.norms.{number}", x, "layer_norm", width))
    return x


def _branches(trace: FakeTrace, address: str, x: int, width: int) -> int:
    ends = []
    for number in range(4):
        y = x
        for step in range(number):
            y = _plain(trace, "relu", width, 91, _layer(trace, f"{address}.b{number}.{step}", y, "conv1d", width))
        ends.append(y if number else _plain(trace, "max_pool1d", width, 92, y))
    return _layer(trace, f"{address}.join", _plain(trace, "cat", width, 93, *ends), "conv1d", width)


def _bottleneck(trace: FakeTrace, address: str, x: int, width: int) -> int:
    y = _plain(trace, "relu", width, 95, _layer(trace, f"{address}.narrow", x, "conv1d", width // 4))
    y = _plain(trace, "relu", width, 96, _layer(trace, f"{address}.middle", y, "conv1d", width // 4))
    squeezed = _plain(trace, "sigmoid", width, 98, _plain(trace, "mean", width, 97, y))
    return _layer(trace, f"{address}.wide", _plain(trace, "mul", width, 99, y, squeezed), "conv1d", width)


PARTS = {
    "attention": _attention,
    "gated": _gated,
    "convolution": _convolution,
    "branches": _branches,
    "bottleneck": _bottleneck,
}
