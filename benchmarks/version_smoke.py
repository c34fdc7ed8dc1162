"""Each part of torcheer on a small model, in whatever environment runs this: one JSON line of what happened.

`versions.py` runs it in one environment after another; nothing but torch, numpy and torcheer is needed.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn


class Attention(nn.Module):
    """An encoder layer, whose fused path is opened, and a loop over one module."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.step = nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        x = self.encoder(x)
        for _ in range(3):
            x = torch.tanh(self.step(x))
        return x.mean(1)


class Mapped(nn.Module):
    """A transform of torch.func inside a model."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return torch.vmap(self.inner)(x)  # type: ignore[no-any-return]


def convolutional() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(4 * 16, 5),
    )  # fmt: skip


def capture(folder: Path) -> str:
    """Every kind of pass returns what the model returns, and replays bit for bit."""
    import torcheer as tl

    image = torch.rand(2, 3, 8, 8)
    cases: list[tuple[nn.Module, Tensor]] = [
        (convolutional().train(), image), (convolutional().eval(), image),
        (Attention().train(), torch.rand(2, 5, 16)), (Attention().eval(), torch.rand(2, 5, 16)),
        (nn.LSTM(4, 8, 2, batch_first=True), torch.rand(2, 6, 4)),
        (torch.jit.script(nn.Sequential(nn.Linear(4, 4), nn.ReLU())), torch.rand(2, 4)),
        (Mapped(), torch.rand(3, 2, 4)),
    ]  # fmt: skip
    operations = 0
    for model, x in cases:
        torch.manual_seed(0)
        plain = flat(model(x))
        torch.manual_seed(0)
        history = tl.log_forward_pass(model, x)
        same(plain, [op.tensor_contents for op in history if op.label.startswith("output")], f"{model}")
        report = history.validate()  # values inside vmap live only while it runs
        assert report.verdict == ("not judged" if isinstance(model, Mapped) else "held"), report
        operations += len(history)
    history = tl.log_forward_pass(cases[1][0], image, save_gradients=True)
    next(op for op in history if op.label.startswith("output")).tensor_contents.sum().backward()
    assert history["linear_1"].grad_contents is not None
    history.draw(str(folder / "model.svg"))
    history.save(str(folder / "history"))
    assert len(tl.load(str(folder / "history"))) == len(history)
    return f"{operations} operations replayed"


def compiled(folder: Path) -> str:
    """A compiled model is captured as its original Python; `cond` is opened."""
    import torcheer as tl

    class Branch(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))  # type: ignore[no-any-return]

    x = torch.rand(2, 4)
    for model in (torch.compile(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), backend="eager"), Branch()):
        plain = flat(model(x))
        history = tl.log_forward_pass(model, x)
        same(plain, [op.tensor_contents for op in history if op.label.startswith("output")], f"{model}")
        assert history.validate()
    return "torch.compile, cond"


def autograd(folder: Path) -> str:
    """Our backward's gradients are torch's."""
    from torcheer import autograd as ours

    count = 0
    for model, x in ((convolutional(), torch.rand(2, 3, 8, 8)), (Attention().eval(), torch.rand(2, 5, 16))):
        model(x).square().mean().backward()
        expected = [parameter.grad.clone() for parameter in model.parameters()]  # type: ignore[union-attr]
        model.zero_grad()
        with ours.record():
            model(x).square().mean().backward()
        for parameter, gradient in zip(model.parameters(), expected, strict=True):
            torch.testing.assert_close(parameter.grad, gradient)
            count += 1
    return f"{count} gradients"


def watch(folder: Path) -> str:
    """A loop watched from another process has the losses it has without, and a NaN is reported."""
    import torcheer as tl

    def losses(watched: bool) -> list[float]:
        torch.manual_seed(1)
        model, data = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)), torch.rand(16, 8)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        found = []

        def steps(count: int) -> None:
            for _ in range(count):
                loss = model(data).square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                found.append(loss.item())

        if not watched:
            steps(20)
            return found
        with tl.watch(model, every=5, to=folder / "watched") as seen:
            steps(20)
            with torch.no_grad():
                next(model.parameters()).fill_(float("nan"))
            steps(10)
        assert any("nan" in str(alert).lower() for alert in seen.alerts), seen.alerts
        return found[:20]

    assert losses(watched=True) == losses(watched=False)
    return "losses equal, a NaN reported"


def extract(folder: Path) -> str:
    """Layers of a dataset, as plain hooks give them."""
    import torcheer as tl

    model, data = convolutional().eval(), torch.rand(24, 3, 8, 8)
    found = tl.extract(model, data, layers=["2", "5"], to=folder / "layers", batch_size=8)
    with torch.no_grad():
        expected = torch.cat([model(data[begin : begin + 8]) for begin in range(0, 24, 8)])
    assert torch.equal(torch.as_tensor(found["5"][:]), expected)
    return f"{len(expected)} samples"


def train(folder: Path) -> str:
    """Training in two sittings ends with the weights of one."""
    from torcheer.training import EpochsCompleted, Loader, Session, Stage

    samples = torch.utils.data.TensorDataset(torch.rand(40, 8), torch.randint(0, 4, (40,)))

    def weights(to: Path, *sittings: int) -> list[Tensor]:
        for epochs in sittings:
            torch.manual_seed(2)
            model = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.2), nn.ReLU(), nn.Linear(16, 4))
            session = Session(
                models={"net": model}, optimizers={"adam": torch.optim.Adam(model.parameters(), 1e-2)},
                loaders={"train": Loader(samples, batch_size=10)}, losses={"loss": nn.CrossEntropyLoss()},
                stages=[Stage(("train",), stop=EpochsCompleted(epochs))], to=to,
            )  # fmt: skip
            for _ in session.run():
                pass
        return list(model.parameters())

    same(weights(folder / "once", 4), weights(folder / "twice", 2, 4), "the weights after a resume")
    return "resumed bit for bit"


def probes(folder: Path) -> str:
    """Each private part of torch behaves as torcheer assumes."""
    from torcheer.capture.torch_probes import PROBES, failed

    problems = failed()
    assert not problems, problems
    return f"{len(PROBES)} private names"


PARTS: dict[str, Callable[[Path], str]] = {
    part.__name__: part for part in (probes, capture, compiled, autograd, watch, extract, train)
}


def flat(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    return [tensor for part in value for tensor in flat(part)]


def same(expected: list[Tensor], found: list[Any], where: str) -> None:
    assert len(expected) == len(found), f"{where}: {len(found)} values, not {len(expected)}"
    for left, right in zip(expected, found, strict=True):
        assert torch.equal(left, right), f"{where}: a value differs"


def main() -> int:
    """Run the parts (all, or those named); print what each did, or why it failed."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    results: dict[str, Any] = {"torch": torch.__version__, "python": platform.python_version(), "parts": {}}
    before = os.getcwd()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:  # Windows keeps files that are mapped
        os.chdir(folder)
        for name in sys.argv[1:] or PARTS:
            torch.manual_seed(0)
            try:
                results["parts"][name] = {"ok": True, "text": PARTS[name](Path(folder))}
            except Exception as error:
                traceback.print_exc()
                results["parts"][name] = {"ok": False, "text": f"{type(error).__name__}: {error}"[:500]}
        os.chdir(before)
    print(json.dumps(results))
    return 0 if all(part["ok"] for part in results["parts"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
