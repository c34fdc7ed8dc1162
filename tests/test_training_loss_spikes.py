"""A jump of a session's loss is told with its samples, whatever the watch looks at; training goes on without them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from seams import Alert, Batch, BatchHistory, LossReader, RunLog, StepDone, Stopped
from torch import nn
from torch.utils.data import TensorDataset
from training_loop_cases import weights
from training_spec_cases import definition

from torcheer import cli
from torcheer.studio import logs
from torcheer.training import EpochsCompleted, Loader, Options, Session, Stage

pytestmark = pytest.mark.usefixtures("one_thread")
STEP = 150  # the bad batch, as people count


def session(directory: Path | None = None, *, bad: bool = True, samples: int = 800, **options: Any) -> Session:
    """Classes of points; the labels of one batch are wrong."""
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(samples, 4, generator=draw)
    y = (x @ torch.randn(4, 3, generator=draw)).argmax(1)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Dropout(0.05), nn.Linear(16, 3))
    made = Session(
        models={"net": model},
        optimizers={"sgd": torch.optim.SGD(model.parameters(), 0.5)},
        loaders={"train": Loader(TensorDataset(x, y), 4)},
        losses={"loss": nn.CrossEntropyLoss()},
        stages=[Stage(("train",), (), EpochsCompleted(2))],
        to=directory,
        options=Options(**{"checkpoint_steps": 20, "keep_last": 4, "system_secs": 0, **options}),
    )
    if bad:
        x[made.feeds["train"].indices(0, STEP - 1)] *= -40.0
    return made


def spikes(events: list[Any]) -> list[Any]:
    return [event.record for event in events if isinstance(event, Alert) and event.record and event.record.layer]


def named(events: list[Any]) -> list[Any]:
    return [
        event.record for event in events if isinstance(event, Alert) and event.record and event.record.rule == "samples"
    ]


WATCHES = [{"rules": ["loss_spike"], "every": 1}, {"rules": ["loss_spike"], "every": 40}, None]


@pytest.mark.parametrize("watch", WATCHES, ids=["every 1", "every 40", "no watch"])
def test_a_bad_batch_is_told_once_with_its_samples(watch: Any, tmp_path: Path) -> None:
    trained = session(tmp_path / "run", watch=watch)
    samples = trained.feeds["train"].indices(0, STEP - 1)
    events = list(trained.run())
    (spike,), (record,) = spikes(events), named(events)
    assert (spike.rule, spike.layer, spike.variable, spike.step) == ("loss_spike", "loss", "metric", STEP)
    assert spike.what.startswith("it jumped to ") and "in the 100 before it the median is " in spike.what
    assert record.values == {"rule": "loss_spike", "loader": "train", "samples": samples, "not_finite": []}
    assert record.what.startswith(f"step {STEP}, batch {STEP} of epoch 1 of train: 4 samples ")
    left = ",".join(map(str, samples or ()))
    assert record.what.endswith(f"Train on without: torcheer train {tmp_path / 'run'} --leave-out {left}")
    logged = [(alert.rule, alert.step) for alert in RunLog(tmp_path / "run").alerts]
    assert logged == [("loss_spike", STEP), ("samples", STEP)], "once, whoever watches"


def test_an_ordinary_session_says_nothing() -> None:
    events = list(session(bad=False, watch={"every": 20}).run())
    assert [event.message for event in events if isinstance(event, Alert) and event.record] == []


def test_the_rule_is_set_where_the_watch_s_rules_are() -> None:
    for rules in ({"loss_spike": False}, [], {"loss_spike": {"done": 100.0}}):
        assert spikes(list(session(watch={"every": 40, "rules": rules, "what": "output"}).run())) == []


def test_looking_at_every_loss_changes_no_number() -> None:
    results = []
    for rules in (["loss_spike"], []):
        trained = session(watch={"every": 20, "rules": rules})
        list(trained.run())
        results.append(weights(trained.models["net"]))
    assert all(torch.equal(*pair) for pair in zip(*results))


def test_what_an_epoch_has_left_is_no_spike() -> None:
    trained = session(bad=False, samples=801)
    x, _ = trained.feeds["train"].loader.dataset.tensors
    x[trained.feeds["train"].indices(0, 200)] *= -40.0
    events = list(trained.run())
    largest = max((event for event in events if isinstance(event, StepDone)), key=lambda event: float(event.loss))
    assert largest.step == 201 and float(largest.loss) > 5 and spikes(events) == []


def test_a_run_that_goes_on_knows_from_its_log_what_was_usual(tmp_path: Path) -> None:
    begun = session(tmp_path / "run", steps_csv=1)
    for event in begun.run():
        if isinstance(event, StepDone) and event.step == STEP - 10:
            begun.stop_reason = "that is enough"
    assert STEP - 10 <= begun.place.step < STEP
    events = list(session(tmp_path / "run", steps_csv=1).run())
    assert [spike.step for spike in spikes(events)] == [STEP]


# -- going on without


def stopped_at_the_spike(directory: Path) -> tuple[Session, list[Any]]:
    begun = session(directory, watch={"every": 40, "rules": ["loss_spike"], "stop_on": ["loss_spike"]})
    events = list(begun.run())
    (stopped,) = [event for event in events if isinstance(event, Stopped)]
    assert "loss_spike" in stopped.reason
    return begun, events


def test_a_run_that_stops_at_a_spike_goes_back_before_it_and_on_without_its_samples(tmp_path: Path) -> None:
    begun, events = stopped_at_the_spike(tmp_path / "run")
    assert STEP <= begun.place.step < STEP + 40
    bad = named(events)[0].values["samples"]
    events = list(session(tmp_path / "run", exclude_samples=bad).run())
    messages = [event.message for event in events if isinstance(event, Alert)]
    assert messages == [
        f"the loss jumped at step {STEP}: it goes back to step 140",
        f"4 samples of train ({', '.join(map(str, sorted(bad)))}) left out from epoch 1, batch 141 on",
    ]
    alerts = [alert.rule for alert in RunLog(tmp_path / "run").alerts]
    assert "loss_spike" not in alerts, "what was told of steps that are trained again no longer holds"


def test_it_ends_with_the_same_bits_as_one_that_was_interrupted_there(tmp_path: Path) -> None:
    results = []
    for name, stops in (("a", ()), ("b", (160, 205))):
        _, events = stopped_at_the_spike(tmp_path / name)
        bad = named(events)[0].values["samples"]
        for step in (*stops, None):
            last = session(tmp_path / name, exclude_samples=bad)
            for event in last.run():
                if isinstance(event, StepDone) and event.step == step:
                    last.stop_reason = "the test"
        results.append(weights(last.models["net"]))
    assert all(torch.equal(*pair) for pair in zip(*results))


def test_other_samples_that_are_left_out_do_not_go_back(tmp_path: Path) -> None:
    begun, events = stopped_at_the_spike(tmp_path / "run")
    other = next(index for index in range(800) if index not in named(events)[0].values["samples"])
    resumed = session(tmp_path / "run", exclude_samples=[other])
    assert resumed.resume() == [] and resumed.place.step == begun.place.step


CODE = """
import torch

class Points(torch.utils.data.Dataset):
    def __len__(self):
        return 1000
    def __getitem__(self, index):
        x = torch.randn(4, generator=torch.Generator().manual_seed(index))
        return (-40 * x if index == 300 else x), (x[0] > 0).long()
"""


CONFIG = {
    "session_dir": "run", "device": "cpu", "batch_size": 4, "checkpoint_steps": 10, "system_secs": 0, "keep_last": 5,
    "initialize": {"definitions": [
        definition("datasets", "points", class_="spiky.Points"),
        definition("models", "net", class_="torch.nn.Linear", args=[4, 2]),
        definition("optimizers", "sgd", class_="SGD", model="net", kwargs={"lr": 0.5}),
        definition("losses", "loss", class_="CrossEntropyLoss", inputs=["y_hat", "input_2"]),
    ]},
    "train": {"epochs": 2},
    "watch": {"rules": ["loss_spike"], "every": 50, "stop_on": ["loss_spike"]},
}  # fmt: skip


def test_the_command_that_the_alert_names_goes_on_without_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "spiky.py").write_text(CODE)
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    assert cli.main(["train", "--plain", "--no-control", "config.json"]) == 130, "it was stopped"
    command = capsys.readouterr().out.partition("Train on without: torcheer ")[2].splitlines()[0].split()
    assert command[:3] == ["train", "run", "--leave-out"] and command[3].isdecimal(), "the one that is far larger"
    assert cli.main([*command, "--plain", "--no-control"]) == 0
    said = capsys.readouterr().out
    assert "the loss jumped at step " in said and "1 sample of training_loader (" in said
    assert logs(tmp_path / "run")["train_epoch"]["Epoch"].tolist() == [1, 2]


# -- reading losses


def test_losses_of_a_block_are_read_in_order_and_are_numbers_then() -> None:
    reader = LossReader()
    batches = [Batch(number, "a" if number % 2 else "b", 0, number, torch.tensor(number / 2)) for number in range(70)]
    reader.add(batches)
    assert reader.has_losses
    reader.receive(wait=True)
    assert [batch.loss for batch in batches] == [number / 2 for number in range(70)]
    assert reader.take() == batches and reader.take(wait=True) == [] and not reader.has_losses


def test_losses_of_several_types_and_shapes_are_read() -> None:
    reader = LossReader()
    losses = [
        torch.tensor(1.5),
        torch.tensor([2.5]),
        torch.tensor(3.5, dtype=torch.bfloat16),
        torch.tensor(4.5, dtype=torch.float64),
    ]
    reader.add(Batch(number, "a", 0, number, loss) for number, loss in enumerate(losses))
    assert sorted(batch.loss for batch in reader.take(wait=True)) == [1.5, 2.5, 3.5, 4.5]


def test_the_losses_of_remembered_batches_hold_no_tensors() -> None:
    history = BatchHistory(session())
    for number in range(100):
        history.add(StepDone(number + 1, 1, number + 1, "train", torch.tensor(float(number))))
        list(history.spikes())
    kept = [type(batch.loss) for batch in history._batches]
    assert kept == [float] * 96, "whole blocks"
