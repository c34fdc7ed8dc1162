"""`tl.watch` around a training loop, with its real child."""

from __future__ import annotations

import copy
import gc
import inspect
import logging
import math
import os
import signal
import textwrap
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from children import run_python
from leftovers import nothing_added, traces
from models import Sparse, small
from seams import AlertPlaces, Plan, choose, fair_bytes, program_line
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from waiting import wait_until
from watch_checks import batch, hooks_of, train

import torcheer as tl
from torcheer.errors import BadArgument, UnknownLayer
from torcheer.inspector import Alert, Every, Transport, open_watch
from torcheer.samples import place_in

RING = Transport(bytes=8 << 20, drain_secs=60.0)
pytestmark = pytest.mark.filterwarnings("error")


@pytest.fixture(autouse=True)
def _torch_speaks_up() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=UserWarning, module=r"torch(\.|$)")
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        yield


# -- around a loop


def test_a_loop_is_watched_by_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = small()
    with tl.watch(model, every=2, to=tmp_path / "run", transport=RING) as w:
        train(model, 5, after=lambda loss: w.log(loss=loss))
        wait_until(lambda: w.account.handled == w.account.offered)  # or closing says that it waits
    found = open_watch(tmp_path / "run")
    assert found["5", "output"].steps.tolist() == [0, 2, 4]
    assert found["5.weight", "update"].steps.tolist() == [0, 2, 4]
    assert found["loss", "metric"].steps.tolist() == [0, 1, 2, 3, 4]
    layers = {layer for layer, variable in found.keys() if variable == "grad"}
    assert layers == {"0", "1", "2", "3", "4", "5"}
    assert w.account.offered == w.account.handled > 0 and not w.drops and not w.problems
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert f"{w.account.handled:,} values of 5 steps, in {tmp_path / 'run'}" in said


def test_how_often_it_looks_can_be_changed_while_it_runs() -> None:
    model = small()
    with tl.watch(model, "5", what="output", every=10**9, transport=RING) as w:
        train(model, 5)
        assert not w.is_watching
        w.every = 1
        assert w.every == Every(steps=1)
        wait_until(lambda: train(model, 20) and w.is_watching)
        with pytest.raises(BadArgument, match="every=0"):
            w.every = 0


def test_losses_weights_and_random_numbers_are_those_of_an_unwatched_run(tmp_path: Path) -> None:
    plain, model = small(), small()
    expected = train(plain, 10)
    state = torch.get_rng_state()
    with tl.watch(model, every=1, to=tmp_path, keep="*", transport=RING) as w:
        assert train(model, 10, after=lambda loss: w.log(loss=loss)) == expected
    assert torch.equal(torch.get_rng_state(), state)
    for mine, theirs in zip(model.state_dict().values(), plain.state_dict().values()):
        assert torch.equal(mine, theirs)


def test_kept_arrays_are_the_tensors(tmp_path: Path) -> None:
    model = small()
    weight = model[5].weight.detach().clone()
    with tl.watch(model, "5", every=3, to=tmp_path, keep=["5/output", "5.weight"], transport=RING):
        train(model, 1)
        update = model[5].weight.detach() - weight
    found = open_watch(tmp_path)
    assert np.array_equal(found["5.weight", "weight"].values[0], weight.numpy())
    assert np.array_equal(found["5.weight", "update"].values[0], update.numpy())
    assert found["5", "output"].values[0].shape == (5, 3)


def test_a_callback_that_writes_into_its_array_does_not_change_what_is_kept(tmp_path: Path) -> None:
    def spoil(layer: str, variable: str, step: int, array: Any) -> None:
        array[...] = 99

    model = small()
    weight = model[5].weight.detach().clone()
    with tl.watch(model, "5", every=1, to=tmp_path, keep="5.weight", callback=spoil, transport=RING):
        train(model, 1)
    assert np.array_equal(open_watch(tmp_path)["5.weight", "weight"].values[0], weight.numpy())


def test_without_a_folder_nothing_is_written_and_alerts_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    model = small()
    with tl.watch(model, every=1, transport=RING) as w:
        train(model, 2)
        w.log(loss=math.nan)
        wait_until(lambda: w.alerts)
    assert [alert.rule for alert in w.alerts] == ["nan_inf"]
    assert isinstance(w.alerts[0], Alert) and w.alerts[0].layer == "loss"
    assert "torcheer: nan_inf at step 1: loss (metric): it is NaN" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("level", [logging.NOTSET, logging.CRITICAL])
def test_logging_governs_alerts_as_other_notices(level: int, capsys: pytest.CaptureFixture[str]) -> None:
    logger, records = logging.getLogger("torcheer"), list[logging.LogRecord]()
    handler = logging.Handler()
    handler.emit = records.append  # type: ignore[method-assign]
    model = small()
    logger.addHandler(handler)
    logger.setLevel(level)
    try:
        with tl.watch(model, every=1, transport=RING) as w:
            train(model, 2)
            w.log(loss=math.nan)
            wait_until(lambda: w.alerts)
    finally:
        logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)
    told = [(record.name, record.levelno, record.getMessage()) for record in records]
    text = "nan_inf at step 1: loss (metric): it is NaN"
    assert [alert[:2] for alert in told] == [("torcheer.watch", logging.ERROR)] * (level == logging.NOTSET)
    assert all(alert[2].startswith(text) for alert in told) and "nan_inf" not in capsys.readouterr().err


def test_without_a_with_block_it_is_closed_by_hand() -> None:
    model = small()
    w = tl.watch(model, every=2, transport=RING)
    train(model, 3)
    assert w.step == 2 and not w.closed
    w.close()
    w.close()
    assert w.closed and hooks_of(model) == 0
    train(model, 2)
    w.log(loss=1.0)
    assert w.step == 2


def test_an_error_in_the_loop_is_the_users_and_the_watch_ends(tmp_path: Path) -> None:
    model = small()
    with pytest.raises(ZeroDivisionError), tl.watch(model, to=tmp_path, transport=RING) as w:
        train(model, 1)
        raise ZeroDivisionError
    assert w.closed and hooks_of(model) == 0
    assert open_watch(tmp_path)["5", "output"].steps.tolist() == [0]


def left_behind() -> tuple[int, ...]:
    from torch.optim.optimizer import _global_optimizer_post_hooks, _global_optimizer_pre_hooks

    hooks = len(_global_optimizer_post_hooks) + len(_global_optimizer_pre_hooks)
    return *traces(), hooks


def test_a_watch_starts_and_ends_without_a_trace() -> None:
    model = small()

    def cycle() -> None:
        with tl.watch(model, transport=Transport(bytes=1 << 20)):
            train(model, 1)

    cycle()
    gc.collect()
    before = left_behind()
    for _ in range(5):
        cycle()
    gc.collect()
    after = left_behind()
    assert nothing_added(after, before)
    assert hooks_of(model) == 0


def test_two_watches_of_one_model_do_not_disturb_each_other(tmp_path: Path) -> None:
    model = small()
    with tl.watch(model, "5", every=2, to=tmp_path / "a", transport=RING):
        with tl.watch(model, "0", every=3, to=tmp_path / "b", transport=RING):
            train(model, 6)
    assert open_watch(tmp_path / "a")["5", "grad"].steps.tolist() == [0, 2, 4]
    assert open_watch(tmp_path / "b")["0", "grad"].steps.tolist() == [0, 3]


def test_a_watched_model_is_copied_and_saved_without_its_watch(tmp_path: Path) -> None:
    model = small()
    with tl.watch(model, transport=RING) as w:
        train(model, 1)
        twin = copy.deepcopy(model)
        torch.save(model, tmp_path / "whole.pt")
        torch.save(model.state_dict(), tmp_path / "weights.pt")
        train(twin, 3)
        train(torch.load(tmp_path / "whole.pt", weights_only=False), 3)
        assert w.step == 0


def test_workers_of_a_loader_do_no_harm(tmp_path: Path) -> None:
    x, y = batch()
    loader = DataLoader(TensorDataset(x, y), batch_size=2, num_workers=2, multiprocessing_context="fork")
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with tl.watch(model, every=1, to=tmp_path, transport=RING) as w:
        for _ in range(2):
            for inputs, targets in loader:
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(inputs), targets).backward()
                optimizer.step()
    assert w.step == 5
    assert w.account.offered == w.account.handled
    assert open_watch(tmp_path)["5", "grad"].steps.tolist() == [0, 1, 2, 3, 4, 5]


# -- callbacks, videos, alerts, ending


def test_a_callback_in_the_child_gets_arrays(tmp_path: Path) -> None:
    def note(layer: str, variable: str, step: int, array: Any) -> None:
        with open(tmp_path / "notes", "a") as file:
            print(layer, variable, step, type(array).__name__, array.shape, file=file)

    model = small()
    with tl.watch(model, "5", what="output", every=2, callback=note, transport=RING):
        train(model, 3)
    lines = (tmp_path / "notes").read_text().splitlines()
    assert [line for line in lines if line.startswith("5 ")] == [
        "5 output 0 ndarray (5, 3)", "5 output 2 ndarray (5, 3)",
    ]  # fmt: skip


def test_a_callback_that_fails_is_a_problem_and_no_more(tmp_path: Path) -> None:
    def fail(layer: str, variable: str, step: int, array: Any) -> None:
        raise RuntimeError("not today")

    model = small()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with tl.watch(model, "5", what="output", every=1, callback=fail, to=tmp_path, transport=RING) as w:
            train(model, 3)
    assert [text for text in w.problems if "not today" in text and "5 (output)" in text]
    assert any("not today" in str(one.message) for one in said)
    assert open_watch(tmp_path)["5", "output"].steps.tolist() == [0, 1, 2]


def test_a_video_is_made_of_the_layers_it_is_asked_of(tmp_path: Path) -> None:
    pytest.importorskip("av")
    model = small()
    with tl.watch(model, what="output", every=1, to=tmp_path, video="0", transport=RING):
        train(model, 3)
    assert len(list((tmp_path / "videos").glob("*.mp4"))) == 1


def test_a_rule_ends_the_block_before_its_next_step(tmp_path: Path) -> None:
    model = small()
    steps = 0
    with tl.watch(model, every=1, stop_on="nan_inf", transport=RING) as w:
        while steps < 10_000:
            train(model, 1)
            steps += 1
            if steps == 3:
                w.log(loss=math.nan)
        raise AssertionError("it went on")
    assert 3 <= steps < 10_000
    assert w.should_stop and w.closed and hooks_of(model) == 0


def test_without_a_block_a_rule_only_says_that_it_is_time(tmp_path: Path) -> None:
    model = small()
    heard: list[Alert] = []
    w = tl.watch(model, every=1, stop_on="error", on_alert=heard.append, transport=RING)
    w.log(loss=math.inf)
    wait_until(lambda: w.alerts)
    train(model, 2)
    assert w.should_stop and [alert.rule for alert in heard] == ["nan_inf"]
    w.close()


def test_a_stop_of_one_watch_passes_through_another() -> None:
    model = small()
    reached = []
    with tl.watch(model, every=1, stop_on="nan_inf", transport=RING) as outer:
        with tl.watch(model, "5", every=1, transport=RING):
            outer.log(loss=math.nan)
            wait_until(lambda: outer.alerts)
            train(model, 1)
        reached.append("the outer block goes on")
    assert reached == [] and hooks_of(model) == 0


def test_on_alert_may_fail() -> None:
    def fail(alert: Alert) -> None:
        raise RuntimeError("no")

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with tl.watch(small(), on_alert=fail, transport=RING) as w:
            w.log(loss=math.nan)
            wait_until(lambda: w.alerts)
    assert "on_alert failed: RuntimeError: no" in w.problems


# -- what is said, and where it is refused


def test_warnings_that_are_errors_do_not_reach_the_model(capsys: pytest.CaptureFixture[str]) -> None:
    model = nn.Sequential(nn.ReLU(), Sparse())
    with tl.watch(model, what="output", every=1, transport=RING) as w:
        for _ in range(2):
            model(torch.eye(2))
    assert len(w.problems) == 1 and w.problems[0] in capsys.readouterr().err


def test_a_flood_of_problems_is_not_a_flood_of_warnings() -> None:
    class SparseAgain(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.to_dense().to_sparse()

    model = nn.Sequential(*[SparseAgain() for _ in range(30)])
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with tl.watch(model, what="output", every=1, transport={"bytes": 1 << 20}) as w:
            model(torch.eye(2).to_sparse())
    assert len(w.problems) == 30
    assert len([one for one in said if issubclass(one.category, RuntimeWarning)]) == 10


def test_a_model_that_is_never_called_is_pointed_out() -> None:
    with pytest.warns(RuntimeWarning, match="no step was seen: the model was never called in training mode"):
        tl.watch(small(), transport=RING).close()


def test_what_was_to_be_kept_and_never_came_is_pointed_out(tmp_path: Path) -> None:
    model = small()
    with tl.watch(model, every=1, to=tmp_path, keep=["5", "9/output"], tell=lambda text: None, transport=RING) as w:
        train(model, 1)
    (problem,) = w.problems
    assert problem.startswith("nothing that was sent matches '9/output' (keep=, video=)")


def test_drops_are_counted_by_key_and_said(capsys: pytest.CaptureFixture[str]) -> None:
    model = small()

    def slow(layer: str, variable: str, step: int, array: Any) -> None:

        time.sleep(0.02)

    transport = Transport(bytes=1 << 16, drain_secs=1.0)
    with tl.watch(model, every=1, callback=slow, transport=transport) as w:
        train(model, 20)
    account = w.account
    assert account.offered == account.handled + sum(account.dropped.values()) + account.lost + account.damaged
    assert sum(w.drops.values()) > 0 and all(len(key) == 2 for key in w.drops)
    (told,) = [line for line in capsys.readouterr().err.splitlines() if " dropped: " in line]
    worst, count = max(w.drops.items(), key=lambda item: item[1])
    assert f"{sum(w.drops.values()):,} dropped: " in told and f"{worst[0]} ({worst[1]}) {count}" in told


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"what": "outputs"}, "what='outputs': there are output, grad.*Did you mean 'output'"),
        ({"what": ()}, "nothing to look at"),
        ({"every": 0}, "every=0"),
        ({"layers": "nothing"}, "no layer or module named 'nothing'"),
        ({"stop_on": "nan"}, "stop_on='nan': no such rule is on.*Did you mean 'nan_inf'"),
        ({"rules": ["nan"]}, "no rule named 'nan'"),
        ({"rules": None, "stop_on": "nan_inf"}, "no such rule is on"),
        ({"video": True}, "give the watch one with to="),
        ({"video": {"fsp": 3}}, "no setting of videos named 'fsp'"),
        ({"optimizer": "adam"}, "optimizer: one of torch.optim is needed, got str"),
        ({"keep": 3}, "keep=3: text is needed"),
        ({"keep": "*"}, "keep: a folder is needed for it; give the watch one with to="),
        ({"to": ""}, "to='': the name of a folder is needed, or None"),
        ({"to": 3}, "to=3: the name of a folder is needed"),
        ({"callback": 3}, "callback=3: a function is needed"),
        ({"on_alert": "print"}, "on_alert='print': a function is needed"),
        ({"step_of": 3}, "step_of=3: a function is needed"),
        ({"tell": 3}, "tell=3: a function is needed"),
        ({"transport": {"policy": "wait"}}, "no policy 'wait'; there are drop, latest, block"),
        ({"transport": {"policy": "blok"}}, "no policy 'blok'.*Did you mean 'block'"),
        ({"transport": {"bytes": 10}}, "too small"),
        ({"transport": {"bytes": "64 MiB"}}, "bytes='64 MiB': a whole number is needed, such as 67108864"),
        ({"transport": {"bytes": 1e6}}, "bytes=1000000.0: a whole number is needed"),
        ({"transport": {"policy": "block"}}, "policy='block' with block_ms=0: .*try policy='block', block_ms=50"),
        ({"transport": {"block_ms": 5}}, "policy='drop' with block_ms=5"),
        ({"transport": {"block_ms": "5"}}, "block_ms='5': a number is needed, 0 or more"),
        ({"transport": {"drain_secs": math.inf}}, "drain_secs=inf: a number is needed"),
        ({"transport": {"byte": 10}}, "no setting 'byte'; use Transport"),
        ({"transport": 64}, "64 means nothing; use Transport"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_starts(options: dict[str, Any], text: str) -> None:
    model = small()
    with pytest.raises((BadArgument, UnknownLayer), match=text):
        tl.watch(model, **options)
    assert hooks_of(model) == 0


def test_all_values_of_a_step_fit_into_the_ring_together() -> None:
    model = nn.Sequential(*[nn.Linear(8, 8) for _ in range(50)])
    share = (64 << 20) // 8
    limit = fair_bytes(choose(model).count_values(("output", "grad", "weight", "update")), share)
    assert limit * (2 * 50 + 2 * 100) <= 32 << 20
    assert fair_bytes(choose(model, "3").count_values(("output",)), share) == share


# -- trouble elsewhere


def test_a_child_that_is_killed_does_not_change_the_losses() -> None:
    expected = train(small(), 12)
    model = small()
    steps = iter(range(100))

    def kill(loss: torch.Tensor) -> None:
        if next(steps) in (2, 6):
            os.kill(w._link.process.pid, signal.SIGKILL)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with tl.watch(model, every=1, transport=RING) as w:
            assert train(model, 12, after=kill) == expected
    assert w.account.restarts >= 1
    account = w.account
    assert account.offered == account.handled + sum(account.dropped.values()) + account.lost + account.damaged


@pytest.mark.slow
def test_a_plain_script_without_a_guard_is_watched(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent("""
        import torch, torcheer as tl
        print("once")
        model = torch.nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        with tl.watch(model, every=1, to="run", callback=lambda layer, variable, step, array: None):
            for _ in range(3):
                optimizer.zero_grad()
                model(torch.ones(1, 2)).sum().backward()
                optimizer.step()
    """)
    )
    done = run_python(script, cwd=tmp_path)
    assert done.stdout == "once\n"
    assert open_watch(tmp_path / "run")["weight", "update"].steps.tolist() == [0, 1, 2]


def test_a_script_that_forgets_to_close_has_its_log(tmp_path: Path) -> None:
    code = """
        import torch, torcheer as tl
        model = torch.nn.Linear(2, 1)
        tl.watch(model, every=1, to="run", what="output")
        for _ in range(3): model(torch.ones(1, 2))
    """
    run_python("-c", code, cwd=tmp_path)
    found = open_watch(tmp_path / "run")
    assert found["Linear", "output"].steps.tolist() == [0, 1, 2] and found.sealed


# -- where a layer is


class Dying(nn.Module):
    """A ReLU that is dead from the first step on, in a Sequential and beside one."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.act = nn.Sequential(nn.Linear(8, 8), nn.ReLU()), nn.ReLU()
        nn.init.constant_(self.body[0].bias, -100.0)
        self.head = nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.body(x)
        hidden = self.act(hidden - 1)
        return self.head(hidden).log()  # of negative numbers


def test_an_alert_names_the_class_of_its_module_and_the_line_that_calls_it_in_the_same_words_everywhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from seams import LogSource, RunTools, main

    model, notified = Dying(), tmp_path / "notified"
    nn.init.constant_(model.head.bias, -100.0)
    notify = {"command": ["sh", "-c", f'echo "$1" >> {notified}', "sh"], "on": ["alert"]}
    with tl.watch(
        model, every=1, to=tmp_path / "run", transport=RING, notify=notify, rules={"stalled_loader": False}
    ) as w:
        for _ in range(12):
            model(torch.rand(4, 8)).nansum().backward()
    first = inspect.getsourcelines(Dying.forward)[1]
    wanted = {
        ("dead_relu", "body.1", f"ReLU, {Path(__file__).name}:{first + 1}"),
        ("dead_relu", "act", f"ReLU, {Path(__file__).name}:{first + 2}"),
    }
    dead = [alert for alert in w.alerts if alert.rule == "dead_relu"]
    assert {(alert.rule, alert.layer, alert.place) for alert in dead} & wanted
    printed = capsys.readouterr().err
    main("watched", [str(tmp_path / "run")])
    shown = capsys.readouterr().out
    page = LogSource(tmp_path / "run")
    page.poll()
    tools = RunTools(tmp_path).alerts("run")["alerts"]
    wait_until(lambda: notified.is_file() and len(notified.read_text().splitlines()) == len(w.alerts))
    for alert in w.alerts:
        assert f"({alert.place}), " in str(alert) or alert.variable == "metric"
        assert f"torcheer: {alert}" in printed and f"! {alert}" in shown and str(alert) in notified.read_text()
        assert str(alert) in [seen.text for seen in page.alerts]
        assert alert.place in [told["place"] for told in tools if told["what"] == alert.what]
    page.close()


def test_a_value_that_belongs_to_a_module_has_its_place_and_a_metric_none() -> None:
    places = {"body.1": "ReLU, net.py:14", "loss": "Loss, net.py:20"}
    for layer in ("body.1", "body.1:2", "body.1.weight", "body.1[0]", "body.1.hidden:3"):
        assert place_in(places, layer, "output") == "ReLU, net.py:14"
    assert place_in(places, "body", "output") == place_in(places, "loss", "metric") == ""


def test_an_alert_of_the_first_pass_waits_for_the_lines_of_that_pass_and_no_longer() -> None:
    alert = Alert("nan_inf", "a", "output", 0, 0, "it is NaN", "look")
    waiting = AlertPlaces(Plan(places={"a": "ReLU"}, awaits_lines=True))
    assert waiting.name([alert], 5.0) == waiting.name((), 6.0) == []
    waiting.learn({"a": "ReLU, net.py:14"})
    assert [alert.place for alert in waiting.name((), 6.5)] == ["ReLU, net.py:14"]
    never = AlertPlaces(Plan(places={"a": "ReLU"}, awaits_lines=True))
    assert never.name([alert], 5.0) == [] and [alert.place for alert in never.name((), 9.0)] == ["ReLU"]


def test_the_line_of_a_module_in_a_notebook_is_that_of_its_cell() -> None:
    names: dict[str, Any] = {"program_line": program_line, "__name__": "__main__"}
    exec(compile("\n\nline = program_line()", "/tmp/ipykernel_12/345.py", "exec"), names)
    assert names["line"] == "cell:3"
