"""Reading a watch: series, tables, and what a person sees; also of a log that is cut or still being written."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from children import run_python
from seams import BINS, LAYER, PERCENTILES, FollowedLog, Plan, WatchAnalysis, resolve_rules, statistics_of

from torcheer.archive import Archive, Writer
from torcheer.errors import ArchiveDamaged, NotAnArchive, TorcheerError, UnknownLayer, ValueUnavailable
from torcheer.inspector import open_watch
from torcheer.records import Sample
from torcheer.samples import Delivery

RANDOM = np.random.default_rng(0)
ARRAYS = {step: RANDOM.standard_normal((4, 8)).astype(np.float32) * (step + 1) for step in range(0, 60, 20)}


def write(folder: Path, *, seal: bool = True) -> WatchAnalysis:
    """A log of three looks at two layers and a loss."""
    reader = WatchAnalysis(Plan(to=str(folder), keep=("features.3/output",), rules=resolve_rules()), lambda what: None)
    for step, array in ARRAYS.items():
        for layer, variable in (("features.3", "output"), ("features.3", "grad"), ("head", "output")):
            sample = Sample(step, layer, variable, array=array)
            reader.take(Delivery(sample, time_secs=100.0 + step, device="cuda:0", message="epoch:1", count=step))
        reader.take(Delivery(Sample(step, "loss", "metric", array=np.array(1.5 if step < 40 else np.nan))))
    if seal:
        reader.close()
    return reader


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path / "w")
    return tmp_path / "w"


def test_a_series_has_an_array_for_each_statistic(folder: Path) -> None:
    watched = open_watch(folder)
    series = watched["features.3", "output"]
    expected = [statistics_of(array) for array in ARRAYS.values()]
    for name in ("minimum", "maximum", "mean", "std", "norm", "count", "zeros", "nans", "infs", "stride"):
        assert getattr(series, name).tolist() == [getattr(one, name) for one in expected], name
    assert series.steps.tolist() == [0, 20, 40] and series.time_secs.tolist() == [100, 120, 140]
    assert series.histogram.shape == (3, BINS) and series.histogram.tolist() == [
        list(one.histogram) for one in expected
    ]
    assert (
        series.percentiles.shape == (3, len(PERCENTILES)) and series.p50.tolist() == series.percentiles[:, 3].tolist()
    )
    assert len(series.edges) == BINS + 1 and len(series) == 3


def of_another_version(folder: Path, change: Callable[[list[str], np.ndarray], tuple[list[str], np.ndarray]]) -> None:
    """Write a watch's log again, as one with other statistics has it."""
    path = folder / "log" / "watch"
    path.rename(folder / "today")
    archive = Archive(folder / "today")
    with Writer(path, about=archive.about) as writer:
        for frame in archive.frames:
            about, samples = dict(frame["about"]), []
            for entry in frame["entries"]:
                array = archive.array(entry)
                if entry.layer == LAYER and entry.variable == "statistics":
                    names, array = change(about["columns"]["statistics"], array)
                    about["columns"] = about["columns"] | {"statistics": names}
                samples.append(Sample(entry.step, entry.layer, entry.variable, entry.item, array))
            writer.step(samples, **about)


def test_a_log_with_one_statistic_fewer_lacks_only_that(folder: Path) -> None:
    before = {key: open_watch(folder)[key].table() for key in open_watch(folder)}
    of_another_version(folder, lambda names, array: (names[:2] + names[3:], np.delete(array, 2, axis=1)))
    watched = open_watch(folder)
    assert watched.problems == [] and watched.keys() == list(before)
    for key, table in before.items():
        after = watched[key].table()
        lost = [table.pop("maximum"), after.pop("maximum")][1]
        assert key[1] == "metric" or np.isnan(lost).all()
        assert repr(after) == repr(table)
    assert watched["head", "output"].histogram.sum() > 0
    log = FollowedLog(folder)
    log.refresh()
    assert log.problems == [] and np.isnan(log.tables["head output"].columns["maximum"]).all()


def test_a_log_without_a_statistic_that_follows_from_others_has_it_all_the_same(folder: Path) -> None:
    before = open_watch(folder).to_pandas()
    of_another_version(folder, lambda names, array: (names[:5] + names[7:], np.delete(array, [5, 6], axis=1)))
    after = open_watch(folder).to_pandas()
    np.testing.assert_allclose(after[["norm", "rms"]], before[["norm", "rms"]], rtol=1e-12)
    assert after.drop(columns=["norm", "rms"]).equals(before.drop(columns=["norm", "rms"]))


def test_a_log_with_one_statistic_more_is_read_without_it(folder: Path) -> None:
    before = open_watch(folder).table()
    of_another_version(folder, lambda names, array: (["new", *names], np.insert(array, 0, 5.0, axis=1)))
    watched = open_watch(folder)
    assert watched.problems == [] and repr(watched.table()) == repr(before)


def test_a_histogram_that_damage_took_is_not_read_as_zeros(folder: Path) -> None:
    archive = Archive(folder / "log" / "watch")
    bins = next(entry for entry in archive.entries if entry.layer == LAYER and entry.variable == "bins")
    data, index = (folder / "log" / "watch" / f"000000.{part}" for part in ("data", "index"))
    damaged = bytearray(data.read_bytes())
    damaged[bins.offset] ^= 1
    data.write_bytes(damaged)
    index.write_bytes(index.read_bytes()[:-1])  # so that only what is intact is read
    series = open_watch(folder)["head", "output"]
    assert np.isfinite(series.mean).all()
    with pytest.raises(ArchiveDamaged):
        series.histogram  # noqa: B018


def test_kept_arrays_are_there_by_step(folder: Path) -> None:
    values = open_watch(folder)["features.3", "output"].values
    assert list(values) == [0, 20, 40] and len(values) == 3
    assert all((values[step] == array).all() for step, array in ARRAYS.items())
    with pytest.raises(UnknownLayer, match="nothing was kept of step 7; there is 0, 20, 40"):
        values[7]
    with pytest.raises(ValueUnavailable, match=r"was kept, only its statistics; watch with keep=\('head/output',\)"):
        open_watch(folder)["head"].values  # noqa: B018


def test_keys_and_steps(folder: Path) -> None:
    watched = open_watch(folder)
    assert watched.keys() == list(watched) == [
        ("features.3", "output"), ("features.3", "grad"), ("head", "output"), ("loss", "metric"),
    ]  # fmt: skip
    assert watched.steps.tolist() == [0, 20, 40] and len(watched) == 4 and watched.sealed
    assert ("head", "output") in watched and "head" in watched and "tail" not in watched
    assert watched["loss"].histogram.sum() == 0


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("features.33", "no layer 'features.33' in .* Did you mean 'features.3'?"),
        ("xyz", "no layer 'xyz' in .* It has 'features.3', 'head', 'loss'."),
        ("features.3", "'features.3' has 'output', 'grad'; ask for one of them: watched\\['features.3', 'output'\\]"),
        (("head", "grad"), "no 'grad' of 'head' in .*; there is output"),
    ],
)
def test_unknown_keys_are_answered_with_near_ones(folder: Path, key: Any, text: str) -> None:
    with pytest.raises(UnknownLayer, match=text):
        open_watch(folder)[key]


@pytest.mark.parametrize("key", [0, None, ("a", "b", "c")])
def test_what_is_no_key_is_answered_with_one(folder: Path, key: Any) -> None:
    with pytest.raises(UnknownLayer, match=r"ask for a layer, or for a layer and a variable, such as watched\['"):
        open_watch(folder)[key]


def test_an_unknown_statistic_is_answered_with_a_near_one(folder: Path) -> None:
    with pytest.raises(AttributeError, match=r"a series has no 'maximun'\. Did you mean 'maximum'\?"):
        open_watch(folder)["head"].maximun  # noqa: B018


def test_alerts_are_those_that_were_told(folder: Path) -> None:
    watched = open_watch(folder)
    assert [(one.rule, one.layer, one.step, one.severity) for one in watched.alerts] == [
        ("nan_inf", "loss", 40, "error")
    ]
    assert watched["loss"].alerts == watched.alerts and watched["head"].alerts == []


def test_a_table_has_a_row_for_each_look(folder: Path) -> None:
    watched = open_watch(folder)
    table = watched.table()
    assert {len(column) for column in table.values()} == {12}
    assert table["step"] == [0] * 4 + [20] * 4 + [40] * 4 and table["layer"][:2] == ["features.3"] * 2
    assert (table["shape"][0], table["type"][0], table["device"][0]) == ([4, 8], "float32", "cuda:0")
    assert (table["message"][0], table["message"][3], table["device"][3]) == ("epoch:1", "", "cpu")
    assert table["seen"][4] == 20 and table["finite"] == [True] * 11 + [False]


def test_tables_go_to_pandas_and_arrow(folder: Path) -> None:
    pandas, pyarrow = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    watched = open_watch(folder)
    frame = watched.to_pandas()
    assert isinstance(frame, pandas.DataFrame) and len(frame) == 12
    assert frame[frame.layer == "head"]["norm"].tolist() == watched["head"].norm.tolist()
    table = watched["head"].to_arrow()
    assert table.num_rows == 3 and table["shape"].type == pyarrow.list_(pyarrow.int64())
    assert table["step"].type == pyarrow.int64() and table["finite"].type == pyarrow.bool_()
    assert watched.to_arrow().schema == table.schema


def test_what_a_person_sees(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    watched = open_watch("w")
    assert repr(watched) == "<Watched w: steps 0 to 40, 4 keys, 1 alert, ended>"
    norm = [f"{statistics_of(ARRAYS[40]).norm:.4g}", f"{statistics_of(ARRAYS[40]).std:.4g}"]
    assert repr(watched["head"]).startswith("<Series head (output): 3 looks, steps 0 to 40; last mean ")
    lines = str(watched).splitlines()
    assert lines[0] == "Watched w: steps 0 to 40, 4 keys, 1 alert, ended"
    assert lines[1].split() == ["layer", "variable", "looks", "mean", "std", "norm"]
    assert lines[2].split()[:3] == ["features.3", "output", "3"] and lines[2].split()[-2:] == norm[::-1]
    assert lines[5].split() == ["loss", "metric", "3", "–", "–", "–"]
    assert len({line.index(word) for line, word in zip(lines[1:], ("variable", "output", "grad"))}) == 1
    assert lines[-1].startswith("! nan_inf at step 40: loss (metric): it is NaN; it may have begun after step 20")


def test_a_watch_with_many_keys_prints_a_few_lines(tmp_path: Path) -> None:
    reader = WatchAnalysis(Plan(to=str(tmp_path)), lambda what: None)
    for number in range(100):
        reader.take(Delivery(Sample(0, f"layer{number}", "output", array=np.ones(3))))
    reader.close()
    assert len(str(open_watch(tmp_path)).splitlines()) == 15
    assert str(open_watch(tmp_path)).splitlines()[-1] == "  … 88 more"


def test_a_log_is_read_while_it_is_written(tmp_path: Path) -> None:
    reader = write(tmp_path, seal=False)
    before = open_watch(tmp_path)
    assert before.steps.tolist() == [0, 20] and not before.sealed  # the newest step still waits
    assert repr(before).endswith("4 keys, 1 alert, still open, or ended by a kill>")
    reader.close()
    assert open_watch(tmp_path).steps.tolist() == [0, 20, 40]
    assert before["head"].mean.shape == (2,)


def test_the_folder_of_a_training_run_leads_to_its_watch(folder: Path) -> None:
    folder.rename(folder.parent / "watch")
    assert open_watch(folder.parent).path == folder.parent / "watch"


def test_a_folder_without_a_log_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotAnArchive, match="holds nothing that was watched: there is no folder 'log/watch' in it"):
        open_watch(tmp_path)


def test_of_several_logs_one_has_to_be_named_and_a_folder_that_is_not_there_is_guessed(tmp_path: Path) -> None:
    for name in ("net", "other"):
        write(tmp_path / "run" / "watch" / name)
    with pytest.raises(NotAnArchive, match=r"run holds 2 logs; open one of them: '.*/watch/net', '.*/watch/other'"):
        open_watch(tmp_path / "run")
    assert len(open_watch(tmp_path / "run" / "watch" / "net")) == 4
    with pytest.raises(NotAnArchive, match=r"there is no folder .*/rnu\. Did you mean 'run'"):
        open_watch(tmp_path / "rnu")


def test_a_series_of_samples_says_so(tmp_path: Path) -> None:
    reader = WatchAnalysis(Plan(to=str(tmp_path)), lambda what: None)
    reader.take(Delivery(Sample(0, "a", "output", array=np.arange(4.0)), stride=3, whole=(3, 4)))
    reader.close()
    assert repr(open_watch(tmp_path)["a"]).endswith("norm 3.742, of every 3rd number>")


# Damage


def test_an_index_that_is_cut_anywhere_is_read_up_to_there(folder: Path, tmp_path: Path) -> None:
    index = folder / "log" / "watch" / "000000.index"
    whole, seen = index.read_bytes(), set()
    for length in (*range(0, len(whole), 97), len(whole)):
        index.write_bytes(whole[:length])
        watched = open_watch(folder)
        steps = watched.steps.tolist()
        assert steps == [0, 20, 40][: len(steps)]
        seen.add(len(steps))
        for key in watched:
            expected = 1.5 if key[0] == "loss" else statistics_of(ARRAYS[0]).mean
            assert watched[key].mean[0] == expected
    assert seen == {0, 1, 2, 3}


def test_data_that_are_cut_or_changed_cost_only_what_they_held(folder: Path, tmp_path: Path) -> None:
    data = folder / "log" / "watch" / "000000.data"
    whole = data.read_bytes()
    place = next(entry for entry in Archive(folder / "log" / "watch").entries if entry.variable == "statistics").offset
    for length in range(1, len(whole), 997):
        data.write_bytes(whole[:length])
        watched = open_watch(folder)
        steps = watched.steps.tolist()
        assert watched.problems and steps == [0, 20, 40][: len(steps)]
        assert "lost: " in str(watched)
    data.write_bytes(b"")
    nothing = open_watch(folder)
    assert nothing.keys() == [] and nothing.problems
    data.write_bytes(whole[:place] + b"?" + whole[place + 1 :])
    watched = open_watch(folder)
    assert watched["head"].steps.tolist() == [20, 40]
    assert watched.problems[0].startswith("step 0: its statistics cannot be read")


def test_a_log_of_another_version_is_said_to_be_one(tmp_path: Path) -> None:
    from torcheer.archive import Writer

    with Writer(tmp_path / "log" / "watch") as writer:
        arrays = {"statistics": np.zeros((1, 2)), "counts": np.zeros((1, 2), np.int64)}
        writer.step([Sample(0, "(watch)", name, array=array) for name, array in arrays.items()], values=[["a", "b"]])
        writer.step([], rows={"metric": [1]})
        writer.step([], alerts={})
    watched = open_watch(tmp_path)
    assert watched.problems == [
        "step None: what it holds is of another version of torcheer",
        "step 0: its statistics are of another version of torcheer",
    ]
    assert len(watched) == 0
    assert "no steps" in repr(watched) and str(watched)


def test_missing_packages_are_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(TorcheerError, match=r"pip install 'torcheer\[all\]'"):
        open_watch(folder).to_pandas()


def test_reading_needs_no_torch(folder: Path) -> None:
    code = (
        "import sys; from torcheer.runlog.watch_reader import open_watch\n"
        "print(len(str(open_watch(sys.argv[1]))) > 10, 'torch' in sys.modules)"
    )
    done = run_python("-c", code, folder)
    assert done.stdout == "True False\n"


def test_a_copy_of_the_folder_reads_the_same(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "copy")
    assert open_watch(tmp_path / "copy")["head"].norm.tolist() == open_watch(folder)["head"].norm.tolist()
