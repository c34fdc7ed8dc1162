"""`Simulation`: a hand-written loop, its logs, its parameters and its buttons."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from fast_cases import fast_first
from seams import Every, Wants
from studio_client import Client

from torcheer.errors import BadArgument
from torcheer.studio import Simulation, State, Table

EACH = Wants(variables=("Act",), train=Every("trial"), test=Every("trial"))


class Task:
    """Errs until a number of trials were done; says what it was asked."""

    trials, items = 4, 3

    def __init__(self, right_after: int = 8) -> None:
        self.est = State()
        self.right_after, self.asked = right_after, list[tuple[Any, ...]]()
        self.gate = threading.Semaphore(10**9)

    def init(self, seed: int) -> None:
        self.asked.append(("init", seed))
        self.done = 0

    def train_trial(self, trial: int) -> dict[str, Any]:
        self.gate.acquire()
        self.asked.append(("train", trial))
        self.done += 1
        self.est.rec(torch.full((1, 4), float(self.done)), "Hidden.Act")
        return {"Name": f"trial {trial}", "Err": float(self.done <= self.right_after), "Loss": 1 / self.done}

    def test_item(self, item: int) -> dict[str, Any]:
        self.asked.append(("test", item))
        self.est.rec(torch.full((1, 4), -float(item)), "Hidden.Act")
        return {"Name": f"item {item}", "Err": 0.0, "Out": np.full((2, 2), item, np.float32)}


@pytest.fixture
def task() -> Task:
    return Task()


def simulation(task: Any, **settings: Any) -> Simulation:
    found = Simulation("Test", task, net=task.est.net)
    for name, value in {"epochs": 20, "zero_stop": 3, "test_every": 0, **settings}.items():
        found[name] = value
    return found


@contextmanager
def running(sim: Simulation, wants: Wants = EACH) -> Iterator[Client]:
    """A simulation that obeys, in a thread of its own, and a viewer."""
    host = sim.listen()
    thread = threading.Thread(target=sim.run, kwargs={"open": False})
    thread.start()
    try:
        with Client(host.path, wants) as client:
            client.until(lambda: host.wants == wants and client.source.state.can)
            yield client
    finally:
        host.close()
        thread.join(30)
        assert not thread.is_alive()


# Headless


def test_a_run_ends_after_so_many_epochs_without_an_error(task: Task) -> None:
    sim = simulation(task)
    log = sim.train()
    assert list(log["Err"]) == [1, 1, 0, 0, 0] and list(log["Epoch"]) == [0, 1, 2, 3, 4]
    assert sim.status == "done" and sim.message == "run 0 is over: 3 epochs without an error"
    assert dict(sim.logs["run"][0], Loss=0) == {
        "Run": 0, "Seed": 1, "Epochs": 5, "FirstZero": 2, "Err": 0.0, "Loss": 0,
    }  # fmt: skip
    assert np.isclose(log["Loss"][0], np.mean([1, 1 / 2, 1 / 3, 1 / 4]))


def test_a_run_ends_after_so_many_epochs(task: Task) -> None:
    sim = simulation(task, epochs=2)
    sim.train()
    assert len(sim.logs["train_epoch"]) == 2 and sim.message == "run 0 is over: all 2 epochs done"
    assert sim.logs["run"]["FirstZero"][0] == -1


def test_runs_follow_each_other_each_from_a_seed_of_its_own(task: Task) -> None:
    sim = simulation(task, runs=3, epochs=2, seed=10)
    sim.train()
    assert [asked for asked in task.asked if asked[0] == "init"] == [("init", 10), ("init", 11), ("init", 12)]
    assert list(sim.logs["run"]["Seed"]) == [10, 11, 12]
    assert list(sim.logs["train_epoch"]["Run"]) == [0, 0, 1, 1, 2, 2]
    sim.train()  # all are over: another one
    assert list(sim.logs["run"]["Run"]) == [0, 1, 2, 3]


def test_steps_go_on_where_the_last_one_stopped(task: Task) -> None:
    sim = simulation(task)
    sim.step(3)
    sim.step()
    sim.step(5)
    assert [asked[1] for asked in task.asked if asked[0] == "train"] == [0, 1, 2, 3, 0, 1, 2, 3, 0]
    assert (sim.epoch, sim.trial, len(sim.logs["train_epoch"])) == (2, 1, 2)
    sim.train(epochs=1)
    assert (sim.epoch, sim.trial) == (3, 0)


def test_tests_happen_every_so_many_epochs_and_at_the_end(task: Task) -> None:
    sim = simulation(task, test_every=2)
    sim.train()
    assert list(sim.logs["test_epoch"]["Epoch"]) == [2, 4, 5]
    trials = sim.logs["test_trial"]
    assert list(trials["Name"]) == ["item 0", "item 1", "item 2"] and trials["Out"].shape == (3, 2, 2)


def test_init_begins_anew(task: Task) -> None:
    sim = simulation(task)
    sim.train()
    sim.init(seed=7)
    assert (sim.run_number, sim.epoch, sim.trial, sim.status) == (0, 0, 0, "paused")
    assert all(len(sim.logs[name]) == 0 for name in ("train_epoch", "test_trial", "run"))
    assert task.asked[-1] == ("init", 7)


def test_one_item_is_tested_and_not_logged(task: Task) -> None:
    sim = simulation(task)
    assert sim.test_item(2)["Name"] == "item 2" and len(sim.logs["test_trial"]) == 0
    with pytest.raises(BadArgument, match="no item 3 to test: they are 0 to 2"):
        sim.test_item(3)


def test_what_a_task_has_decides_what_can_be_asked() -> None:
    class Tests:
        items = 2
        test_item = staticmethod(lambda item: {"Err": 0.0})

    assert Simulation("Test", Tests()).can == ("test_trial", "test_item", "test_all", "stop")
    assert len(Simulation("Test", Tests()).test()) == 2
    assert "init" in Simulation("Test", Task()).can and "step_n" in Simulation("Test", Task()).can
    with pytest.raises(BadArgument, match="a task has init, train_trial, test_item, or one of them; int has none"):
        Simulation("Test", 3)


def test_an_error_in_a_task_is_passed_on(task: Task) -> None:
    sim = simulation(task)
    task.train_trial = lambda trial: 1 / 0  # type: ignore[method-assign]
    with pytest.raises(ZeroDivisionError):
        sim.train()
    assert sim.status == "paused" and "ZeroDivisionError" in sim.message


def test_trials_may_say_more_than_the_first_one_did(task: Task) -> None:
    sim, say = simulation(task, epochs=2), task.train_trial
    task.train_trial = lambda trial: {**say(trial), **({"Extra": 1.0} if task.done > 4 else {})}  # type: ignore[method-assign]
    log = sim.train()
    assert np.isnan(log["Extra"][0]) and log["Extra"][1] == 1.0


def test_a_trial_may_return_tensors_or_nothing(task: Task) -> None:
    said: list[Any] = [{"Err": torch.tensor(0.5), "Loss": np.float32(2)}, None, {"Err": 1, "Loss": "text"}, {}]
    task.train_trial = said.__getitem__  # type: ignore[method-assign]
    task.test_item = lambda item: {"Err": torch.tensor(0.25)}  # type: ignore[method-assign, assignment]
    sim = simulation(task, epochs=1)
    assert sim.train()[0] == {"Run": 0, "Epoch": 0, "Err": 0.75, "Loss": 2.0}
    assert list(sim.test()["Err"]) == [0.25] * 3
    said[0] = "good"
    with pytest.raises(BadArgument, match="train_trial returned a str; return numbers by name"):
        sim.step()


# Parameters


def test_parameters_are_checked_and_told(task: Task) -> None:
    sim, changes = simulation(task), list[float]()
    sim.parameter("lr", 0.2, doc="learning rate", minimum=0.0, maximum=1.0, change=changes.append)
    sim.parameter("loss", "mse", choices=("mse", "cross entropy"))
    sim.parameter("shuffle", True)
    sim["lr"] = 1
    assert sim["lr"] == 1.0 and changes == [1.0]
    for name, value, text in [
        ("lr", -1, "lr cannot be -1: it must be 0 or more"),
        ("lr", 2, "lr cannot be 2: it must be 1 or less"),
        ("lr", "a", "lr cannot be 'a': it must be a number"),
        ("lr", float("nan"), "lr cannot be nan: it must be a number"),
        ("lr", True, "it must be a number"),
        ("lr", None, "it must be a number"),
        ("lr", [1], "it must be a number"),
        ("epochs", 1.5, "it must be a whole number"),
        ("epochs", 1e400, "it must be a whole number"),
        ("epochs", 0, "epochs cannot be 0: it must be 1 or more"),
        ("loss", "l1", "loss cannot be 'l1': it must be one of mse, cross entropy"),
        ("shuffle", 1, "shuffle cannot be 1: it must be true or false"),
        ("zerostop", 1, "no parameter 'zerostop'. Did you mean 'zero_stop'"),
    ]:
        with pytest.raises(BadArgument, match=text):
            sim[name] = value
    assert sim["lr"] == 1.0
    with pytest.raises(BadArgument, match="there is a parameter 'lr' already"):
        sim.parameter("lr", 1)


# By the page


def test_a_page_sees_the_form_the_logs_and_the_patterns(task: Task) -> None:
    patterns = Table({"Name": ["a", "b"], "Input": np.eye(4, dtype=np.float32).reshape(2, 2, 4)})
    sim = Simulation("Test", task, net=task.est.net, patterns=patterns)
    sim.train(epochs=2)
    with running(sim) as client:
        client.until(lambda: len(client.rows("patterns").get("Name", ())) == 2 and client.rows("train_epoch"))
        assert client.rows("patterns")["Input"][1] == np.eye(4).reshape(2, 2, 4)[1].tolist()
        client.until(lambda: client.rows("train_epoch")["Epoch"] == [0, 1])
        assert client.source.tables["train_epoch"].head.legend == "Run"
        client.until(lambda: client.parameters.get("epochs") == 100 and client.source.state.items == 3)


def test_train_and_stop(task: Task) -> None:
    sim = simulation(task, epochs=10**6, zero_stop=0)
    with running(sim) as client:
        client.press("train")
        client.status("running")
        client.until(lambda: len(client.source.moments) > 3)
        client.press("stop")
        client.status("paused")
        count = task.done
        client.press("step_trial")
        client.until(lambda: task.done == count + 1)
        client.status("paused")
        client.until(lambda: set(client.newest("Hidden", "Act")) == {float(count + 1)})
        assert task.done == count + 1


def test_steps_of_a_trial_an_epoch_and_n(task: Task) -> None:
    sim = simulation(task, zero_stop=0)
    with running(sim) as client:
        client.press("step_trial")
        client.until(lambda: client.source.moments and client.source.moments[-1].counters.get("Name") == "trial 0")
        client.press("step_epoch")
        client.until(lambda: task.done == 4)
        client.press("step_n", count=7)
        client.until(lambda: task.done == 11)
        client.press("step_n")
        client.until(lambda: task.done == 21)
        client.until(lambda: client.source.state.counters == {"Run": 0, "Epoch": 5, "Trial": 0, "Name": "trial 0"})
        assert client.until(lambda: client.rows("train_epoch").get("Epoch") == [0, 1, 2, 3, 4])


def test_a_step_of_a_run_ends_with_it_though_more_are_to_come(task: Task) -> None:
    sim = simulation(task, runs=3, epochs=2)
    with running(sim) as client:
        for run in range(2):
            client.press("step_run")
            client.until(lambda run=run: client.rows("run").get("Run") == list(range(run + 1)))
            client.status("done")
            assert task.done == 8 and client.source.state.counters["Run"] == run
        client.press("train")  # the third
        client.until(lambda: client.rows("run").get("Run") == [0, 1, 2])


def test_a_trial_that_fails_pauses_the_simulation_and_the_page_says_why(task: Task) -> None:
    real, task.train_trial = task.train_trial, lambda trial: 1 / 0  # type: ignore[method-assign]
    with running(simulation(task)) as client:
        client.press("train")
        client.until(lambda: client.source.alerts)
        (alert,) = client.source.alerts
        assert (alert.text, alert.severity) == ("ZeroDivisionError: division by zero", "error")
        client.until(lambda: client.source.state.message == alert.text and client.source.state.status == "paused")
        task.train_trial = real  # type: ignore[method-assign]
        client.press("step_trial")
        client.until(lambda: task.done == 1)


def test_an_init_that_fails_pauses_the_simulation_and_the_page_says_why(task: Task) -> None:
    with running(simulation(task)) as client:
        task.init = lambda seed: 1 / 0  # type: ignore[method-assign]
        client.press("init")
        client.until(lambda: client.source.alerts)
        assert [one.text for one in client.source.alerts] == ["ZeroDivisionError: division by zero"]
        client.until(lambda: client.source.state.message == client.source.alerts[0].text)
        del task.init
        client.press("init")
        client.press("step_trial")
        assert client.until(lambda: task.done == 1)


def test_tests_of_an_item_and_of_all(task: Task) -> None:
    with running(simulation(task)) as client:
        client.press("test_item", item=2)
        client.until(lambda: client.source.moments and client.source.moments[-1].test)
        client.until(lambda: set(client.newest("Hidden", "Act")) == {-2.0})
        client.until(lambda: "item 2" in client.source.state.message)
        for item in (0, 1, 2, 0):  # the next one, and round again
            client.press("test_trial")
            client.until(lambda item=item: client.source.moments[-1].counters["Name"] == f"item {item}")
        client.press("test_all")
        client.until(lambda: client.rows("test_trial").get("Name") == ["item 0", "item 1", "item 2"])
        client.until(lambda: client.rows("test_epoch").get("Err") == [0.0])
        tests = [one.counters["Trial"] for one in client.source.moments if one.test]
        assert {0, 1, 2} <= set(tests)


def test_init_and_new_seed(task: Task) -> None:
    with running(simulation(task)) as client:
        client.press("step_epoch")
        client.until(lambda: client.rows("train_epoch").get("Epoch") == [0])
        client.press("new_seed")
        client.until(lambda: client.parameters.get("seed", 1) != 1)
        assert task.asked.count(("init", 1)) == 1  # only Init begins anew
        client.press("init")
        client.until(lambda: ("init", client.parameters["seed"]) in task.asked)
        client.until(lambda: not client.rows("train_epoch").get("Epoch"))
        client.until(lambda: client.source.state.counters["Epoch"] == 0)


def test_a_parameter_changes_while_it_runs(task: Task) -> None:
    sim, seen = simulation(task, epochs=10**6, zero_stop=0), list[float]()
    sim.parameter("lr", 0.2, minimum=0.0, change=seen.append)
    with running(sim) as client:
        client.press("train")
        client.status("running")
        client.change("lr", 0.05)
        client.until(lambda: client.parameters.get("lr") == 0.05)
        assert seen == [0.05]
        client.change("epochs", sim.epoch + 3)
        client.status("done")


@pytest.mark.parametrize(
    ("name", "value"),
    fast_first(
        [("lr", -1), ("lr", "much"), ("nothing", 1), ("bad", 1), ("lr", None), ("lr", {"a": 1}), ("epochs", 0)], 4
    ),
)
def test_a_wrong_value_from_a_page_is_told_and_changes_nothing(task: Task, name: str, value: Any) -> None:
    sim = simulation(task)
    sim.parameter("lr", 0.2, minimum=0.0)
    sim.parameter("bad", 0, change=lambda value: [][1])
    before = dict(sim.parameters)
    with running(sim) as client:
        client.change(name, value)
        client.until(lambda: client.source.alerts)
        assert dict(sim.parameters) == before
        client.press("step_trial")
        client.until(lambda: task.done == 1)


def test_a_button_that_is_not_there_is_told(task: Task) -> None:
    with running(simulation(task)) as client:
        client.press("test_item", item=99)
        client.until(lambda: client.source.alerts)
        assert "no item 99" in client.source.alerts[-1].text
        client.press("step_trial")
        client.until(lambda: task.done == 1)


def test_a_viewer_that_goes_stops_nothing_and_another_finds_it_running(task: Task) -> None:
    sim = simulation(task, epochs=10**6, zero_stop=0)
    with running(sim) as client:
        client.press("train")
        client.status("running")
        client.close()
        done = task.done
        with Client(sim.host.path, EACH) as other:
            assert other.until(lambda: task.done > done + 20)
            other.status("running")
            other.press("stop")
            other.status("paused")


def test_orders_are_obeyed_at_trial_boundaries(task: Task) -> None:
    sim = simulation(task, epochs=10**6, zero_stop=0)
    task.gate = threading.Semaphore(0)
    with running(sim) as client:
        client.press("train")
        client.press("stop")
        for _ in range(200):  # it waits in its first trial
            client.source.poll()
        assert not any(asked[0] == "train" for asked in task.asked[1:-1])
        task.gate.release(10**6)
        client.status("paused")
        assert task.done <= 1


def test_without_a_network_there_are_still_logs_and_buttons(task: Task) -> None:
    sim = Simulation("Test", task)
    with running(sim, Wants()) as client:
        client.press("step_epoch")
        client.until(lambda: client.rows("train_epoch").get("Epoch") == [0])
        assert client.source.net is None or not client.source.net.layers
