"""The values of a session's models: what somebody who looks on gets to see, and that it changes nothing."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from control_cases import Running
from seams import Every, LogSource, RunLog, to_json
from training_cases import results, run, session
from training_loop_cases import classifier
from waiting import wait_until

import torcheer as tl
from torcheer.archive import Archive
from torcheer.studio import Table, logs
from torcheer.training import Session
from torcheer.training.control import Control


def small(directory: Path, epochs: int = 2) -> Session:
    """One model with a name for each layer; no dropout, so that what it gives can be computed again."""
    torch.manual_seed(0)
    data = torch.utils.data.TensorDataset(torch.rand(24, 5), torch.randint(0, 3, (24,)))
    model = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.ReLU(), torch.nn.Linear(7, 3))
    return classifier(model, data, (4, 6), epochs=epochs, others={"to": directory})


def test_the_network_is_known_before_the_first_step(tmp_path: Path, one_thread: None) -> None:
    running = Running(small(tmp_path))
    looker = running.looker
    looker.until(lambda: looker.network)
    assert [(layer["name"], layer["shape"]) for layer in looker.network["layers"]] == [
        ("Input", [5]), ("0", [7]), ("2", [3]),
    ]  # fmt: skip
    assert [one["name"] for one in looker.network["projections"]] == ["0.weight", "2.weight"]
    wait_until(lambda: RunLog(tmp_path).network)
    assert RunLog(tmp_path).network == looker.network
    with tl.live(running.session.models["net"], inputs=torch.rand(3, 5), open_server=False) as view:
        assert json.loads(json.dumps(to_json(view.host.network))) == looker.network
    looker.act("train")
    running.join()


def test_every_trial_is_seen_with_activations_gradients_and_weights(tmp_path: Path, one_thread: None) -> None:
    running = Running(small(tmp_path, epochs=1))
    looker, model = running.looker, running.session.models["net"]
    looker.until(lambda: looker.network)
    looker.look(variables=("Act", "Grad"), weights=True, train=Every("trial"))
    wait_until(lambda: running.control.host.wants.variables)
    before = model[0].weight.detach().numpy().copy()
    looker.act("step_trial")
    looker.paused(1)
    looker.until(lambda: looker.moments)
    moment = looker.moments[0]
    assert moment["counters"].items() < looker.state["counters"].items()  # below the picture and below the page
    assert moment["counters"] == {"Run": 1, "Epoch": 1, "Batch": 1} and moment["step"] == 0
    number = moment["id"]
    assert looker.values[number, "0", "Act"].shape == (4, 7)
    assert looker.values[number, "2", "Grad"].shape == (4, 3)
    assert np.array_equal(looker.values[number, "0.weight", "Wt"], before)
    looker.act("train")
    looker.until(lambda: len(looker.moments) == 6)
    running.join()
    assert [one["counters"]["Batch"] for one in looker.moments] == [1, 2, 3, 4, 5, 6]
    assert not any(one["test"] for one in looker.moments)


def test_what_was_tested_and_what_came_of_it_is_there_when_the_run_is_over(tmp_path: Path, one_thread: None) -> None:
    running = Running(small(tmp_path))
    looker = running.looker
    looker.paused(0)
    looker.act("test_all")
    looker.act("step_epoch")
    looker.paused(6)
    for _ in range(2):
        looker.act("test_trial")
    looker.until(lambda: looker.rows("test_trial") == 6)
    looker.act("train")
    looker.until(lambda: looker.rows("run") == 1)
    running.join()
    found, shown = logs(tmp_path), logs(running.control.host)
    assert shown.keys() == found.keys()
    for name in found:
        assert list(found[name]) == list(shown[name]), name
        assert Table.from_arrow(found[name].to_arrow()) == found[name]
    assert list(found["test_epoch"]["Epoch"]) == [0, 1, 2] and list(found["run"]["Epochs"]) == [2]
    assert list(found["test_trial"]["Name"][-2:]) == ["val item 0", "val item 1"]
    running.session.run_log.add("test_epoch", {"Step": 99, "Epoch": 9}, 99)
    assert len(logs(tmp_path)["test_epoch"]) == 4
    again, more = Control(tmp_path), small(tmp_path, epochs=3)  # one that goes on: what came after comes again
    again.take(more)
    next(more.run())
    assert list(logs(again.host)["test_epoch"]["Step"]) == [0, 6, 12] and len(logs(again.host)["test_trial"]) == 6
    assert "run" not in logs(tmp_path)
    again.close()


def test_a_run_at_rest_without_captures_shows_its_network_and_the_weights_that_were_saved(
    tmp_path: Path, one_thread: None
) -> None:
    with Control(tmp_path) as control:
        held = small(tmp_path)
        control.take(held)
        list(held.run())
        control.finish()
    source = LogSource(tmp_path)
    assert source.net is not None and [one.layer.name for one in source.net.layers] == ["Input", "0", "2"]
    assert source.moments[-1].step == 12
    weights = source.units(source.moments[-1].id, "0", "r.Wt", 0, ("2", 1))
    assert np.array_equal(weights, held.models["net"][2].weight[1].detach().numpy())


def test_an_item_that_is_tested_is_seen_as_the_model_gives_it(tmp_path: Path, one_thread: None) -> None:
    running = Running(small(tmp_path))
    looker, held = running.looker, running.session
    looker.until(lambda: looker.network)
    looker.look(variables=("Act",))
    wait_until(lambda: running.control.host.wants.variables)
    looker.act("test_item", item=17)
    looker.until(lambda: looker.moments)
    sample = held.feeds["val"].loader.dataset[17][0]
    number = looker.moments[0]["id"]
    with torch.no_grad():
        wanted = held.models["net"](sample[None]).numpy()
    assert looker.moments[0]["test"] and looker.moments[0]["counters"]["Name"] == "item 17"
    assert np.allclose(looker.values[number, "2", "Act"], wanted)
    assert np.allclose(looker.values[number, "Input", "Act"], sample[None].numpy())
    looker.until(lambda: looker.rows("test_trial") == 1)
    assert looker.tables["test_trial"]["Name"] == ["val item 17"]
    looker.act("train")
    running.join()


def test_each_batch_of_a_test_is_seen(tmp_path: Path, one_thread: None) -> None:
    running = Running(small(tmp_path))
    looker = running.looker
    looker.until(lambda: looker.network)
    looker.look(variables=("Act",), train=Every("off"), test=Every("trial"))
    wait_until(lambda: running.control.host.wants.variables)
    looker.act("test_all")
    looker.until(lambda: len(looker.moments) == 4)
    assert all(one["test"] for one in looker.moments)
    looker.act("train")
    running.join()
    assert len(looker.moments) == 4


def test_every_epoch_means_the_last_trial_of_each(tmp_path: Path, one_thread: None) -> None:
    running = Running(small(tmp_path, epochs=3))
    looker = running.looker
    looker.until(lambda: looker.network)
    looker.look(variables=("Act",), train=Every("epoch"))
    wait_until(lambda: running.control.host.wants.variables)
    looker.act("train")
    running.join()
    looker.until(lambda: looker.said_bye)
    assert [(one["counters"]["Epoch"], one["counters"]["Batch"]) for one in looker.moments] == [(1, 6), (2, 6), (3, 6)]


@pytest.mark.parametrize("case", ["plain", "accumulation", "pipelines", "stages"])
def test_a_run_that_is_looked_at_ends_with_the_same_bits(case: str, tmp_path: Path, one_thread: None) -> None:
    run(case, tmp_path / "alone")
    running = Running(session(case, tmp_path / "seen"))
    looker = running.looker
    looker.look(variables=("Act", "Grad", "Net"), weights=True, train=Every("trial"))
    wait_until(lambda: running.control.host.wants.variables)
    looker.act("test_item", item=1)
    looker.act("train")
    looker.until(lambda: looker.said_bye)
    running.join()
    assert looker.moments
    assert results(tmp_path / "seen") == results(tmp_path / "alone")


def test_a_watch_and_a_capture_see_the_same_when_somebody_else_looks_too(tmp_path: Path, one_thread: None) -> None:
    options = {"watch": {"every": 2, "models": ["body"]}, "capture": {"every": 3, "layers": "all"}}
    run("plain", tmp_path / "alone", **options)
    running = Running(session("plain", tmp_path / "seen", **options))
    looker = running.looker
    looker.look(variables=("Act", "Grad"), weights=True, train=Every("trial"))
    wait_until(lambda: running.control.host.wants.variables)
    looker.act("test_all")
    looker.act("train")
    running.join()
    assert results(tmp_path / "seen") == results(tmp_path / "alone")
    one, other = (Archive(tmp_path / name / "captures") for name in ("alone", "seen"))
    assert [frame["step"] for frame in one.frames] == [frame["step"] for frame in other.frames]
    one, other = (Archive(tmp_path / name / "log" / "watch") for name in ("alone", "seen"))
    assert {frame["step"] for frame in one.frames} == {frame["step"] for frame in other.frames}


def test_no_hook_is_left_when_nobody_looks_any_more(tmp_path: Path, one_thread: None) -> None:
    running = Running(small(tmp_path))
    looker, model = running.looker, running.session.models["net"]
    looker.until(lambda: looker.network)
    looker.look(variables=("Act", "Grad"), train=Every("trial"))
    wait_until(lambda: running.control.host.wants.variables)
    looker.act("step_n", count=2)
    looker.paused(2)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    looker.act("train")
    running.join()
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
