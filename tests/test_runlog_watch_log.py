"""The log of a watch: what is in it survives kills and full disks; what cannot be written is told once."""

from __future__ import annotations

import json
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from archive_checks import disk
from children import Child, run_python
from seams import (
    COUNTS,
    LAYER,
    STATISTICS,
    TYPES,
    LogWriter,
    Plan,
    WatchAnalysis,
    about_log,
    from_bytes,
    resolve_rules,
    statistics_of,
)
from waiting import wait_until

from torcheer.archive import Archive, Writer
from torcheer.inspector import open_watch
from torcheer.records import Sample
from torcheer.samples import Alert, Delivery


def sent(step: int, layer: str, variable: str, array: Any, **extras: Any) -> Delivery:
    return Delivery(Sample(step, layer, variable, array=np.asarray(array)), **extras)


def logged(folder: Path, values: list[Delivery], keep: tuple[str, ...] = (), continues: bool = False) -> list[str]:
    """Write values as one child would; return what it told."""
    told: list[str] = []
    log = LogWriter(folder, "watch", keep=keep, tell=told.append, continues=continues)
    for one in values:
        log.value(one, statistics_of(one.sample.array))
    log.close()
    return told


def test_a_step_is_one_frame_with_a_row_for_each_key(tmp_path: Path) -> None:
    values = [sent(step, f"layer{number}", "output", np.arange(4.0)) for step in range(3) for number in range(5)]
    assert logged(tmp_path, values) == []
    archive = Archive(tmp_path / "log" / "watch")
    assert archive.steps == [0, 1, 2] and archive.sealed and archive.about == about_log("watch")
    shapes = {entry.variable: (entry.type, entry.shape) for entry in archive.entries}
    assert shapes == {
        "statistics": ("float64", (5, len(STATISTICS))),
        "counts": ("int64", (5, len(COUNTS))),
        "bins": ("uint32", (6 + 5 * 3,)),  # where five rows begin and end; three bins of each
    }
    assert {entry.layer for entry in archive.entries} == {LAYER}
    assert archive.frames[0]["about"]["values"][1] == ["layer1", "output", "float64", [4]]


def test_a_step_may_come_in_several_frames(tmp_path: Path) -> None:
    log = LogWriter(tmp_path, "watch", tell=pytest.fail)
    for number in range(4):
        log.value(sent(7, f"layer{number}", "output", [1.0, 2.0]), statistics_of([1.0, 2.0]))
        log.commit()
    log.close()
    assert Archive(tmp_path / "log" / "watch").steps == [7] * 4
    watched = open_watch(tmp_path)
    assert list(watched.steps) == [7] and len(watched) == 4


def test_what_waits_is_committed_though_nothing_follows_it(tmp_path: Path) -> None:
    log = LogWriter(tmp_path, "watch", tell=pytest.fail)
    log.value(sent(0, "a", "output", [1.0]), statistics_of([1.0]))
    assert wait_until(lambda: log.tick() or Archive(tmp_path / "log" / "watch").frames)
    assert Archive(tmp_path / "log" / "watch").steps == [0]
    log.close()


def test_arrays_that_are_wanted_are_kept_whole(tmp_path: Path) -> None:
    values = [
        sent(step, layer, variable, np.full((2, 3), step, np.float32))
        for step in range(3)
        for layer in ("features.0", "features.1", "classifier")
        for variable in ("output", "grad")
    ]
    assert logged(tmp_path, values, ("features.*/output",)) == []
    watched = open_watch(tmp_path)
    kept = watched["features.1", "output"].values
    assert list(kept) == [0, 1, 2] and (kept[2] == 2).all() and kept[2].shape == (2, 3)
    assert {entry.layer for entry in Archive(tmp_path / "log" / "watch").entries} == {LAYER, "features.0", "features.1"}


@pytest.mark.parametrize("name", TYPES)
def test_arrays_of_every_type_are_kept_bit_for_bit(name: str, tmp_path: Path) -> None:
    bits = np.random.default_rng(0).integers(0, 2, 24 * TYPES[name].itemsize, dtype=np.uint8).tobytes()
    array = from_bytes(name, (2, 3, 4), bits)
    empty, point = from_bytes(name, (0, 4), b""), from_bytes(name, (), bits[: TYPES[name].itemsize])
    values = [sent(0, "a", "output", array), sent(0, "empty", "output", empty), sent(0, "point", "output", point)]
    assert logged(tmp_path, values, ("*",)) == []
    watched = open_watch(tmp_path)
    assert watched["a"].values[0].tobytes() == bits and watched["a"].values[0].dtype == array.dtype
    assert watched["point"].values[0].shape == () and watched["empty"].count[0] == 0


def test_a_key_that_comes_twice_in_a_step_is_kept_twice(tmp_path: Path) -> None:
    assert logged(tmp_path, [sent(1, "a", "output", [number, 1.0]) for number in (1.0, 2.0)], ("*",)) == []
    assert [entry.layer for entry in Archive(tmp_path / "log" / "watch").entries].count("a") == 2
    assert list(open_watch(tmp_path)["a"].minimum) == [1.0, 1.0] and list(open_watch(tmp_path)["a"].maximum) == [
        1.0,
        2.0,
    ]


def test_an_alert_is_written_at_once_with_an_id(tmp_path: Path) -> None:
    log = LogWriter(tmp_path, "watch", tell=pytest.fail)
    alert = Alert("nan_inf", "a", "output", 3, 3, "it is NaN", "pray", "error", {"nans": 1, "loss": np.inf})
    written = [log.alert(alert), log.alert(alert)]
    assert [replace(one, id="") for one in written] == [alert, alert] and written[0].id != written[1].id
    assert all(one.id.startswith("watch:") for one in written)
    assert open_watch(tmp_path).alerts == written
    log.close()


def test_a_scalar_is_a_cell_of_a_row_and_has_the_statistics_of_one_number(tmp_path: Path) -> None:
    values = [sent(step, name, "metric", number) for step in range(3) for name, number in
              (("loss", 0.5 * step), ("acc", np.float32(0.1)), ("bad", np.nan))]  # fmt: skip
    assert logged(tmp_path, values) == []
    (frame,) = Archive(tmp_path / "log" / "watch").frames
    assert frame["about"]["rows"]["metric"] == {"count": 9, "types": dict.fromkeys(("loss", "acc", "bad"), "float")}
    assert [(entry.variable, entry.shape) for entry in frame["entries"]] == [("metric", (2 + 3, 3))]
    watched = open_watch(tmp_path)
    loss, bad = watched["loss", "metric"], watched["bad"]
    for name in ("minimum", "maximum", "mean", "norm", "p1", "p99"):
        assert getattr(loss, name).tolist() == [0.0, 0.5, 1.0], name
    assert loss.std.tolist() == [0.0] * 3 and loss.zeros.tolist() == [1, 0, 0] and loss.seen.tolist() == [0, 1, 2]
    assert watched["acc"].mean.tolist() == [float(np.float32(0.1))] * 3 and loss.values[1] == 0.5
    assert bad.nans.tolist() == [1] * 3 and np.isnan(bad.mean).all() and not bad.finite.any()


# A folder that is used again


def run_of(steps: range, mean: float) -> list[Delivery]:
    return [sent(step, layer, "output", [mean - 1, mean + 1]) for step in steps for layer in ("a", "b")]


def test_a_run_that_goes_on_continues_the_log(tmp_path: Path) -> None:
    logged(tmp_path, run_of(range(10), 1.0))
    logged(tmp_path, run_of(range(6, 12), 2.0))  # from a checkpoint
    assert list(open_watch(tmp_path)["a"].steps) == list(range(12))
    assert list(open_watch(tmp_path)["a"].mean) == [1.0] * 6 + [2.0] * 6


def test_a_run_that_goes_on_has_the_times_of_its_first_step_once(tmp_path: Path) -> None:
    def run(steps: range) -> list[Delivery]:
        times = [sent(step, name, "metric", 1.0) for step in steps for name in ("step_secs", "wait_secs")]
        return sorted([*run_of(steps, 1.0), *times], key=lambda one: one.sample.step)

    logged(tmp_path, run(range(10)))
    logged(tmp_path, run(range(6, 8)))
    watched = open_watch(tmp_path)
    assert list(watched["step_secs"].steps) == list(watched["wait_secs"].steps) == list(range(8))


def test_a_run_that_begins_anew_hides_the_one_before(tmp_path: Path) -> None:
    logged(tmp_path, [*run_of(range(10), 1.0), sent(9, "gone", "output", [1.0, 2.0])])
    logged(tmp_path, run_of(range(3), 2.0))
    watched = open_watch(tmp_path)
    assert watched.keys() == [("a", "output"), ("b", "output")] and list(watched["b"].mean) == [2.0] * 3


def test_a_child_that_was_started_again_hides_nothing_of_its_step(tmp_path: Path) -> None:
    first = run_of(range(5), 1.0)
    logged(tmp_path, [*first[:-1], *[sent(step, "loss", "metric", 1.0) for step in (5, 6)]])
    late = [sent(4, "step_secs", "metric", 1.0), sent(4, "wait_secs", "metric", 1.0)]
    logged(tmp_path, [*late, sent(7, "loss", "metric", 2.0), *run_of(range(8, 10), 2.0)], continues=True)
    watched = open_watch(tmp_path)
    assert list(watched["a"].steps) == [*range(5), 8, 9] and list(watched["b"].steps) == [*range(4), 8, 9]
    assert list(watched["loss"].steps) == [5, 6, 7]


def test_a_step_that_two_children_saw_has_what_each_saw(tmp_path: Path) -> None:
    first, second = run_of(range(4, 5), 1.0)
    logged(tmp_path, [*run_of(range(4), 1.0), first])
    logged(tmp_path, [second, *run_of(range(5, 7), 1.0)], continues=True)
    watched = open_watch(tmp_path)
    assert list(watched["a"].steps) == list(watched["b"].steps) == list(range(7))


def test_alerts_of_a_run_before_are_hidden_too(tmp_path: Path) -> None:
    for number in range(2):
        log = LogWriter(tmp_path, "watch", tell=pytest.fail)
        for one in run_of(range(5), 1.0):
            log.value(one, statistics_of(one.sample.array))
        log.alert(Alert("dead_relu", "a", "output", 4, 2, f"run {number}", "rest"))
        log.close()
    assert [one.what for one in open_watch(tmp_path).alerts] == ["run 1"]


# Trouble


def analysis(folder: Path, **plan: Any) -> tuple[WatchAnalysis, list[dict[str, Any]]]:
    said: list[dict[str, Any]] = []
    return WatchAnalysis(Plan(to=str(folder), **plan), said.append), said


def test_a_folder_that_cannot_be_written_is_told_and_rules_go_on(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    reader, said = analysis(tmp_path / "file" / "log", rules=resolve_rules())
    reader.take(sent(0, "a", "output", [1.0, np.nan]))
    reader.tick()
    reader.close()
    assert [one["kind"] for one in said] == ["problem", "alert"]
    text = said[0]["text"]
    assert text.startswith("there is no log in") and "Not a directory" in text
    assert text.endswith("Statistics and rules go on.")


def test_a_log_that_another_process_writes_is_left_to_it(tmp_path: Path) -> None:
    with Writer(tmp_path / "log" / "watch", about=about_log("watch")):
        reader, said = analysis(tmp_path)
        reader.take(sent(0, "a", "output", [1.0]))
        reader.close()
    assert [one["kind"] for one in said] == ["problem"] and "is being written" in said[0]["text"]


def test_a_step_that_stands_still_is_told_of_before_the_next_comes(tmp_path: Path) -> None:
    reader, said = analysis(tmp_path, rules=resolve_rules({"all_zero": {"patience": 1}}))
    reader.take(sent(0, "a", "output", np.zeros(4)))
    reader.tick()
    assert said == []  # more of the step may come
    reader.tick()
    assert [(one["kind"], one["rule"], one["layer"]) for one in said] == [("alert", "all_zero", "a")]
    reader.close()
    assert len(said) == 1 and len(open_watch(tmp_path).alerts) == 1


def test_an_archive_of_something_else_is_left_alone(tmp_path: Path) -> None:
    with Writer(tmp_path / "log" / "watch", about={"kind": "history"}) as writer:
        writer.step([Sample(0, "a", "value", array=np.ones(2))])
    reader, said = analysis(tmp_path)
    reader.take(sent(0, "a", "output", [1.0]))
    reader.close()
    assert len(Archive(tmp_path / "log" / "watch").frames) == 1
    assert "is an archive of something else; write to another folder. Statistics" in said[0]["text"]


def test_without_a_folder_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    said: list[dict[str, Any]] = []
    reader = WatchAnalysis(Plan(rules=resolve_rules()), said.append)
    reader.take(sent(0, "a", "output", [np.inf, 1.0]))
    reader.close()
    assert [one["rule"] for one in said] == ["nan_inf"] and list(tmp_path.iterdir()) == []


FULL = """
    import json, sys, numpy as np
    from torcheer.monitor.analysis import WatchAnalysis
    from torcheer.monitor.child_plan import Plan, Delivery
    from torcheer.monitor.rules import resolve_rules
    from torcheer.records import Sample
    if len(sys.argv) > 2:
        import resource
        sys.dont_write_bytecode = True  # or half a .pyc is left of what is imported from here on
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]),) * 2)
    said = []
    reader = WatchAnalysis(Plan(to=sys.argv[1], rules=resolve_rules(["all_zero"]), keep=("*",)), said.append)
    for step in range(60):
        for layer in range(5):
            array = np.zeros((16, 16)) if step > 40 and layer == 2 else np.full((16, 16), step + 1.0)
            reader.take(Delivery(Sample(step, f"layer{layer}", "output", array=array)))
        reader.tick()
    reader.close()
    print(json.dumps(said))
"""


def assert_told_once_and_readable(folder: Path, said: list[dict[str, Any]], why: str) -> None:
    assert [one["kind"] for one in said] == ["alert", "alert"]  # the rules went on: layer2 fell silent much later
    assert said[0]["rule"] == "disk_full" and said[0]["what"] == f"{why} in {folder}: it ends here"
    assert (said[1]["rule"], said[1]["layer"], said[1]["since"]) == ("all_zero", "layer2", 41)
    watched = open_watch(folder)
    steps = list(watched.steps)
    assert 0 < len(steps) < 40 and steps == list(range(len(steps)))
    assert (watched["layer0"].values[steps[-1]] == steps[-1] + 1).all()


def test_a_limit_on_file_sizes_ends_the_log_and_nothing_else(tmp_path: Path) -> None:
    said = json.loads(fresh(FULL, tmp_path, 200_000))
    assert_told_once_and_readable(tmp_path, said, "File too large")


def test_a_full_disk_ends_the_log_and_nothing_else(tmp_path: Path) -> None:
    with disk(tmp_path / "disk", "300k") as folder:
        said = json.loads(fresh(FULL, folder))
        assert_told_once_and_readable(folder, said, "No space left on device")


def fresh(code: str, *arguments: Any) -> str:
    return run_python("-c", code, *arguments).stdout


ENDLESS = """
    import itertools, sys, time, numpy as np
    from torcheer.monitor.analysis import WatchAnalysis
    from torcheer.monitor.child_plan import Plan, Delivery
    from torcheer.monitor.rules import resolve_rules
    from torcheer.records import Sample
    reader = WatchAnalysis(Plan(to=sys.argv[1], rules=resolve_rules(), keep=("layer1/*",)), lambda what: None)
    for step in itertools.count():
        for layer in range(4):
            reader.take(Delivery(Sample(step, f"layer{layer}", "output", array=np.full(1000, step, np.float32))))
        print(step, flush=True)
        time.sleep(0.002)
        reader.tick()
"""


@pytest.mark.parametrize("steps", [1, 40, 173])
def test_a_kill_loses_almost_nothing(steps: int, tmp_path: Path) -> None:
    with Child("-c", ENDLESS, tmp_path) as process:
        last = 0
        while last < steps:
            last = int(process.line())
        process.kill()
        rest = process.ends(-signal.SIGKILL).splitlines(keepends=True)
        last = max([last, *(int(line) for line in rest if line.endswith("\n"))])
    watched = open_watch(tmp_path)
    assert not watched.sealed and watched.problems == []
    assert list(watched.steps) == list(range(len(watched.steps))) and len(watched.steps) >= last  # all but the newest
    for key in watched:
        assert (watched[key].mean == watched[key].steps).all() and len(watched[key]) == len(watched.steps)
    assert all((array == step).all() for step, array in watched["layer1"].values.items())
