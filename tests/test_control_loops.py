"""One control for every loop: training, `tl.live` and `Simulation` answer the same buttons in the same way."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from host_viewer import Viewer
from seams import Act, Host, LoopControl, Parameter, check_change, loop_control
from torch import nn
from waiting import wait_until

import torcheer as tl
from torcheer.errors import BadArgument
from torcheer.studio import Simulation
from torcheer.training import EpochsCompleted, Loader, Options, Session, Stage
from torcheer.training.control import Control

pytestmark = pytest.mark.usefixtures("one_thread")
TRIALS = 4  # of an epoch


class Loop:
    """A loop in a thread of its own: its host, how many trials it has done, the name of its learning rate."""

    host: Host
    rate = "lr"

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = nn.Linear(3, 2)
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.125)
        self.done, self.is_over, self.error = 0, False, list[BaseException]()
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            self.run()
        except BaseException as error:
            self.error.append(error)

    def run(self) -> None:
        raise NotImplementedError

    def step(self) -> None:
        self.model(torch.rand(4, 3)).sum().backward()
        self.optimizer.step()
        time.sleep(0.001)

    def end(self) -> None:
        self.is_over = True
        self.host.close()  # so that a paused one goes on
        self.thread.join(60)
        assert not self.thread.is_alive() and not self.error


class LiveLoop(Loop):
    def __init__(self) -> None:
        super().__init__()
        self.view = tl.live(self.model, optimizer=self.optimizer, open_server=False)
        self.host = self.view.host

    def run(self) -> None:
        torch.set_num_threads(1)
        while not self.is_over:
            for _ in range(TRIALS):
                self.step()
                self.done += 1
            self.view.epoch()
        self.view.close()


class TrainerLoop(Loop):
    rate = "optimizers.sgd.lr"

    def __init__(self) -> None:
        super().__init__()
        data = torch.utils.data.TensorDataset(torch.rand(2 * TRIALS, 3), torch.rand(2 * TRIALS, 2))
        self.session = Session(
            models={"net": self.model}, optimizers={"sgd": self.optimizer}, loaders={"train": Loader(data, 2)},
            losses={"loss": nn.MSELoss()}, stages=[Stage(("train",), (), EpochsCompleted(10**6))], options=Options(),
        )  # fmt: skip
        self.control = Control(None)
        self.host = self.control.host
        self.control.take(self.session)

    def run(self) -> None:
        torch.set_num_threads(1)
        for _ in self.session.run():
            self.done = self.session.place.step
            time.sleep(0.001)

    def end(self) -> None:
        self.session.stop_reason = "that is enough"
        super().end()


class SimulationLoop(Loop):
    trials = TRIALS

    def __init__(self) -> None:
        super().__init__()
        self.sim = Simulation("Test", self)
        self.sim["epochs"], self.sim["zero_stop"] = 10**6, 0
        self.sim.parameter("lr", 0.125, minimum=0.0)
        self.host = self.sim.listen()

    def run(self) -> None:
        self.sim.run(open=False)

    def train_trial(self, trial: int) -> None:
        self.step()
        self.done += 1


LOOPS: dict[str, Callable[[], Loop]] = {"training": TrainerLoop, "live": LiveLoop, "simulation": SimulationLoop}


@pytest.fixture(params=LOOPS)
def loop(request: pytest.FixtureRequest) -> Iterator[Loop]:
    made = LOOPS[request.param]()
    made.thread.start()
    yield made
    made.end()


class Buttons(Viewer):
    """A viewer that presses buttons and waits for what becomes of it."""

    def __init__(self, loop: Loop) -> None:
        super().__init__(loop.host)
        self.loop = loop

    def pressed(self, action: str, trials: int, **about: Any) -> None:
        """Press a button; the loop must be paused so many trials later."""
        wanted = self.loop.done + trials
        self.press(action, **about)
        self.paused(wanted)

    def paused(self, done: int | None = None) -> None:
        def is_so() -> bool:
            return self.host.state.status == "paused" and (done is None or self.loop.done == done)

        wait_until(is_so, f"a pause at {done}", seen=lambda: (self.host.state, self.loop.done))

    def refused(self, kind: str, **about: Any) -> str:
        """Ask for something that is refused; what is said."""
        known = len(self.alerts())
        self.wire.send({"kind": kind, **about})
        alerts: list[dict[str, Any]] = wait_until(lambda: self.alerts()[known:], "a refusal")
        return str(alerts[0]["text"])

    def at_an_epoch(self) -> None:
        """Pause where an epoch begins."""
        wait_until(lambda: self.loop.done > TRIALS or self.host.state.status == "paused", "an epoch of a live loop")
        self.press("stop")
        self.paused()
        if self.loop.done % TRIALS == 0:  # training may stand before the evaluation of the epoch, or after it
            self.pressed("step_trial", 1)
        self.pressed("step_epoch", TRIALS - self.loop.done % TRIALS)


PRESSES: list[tuple[str, int, int]] = [  # button, its count, how many trials later the loop is paused
    ("step_trial", 0, 1),
    ("step_n", 3, 3),  # the epoch ends here, which is no reason to go on
    ("step_n", 0, 10),
    ("step_epoch", 0, 2),  # to its end
    ("step_epoch", 0, TRIALS),
    ("stop", 0, 0),
    ("step_n", -5, 10),
    ("step_n", 2, 2),
    ("step_trial", 7, 1),  # the count is that of Step N
]


def test_each_button_has_the_same_effect_on_every_loop(loop: Loop) -> None:
    with Buttons(loop) as buttons:
        buttons.at_an_epoch()
        for action, count, trials in PRESSES:
            buttons.pressed(action, trials, count=count)
        for action in ("train", "step_n"):
            before = loop.done
            buttons.press(action, count=10**9)
            wait_until(lambda before=before: loop.done > before + 20, "the loop to go on")
            assert loop.host.state.status == "running"
            buttons.press("stop")
            buttons.paused()
        buttons.pressed("step_trial", 1)  # the goal before is forgotten


def test_what_is_refused_is_refused_in_the_same_words(loop: Loop) -> None:
    with Buttons(loop) as buttons:
        buttons.at_an_epoch()
        done = loop.done
        said = buttons.refused("act", action="nap")
        assert said == f"'nap' cannot be done here; there is {', '.join(loop.host.state.can)}"
        for value, needed in ((-1, "0 or more"), ("1x", "a number"), (None, "a number")):
            said = buttons.refused("change", name=loop.rate, value=value)
            assert said == f"{loop.rate} cannot be {value!r}: it must be {needed}"
        said = buttons.refused("change", name=f"{loop.rate}s", value=1)
        assert said == f"'{loop.rate}s' cannot be changed while this runs. Did you mean {loop.rate!r}?"
        assert (loop.done, loop.host.state.status) == (done, "paused")
        buttons.pressed("step_trial", 1)


def test_a_change_of_a_parameter_is_a_row_with_the_place_where_it_was_made(loop: Loop) -> None:
    with Buttons(loop) as buttons:
        buttons.at_an_epoch()
        buttons.pressed("step_n", 2, count=2)
        for value in (0.5, 0.5, 0.25):  # the second changes nothing
            buttons.wire.send({"kind": "change", "name": loop.rate, "value": value})
        wait_until(lambda: len(loop.host.tables().get("changes", ({}, {"name": []}))[1]["name"]) == 2, "the rows")
        head, columns = loop.host.tables()["changes"]
        assert head.title == "Changes of parameters"
        assert columns["name"] == [loop.rate] * 2
        assert (columns["before"], columns["after"]) == (["0.125", "0.5"], ["0.5", "0.25"])
        assert set(columns["Trial"] if "Trial" in columns else [step % TRIALS for step in columns["Step"]]) == {2}


@pytest.mark.parametrize("name", ["training", "live"])
def test_a_paused_loop_outlives_a_viewer_that_leaves_and_then_goes_on_by_itself(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_control, "ALONE_SECS", 10.0**6)
    loop = LOOPS[name]()
    loop.thread.start()
    try:
        with Buttons(loop) as buttons:
            buttons.at_an_epoch()
        done = loop.done
        time.sleep(1.0)  # twice as long as any loop waits between two looks
        with Buttons(loop) as buttons:  # whoever comes back finds it as it was
            assert (loop.done, loop.host.state.status) == (done, "paused")
            buttons.pressed("step_trial", 1)
            monkeypatch.setattr(loop_control, "ALONE_SECS", 0.25)
        wait_until(lambda: loop.done > done + 10, "it to go on alone")
        with Buttons(loop) as buttons:
            (alert,) = wait_until(lambda: buttons.alerts(), "what it says")
            assert alert["text"] == "nobody has looked on for 0.25 s: it goes on"
    finally:
        loop.end()


def control_of(host: Host, **about: Any) -> LoopControl:
    actions = ("train", "stop", *loop_control.STEP_UNITS)
    return LoopControl(
        host, can=lambda: actions, counters=dict, settings=list, changed=lambda change: None, **about
    )  # fmt: skip


def test_a_loop_that_begins_paused_waits_for_its_first_viewer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_control, "ALONE_SECS", 0.0)
    with Host() as host:
        control = control_of(host, is_paused=True)
        assert [control.wait(0.01) for _ in range(5)] == [""] * 5 and control.is_paused
        with Viewer(host):
            wait_until(lambda: host.viewer, "the viewer")
            assert control.wait(0.01) == "" and control.is_paused
        assert control.wait(0.01) == "nobody has looked on for 0 s" and not control.is_paused
        control.pause()
        host.close()
        assert control.wait(0.01) == "nobody can look on any more" and not control.is_paused


def test_orders_that_a_loop_leaves_are_there_for_the_next_time() -> None:
    with Host() as host, Viewer(host) as viewer:
        control, taken = control_of(host), list[Any]()
        for action in ("stop", "train", "step_run"):
            viewer.press(action)
        wait_until(lambda: control.is_stop_waiting(), "the first order")
        wait_until(lambda: (taken.extend(islice(control.orders(), 1)), len(taken) == 3)[1], "the others")
        assert [order.action for order in taken] == ["stop", "train", "step_run"]


def test_a_goal_that_is_replaced_is_forgotten() -> None:
    with Host() as host:
        control = control_of(host)
        control.execute(Act("step_n", count=5))
        control.execute(Act("step_epoch"))
        for _ in range(9):
            control.reached("trial")
        assert not control.is_paused and control.has_goal
        control.reached("epoch")
        assert control.is_paused and not control.has_goal


def test_a_parameter_that_is_a_list_takes_a_list() -> None:
    betas = Parameter("betas", [0.9, 0.99], editable=True, maximum=1.0)
    assert check_change([betas], "betas", [0.8, 1]) == [0.8, 1.0]
    for value, needed in (
        (0.8, "0.8: it must be a list"),
        ([0.8, "x"], "'x': it must be a number"),
        ([2], "2: it must be 1 or less"),
    ):
        with pytest.raises(BadArgument, match=f"betas cannot be {needed}"):
            check_change([betas], "betas", value)


def test_a_change_in_a_live_loop_stays_in_the_log_of_its_run(tmp_path: Path) -> None:
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.125)
    with tl.live(model, optimizer=optimizer, to=tmp_path / "run", open_server=False) as view:
        with Viewer(view.host) as viewer:
            for step in range(3):
                model(torch.rand(4, 3)).sum().backward()
                view.log(loss=float(step))
            viewer.wire.send({"kind": "change", "name": "lr", "value": 0.5})
            wait_until(lambda: (model(torch.rand(4, 3)), optimizer.param_groups[0]["lr"] == 0.5)[1], "a new rate")
            (step,) = view.host.tables()["changes"][1]["Step"]
    changes = tl.load(tmp_path / "run").tables["changes"]
    row = {name: changes[name].tolist() for name in ("Step", "name", "before", "after")}
    assert row == {"Step": [step], "name": ["lr"], "before": ["0.125"], "after": ["0.5"]} and step >= 2
