"""The log of a run: any number of writers, rows and alerts that survive kills and full disks, read while it grows."""

from __future__ import annotations

import json
import math
import random
import shutil
import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from archive_checks import disk
from children import Child, run_python
from seams import BINS, FollowedLog, LogWriter, RunLog, TableHead, decode_cell, encode_cell, statistics_of
from waiting import wait_until

from torcheer.archive import Archive
from torcheer.inspector import open_watch
from torcheer.records import Sample
from torcheer.samples import Alert, Delivery


def writer(run: Path, name: str = "live") -> LogWriter:
    return LogWriter(run, name, tell=pytest.fail)


def write(run: Path, steps: range, name: str = "live", **cells: Any) -> None:
    """One opening of a log: a row for each step."""
    log = writer(run, name)
    for step in steps:
        log.row("train_step", {"Epoch": 0, "Step": step, **cells}, step)
    log.close()


def test_rows_come_back_as_they_were_written(tmp_path: Path) -> None:
    log = writer(tmp_path)
    log.head(TableHead("train_step", "Steps of training", x="Epoch"))
    rows = [{"Epoch": 0, "loss": 0.1}, {"Epoch": 1, "loss": math.inf, "note": "é"}, {"Epoch": 2, "map": np.eye(2)}]
    for step, row in enumerate(rows):
        log.row("train_step", row, step)
    log.close()
    (table,) = RunLog(tmp_path).tables().values()
    assert (table.head.title, table.head.x, table.count) == ("Steps of training", "Epoch", 3)
    assert table.columns["Step"] == [0, 1, 2] and table.columns["loss"] == [0.1, math.inf, None]
    assert table.columns["note"] == [None, "é", None] and table.columns["map"] == [None, None, [[1.0, 0.0], [0.0, 1.0]]]
    kinds = {column.name: (column.type, column.shape) for column in table.head.columns}
    assert kinds == {
        "Step": ("int", ()), "Epoch": ("int", ()), "loss": ("float", ()), "note": ("text", ()),
        "map": ("tensor", (2, 2)),
    }  # fmt: skip


def test_numbers_go_through_json_bit_for_bit() -> None:
    numbers = [0.1, -0.0, 5e-324, 1.7e308, math.nan, -math.inf, 2**53 + 1, True, None, "nan", [math.nan, [1.5]]]
    assert repr(decode_cell(json.loads(json.dumps(encode_cell(numbers), allow_nan=False)))) == repr(numbers)


def test_many_rows_are_few_frames(tmp_path: Path) -> None:
    write(tmp_path, range(10_000), loss=0.5)
    archive = Archive(tmp_path / "log" / "live")
    assert len(archive.frames) < 200 and archive.sealed
    assert RunLog(tmp_path).tables()["train_step"].columns["Step"] == list(range(10_000))


def test_tables_of_several_writers_are_merged_by_step(tmp_path: Path) -> None:
    write(tmp_path, range(0, 10, 2), "live", loss=1.0)
    write(tmp_path, range(1, 10, 2), "other", loss=2.0)
    table = RunLog(tmp_path).tables()["train_step"]
    assert table.columns["Step"] == list(range(10)) and table.columns["loss"] == [1.0, 2.0] * 5


def test_two_writers_write_at_once_and_a_third_of_the_same_name_is_refused(tmp_path: Path) -> None:
    logs, told = [writer(tmp_path, name) for name in ("live", "other")], list[str]()
    third = LogWriter(tmp_path, "live", tell=told.append, goes_on="The page goes on.")
    threads = [
        threading.Thread(target=lambda log=log: [log.row("t", {"a": step}, step) for step in range(500)])
        for log in (*logs, third)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for log in (*logs, third):
        log.close()
    assert RunLog(tmp_path).tables()["t"].count == 1000
    assert len(told) == 1 and "is being written" in told[0] and told[0].endswith("The page goes on.")


def test_a_run_that_goes_on_from_an_earlier_step_replaces_what_was_behind_it(tmp_path: Path) -> None:
    write(tmp_path, range(10), loss=1.0)
    write(tmp_path, range(6, 8), loss=2.0)
    table = RunLog(tmp_path).tables()["train_step"]
    assert table.columns["Step"] == list(range(8)) and table.columns["loss"] == [1.0] * 6 + [2.0] * 2
    write(tmp_path, range(3), loss=3.0)  # it begins anew
    assert RunLog(tmp_path).tables()["train_step"].columns["loss"] == [3.0] * 3


def test_what_stands_in_a_log_is_not_rewritten_when_its_run_goes_on(tmp_path: Path) -> None:
    write(tmp_path, range(10), loss=1.0)
    before = {path: path.read_bytes() for path in (tmp_path / "log" / "live").iterdir()}
    data = {path: content for path, content in before.items() if path.suffix in (".index", ".data")}
    write(tmp_path, range(6, 8), loss=2.0)
    assert data and all(path.read_bytes().startswith(content) for path, content in data.items())


def test_alerts_have_ids_of_their_own_also_in_another_opening(tmp_path: Path) -> None:
    written: list[Alert] = []
    for step in (3, 4):
        log, alert = writer(tmp_path), Alert("", "", "", step, step, "it is slow", "")
        written += [log.alert(alert), log.alert(alert)]
        log.close()
    assert len({one.id for one in written}) == 4 and str(written[0]) == "it is slow"
    assert RunLog(tmp_path).alerts == written


def test_the_last_network_holds(tmp_path: Path) -> None:
    log = writer(tmp_path)
    assert RunLog(tmp_path).network is None
    for name in ("first", "second"):
        log.network({"name": name})
        log.commit()
    log.close()
    assert RunLog(tmp_path).network == {"name": "second"}


def test_what_waits_is_written_in_the_background(tmp_path: Path) -> None:
    log, before = writer(tmp_path), set(threading.enumerate())
    log.commit_in_background()
    log.row("t", {"a": 1}, 0)
    assert wait_until(lambda: RunLog(tmp_path).tables())
    log.close()
    assert not any(thread.name == "torcheer log" for thread in {*threading.enumerate()} - before)


def test_statistics_and_histograms_are_tables(tmp_path: Path) -> None:
    log = writer(tmp_path, "watch")
    for step in range(5):
        array = np.arange(1.0, 9.0) * (step + 1)
        log.value(Delivery(Sample(step, "conv", "output", array=array)), statistics_of(array))
        log.value(Delivery(Sample(step, "loss", "metric", array=np.array(0.5))), statistics_of(0.5))
    log.close()
    found = FollowedLog(tmp_path)
    assert found.refresh() == {"conv output", "metric"}
    (table,) = found.statistics.values()
    assert (table.head.name, table.head.title, table.head.x) == ("conv output", "conv · output", "Step")
    assert table.columns["maximum"] == [8.0 * (step + 1) for step in range(5)]
    assert table.columns["histogram"][4] == list(statistics_of(np.arange(1.0, 9.0) * 5).histogram)
    assert next(one for one in table.head.columns if one.name == "histogram").shape == (BINS,)
    assert [one.name for one in table.head.columns if one.plotted] == ["minimum", "maximum", "mean"]
    assert found.tables["metric"].columns == {"Step": list(range(5)), "loss": [0.5] * 5}


def test_metrics_of_one_step_are_one_row_also_if_they_were_committed_apart(tmp_path: Path) -> None:
    log = writer(tmp_path, "watch")
    for step in range(4):
        for name in ("loss", "accuracy"):
            log.value(Delivery(Sample(step, name, "metric", array=np.array(0.5))), statistics_of(0.5))
            if step == 2:
                log.commit()  # as the clock may have it
        if step:
            late = Sample(step - 1, "step_secs", "metric", array=np.array(0.1))
            log.value(Delivery(late), statistics_of(0.1))
    log.close()
    found = FollowedLog(tmp_path)
    found.refresh()
    for table in (found.tables["metric"], RunLog(tmp_path).tables()["metric"]):
        assert table.columns == {
            "Step": [0, 1, 2, 3], "loss": [0.5] * 4, "accuracy": [0.5] * 4, "step_secs": [0.1] * 3 + [None],
        }  # fmt: skip


# While it grows, and after kills

ENDLESS = """
    import itertools, sys
    from torcheer.runlog.log_writer import LogWriter
    from torcheer.samples import Alert
    log = LogWriter(sys.argv[1], sys.argv[2], tell=print)
    for step in itertools.count():
        log.row(sys.argv[2], {"a": step, "b": float("nan")}, step)
        if step % 10 == 0:
            log.alert(Alert("rule", "", "", step, step, "it is so", ""))
        log.commit()
        print(step, flush=True)
"""


def catch_up(log: FollowedLog) -> None:
    """Read all that is there: of a long log, a refresh reads a part."""
    log.refresh()
    while log.is_behind:
        log.refresh()


def test_a_reader_follows_writers_that_are_killed(tmp_path: Path) -> None:
    log = FollowedLog(tmp_path)
    for name in ("one", "two", "one"):
        with Child("-c", ENDLESS, tmp_path, name) as process:
            while (last := int(process.line())) < 60:
                catch_up(log)
                steps = log.tables[name].columns["Step"][:]
                assert steps == list(range(len(steps))) and len(steps) > last
            process.kill()
            rest = process.ends(-signal.SIGKILL).splitlines(keepends=True)
            last = max([last, *(int(line) for line in rest if line.strip() and line.endswith("\n"))])
        catch_up(log)
        assert log.problems == [] and not log.refresh()
        assert log.tables[name].count > last  # all that it has reported
        assert log.tables[name].columns["a"] == list(range(log.tables[name].count))
        steps = [alert.step for alert in log.alerts if alert.id.startswith(name)]
        assert set(range(0, last + 1, 10)[-500:]) <= set(steps)  # the last ones


def test_a_log_that_was_replaced_is_read_anew(tmp_path: Path) -> None:
    write(tmp_path, range(5), loss=1.0)
    log = FollowedLog(tmp_path)
    log.refresh()
    shutil.rmtree(tmp_path / "log")
    write(tmp_path, range(3), loss=2.0)
    assert log.refresh() and log.tables["train_step"].columns["loss"] == [2.0] * 3


@pytest.mark.parametrize("cut", [1, 40, 200])
def test_a_torn_frame_costs_only_what_it_held(tmp_path: Path, cut: int) -> None:
    log = writer(tmp_path)
    for step in range(20):
        log.row("t", {"a": step}, step)
        log.commit()
    index = tmp_path / "log" / "live" / "000000.index"
    index.write_bytes(index.read_bytes()[:-cut])  # as a kill, or a power loss, leaves it
    steps = RunLog(tmp_path).tables()["t"].columns["Step"]
    assert steps == list(range(len(steps))) and 17 <= len(steps) < 20


FULL = """
    import json, sys
    from torcheer.runlog.log_writer import LogWriter
    told = []
    log = LogWriter(sys.argv[1], "live", tell=told.append, goes_on="The page goes on.")
    for step in range(3000):
        log.row("t", {"a": step, "text": "x" * 200}, step)
        log.commit()
    log.close()
    print(json.dumps(told))
"""


def test_a_full_disk_ends_the_log_once_and_what_is_there_is_read(tmp_path: Path) -> None:
    with disk(tmp_path / "disk", "300k") as folder:
        told = json.loads(run_python("-c", FULL, folder).stdout)
        assert told == [f"there is no log in {folder} from here on: No space left on device. The page goes on."]
        steps = RunLog(folder).tables()["t"].columns["Step"]
        assert 100 < len(steps) < 3000 and steps == list(range(len(steps)))


@pytest.mark.parametrize("name", ["000000.index", "archive.json", "000000.data"])
def test_a_log_that_was_cut_goes_on_in_another_archive_and_says_so_once(tmp_path: Path, name: str) -> None:
    said: list[str] = []
    log = writer(tmp_path)
    for step in range(4):
        log.row("train_step", {"Epoch": 0}, step)
    log.sample(Sample(3, "picture", "image", -1, np.zeros((2, 2, 3), np.uint8)), {})
    log.close()
    file = tmp_path / "log" / "live" / name
    file.write_bytes(file.read_bytes()[:-1])
    for step in (4, 5):
        log = LogWriter(tmp_path, "live", tell=said.append)
        log.row("train_step", {"Epoch": 1}, step)
        log.close()
    assert len(said) == 1 and said[0].startswith("the log is damaged: ") and "live~00001" in said[0]
    followed = FollowedLog(tmp_path)
    catch_up(followed)
    for tables in (RunLog(tmp_path).tables(), followed.tables):
        assert tables["train_step"].columns["Step"] == [0, 1, 2, 3, 4, 5]
    assert RunLog(tmp_path).problems and followed.problems


# Damage


def contents(run: Path) -> tuple[dict[str, Any], list[str]]:
    """What each reader gives of a run, and what they say was lost."""
    log, followed, watched = RunLog(run), FollowedLog(run), open_watch(run)
    catch_up(followed)
    found: dict[str, Any] = {f"whole {name}": repr(table.columns) for name, table in log.tables().items()}
    found |= {f"followed {name}": repr(dict(table.columns)) for name, table in followed.tables.items()}
    found |= {str(key): repr(watched[key].table()) for key in watched}
    return found, [*log.problems, *followed.problems, *watched.problems]


def test_no_flipped_byte_of_a_log_is_read_in_silence(tmp_path: Path) -> None:
    log, draw = writer(tmp_path / "run", "watch"), random.Random(0)
    for step in range(6):
        log.value(Delivery(Sample(step, "layer", "output", array=np.arange(8.0) * step)), statistics_of(np.arange(8.0)))
        log.value(Delivery(Sample(step, "loss", "metric", array=np.array(0.5 * step))), statistics_of(0.5))
        log.row("other", {"a": step, "text": f"x{step}", "late": None if step % 2 else 1.5}, step)
        log.commit()
    log.close()
    intact, problems = contents(tmp_path / "run")
    assert problems == [] and len(intact) == 7
    files = sorted(file for file in (tmp_path / "run" / "log" / "watch").iterdir() if file.name != "LOCK")
    for _ in range(60):
        shutil.copytree(tmp_path / "run", tmp_path / "damaged")
        (file,) = draw.choices(files, [file.stat().st_size for file in files])
        data = bytearray(file.read_bytes())
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        (tmp_path / "damaged" / "log" / "watch" / file.name).write_bytes(data)
        found, problems = contents(tmp_path / "damaged")
        assert problems or found == intact
        shutil.rmtree(tmp_path / "damaged")
