"""While nothing is watched, a model's own `forward` counts its passes: exactly, and without anybody noticing."""

from __future__ import annotations

import copy
import inspect
import io
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from children import run_python
from models import small
from seams import PassCounter
from torch import Tensor, nn
from watch_checks import batch

import torcheer as tl
from torcheer.inspector import Every, Transport

RING = Transport(bytes=4 << 20, drain_secs=60.0)


def train(model: nn.Module, steps: int) -> None:
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(batch()[0]), batch()[1]).backward()
        optimizer.step()


@contextmanager
def asleep() -> Iterator[tuple[nn.Module, Any]]:
    """A watched model that naps."""
    model = small()
    with tl.watch(model, every=Every(start=10**9), transport=RING) as w:
        for _ in range(200):
            train(model, 50)
            if "forward" in vars(model):
                break
        assert isinstance(model.forward, PassCounter)
        yield model, w
    assert "forward" not in vars(model) and not model._forward_pre_hooks


@pytest.fixture
def napping() -> Iterator[tuple[nn.Module, Any]]:
    """A watched model, fast asleep."""
    with asleep() as found:
        yield found


def test_every_pass_is_counted_however_often_it_falls_asleep() -> None:
    model = small()
    asleep = 0
    with tl.watch(model, every=Every(start=10**9), transport=RING) as w:
        for step in range(3000):
            model(batch()[0])
            asleep += "forward" in vars(model)
            assert w.step == step
    assert asleep > 1000


def test_the_steps_that_are_due_are_watched() -> None:
    model = small()
    with tl.watch(model, what="output", layers="0", every=50, transport=RING) as w:
        train(model, 1001)
    assert w.step == 1000
    assert w.account.offered - sum(w.drops.values()) == w.account.handled
    assert w.account.offered >= 21


def test_passes_in_evaluation_mode_are_not_counted(napping: tuple[nn.Module, Any]) -> None:
    model, w = napping
    before = w.step
    model.eval()
    model(batch()[0])
    model.train()
    assert w.step == before
    model(batch()[0])
    assert w.step == before + 1


def test_copies_have_a_forward_of_their_own(napping: tuple[nn.Module, Any]) -> None:
    model, w = napping
    before, x = w.step, batch()[0]
    stored = io.BytesIO()
    torch.save(model, stored)
    stored.seek(0)
    copies = [copy.deepcopy(model), pickle.loads(pickle.dumps(model)), torch.load(stored, weights_only=False)]
    with torch.no_grad():
        for one in copies:
            one[0].weight.zero_()
            assert not torch.equal(one(x), nn.Sequential(*model.children())(x))
            assert one.forward.__self__ is one
    assert w.step == before


def test_its_signature_is_the_models(napping: tuple[nn.Module, Any]) -> None:
    assert inspect.signature(napping[0].forward) == inspect.signature(nn.Sequential(nn.ReLU()).forward)


def test_who_wraps_it_meanwhile_is_left_alone() -> None:
    model, calls = small(), list[int]()
    with tl.watch(model, every=Every(start=10**9), transport=RING) as w:
        while "forward" not in vars(model):
            train(model, 50)
        inner = model.forward

        def wrapped(x: Tensor) -> Tensor:
            calls.append(1)
            return inner(x)  # type: ignore[no-any-return]

        model.forward = wrapped
        before = w.step
        for _ in range(2500):
            model(batch()[0])
        assert w.step == before + 2500
    assert model.forward is wrapped and len(calls) == 2500
    model(batch()[0])
    assert len(calls) == 2501


def test_a_forward_of_somebodys_own_is_not_touched() -> None:
    model = small()
    own = model.forward = lambda x: x * 2
    with tl.watch(model, every=Every(start=10**9), transport=RING):
        for _ in range(1000):
            model(batch()[0])
            assert model.forward is own


@pytest.mark.slow
def test_a_compiled_model_is_compiled_once() -> None:
    script = """
        import torch
        from test_tap_pass_counter import asleep
        from watch_checks import batch
        graphs = []

        def backend(graph, inputs):
            graphs.append(graph)
            return graph.forward

        with asleep() as (model, w):
            compiled, before = torch.compile(model, backend=backend, fullgraph=True), w.step
            for _ in range(10):
                compiled(batch()[0])
            print("forward" in vars(model), len(graphs), w.step - before)
    """  # in a process of its own: whether a frame is compiled depends on what was compiled before
    done = run_python("-c", script, cwd=Path(__file__).parent)
    assert done.stdout == "True 1 0\n", done.stderr


def test_an_error_in_the_model_passes_through(napping: tuple[nn.Module, Any]) -> None:
    model, w = napping
    before = w.step
    with pytest.raises(RuntimeError, match="conv2d"):
        model(torch.rand(3, 999))
    model(batch()[0])
    assert w.step == before + 2
