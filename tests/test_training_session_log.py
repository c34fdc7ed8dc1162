"""`session.log(…)`: numbers and samples of a session's own code, in its run, cut back on resume."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from seams import Alert, StepDone
from torch import nn

import torcheer as tl
from torcheer.training import Options, Session, log


def made(to: Path | None = None, metric: Any = None, **options: Any) -> Session:
    torch.manual_seed(0)
    model = nn.Linear(4, 2)
    data = [(torch.ones(4), torch.zeros(2))] * 8
    return Session(
        models={"net": model},
        optimizers={"net": torch.optim.SGD(model.parameters(), 0.1)},
        loaders={"train": torch.utils.data.DataLoader(data, 2)},
        losses={"loss": nn.functional.mse_loss},
        metrics={"seen": metric} if metric else None,
        options=Options(seed=0, system_secs=0, **options),
        to=to,
    )


def test_the_loop_over_a_run_logs_numbers_and_samples(tmp_path: Path) -> None:
    session = made(tmp_path)
    for event in session.run(progress=False):
        if isinstance(event, StepDone):
            session.log(double=2.0 * event.step, image=torch.full((3, 5, 6), event.step / 10), text=f"{event.step}")
    run = tl.load(tmp_path)
    assert [sample.step for sample in run.samples("image")] == [1, 2, 3, 4]
    assert [sample.text for sample in run.samples("text")] == ["1", "2", "3", "4"]
    assert list(run.tables["logged"]["double"]) == [2.0, 4.0, 6.0, 8.0]
    assert list(run.tables["logged"]["Step"]) == [1, 2, 3, 4]


def test_a_metric_without_a_session_in_its_hands_logs_to_the_one_that_calls_it(tmp_path: Path) -> None:
    def seen(found: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        log(confusion=[[1, 0], [0, len(found)]])
        return found.sum()

    for _ in made(tmp_path, seen).run(progress=False):
        pass
    samples = tl.load(tmp_path).samples("confusion")
    assert len(samples) >= 4 and samples[0].step == 1 and samples[0].array.tolist() == [[1, 0], [0, 2]]


def test_a_problem_is_an_alert_once_and_training_goes_on(tmp_path: Path) -> None:
    session, alerts = made(tmp_path), []
    for event in session.run(progress=False):
        if isinstance(event, StepDone):
            session.log(image=torch.zeros(3, 4, 3))
        alerts += [event.message] if isinstance(event, Alert) else []
    assert len(alerts) == 1 and "channels first or last: say layout='HWC' or 'CHW'" in alerts[0]
    assert session.place.step == 4 and not tl.load(tmp_path).samples()


def test_without_a_folder_and_outside_of_a_run_it_is_said_that_nothing_is_kept(tmp_path: Path) -> None:
    session = made()
    session.log(text="before")
    messages = [event.message for event in session.run(progress=False) if isinstance(event, Alert)]
    assert messages == ["what session.log was given is kept nowhere: Session(to='folder') keeps it"]


def test_a_resumed_run_has_each_sample_once(tmp_path: Path) -> None:
    def train(stop: int) -> None:
        session = made(tmp_path, checkpoint_steps=2)
        for event in session.run(progress=False):
            if isinstance(event, StepDone):
                session.log(text=f"step {event.step} of the run until {stop}", number=event.step)
                if event.step == stop:
                    return  # as if it had been killed: step 2 is the last checkpoint

    train(3)
    train(99)
    run = tl.load(tmp_path)
    assert [sample.text for sample in run.samples("text")] == [
        "step 1 of the run until 3", "step 2 of the run until 3", "step 3 of the run until 99",
        "step 4 of the run until 99",
    ]  # fmt: skip
    assert list(run.tables["logged"]["number"]) == [1, 2, 3, 4]


def test_logging_changes_no_weight(tmp_path: Path) -> None:
    weights = []
    for logs in (True, False):
        session = made(tmp_path / str(logs))
        for event in session.run(progress=False):
            if logs and isinstance(event, StepDone):
                session.log(image=session.models["net"].weight, text="x", norm=event.loss)
        weights.append(session.models["net"].weight.detach().clone())
    assert torch.equal(*weights)
