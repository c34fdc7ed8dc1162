"""Trials before training: they find what is there to find, and leave no trace."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fast_cases import fast_first
from seams import is_memory_error, new_project, steepest
from torch import nn

from torcheer import cli
from torcheer.errors import BadArgument
from torcheer.training import (
    Loader,
    Options,
    Session,
    find_batch_size,
    find_learning_rate,
    overfit_one_batch,
)

pytestmark = pytest.mark.usefixtures("one_thread")


def make_session(rate: float = 0.001, *, labels: str = "right", **options: Any) -> Session:
    draw = torch.Generator().manual_seed(0)
    x = torch.rand(64, 4, generator=draw)
    y = (x.sum(1) > 2).long() if labels == "right" else torch.zeros(64, dtype=torch.long)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.Dropout(0.1), nn.ReLU(), nn.Linear(16, 2))
    return Session(
        models={"net": model},
        optimizers={"adam": torch.optim.Adam(model.parameters(), rate)},
        loaders={"train": Loader(torch.utils.data.TensorDataset(x, y), batch_size=16)},
        losses={"loss": nn.CrossEntropyLoss()},
        options=Options(**options),
    )


def state_of(session: Session) -> dict[str, Any]:
    return copy.deepcopy(session.state())


def same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(np.all(one == other))


TRIALS = {
    "rate": lambda session: find_learning_rate(session, steps=20),
    "batch": lambda session: find_batch_size(session, most=64, least=2),
    "one batch": lambda session: overfit_one_batch(session, steps=5),
}


@pytest.mark.parametrize("trial", TRIALS)
@pytest.mark.parametrize("begun", fast_first([True, False]))
def test_a_trial_leaves_no_trace(trial: str, begun: bool) -> None:
    session = make_session(accumulate=2, ema=0.9)
    if begun:
        list(session.run(progress=False))
    before, modes = state_of(session), [module.training for module in session.models["net"].modules()]
    TRIALS[trial](session)
    assert same(before, state_of(session))
    assert modes == [module.training for module in session.models["net"].modules()]
    assert not session.has_pending_gradients() and session.options.accumulate == 2
    assert all(parameter.grad is None for parameter in session.models["net"].parameters()) or begun


def test_a_trial_that_fails_leaves_no_trace_either() -> None:
    session = make_session()
    before = state_of(session)
    session.models["net"].register_forward_hook(lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        find_learning_rate(session)
    assert same(before, state_of(session))


def test_the_suggested_rate_is_on_the_way_down(tmp_path: Path) -> None:
    curve = find_learning_rate(make_session(), most=100.0)
    best = curve.rates[min(range(len(curve.losses)), key=lambda place: curve.losses[place])]
    assert curve.suggestion is not None and 1e-5 < curve.suggestion <= best < 100
    text = str(curve)
    assert "│" in text and "•" in text and f"Suggestion: {curve.suggestion:.2g}" in text and "now 0.001" in text
    assert "<polyline" in curve.save(tmp_path / "curve.svg").read_text()
    assert json.loads(curve.save(tmp_path / "curve.json").read_text())["suggestion"] == curve.suggestion
    with pytest.raises(BadArgument, match=r"curve.jpg: a curve is drawn as .svg"):
        curve.save(tmp_path / "curve.jpg")


def test_the_steepest_place_is_before_the_loss_explodes_and_falls_again() -> None:
    rates = [10.0**power for power in range(-12, 8)]
    losses = [2.0] * 8 + [1.9, 1.6, 1.2, 1.0, 9.0, 8.0, 3.0, 1.5, 1.4, 1.3, 1.2, 1.1]
    assert steepest(rates, losses) == rates[9]
    assert steepest(rates, sorted(losses)) is None and steepest([], []) is None


def test_a_stage_with_several_pipelines_asks_which(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config, _ = new_project("gan", tmp_path)
    assert cli.main(["lr-find", str(config)]) == 1
    assert "the stage trains discriminate, generate: name one of them" in capsys.readouterr().err
    assert cli.main(["lr-find", str(config), "--pipeline", "generate", "--steps", "30", "--json"]) in (0, 1)
    assert json.loads(capsys.readouterr().out)["pipeline"] == "generate"
    assert cli.main(["lr-find", str(config), "--pipeline", "generated"]) == 1
    assert "the stage does not train 'generated'" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "__pycache__") == ["config.yaml", "data.py"]


def test_batch_sizes_double_up_to_the_most_that_is_asked_for() -> None:
    trials = find_batch_size(make_session(), least=4, most=100)  # more than there are samples: they are repeated
    assert [each.size for each in trials.trials] == [4, 8, 16, 32, 64] and trials.largest == 64
    assert all(each.secs > 0 and each.peak_bytes > 0 for each in trials.trials)
    assert "Largest that fits: 64" in str(trials) and trials.to_dict()["trials"][0]["size"] == 4
    with pytest.raises(BadArgument, match="least is 1 or more"):
        find_batch_size(make_session(), least=0)


def test_what_is_no_lack_of_memory_is_raised() -> None:
    session = make_session()
    session.models["net"][0] = nn.Linear(5, 16)  # type: ignore[index]
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        find_batch_size(session, least=2)
    assert is_memory_error(MemoryError()) and not is_memory_error(RuntimeError("mat1 and mat2 cannot be multiplied"))


LIMITED = """
    import resource, sys, torch
    from torch import nn
    from torcheer.training import Loader, Session, find_batch_size
    data = torch.utils.data.TensorDataset(torch.rand(8, 1 << 18))  # a megabyte each
    model = nn.Sequential(nn.Flatten(), nn.Linear(1 << 18, 1))
    class Pairs(torch.utils.data.Dataset):
        def __len__(self): return 8
        def __getitem__(self, index): return data[index][0], torch.zeros(1)
    session = Session(models={"net": model}, optimizers={"sgd": torch.optim.SGD(model.parameters(), 0.1)},
                      loaders={"train": Loader(Pairs(), batch_size=1)}, losses={"loss": nn.MSELoss()})
    find_batch_size(session, most=2)
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (300 << 20), -1))
    trials = find_batch_size(session, most=4096)
    print(trials.largest, trials.end)
    print(find_batch_size(session, most=2).largest)  # it goes on working
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="limits of address space")
def test_it_ends_at_a_real_lack_of_memory() -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(LIMITED)], capture_output=True, text=True, env={"OMP_NUM_THREADS": "1"}
    )
    assert done.returncode == 0, done.stderr
    found, again = done.stdout.splitlines()
    largest, _, end = found.partition(" ")
    assert 4 <= int(largest) < 4096 and end == f"{2 * int(largest)} samples take more memory than there is"
    assert again == "2"


def test_one_batch_is_learned_or_not() -> None:
    learned = overfit_one_batch(make_session(0.05))
    assert learned.is_learned and learned.losses["train"][-1] < 0.1 * learned.losses["train"][0]
    assert "One batch is learned by heart" in str(learned) and learned.to_dict()["learned"] is True
    slow = overfit_one_batch(make_session(1e-9), steps=20)
    assert not slow.is_learned and len(slow.losses["train"]) == 20
    assert "not learned by heart. Look at: the learning rate (torcheer lr-find)" in str(slow)


def test_the_commands_write_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    new_project("regression", tmp_path)
    assert cli.main(["train", "config.yaml", "--overfit-one-batch"]) == 0
    assert "One batch is learned by heart" in capsys.readouterr().out
    assert cli.main(["train", "config.yaml", "optimizer.lr=1e-9", "--overfit-one-batch"]) == 1
    assert cli.main(["batch-find", "config.yaml", "--most", "4"]) == 0
    assert "Largest that fits: 4" in capsys.readouterr().out
    assert cli.main(["lr-find", "config.yaml", "--picture", "curve.svg"]) == 0
    assert "The curve is drawn in curve.svg" in capsys.readouterr().out
    names = {path.name for path in tmp_path.iterdir()} - {"__pycache__"}
    assert names == {"config.yaml", "data.py", "curve.svg"}
