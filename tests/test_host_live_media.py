"""`view.log(image=…)` of a live loop: in the run's log, or in a temporary one where there is no run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from seams import Live, RunLog, scratch_limits
from torch import nn
from waiting import wait_until

import torcheer as tl


def loop(view: Live, model: nn.Module, steps: int = 3) -> None:
    for step in range(steps):
        model(torch.ones(1, 4))
        view.log(loss=0.5, image=torch.full((3, 8, 9), step / 10), text=f"step {step}")


def test_the_run_has_them_beside_its_rows(tmp_path: Path) -> None:
    model = nn.Linear(4, 2)
    with tl.live(model, to=tmp_path, open_server=False) as view:
        loop(view, model)
        view.epoch(val_loss=0.25, table={"a": [1, 2]})
    run = tl.load(tmp_path)
    assert not view.problems and [sample.text for sample in run.samples("text")] == ["step 0", "step 1", "step 2"]
    assert run.samples("image")[2].array.tobytes() == torch.full((3, 8, 9), 0.2).numpy().tobytes()
    assert run.tables["train_step"].columns == ("Step", "Epoch", "loss")
    assert run.samples("table")[0].cells == {"a": [1, 2]} and list(run.tables["train_epoch"]["val_loss"]) == [0.25]


def test_a_call_with_nothing_but_a_sample_adds_no_row(tmp_path: Path) -> None:
    with tl.live(nn.Linear(4, 2), to=tmp_path, open_server=False) as view:
        view.log(text="a")
    assert "train_step" not in tl.load(tmp_path).tables


def test_what_is_changed_after_the_call_is_logged_as_it_was(tmp_path: Path) -> None:
    array, tensor = np.zeros((4, 4)), torch.zeros(4, 4)
    with tl.live(nn.Linear(4, 2), to=tmp_path, open_server=False) as view:
        view.log(image=array, other=tl.Image(tensor))
        array[:], tensor[:] = 1.0, 1.0
    assert not any(sample.array.any() for sample in tl.load(tmp_path).samples())


def test_without_a_run_they_lie_in_a_temporary_log_until_the_view_is_closed() -> None:
    model = nn.Linear(4, 2)
    view = tl.live(model, open_server=False)
    assert view.path is not None
    folder = view.path.parent
    loop(view, model)
    wait_until(lambda: len(RunLog(folder).samples) == 6)
    view.close()
    assert not folder.exists() and view.logs["train_step"]["loss"].tolist() == [0.5] * 3


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_temporary_log_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch_limits, "_MOST_BYTES", 1000)
    with tl.live(nn.Linear(4, 2), open_server=False) as view:
        for _ in range(5):
            view.log(image=np.zeros((20, 20), np.uint8))
        folder = view.path.parent if view.path is not None else Path()
        wait_until(lambda: len(RunLog(folder).samples) == 2)
    (problem,) = view.problems
    assert problem == "1000 B of samples are kept for the page, later ones are not: with to='folder' they are"


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_refusal_is_a_problem_and_an_alert_of_the_page(tmp_path: Path) -> None:
    with tl.live(nn.Linear(4, 2), to=tmp_path, open_server=False) as view:
        view.log(audio=np.zeros(9))
    assert view.problems == ["audio 'audio' says no rate, and it is not guessed: log tl.Audio(x, rate=16000)"]
    assert [alert.what for alert in tl.load(tmp_path).alerts] == view.problems
