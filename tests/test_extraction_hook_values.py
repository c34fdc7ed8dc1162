"""Modules' values by hooks: as a capture gives them, or not at all."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from seams import batch_values as taking
from torch import Tensor, nn

import torcheer as tl

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def captures(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Every capture that is made from here on."""
    made: list[Any] = []
    real = taking.log_forward_pass

    def counted(*args: Any, **kwargs: Any) -> Any:
        made.append(args)
        return real(*args, **kwargs)

    monkeypatch.setattr(taking, "log_forward_pass", counted)
    return made


def extracted(model: nn.Module, layers: list[str], to: Path, data: Tensor | None = None) -> dict[str, Any]:
    data = torch.rand(24, 4, generator=torch.Generator().manual_seed(0)) if data is None else data
    found = tl.extract(model, data, layers=layers, to=to, batch_size=4, progress=False)
    return {name: np.stack(list(found[name])) for name in layers}


def by_hand(model: nn.Module, layer: str, data: Tensor) -> Any:
    with torch.no_grad():
        return tl.log_forward_pass(model.eval(), data)[layer].tensor_contents.numpy()


DATA = torch.rand(24, 4, generator=torch.Generator().manual_seed(0))


def test_modules_need_no_capture(tmp_path: Path, captures: list[Any]) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    found = extracted(model, ["0", "2"], tmp_path / "a")
    assert not captures
    assert all(np.allclose(found[name], by_hand(model, name, DATA)) for name in ("0", "2"))
    assert not any(module._forward_hooks for module in model.modules())


def test_an_operation_is_captured_each_time(tmp_path: Path, captures: list[Any]) -> None:
    extracted(nn.Sequential(nn.Linear(4, 8), nn.ReLU()), ["relu_1"], tmp_path / "a")
    assert len(captures) == 6


@pytest.mark.parametrize("write", [nn.ReLU(inplace=True), nn.Dropout(inplace=True), nn.Hardtanh(inplace=True)])
def test_a_value_that_is_written_over_later_is_what_it_was(tmp_path: Path, captures: list[Any], write: Any) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), write, nn.Linear(8, 3))
    found = extracted(model, ["0", "2"], tmp_path / "a")
    assert np.allclose(found["0"], nn.functional.linear(DATA, model[0].weight, model[0].bias).detach().numpy())
    assert len(captures) <= 2


class Untracked(nn.Module):
    """Writes over its input without torch's noticing: the version counter stays."""

    def forward(self, x: Tensor) -> Tensor:
        x.detach().numpy().fill(7)
        return x


def test_a_value_that_is_written_over_behind_torchs_back_is_what_it_was(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), Untracked(), nn.Linear(8, 3))
    found = extracted(model, ["0", "2"], tmp_path / "a")
    assert np.allclose(found["0"], nn.functional.linear(DATA, model[0].weight, model[0].bias).detach().numpy())


@pytest.mark.parametrize("wrap", [lambda x: (x,), lambda x: (x, None), lambda x: {"hidden": x}])
def test_the_only_tensor_that_a_module_returns_is_its_value(tmp_path: Path, captures: list[Any], wrap: Any) -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(4, 4)

        def forward(self, x: Any) -> Any:
            return wrap(self.inner(x))

    class Whole(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = Block()

        def forward(self, x: Tensor) -> Tensor:
            out = self.block(x)
            return out["hidden"] if isinstance(out, dict) else out[0]  # type: ignore[no-any-return]

    model = Whole()
    found = extracted(model, ["block"], tmp_path / "a")
    assert not captures and np.allclose(found["block"], by_hand(model, "block", DATA))


class Twice(nn.Module):
    """Calls its layer twice for some batches."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.end = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.layer(x)
        return self.end(self.layer(x) if x.shape[0] and float(x.sum()) > 0 else x)  # type: ignore[no-any-return]


def test_a_module_that_is_called_twice_now_and_then_is_left_to_the_capture(tmp_path: Path, captures: list[Any]) -> None:
    torch.manual_seed(1)
    model, data = Twice(), torch.cat([-DATA, DATA])
    found = extracted(model, ["end"], tmp_path / "a", data)
    model.eval()
    with torch.no_grad():
        expected = torch.cat([model(part) for part in data.split(4)]).numpy()
    assert np.allclose(found["end"], expected)
    with pytest.raises(tl.errors.TorcheerError, match="layer:1"):  # which of the two?
        extracted(model, ["layer"], tmp_path / "b", data)


def test_the_rest_of_a_model_is_not_run(tmp_path: Path) -> None:
    class Counting(nn.Module):
        ran = 0

        def forward(self, x: Tensor) -> Tensor:
            Counting.ran += 1
            return x

    extracted(nn.Sequential(nn.Linear(4, 8), Counting()), ["0"], tmp_path / "a")
    assert Counting.ran <= 2  # the capture that finds everything, the hooks that find the last layer


def test_a_fused_encoder_gives_what_it_gave_without_hooks(tmp_path: Path) -> None:
    """Hooks close its fast path; where that changes a bit, captures are used."""
    torch.manual_seed(0)
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), 2)
    data = torch.rand(12, 5, 4, generator=torch.Generator().manual_seed(0))
    found = extracted(encoder, ["layers.1"], tmp_path / "a", data)
    encoder.eval()
    with torch.no_grad():
        expected = torch.cat([encoder(part) for part in data.split(4)]).numpy()
    assert np.array_equal(found["layers.1"], expected)


def test_an_error_of_the_model_leaves_no_hooks(tmp_path: Path) -> None:
    class Failing(nn.Module):
        count = 0

        def forward(self, x: Tensor) -> Tensor:
            Failing.count += 1
            if Failing.count == 4:
                raise RuntimeError("enough of this")
            return x

    model = nn.Sequential(Failing(), nn.Linear(4, 2))
    with pytest.raises(RuntimeError, match="enough of this"):
        extracted(model, ["1"], tmp_path / "a")
    assert not any(module._forward_hooks for module in model.modules())


def test_another_thread_that_runs_the_model_meanwhile_is_left_alone(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 3)).eval()
    other, results, ended = torch.rand(5, 4), list[Any](), threading.Event()

    def meanwhile() -> None:
        try:
            while not ended.is_set():
                with torch.no_grad():
                    results.append(model(other))
        except BaseException as error:
            results.append(error)

    thread = threading.Thread(target=meanwhile)
    thread.start()
    try:
        found = extracted(model, ["0"], tmp_path / "a")
    finally:
        ended.set()
        thread.join()
    with torch.no_grad():
        expected = model(other)
        assert all(isinstance(one, Tensor) and torch.equal(one, expected) for one in results) and results
        assert np.allclose(found["0"], model[0](DATA).numpy(), atol=1e-6)
