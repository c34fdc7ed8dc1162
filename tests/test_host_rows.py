"""Rows of a host: in a log that the viewer follows, a temporary one where there is no folder."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
import torch
from archive_checks import disk
from children import Child, run_python
from seams import Column, Host, LiveSource, RunLog, TableHead, scratch_limits
from torch import nn
from waiting import wait_until

import torcheer as tl
from torcheer.studio import logs


def test_a_table_that_nobody_announced_is_made_of_its_rows() -> None:
    with Host() as host:
        host.row("train_epoch", {"Epoch": 0, "loss": 0.5})
        host.row("train_epoch", {"Epoch": 1, "name": "x"})
        head, columns = host.tables()["train_epoch"]
    assert (head.title, head.x) == ("Train epochs", "Epoch")
    assert columns == {"Epoch": [0, 1], "loss": [0.5, None], "name": [None, "x"]}


def test_a_table_without_steps_shows_none_and_one_without_rows_is_there() -> None:
    with Host() as host:
        host.table(TableHead("patterns", "Patterns", columns=(Column("Name", "text", plotted=False),)))
        host.row("patterns", {"Name": "a"})
        host.table(TableHead("test_trial", "Test trials", "Trial", columns=(Column("Trial", "int"),)))
        source = LiveSource(host.path or "")
        wait_until(lambda: "test_trial" in source.tables and source.tables["patterns"].count, poll=source.poll)
        assert list(source.tables["patterns"].columns) == ["Name"] and source.tables["patterns"].head.x == ""
        assert source.tables["test_trial"].count == 0 and logs(host)["test_trial"].columns == ("Trial",)
        source.close()


VIEWER = """
    import sys, time
    from torcheer.studio.sources.live_source import LiveSource
    source = LiveSource(sys.argv[1])
    while source.state.status != "done":
        source.poll()
        time.sleep(0.01)
    print(source.tables["t"].columns["a"], flush=True)
"""


def test_the_last_rows_of_a_host_whose_folder_goes_are_on_the_page() -> None:
    host = Host()
    with Child("-c", VIEWER, host.path) as viewer:
        wait_until(lambda: host._service is None or host._service._viewer is not None)
        for number in range(3):
            host.row("t", {"a": number})
        host.close()
        assert host._doorway is not None
        host._doorway.remove_folder()
        assert viewer.line() == "[0, 1, 2]"


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_temporary_log_grows_slower_and_slower(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch_limits, "_MOST_BYTES", 4000)
    monkeypatch.setattr(scratch_limits, "_FIRST_ROWS", 10)
    with Host() as host:
        for number in range(2000):
            host.row("train_step", {"Step": number})
            if number == 1000:
                host.row("run", {"Run": 1})
            if number % 20 == 0:
                host._log.commit()  # type: ignore[union-attr]
        steps = host.tables()["train_step"][1]["Step"]
        assert host.tables()["run"][1]["Run"] == [1]
    assert steps[:10] == list(range(10)) and steps == sorted(steps) and len(steps) < 1000 and steps[-1] > 1500
    assert [problem for problem in host.problems if "with to='folder' all are" in problem] == host.problems


LOOP = """
    import sys, torch, torcheer as tl
    model = torch.nn.Linear(2, 2)
    with tl.live(model, to=sys.argv[1], open_server=False) as view:
        for step in range(int(sys.argv[2])):
            view.log(loss=model(torch.ones(1, 2)).sum(), text="x" * 400)
            view.host._log.commit()
    print(*view.problems, sep="|")
"""


def test_on_a_full_disk_the_loop_goes_on_and_the_page_says_that_rows_are_missing(tmp_path: Path) -> None:
    with disk(tmp_path / "disk", "300k") as folder:
        problems = run_python("-W", "ignore", "-c", LOOP, folder, 2000).stdout.strip().split("|")
        assert problems[0] == (
            f"there is no log in {folder} until there is room: No space left on device. What is logged is not on the "
            "page; the rest of it goes on."
        )
        assert [problem.partition(":")[0] for problem in problems[1:]] == ["run.json does not say how the run ended"]
        assert 10 < len(logs(folder)["train_step"]) < 2000


ROOM = """
    import json, sys
    from pathlib import Path
    from torcheer.host.host import Host
    from torcheer.runlog import commit_times
    commit_times.RETRY_SECS = 0.0
    ballast = Path(sys.argv[1]) / "ballast"
    ballast.write_bytes(bytes(150_000))
    with Host(sys.argv[1]) as host:
        for step in range(2000):
            host.row("t", {"Step": step, "text": "x" * 400})
            host._log.commit()
            if step == 1000:
                ballast.unlink()
            if step == 1010:
                host.clear("u")
                host.row("u", {"Step": step})
                break
    print(json.dumps(host.problems))
"""


def test_once_a_full_disk_has_room_again_rows_go_on_and_what_was_lost_is_said(tmp_path: Path) -> None:
    with disk(tmp_path / "disk", "300k") as folder:
        full, room = json.loads(run_python("-W", "ignore", "-c", ROOM, folder).stdout)
        assert "until there is room: No space left on device" in full
        tables = RunLog(folder).tables()
        steps = tables["t"].columns["Step"]
        assert steps[-10:] == list(range(1001, 1011)) and tables["u"].columns["Step"] == [1010]
        assert steps == sorted(set(steps)) and 10 < steps.index(1001) < 900
        lost = 1011 - len(steps)
        assert room == (
            f"there is room for the log in {folder} again: it goes on, without {lost:,} rows and other values of the "
            "time between"
        )


def test_a_killed_host_without_a_folder_leaves_one_that_the_next_removes(tmp_path: Path) -> None:
    script = """
        import time
        from torcheer.host.host import Host
        host = Host()
        host.row("t", {"a": 1})
        print(host.path, flush=True)
        time.sleep(600)
    """
    with Child("-c", script) as process:
        folder = Path(process.line()).parent
        source = LiveSource(folder / "control.sock")
        wait_until(lambda: "t" in source.tables, poll=source.poll)
        process.kill()
        process.ends(-signal.SIGKILL)
        wait_until(lambda: source.state.status == "lost", poll=source.poll)
        assert source.tables["t"].columns["a"] == [1] and folder.exists()
        source.close()
    Host().close()
    assert not folder.exists()


def test_a_forked_worker_logs_nothing_and_the_log_stays_whole() -> None:
    model = nn.Linear(2, 2)
    with tl.live(model, open_server=False) as view:
        model(torch.ones(1, 2))
        view.log(loss=1.0)
        pid = os.fork()
        if pid == 0:
            view.log(loss=2.0)
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        view.log(loss=3.0)
    assert view.logs["train_step"]["loss"].tolist() == [1.0, 3.0]
