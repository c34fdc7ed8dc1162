"""`tl.live(to=…)` leaves a run; runs of a loop, watches and trainings open alike, with their statistics and alerts."""

from __future__ import annotations

import json
import math
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from children import Child
from host_viewer import Viewer
from seams import (
    EDGES,
    Host,
    LiveSource,
    LogSource,
    RunFolder,
    State,
    Watched,
    WriterLog,
    describe_run,
    has_log,
    log_reader,
    open_catalog,
    open_source,
    read_run,
)
from studio_hosts import NETWORK
from torch import nn
from waiting import wait_until

import torcheer as tl
from torcheer.integrations import OutsideRun


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))


def lived(run: Path, epochs: int = 2) -> Path:
    """A loop under `tl.live`, with nobody looking at it."""
    model = net()
    with tl.live(model, inputs=torch.ones(2, 4), to=run, open_server=False, title="small") as view:
        for epoch in range(epochs):
            for step in range(5):
                loss = model(torch.ones(2, 4)).sum()
                view.log(loss=loss, step_norm=math.nan if step == 4 else 1.0)
            view.epoch(loss=epoch / 2)
            view.test(acc=0.5 + epoch / 10)
        view.alert("it is slow")
        view.alert("it is slow")
    return run


def test_a_loop_leaves_a_run_with_its_tables_and_alerts(tmp_path: Path) -> None:
    run = tl.load(lived(tmp_path / "run"))
    assert isinstance(run, RunFolder) and json.loads((tmp_path / "run" / "run.json").read_text())["made_by"] == (
        "torcheer live"
    )
    steps, epochs, tests = (run.tables[name] for name in ("train_step", "train_epoch", "test_epoch"))
    assert steps["Step"].tolist() == list(range(10)) and steps["Epoch"].tolist() == [0] * 5 + [1] * 5
    assert len(set(steps["loss"].tolist())) == 1 and [math.isnan(cell) for cell in steps["step_norm"]][:5] == [
        False, False, False, False, True,
    ]  # fmt: skip
    assert epochs["loss"].tolist() == [0.0, 0.5] and tests["acc"].tolist() == [0.5, 0.6]
    assert [str(alert) for alert in run.alerts if alert.severity == "warning"] == ["it is slow"] * 2
    assert not (tmp_path / "run" / "control.sock").exists()


def test_show_prints_the_run_of_a_loop_and_a_watch(tmp_path: Path) -> None:
    lines = describe_run(Path(lived(tmp_path / "run")))
    at = lines.index("Train steps, 10 rows")
    assert lines[at + 1].split()[:2] == ["Step", "Epoch"] and lines[at + 6].split()[0] == "9"
    assert "Test epochs, 2 rows" in lines
    assert describe_run(Path(watched(tmp_path / "w"))) == str(tl.load(tmp_path / "w")).splitlines()


def crash_live(folder: Path) -> None:
    with tl.live(nn.Linear(2, 1), to=folder, open_server=False) as view:
        view.log(loss=1.0)
        raise ValueError("no such class")


def crash_outside(folder: Path) -> None:
    with OutsideRun(folder, made_by="a test", system_secs=0) as run:
        run.log({"loss": 1.0}, 0)
        raise ValueError("no such class")


def crash_watch(folder: Path) -> None:
    with tl.watch(model := nn.Linear(2, 1), to=folder, system_secs=0):
        model(torch.ones(1, 2)).sum().backward()
        raise ValueError("no such class")


@pytest.mark.parametrize("crash", [crash_live, crash_outside, crash_watch])
def test_show_names_the_exception_that_ended_a_run(crash: Callable[[Path], None], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no such class"):
        crash(tmp_path / "run")
    assert "failed: ValueError: no such class" in describe_run(tmp_path / "run")[0]


def test_run_json_says_how_the_loop_ended_until_another_one_goes_on_in_the_folder(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no such class"):
        crash_live(tmp_path)
    assert read_run(tmp_path)["ended"] == {"status": "failed", "why": "ValueError: no such class"}
    with tl.live(nn.Linear(2, 1), to=tmp_path, open_server=False):
        assert "ended" not in read_run(tmp_path)
    assert read_run(tmp_path)["ended"]["status"] == "done"
    assert "failed" not in describe_run(tmp_path)[0]


def test_show_of_a_long_log_reads_its_last_rows_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Path(lived(tmp_path / "run"))
    whole = describe_run(run)
    monkeypatch.setattr(log_reader, "LONG_BYTES", 0)

    monkeypatch.setattr(WriterLog, "tables", property(lambda log: {} if not log.path.exists() else pytest.fail("all")))
    at, last = whole.index("Train steps, 10 rows"), describe_run(run)
    assert last[last.index("Train steps, the last rows") + 1 :][:6] == whole[at + 1 : at + 7]


def test_the_studio_opens_the_run_of_a_loop(tmp_path: Path) -> None:
    source = open_source(lived(tmp_path / "run"))
    assert source.kind == "run" and source.net is not None
    assert {"0", "2"} <= {placed.layer.name for placed in source.net.layers}
    assert source.tables["train_step"].count == 10 and source.tables["train_epoch"].head.x == "Epoch"
    assert [alert.text for alert in source.alerts if alert.severity == "warning"] == ["it is slow"] * 2
    assert source.state.message == "2 epochs · loss 0.5"
    (listed,) = open_catalog(tmp_path).runs
    assert (listed.name, listed.summary) == ("run", "2 epochs · loss 0.5")


def test_a_second_loop_in_the_folder_hides_the_first(tmp_path: Path) -> None:
    lived(lived(tmp_path / "run"), epochs=1)
    assert LogSource(tmp_path / "run").tables["train_step"].columns["Step"] == list(range(5))


LOOP = """
    import itertools, sys, torch, torcheer as tl
    model = torch.nn.Linear(2, 2)
    with tl.live(model, to=sys.argv[1], open_server=False) as view:
        for step in itertools.count():
            view.log(loss=model(torch.ones(1, 2)).sum())
            if step == 20:
                view.alert("it is slow")
            print(step, flush=True)
"""


def test_a_killed_loop_leaves_what_it_had_logged(tmp_path: Path) -> None:
    with Child("-c", LOOP, tmp_path / "run") as process:

        def rows() -> int:
            process.line()
            tables = LogSource(tmp_path / "run").tables if (tmp_path / "run" / "log" / "live").is_dir() else {}
            return tables["train_step"].count if "train_step" in tables else 0

        wait_until(lambda: rows() > 30)
        process.kill()
        process.ends(-signal.SIGKILL)
    run = tl.load(tmp_path / "run")
    assert isinstance(run, RunFolder)
    steps = run.tables["train_step"]["Step"].tolist()
    assert steps == list(range(len(steps))) and len(steps) > 30
    assert [str(alert) for alert in run.alerts if alert.severity == "warning"] == ["it is slow"]


def test_a_log_that_cannot_be_written_is_a_problem_and_the_loop_goes_on(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "log").write_text("a file")
    with pytest.warns(
        RuntimeWarning,
        match="there is no log in .* Not a directory. What is logged is not on the page",
    ):
        lived(tmp_path / "run")


# Alerts are told apart by their ids


def until(source: Any, condition: Any) -> None:
    wait_until(condition, poll=source.poll)


def test_two_alerts_with_the_same_text_are_two_on_the_page(tmp_path: Path) -> None:
    with Host(tmp_path, title="one") as host:
        for _ in range(2):
            host.alert("it is slow", step=3)
        host.alert("it is over", step=3)
        source = LiveSource(host.path or "")
        until(source, lambda: [alert.text for alert in source.alerts][-1:] == ["it is over"])
        assert [alert.text for alert in source.alerts] == ["it is slow", "it is slow", "it is over"]
        source.close()
        source.poll()  # it connects again, and everything comes again
        until(source, lambda: source.connected)
        host.alert("it is done", step=4)
        until(source, lambda: source.alerts[-1].text == "it is done")
        assert len(source.alerts) == 4
        source.close()


def test_an_alert_of_the_log_is_the_same_one_live(tmp_path: Path) -> None:
    with Host(tmp_path, title="one", writer="live") as host:
        host.network = NETWORK
        host.alert("it is slow", step=3)
        stored = LogSource(tmp_path)
        assert [alert.text for alert in stored.alerts] == ["it is slow"]
        live = LiveSource(host.path or "")
        host.alert("it is slow", step=3)
        until(live, lambda: len(live.alerts) > 1)
        assert len(live.alerts) == 2 and len({alert.id for alert in live.alerts}) == 2
        live.close()
    assert [alert.id for alert in LogSource(tmp_path).alerts] == [alert.id for alert in live.alerts]


# A watch is a run, too


def watched(to: Path) -> Path:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with tl.watch(model, every=2, to=to, optimizer=optimizer, tell=lambda text: None) as w:
        for _ in range(10):
            loss = model(torch.ones(2, 4)).square().mean()
            w.log(loss=loss)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return to


def test_the_studio_opens_a_watch_and_plots_its_statistics(tmp_path: Path) -> None:
    source, there = open_source(watched(tmp_path / "w")), tl.load(tmp_path / "w")
    assert isinstance(there, Watched) and source.kind == "run"
    table, series = source.tables["0 output"], there["0", "output"]
    assert table.columns["Step"] == series.steps.tolist() == [0, 2, 4, 6, 8]
    for name in ("minimum", "maximum", "mean", "std", "norm", "p50"):
        assert table.columns[name] == getattr(series, name).tolist(), name
    assert table.columns["histogram"] == series.histogram.tolist()
    assert [column.edges for column in table.head.columns if column.name == "histogram"] == [EDGES[1:-1]]
    assert source.state.counters == {"Step": 9}
    assert source.tables["metric"].columns["loss"] == there["loss", "metric"].mean.tolist()
    assert "0.weight update" in source.tables and [run.name for run in open_catalog(tmp_path).runs] == ["w"]


def test_the_statistics_of_a_watch_grow_on_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torcheer.studio.sources.log_source._SCAN_SECS", 0.0)
    model = net()
    with tl.watch(model, every=1, to=tmp_path / "w", rules=[], tell=lambda text: None):
        model(torch.ones(2, 4)).sum().backward()
        source = wait_until(lambda: has_log(tmp_path / "w") and open_source(tmp_path / "w"))
        wait_until(lambda: "0 output" in source.tables, poll=source.poll)
        for _ in range(3):
            model(torch.ones(2, 4)).sum().backward()
        wait_until(lambda: source.tables["0 output"].count == 4, poll=source.poll)
    assert source.tables["0 output"].restarts == 0


def test_the_statistics_of_a_watch_grow_beside_a_live_loop(tmp_path: Path) -> None:
    model = net()
    with (
        tl.live(model, to=tmp_path, open_server=False) as view,
        tl.watch(model, every=1, to=tmp_path, rules=[], tell=lambda text: None),
    ):
        source = LiveSource(view.path or "")
        for count in (1, 2):
            model(torch.ones(2, 4)).sum().backward()
            view.log(loss=1.0)
            wait_until(lambda: "train_step" in source.tables and "0 output" in source.tables
                       and source.tables["0 output"].count == source.tables["train_step"].count == count,  # noqa: B023
                       poll=source.poll)  # fmt: skip
        assert source.tables["train_step"].columns["Step"] == [0, 1] and source.tables["0 output"].restarts == 0
        source.close()
    run = tl.load(tmp_path)
    assert isinstance(run, RunFolder) and run.tables["train_step"]["loss"].tolist() == [1.0, 1.0]
    assert list(run.watches) == [tmp_path.name] and run.watches[tmp_path.name]["0", "output"].steps.tolist() == [0, 1]


def test_an_alert_that_is_in_the_log_is_not_sent_besides(tmp_path: Path) -> None:
    with Host(tmp_path) as host, Viewer(host) as viewer:
        host.alert("too large", "error", 4, "explode", "in")
        host.state = State("running")
        viewer.last("state_came", lambda message: message["state"]["status"] == "running")
        assert [alert["text"] for alert in viewer.alerts()] == ["too large"] and viewer.of("alerts_came") == []


def test_an_alert_that_no_log_takes_is_sent(tmp_path: Path) -> None:
    with Host(tmp_path, writer="") as host, Viewer(host) as viewer:
        host.alert("too large", "error", 4, "explode", "in")
        (alert,) = wait_until(lambda: viewer.alerts(), "the alert")
        assert (alert["text"], alert["layer"]) == ("too large", "in")
