"""Layers of compiled models: those of the eager program inside compiled code, said once; compiled ones around it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import torcheer as tl
from torcheer.extraction import open_extraction

pytestmark = pytest.mark.usefixtures("one_thread")

DATA = torch.rand(12, 4, generator=torch.Generator().manual_seed(0))
SAID = "reads layers inside torch.compile"


@pytest.fixture(autouse=True)
def _fresh_compiler() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


class Net(nn.Module):
    """Two layers; torch compiles no container of its own in place."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor(self.second(self.first(x).tanh()))


def net() -> Net:
    torch.manual_seed(0)
    return Net()


def whole() -> Any:
    return torch.compile(net(), backend="eager", fullgraph=True)


def in_place() -> nn.Module:
    model = net()
    model.compile(backend="eager", fullgraph=True)
    return model


def compiled_forward() -> nn.Module:
    model = net()
    model.forward = torch.compile(model.forward, backend="eager", fullgraph=True)  # type: ignore[method-assign]
    return model


def extracted(model: nn.Module, layers: list[str], to: Path | None = None) -> Any:
    return tl.extract(model, DATA, layers=layers, to=to, batch_size=4, progress=False)


@pytest.mark.parametrize("make", [whole, in_place, compiled_forward])
@pytest.mark.parametrize("layers", [["first", "second"], ["linear_1", "linear_2"]])
@pytest.mark.parametrize("ran_before", [False, True])
def test_layers_inside_are_those_of_the_eager_program(
    make: Callable[[], nn.Module], layers: list[str], ran_before: bool
) -> None:
    model = make()
    if ran_before:
        model(DATA[:4])
    with pytest.warns(RuntimeWarning, match=SAID):
        values = extracted(model, layers)
    expected = extracted(net(), layers)
    assert list(values) == layers and all(torch.equal(values[name], expected[name]) for name in layers)


def test_it_is_said_once() -> None:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        extracted(whole(), ["first"])
    assert [SAID in str(warning.message) for warning in said] == [True] and said[0].filename == __file__


def count_compilations(run: Callable[[], Any]) -> int:
    before = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    run()
    return int(torch._dynamo.utils.counters["stats"]["unique_graphs"] - before)


@pytest.mark.parametrize("make", [whole, in_place, compiled_forward])
def test_nothing_is_compiled_for_hooks_and_the_model_stays_compiled(make: Callable[[], nn.Module]) -> None:
    model = make()
    expected = model(DATA[:4])
    with pytest.warns(RuntimeWarning, match=SAID):
        assert count_compilations(lambda: extracted(model, ["first", "second"])) == 0
    assert count_compilations(lambda: model(DATA[:4])) == 0
    assert torch.equal(model(DATA[:4]), expected) and not any(module._forward_hooks for module in model.modules())


class Counting(nn.Module):
    """A block that knows whether it ran as compiled code."""

    eager_calls = 0

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        if not torch.compiler.is_compiling():
            Counting.eager_calls += 1
        return torch.as_tensor(self.layer(x))


@pytest.mark.filterwarnings("error")
def test_layers_around_compiled_parts_leave_these_compiled() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), torch.compile(Counting(), backend="eager"), nn.Linear(4, 2)).eval()
    Counting.eager_calls = 0
    values = extracted(model, ["0", "1", "2"])
    assert Counting.eager_calls == 0
    with torch.no_grad():
        assert torch.equal(values["2"], torch.cat([model(part) for part in DATA.split(4)]))


def test_an_extraction_of_the_eager_model_is_gone_on_with_by_the_compiled_one(tmp_path: Path) -> None:
    extracted(net(), ["first"], tmp_path / "x")
    (tmp_path / "x" / "complete.json").unlink()
    with pytest.warns(RuntimeWarning, match=SAID):
        extracted(whole(), ["first"], tmp_path / "x")
    assert open_extraction(tmp_path / "x").plan.model == "Net"


@pytest.mark.slow
def test_workers_read_inside_too(tmp_path: Path) -> None:
    with pytest.warns(RuntimeWarning, match=SAID):
        values: Any = tl.extract(
            whole(), DATA, layers=["first"], to=tmp_path / "x", batch_size=4, shard_samples=4, workers=1, progress=False
        )
    expected = extracted(net(), ["first"])
    assert torch.equal(torch.as_tensor(values["first"][:]), expected["first"])
