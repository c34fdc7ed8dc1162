"""The logs of several ranks: merged as if one process had seen all numbers, and compared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rank_logs import RankLog
from seams import (
    COUNTS,
    STATISTICS,
    FollowedLog,
    Shard,
    acts,
    main,
    merge_statistics,
    ranked,
    split_rank,
    statistics_of,
)

import torcheer as tl
from torcheer.errors import BadArgument, ValueUnavailable
from torcheer.inspector import open_watch

WEIGHT = ("fc.weight", "weight")
OUTPUT = ("fc", "output")


def shard(at: int, rows: int, of: int = 4) -> dict[str, Any]:
    """Some rows of a matrix of four numbers a row."""
    return Shard((of, 4), (at, 0), (rows, 4), "(Shard(dim=0),)").as_json()


numbers = st.floats(allow_nan=True, allow_infinity=True, width=32)


@given(st.lists(st.lists(numbers, min_size=1, max_size=20), min_size=1, max_size=5))
def test_merged_statistics_are_those_of_all_numbers(parts: list[list[float]]) -> None:
    arrays = [np.array(part) for part in parts]
    rows = [{**statistics_of(array).facts(), "stride": 1, "finite": -1} for array in arrays]
    merged, totals = merge_statistics(
        np.array([[row.get(name, 0.0) for name in STATISTICS] for row in rows], np.float64),
        np.array([[row.get(name, 0) for name in COUNTS] for row in rows]),
        np.zeros(len(rows), int),
    )
    whole = statistics_of(np.concatenate(arrays))
    found = dict(zip(STATISTICS, merged[0])) | dict(zip(COUNTS, totals[0]))
    for name in ("count", "zeros", "nans", "infs"):
        assert found[name] == getattr(whole, name)
    for name in ("minimum", "maximum"):
        np.testing.assert_array_equal(found[name], getattr(whole, name))  # 0 equals −0
    scale = max((abs(one) for part in parts for one in part if np.isfinite(one)), default=1.0)
    for name in ("mean", "std", "norm"):
        np.testing.assert_allclose(found[name], getattr(whole, name), rtol=1e-9, atol=1e-9 * scale)


def two_ranks(run: Path, looks: int = 5) -> np.ndarray[Any, Any]:
    """Two halves of a weight, and outputs of their own batches; the weight."""
    whole = np.arange(16, dtype=np.float32).reshape(4, 4)
    logs = [RankLog(run, rank, 2, {"fc.weight": shard(2 * rank, 2)}) for rank in (0, 1)]
    for step in range(looks):
        for rank, log in enumerate(logs):
            values = {WEIGHT: whole[2 * rank : 2 * rank + 2] + step, OUTPUT: np.full((3, 2), 10.0 * rank + step)}
            log.look(step, values, loss=rank, step_secs=0.1, forward_secs=0.05, wait_secs=0.01)
    for log in logs:
        log.close()
    return whole


def test_a_page_follows_the_same_numbers_as_a_reader_has(tmp_path: Path) -> None:
    whole = two_ranks(tmp_path)
    watched, followed = open_watch(tmp_path), FollowedLog(tmp_path)
    followed.refresh()
    for layer, variable in (WEIGHT, OUTPUT):
        table, series = followed.tables[f"{layer} {variable}"].columns, watched[layer, variable]
        assert table["Step"] == series.steps.tolist() == list(range(5))
        for name in ("minimum", "maximum", "mean", "std", "norm"):
            assert table[name][:] == getattr(series, name).tolist()
        assert [list(cells) for cells in table["histogram"]] == series.histogram.tolist()
    assert np.array_equal(watched[WEIGHT].values[3], whole + 3)
    assert watched[OUTPUT].mean.tolist() == [5.0 + step for step in range(5)]
    assert watched["loss"].mean.tolist() == [0.5] * 5
    assert list(followed.tables["metric"].columns["rank 1 loss"]) == [1.0] * 5
    assert [row.rank for row in followed.ranks] == [0, 1] and followed.problems == [] and not followed.alerts
    assert tl.load(tmp_path).ranks[1]["loss"].mean.tolist() == [1.0] * 5


def test_a_rank_that_is_read_later_amends_what_a_page_shows(tmp_path: Path) -> None:
    first = RankLog(tmp_path, 0, 2, {"fc.weight": shard(0, 2)})
    whole = np.arange(16, dtype=np.float32).reshape(4, 4)
    followed = FollowedLog(tmp_path)
    for step in range(3):
        first.look(step, {WEIGHT: whole[:2]})
    followed.refresh()
    table = followed.tables["fc.weight weight"]
    assert list(table.columns["maximum"]) == [7.0] * 3
    second = RankLog(tmp_path, 1, 2, {"fc.weight": shard(2, 2)})
    second.look(1, {WEIGHT: whole[2:]})
    changes = table.changes
    assert "fc.weight weight" in followed.refresh()
    assert list(table.columns["maximum"]) == [7.0, 15.0, 7.0] and list(table.columns["Step"]) == [0, 1, 2]
    assert table.intact_rows(changes) == 1
    first.close(), second.close()


def test_of_four_ranks_the_one_that_differs_is_named(tmp_path: Path) -> None:
    logs = [RankLog(tmp_path, rank, 4) for rank in range(4)]
    for step in range(4):
        for rank, log in enumerate(logs):
            weight = np.full((2, 2), step + (0.5 if rank == 2 and step > 1 else 0.0))
            log.look(step, {WEIGHT: weight, ("head.weight", "weight"): weight * 2})
    for log in logs:
        log.close()
    for alerts in (open_watch(tmp_path).alerts, (followed := FollowedLog(tmp_path)).refresh() and followed.alerts):
        (alert,) = alerts
        assert alert.rule == "different_weights" and alert.step == 2 and alert.values["ranks"] == [2]
        assert "rank 2 has other weights than ranks 0, 1 and 3: fc.weight, head.weight" in alert.what


def test_a_rank_for_which_the_others_wait_is_named(tmp_path: Path) -> None:
    logs = [RankLog(tmp_path, rank, 3) for rank in range(3)]
    for step in range(6):
        for rank, log in enumerate(logs):  # all take as long for a step: the others wait in it
            log.look(step, {}, step_secs=0.5, forward_secs=0.4 if rank == 1 else 0.1, wait_secs=0.01)
    for log in logs:
        log.close()
    watched = open_watch(tmp_path)
    (alert,) = watched.alerts
    assert alert.rule == "straggler" and alert.variable == "rank 1" and "they wait for it" in alert.what
    assert [row.is_slow for row in watched.board.rows] == [False, True, False]


def test_ranks_that_wait_for_each_other_in_the_forward_pass_are_compared_by_their_waiting_for_data(
    tmp_path: Path,
) -> None:
    logs = [RankLog(tmp_path, rank, 3) for rank in range(3)]
    for step in range(6):
        for rank, log in enumerate(logs):
            log.look(step, {}, step_secs=0.5, wait_secs=0.4 if rank == 1 else 0.01)
    for log in logs:
        log.close()
    watched = open_watch(tmp_path)
    (alert,) = watched.alerts
    assert alert.what == "it takes 0.4 s a step to wait for data, where the other ranks take 0.01 s: they wait for it"
    assert [row.is_slow for row in watched.board.rows] == [False, True, False]


def test_the_command_prints_a_line_for_each_rank(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    two_ranks(tmp_path)
    assert main("watch", [str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    start = lines.index(next(line for line in lines if line.split()[:3] == ["rank", "step", "a"]))
    assert [line.split()[:4] for line in lines[start + 1 : start + 3]] == [
        ["0", "4", "0.1", "s"],
        ["1", "4", "0.1", "s"],
    ]


def test_a_rank_without_a_step_has_no_number_of_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logs = [RankLog(tmp_path, rank, 2) for rank in (0, 1)]
    logs[0].look(0, {OUTPUT: np.ones(2)})
    for log in logs:
        log.close()
    assert main("watch", [str(tmp_path)]) == 0
    assert [line.split()[:3] for line in capsys.readouterr().out.splitlines()[-2:]] == [
        ["0", "0", "–"],
        ["1", "–", "–"],
    ]


def test_a_missing_shard_is_said_plainly(tmp_path: Path) -> None:
    logs = [RankLog(tmp_path, rank, 3, {"fc.weight": shard(2 * rank, 2, 6)}) for rank in (0, 2)]
    for log in logs:
        log.look(0, {WEIGHT: np.ones((2, 4), np.float32)})
        log.close()
    watched = open_watch(tmp_path)
    assert watched.problems == ["of 3 ranks ranks 0 and 2 have a log here"]
    with pytest.raises(ValueUnavailable, match="lacks 8 of its 24 numbers: of 3 ranks there is only rank 0"):
        watched[WEIGHT].values[0]


def test_ranks_are_chosen_by_one_word(monkeypatch: pytest.MonkeyPatch) -> None:
    assert acts(0) and acts("all") and ranked("watch") == "watch"
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert not acts(0) and acts("all") and acts([1, 2]) and not acts([0, 3])
    assert ranked("watch") == "watch@rank2" and split_rank("watch-net@rank2") == ("watch-net", 2)
    for wrong in ("some", -1, [], True, 1.5):
        with pytest.raises(BadArgument, match="a list of ranks, or 'all'"):
            acts(wrong)  # type: ignore[arg-type]
    with pytest.raises(BadArgument, match="ranks=7: there are 4, counted from 0"):
        acts(7)
