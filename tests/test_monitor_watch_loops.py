"""`tl.watch` around other people's loops and compiled models, with its real child."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from children import run_python
from models import small
from torch import nn
from waiting import wait_until
from watch_checks import batch

import torcheer as tl
from torcheer.inspector import Transport, open_watch

RING = Transport(bytes=8 << 20, drain_secs=60.0)


def test_a_module_that_is_trained_through_its_training_step_is_watched(tmp_path: Path) -> None:
    """As Lightning does it: the pass is inside the optimizer's step, and the module itself is never called."""

    class Lit(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = small()

        def training_step(self, inputs: Any) -> torch.Tensor:
            return nn.functional.cross_entropy(self.net(inputs[0]), inputs[1])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.net(x)

    module = Lit()
    optimizer = torch.optim.SGD(module.parameters(), 0.1)

    def closure() -> torch.Tensor:
        loss = module.training_step(batch())
        optimizer.zero_grad()
        loss.backward()
        return loss

    with tl.watch(module, every=2, to=tmp_path, transport=RING) as w:
        for _ in range(5):
            optimizer.step(closure)
            module.eval()
            with torch.no_grad():
                module.net(batch()[0])
            module.train()
    found = open_watch(tmp_path)
    assert w.step == 4
    for key in [("net.5", "output"), ("net.5", "grad"), ("net.5.weight", "weight"), ("net.5.weight", "update")]:
        assert found[key].steps.tolist() == [0, 2, 4], key


@pytest.mark.slow
def test_a_model_that_is_called_by_a_compiled_one_is_watched_by_its_optimizer(tmp_path: Path) -> None:
    script = """
        import sys, warnings, torch
        import torcheer as tl
        from models import small
        from watch_checks import batch
        warnings.simplefilter("ignore")
        model = small().double()
        compiled = torch.compile(lambda x: model(x), backend="eager")
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        with tl.watch(model, every=2, to=sys.argv[1], transport={"bytes": 8 << 20}) as w:
            for _ in range(4):
                optimizer.zero_grad()
                compiled(batch()[0].double()).sum().backward()
                optimizer.step()
        print(w.step, *w.problems)
    """  # in a process of its own: whether a frame is compiled depends on what was compiled before
    done = run_python("-c", script, tmp_path, cwd=Path(__file__).parent)
    assert done.stdout.startswith("3 ") and "inside compiled code" in done.stdout, done.stderr
    assert open_watch(tmp_path)["5.weight", "update"].steps.tolist() == [0, 2]


def test_a_loop_may_number_its_steps_and_say_things_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, said, watched = small(), list[str](), list[bool]()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    number = 100  # it goes on from a checkpoint
    with tl.watch(
        model, every=2, to=tmp_path, step_of=lambda: number, tell=said.append, transport=RING
    ) as w:  # fmt: skip
        for _ in range(3):
            for _ in range(2):  # accumulated
                nn.functional.cross_entropy(model(batch()[0]), batch()[1]).backward()
            optimizer.step()
            watched.append(w.is_watching)
            w.log(loss=1.0)
            number += 1
        assert wait_until(lambda: w.account.handled == w.account.offered)  # or closing says that it waits
    found = open_watch(tmp_path)
    assert found["5", "output"].steps.tolist() == found["5.weight", "update"].steps.tolist() == [100, 102]
    assert found["loss", "metric"].steps.tolist() == [100, 101, 102]
    assert watched == [True, False, True]
    assert len(said) == 1 and str(tmp_path) in said[0]
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("given", [True, False])
def test_where_no_gradient_comes_though_weights_are_updated_that_is_said(given: bool) -> None:
    """A generator's first pass of a step is for the critic, which is trained without it."""
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with tl.watch(
        model, every=1, tell=lambda text: None, optimizer=optimizer if given else None, transport=RING
    ) as w:  # fmt: skip
        for _ in range(3):
            model(torch.ones(1, 4)).detach()
            model(torch.ones(1, 4)).sum().backward()
            optimizer.step()
    assert [text[:34] for text in w.problems] == (["no gradient of an output came, tho"] if given else [])


def test_a_number_or_a_screen_that_fails_is_no_trouble(capsys: pytest.CaptureFixture[str]) -> None:
    def fail(*_: Any) -> int:
        raise RuntimeError("no")

    model = small()
    with tl.watch(model, every=1, step_of=fail, tell=fail, transport=RING) as w:
        for _ in range(2):
            model(batch()[0])
    assert w.step == 1
    assert w.problems == ["step_of failed, steps are counted from here on: RuntimeError: no"]
    assert "tell failed: RuntimeError: no" in capsys.readouterr().err
