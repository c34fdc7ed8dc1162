"""`tl.live` around any loop, with its real server: seen, held, stepped, changed, and never in the way."""

from __future__ import annotations

import inspect
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch
from children import Child, has_ended
from host_viewer import Viewer
from seams import EACH_TRIAL, Every, FollowedLog, Live, Wants, is_live, loop_control
from studio_socket import Page
from torch import nn
from waiting import WAIT_SECS, wait_until

import torcheer as tl
from torcheer.errors import BadArgument, NotAModel

pytestmark = pytest.mark.usefixtures("one_thread")


class Loop:
    """A training loop in a thread of its own."""

    def __init__(self, **settings: Any) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 10), nn.Linear(10, 3))
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.01, momentum=0.9)
        self.x, self.losses = torch.rand(8, 1, 8, 8), list[float]()
        self.going, self.secs = True, 0.0
        self.view = tl.live(self.model, optimizer=self.optimizer, browser=False, **settings)
        self._thread = threading.Thread(target=self._run)

    def step(self) -> torch.Tensor:
        self.optimizer.zero_grad()
        loss = self.model(self.x).square().mean()
        loss.backward()
        self.optimizer.step()
        self.losses.append(loss.item())
        return loss

    def _run(self) -> None:
        torch.set_num_threads(1)  # each thread has its own number, and sums differ with it
        while self.going:
            self.view.log(loss=self.step())
            time.sleep(0.002)

    def start(self) -> Loop:
        self._thread.start()
        return self

    def goes_on(self) -> bool:
        """Whether it makes steps, waited for."""
        before = len(self.losses)
        return bool(wait_until(lambda: len(self.losses) > before + 3, "the loop to go on"))

    def end(self) -> None:
        self.going = False
        self.view.finish()  # so that one that was left paused goes on
        if self._thread.ident is not None:
            self._thread.join(60)
        self.view.close()


@pytest.fixture
def loops() -> Iterator[list[Loop]]:
    made: list[Loop] = []
    yield made
    for loop in made:
        loop.end()


def made(loops: list[Loop], **settings: Any) -> Loop:
    loops.append(Loop(**settings))
    return loops[-1]


# -- with its page ---------------------------------------------------------------------------------------------------


def test_a_page_sees_the_network_its_values_and_its_plots_live(
    loops: list[Loop], capsys: pytest.CaptureFixture[str]
) -> None:
    loop = made(loops).start()
    assert capsys.readouterr().out.splitlines()[0] == loop.view.url and "?token=" in loop.view.url
    wait_until(lambda: loop.view.host.network is not None, "the first pass")
    with Page(loop.view.url) as page:
        net = page.hello["net"] or page.until("net_came")["net"]
        assert [one["layer"]["name"] for one in net["layers"]] == ["Input", "0", "3", "4"]
        page.say("look", look=1, variable="Act")
        shown = page.until("shown", lambda message: message["moment"] >= 0)
        page.say("seen", look=1, moment=shown["moment"])
        later = page.until("shown", lambda message: message["moment"] > shown["moment"])
        assert later["missing"] == []
        page.until("rows", lambda message: message["table"] == "train_step" and message["columns"].get("loss"))


def test_a_page_that_comes_at_once_finds_a_loop_that_it_may_stop(loops: list[Loop]) -> None:
    loop = made(loops)
    with Page(loop.view.url) as page:  # before the first step
        assert page.hello["state"]["status"] == "running" and "stop" in page.hello["state"]["can"]
        page.say("act", action="stop")
        loop.start()
        page.until("state_came", lambda message: message["state"]["status"] == "paused")


def test_buttons_hold_the_loop_at_a_step_and_let_it_go_so_many_steps(loops: list[Loop]) -> None:
    loop = made(loops).start()
    assert loop.goes_on()
    with Page(loop.view.url) as page:
        page.say("act", action="stop")
        page.until("state_came", lambda message: message["state"]["status"] == "paused")
        held = len(loop.losses)
        page.say("act", action="step_n", count=7)
        wait_until(lambda: len(loop.losses) == held + 7 and loop.view.host.state.status == "paused", "seven steps")
        page.say("act", action="step_trial")
        wait_until(lambda: len(loop.losses) == held + 8 and loop.view.host.state.status == "paused", "one more")
        assert "step_epoch" not in loop.view.host.state.can  # none has ended, so nobody knows how long they are
        page.say("change", name="lr", value=0.5)
        wait_until(lambda: loop.optimizer.param_groups[0]["lr"] == 0.5, "another learning rate")
        assert len(loop.losses) == held + 8
        page.say("act", action="train")
        assert loop.goes_on()
    assert loop.goes_on()  # the page is closed, the loop goes on


def test_closing_the_page_leaves_a_paused_loop_paused_and_killing_the_server_lets_it_go(
    loops: list[Loop], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_control, "ALONE_SECS", 0.5)
    loop = made(loops).start()
    assert loop.goes_on()
    with Page(loop.view.url) as page:
        page.say("act", action="stop")
        page.until("state_came", lambda message: message["state"]["status"] == "paused")
    held = len(loop.losses)
    with Page(loop.view.url) as page:  # whoever comes back finds it as it was
        assert page.hello["state"]["status"] == "paused" and len(loop.losses) == held
    assert loop.view.viewer is not None
    os.kill(loop.view.viewer.pid, signal.SIGKILL)
    assert loop.goes_on()
    assert "nobody has looked on for 0.5 s: it goes on" in capfd.readouterr().err


def test_killing_the_server_in_the_midst_of_a_look_harms_no_step_and_no_number(loops: list[Loop]) -> None:
    loop = made(loops).start()
    with Page(loop.view.url) as page:
        page.say("look", look=1, variable="Grad", train={"unit": "trial", "count": 1})
        page.until("shown", lambda message: message["moment"] >= 0)
        assert loop.view.viewer is not None
        os.kill(loop.view.viewer.pid, signal.SIGKILL)
    assert loop.goes_on()
    wait_until(lambda: loop.view.host.viewer == "" and loop.view.host.wants == Wants(), "the host to notice")
    assert loop.goes_on() and not loop.view.problems
    loop.going = False
    loop._thread.join(60)
    alone = Loop(open_server=False)
    loops.append(alone)
    for _ in loop.losses:
        alone.step()
    assert alone.losses == loop.losses  # bit for bit


def test_after_its_block_the_page_shows_how_it_ended_and_ends_with_the_process() -> None:
    script = """
        import torch, torcheer as tl
        model = torch.nn.Linear(3, 2)
        with tl.live(model, browser=False) as view:
            for _ in range(5):
                model(torch.rand(4, 3)).sum().backward()
            view.epoch(loss=0.5)
        print(view.viewer.pid, view.viewer.alive, view.host.closed, flush=True)
        input()
    """
    with Child("-c", script, stdin=subprocess.PIPE) as process:
        url = process.line()
        pid, alive, closed = process.line().split()
        assert (alive, closed) == ("True", "True")
        with Page(url) as page:
            state = page.hello["state"]
            if state["status"] != "done":
                state = page.until("state_came", lambda message: message["state"]["status"] == "done")["state"]
            assert state["counters"]["Epoch"] == 1 and state["can"] == []
        process.communicate("\n", timeout=WAIT_SECS)
        wait_until(lambda: has_ended(pid), "no orphan")


# -- without one -----------------------------------------------------------------------------------------------------


def test_numbers_are_rows_of_tables(loops: list[Loop]) -> None:
    loop = made(loops, open_server=False)
    for _ in range(3):
        loop.view.log(loss=loop.step(), note="x")
    loop.view.epoch(loss=0.25)
    loop.view.test(accuracy=torch.tensor(0.75))
    loop.view.log(loss=loop.step(), shape_only=torch.empty((), device="meta"))
    steps = loop.view.logs["train_step"]
    assert list(steps["loss"]) == loop.losses and list(steps["note"]) == ["x", "x", "x", ""]
    assert loop.view.logs["test_epoch"].to_pandas()["accuracy"].tolist() == [0.75]
    with Viewer(loop.view.host) as viewer:
        wait_until(lambda: len(viewer.rows("train_step").get("Step", [])) == 4, "rows")
        rows = viewer.rows("train_step")
        assert rows["loss"] == loop.losses and rows["Step"] == [0, 1, 2, 3] and rows["Epoch"] == [0, 0, 0, 1]
        assert rows["note"] == ["x", "x", "x", None] and "shape_only" not in rows  # it never had a number
        wait_until(lambda: viewer.rows("test_epoch").get("accuracy") == [0.75], "a test")
        assert viewer.rows("train_epoch") == {"Epoch": [0], "Step": [2], "loss": [0.25]}
        wait_until(lambda: (loop.step(), viewer.last("state_came")["state"]["batch"] == 8)[1], "the size of a batch")
        assert viewer.last("state_came")["state"]["can"] == ["train", "stop", "step_trial", "step_n", "step_epoch"]


def test_a_step_of_an_epoch_goes_to_where_the_loop_says_that_one_ends(loops: list[Loop]) -> None:
    loop = made(loops, open_server=False)
    with Viewer(loop.view.host) as viewer:
        loop.view.epoch()
        wait_until(lambda: (loop.step(), "step_epoch" in viewer.last("state_came")["state"]["can"])[1], "a button")
        for action in ("stop", "step_epoch"):
            viewer.wire.send({"kind": "act", "action": action})
        wait_until(lambda: len(loop.view.host._board.inbox) == 2, "orders")
        for _ in range(300):  # far beyond what would be done without asking anybody
            loop.step()
        assert loop.view.host.state.status == "running"
        loop.view.epoch()
        held: list[Any] = []

        def let_go() -> None:
            wait_until(lambda: loop.view.host.state.status == "paused", "the end of the epoch")
            held.append(loop.view.host.state.counters)
            viewer.wire.send({"kind": "act", "action": "train"})

        helper = threading.Thread(target=let_go)
        helper.start()
        loop.step()  # waits at its beginning
        helper.join()
        assert [one["Epoch"] for one in held] == [2]


def test_settings_of_the_optimizer_can_be_changed_and_what_cannot_be_is_said(loops: list[Loop]) -> None:
    loop = made(loops, open_server=False)
    loop.step()
    with Viewer(loop.view.host) as viewer:
        names = {one["name"]: one["editable"] for one in viewer.last("parameters_came")["parameters"]}
        assert names == {"lr": True, "momentum": True, "weight_decay": True, "model": False, "parameters": False}
        for name, value in (("lr", 0.125), ("momentum", "much"), ("lr", -1), ("lr", float("1e999")), ("model", "x")):
            viewer.wire.send({"kind": "change", "name": name, "value": value})
        wait_until(lambda: (loop.step(), len(viewer.alerts()) >= 4)[1], "all of them to be dealt with")
        assert loop.optimizer.param_groups[0]["lr"] == 0.125 and loop.optimizer.param_groups[0]["momentum"] == 0.9
        assert [one["text"] for one in viewer.alerts()] == [
            "momentum cannot be 'much': it must be a number", "lr cannot be -1: it must be 0 or more",
            "lr cannot be inf: it must be a number",
            "'model' cannot be changed while this runs. There are: lr, momentum, weight_decay",
        ]  # fmt: skip
        viewer.last("parameters_came", lambda message: message["parameters"][0]["value"] == 0.125)


def test_each_group_of_an_optimizer_has_its_own_line() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    groups = [{"params": part.parameters(), "lr": torch.tensor(0.1 * (1 + place))} for place, part in enumerate(model)]
    optimizer = torch.optim.Adam(groups)
    with tl.live(model, optimizer=optimizer, open_server=False) as view, Viewer(view.host) as viewer:
        viewer.wire.send({"kind": "change", "name": "group 2: lr", "value": 0.5})
        wait_until(lambda: (model(torch.rand(1, 2)), optimizer.param_groups[1]["lr"] == 0.5)[1], "a new rate")
        assert isinstance(optimizer.param_groups[1]["lr"], torch.Tensor)
        assert optimizer.param_groups[0]["lr"] == pytest.approx(0.1)


def test_with_inputs_the_network_is_there_before_the_first_step() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    with tl.live(model, inputs=torch.rand(5, 3), open_server=False) as view:
        assert view.host.network is not None
        assert [layer.shape for layer in view.host.network.layers] == [(3,), (4,), (2,)]
        with Viewer(view.host, Wants(("Act",), train=EACH_TRIAL)) as viewer:
            model(torch.rand(6, 3)).sum().backward()
            model(torch.rand(6, 3)).sum().backward()
            assert viewer.moments()[0]["step"] == 0
    with tl.live(model, inputs=torch.rand(5, 7), open_server=False) as view:
        assert "could not be run with the inputs" in view.problems[0]


def test_a_paused_loop_ends_by_ctrl_c_and_the_page_is_told_why(tmp_path: Path) -> None:
    script = f"""
        import torch, torcheer as tl
        model = torch.nn.Linear(3, 2)
        with tl.live(model, to={str(tmp_path)!r}, open_server=False) as view:
            while True:
                model(torch.rand(4, 3))
    """
    path = tmp_path / "control.sock"

    class There:  # as much of a host as the viewer asks for
        closed, viewer, wants = False, "", Wants()

    with Child("-c", script) as process:
        wait_until(lambda: is_live(tmp_path), "the host")  # a socket is there before it listens
        there: Any = There()
        there.path = path
        viewer = Viewer(there)
        viewer.press("stop")
        viewer.last("state_came", lambda message: message["state"]["status"] == "paused")
        process.send_signal(signal.SIGINT)
        wait_until(lambda: viewer.of("bye"), "the end")
        assert viewer.last("state_came")["state"]["message"] == "stopped by Ctrl-C"
        process.ends(-signal.SIGINT)
        assert "KeyboardInterrupt" in process.error_text and not path.exists()


def test_of_several_processes_only_the_first_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    model = nn.Linear(2, 2)
    with tl.live(model) as view:
        model(torch.rand(1, 2))
        view.log(loss=1.0)
        view.epoch()
        assert view.url == "" and view.path is None and view.step == 0


def test_a_directory_that_is_taken_is_refused_before_anything_begins(tmp_path: Path) -> None:
    model = nn.Linear(2, 2)
    with tl.live(model, to=tmp_path, open_server=False):
        with pytest.raises(BlockingIOError, match="another process listens"):
            tl.live(model, to=tmp_path, open_server=False)
    assert not model._forward_pre_hooks and sorted(path.name for path in tmp_path.iterdir()) == ["log", "run.json"]


def test_what_is_no_model_and_what_is_no_optimizer_is_refused() -> None:
    with pytest.raises(NotAModel, match=r"live needs an nn.Module, got function"):
        tl.live(lambda x: x)  # type: ignore[arg-type]
    with pytest.raises(BadArgument, match="a float has no param_groups"):
        tl.live(nn.Linear(2, 2), optimizer=0.1)  # type: ignore[arg-type]


def test_the_verb_is_the_same() -> None:
    with tl.live(nn.Linear(2, 2), open_server=False) as view:
        assert isinstance(view, Live) and view.path is not None and view.path.is_socket()


# -- what it finds, alone and beside a watch -------------------------------------------------------------------------


class Breaking(nn.Module):
    """Two layers; a number of the second weight becomes NaN where `breaks` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.head = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        head: torch.Tensor = self.head(self.stem(x))
        return head

    def break_head(self) -> None:
        with torch.no_grad():
            self.head.weight[0, 0] = float("nan")


HEAD_LINE = f"{Path(__file__).name}:{inspect.getsourcelines(Breaking.forward)[1] + 1}"


def test_a_live_view_alone_reports_nan_of_a_layer_it_shows_once_and_where_it_was_first() -> None:
    model = Breaking()
    with tl.live(model, inputs=torch.rand(3, 4), open_server=False) as view:
        with Viewer(view.host, Wants(("Act",), train=EACH_TRIAL)) as viewer:
            for step in range(6):
                if step == 3:
                    model.break_head()
                model(torch.rand(3, 4)).sum().backward()
            viewer.moments(5)
            (alert,) = wait_until(viewer.alerts, "an alert")
        assert (alert["rule"], alert["layer"], alert["step"], alert["severity"]) == ("nan_inf", "head", 3, "error")
        assert "of 6 numbers 3 NaN. Try" in alert["text"] and alert["began_here"]  # the step before was shown
        assert f": head (Linear, {HEAD_LINE}), output: of 6" in alert["text"]


def test_a_live_view_says_that_nan_may_have_begun_in_a_step_that_it_did_not_show() -> None:
    model = Breaking()
    with tl.live(model, inputs=torch.rand(3, 4), open_server=False) as view:
        with Viewer(view.host, Wants(("Act",), train=Every("trial", 4))) as viewer:
            for step in range(10):
                if step == 6:
                    model.break_head()
                model(torch.rand(3, 4)).sum().backward()
            (alert,) = wait_until(viewer.alerts, "an alert")
        found = re.search(r"it may have begun after step (\d+), the last look before", alert["text"])
        assert found and int(found[1]) < 6 <= alert["step"] and not alert["began_here"]


def test_a_live_view_alone_reports_a_loss_that_is_nan_and_no_mask_of_infinities() -> None:
    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            return (self.head(x) + mask).softmax(-1)

    model, mask = Masked(), torch.tensor([0.0, 0.0, 0.0, -torch.inf])
    with tl.live(model, inputs=(torch.rand(3, 4), mask), open_server=False) as view:
        with Viewer(view.host, Wants(("Act",), train=EACH_TRIAL)) as viewer:
            for loss in (1.0, torch.tensor(float("nan")), 1.0):
                model(torch.rand(3, 4), mask).sum().backward()
                view.log(loss=loss)
                view.test(accuracy=float("nan"))  # of nothing
            viewer.moments(2)
            (alert,) = wait_until(viewer.alerts, "an alert")
        assert (alert["layer"], alert["step"]) == ("loss", 1) and "it is NaN" in alert["text"]


def test_nan_that_a_watch_reports_is_not_reported_by_the_page_as_well() -> None:
    model = Breaking()
    with tl.live(model, inputs=torch.rand(3, 4), open_server=False) as view, tl.watch(model, every=1) as watched:
        with Viewer(view.host, Wants(("Act",), train=EACH_TRIAL)) as viewer:
            for step in range(4):
                if step == 2:
                    model.break_head()
                loss = model(torch.rand(3, 4)).sum()
                loss.backward()
                view.log(loss=loss)
            viewer.moments(3)
            watched.close()
            alerts = wait_until(viewer.alerts, "an alert")
        assert [alert["text"] for alert in alerts] == list(map(str, watched.alerts)) and len(alerts) == 1


@pytest.mark.parametrize("first", ["page", "watch"])
def test_alerts_of_a_watch_of_the_same_model_reach_the_page(first: str) -> None:
    model = Breaking()
    model.break_head()
    with ExitStack() as blocks:
        if first == "watch":
            watched = blocks.enter_context(tl.watch(model, every=1))
        view = blocks.enter_context(tl.live(model, open_server=False))
        if first == "page":
            assert not view.host.state.watched
            watched = blocks.enter_context(tl.watch(model, every=1))
        for _ in range(3):
            model(torch.rand(3, 4)).sum().backward()
        watched.close()
        with Viewer(view.host) as viewer:
            assert any(alert["text"] == str(watched.alerts[0]) for alert in viewer.alerts())
        view.finish()
        assert view.host.state.watched  # the page says so still


def test_a_watch_and_a_page_of_the_same_model_write_one_run_where_one_of_them_names_a_folder(tmp_path: Path) -> None:
    for name, order in (("page", "lw"), ("watch", "wl")):
        model, to = Breaking(), tmp_path / name
        model.break_head()
        with ExitStack() as blocks:
            if order == "lw":
                blocks.enter_context(tl.live(model, to=to, open_server=False))
                watched = blocks.enter_context(tl.watch(model, every=1))
            else:
                watched = blocks.enter_context(tl.watch(model, every=1, to=to))
                blocks.enter_context(tl.live(model, open_server=False))
            for _ in range(3):
                model(torch.rand(3, 4)).sum().backward()
            assert watched.to == to
        run = FollowedLog(to)
        run.refresh()
        assert "head output" in run.tables and [alert.rule for alert in run.alerts] == ["nan_inf"]  # said once
        assert run.is_watched
