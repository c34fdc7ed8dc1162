"""Training on several ranks: real torchrun, gloo, on the CPU."""

from __future__ import annotations

import json
import re
import socket
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch
from rank_cases import BATCH, EPOCHS, SAMPLES, main, seen, train
from seams import (
    LOST_STATUS,
    STATUS_FILE,
    CheckpointStore,
    Decision,
    SessionRanks,
    Share,
    describe_cause,
    describe_end,
    describe_saved,
    first_host,
    join_ranks,
    lock_folder,
)

from torcheer.errors import BadArgument
from torcheer.inspector import open_watch

pytestmark = pytest.mark.skipif(not torch.distributed.is_available(), reason="torch without distributed")


def weights_of(folder: Path) -> dict[str, torch.Tensor]:
    state, _, problems = CheckpointStore(folder / "run").newest()
    assert state is not None and not problems
    return dict(state["models"]["net"])


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of one process, this one."""
    folder = tmp_path_factory.mktemp("alone")
    main(folder, {})
    return folder


def test_two_ranks_train_what_one_process_does(alone: Path, tmp_path: Path) -> None:
    told = train(tmp_path, 2, counted=True)
    assert told[0] == told[1]
    assert told[0]["reductions"] == 2 * told[0]["step"], "DDP's own: gradients carry what ranks tell of a step"
    assert seen(tmp_path) == dict.fromkeys(range(SAMPLES), EPOCHS)
    expected = json.loads((alone / "told0.json").read_text())
    for row, one in zip(told[0]["rows"], expected["rows"], strict=True):
        assert row == pytest.approx(one, rel=1e-4)
    for name, value in weights_of(alone).items():
        torch.testing.assert_close(weights_of(tmp_path)[name], value, rtol=1e-4, atol=1e-5)


def test_a_carried_vote_is_said_once_and_acted_on_once() -> None:
    first, second = SessionRanks(0, 2, None), SessionRanks(1, 2, None)
    for ranks in (first, second):
        ranks.begin_votes(carried=True)
        assert ranks.vote(stops=False, works=False) == Decision(is_stop=False, is_work=True), "nobody was asked yet"
    second.vote(stops=True, works=False)
    assert second.vote(stops=False, works=False) == Decision(False, False), "a round without a batch carries nothing"
    wishes = [ranks.take_wishes() for ranks in (first, second)]
    assert wishes == [Decision(False, False), Decision(True, False)] and not any(second.take_wishes())
    for ranks in (first, second):
        ranks.hear(*(float(sum(votes)) for votes in zip(*wishes)))
        ranks.hear(0.0, 0.0)  # of the round's other pipeline
        assert ranks.vote(stops=False, works=False) == Decision(True, False)
        assert ranks.vote(stops=False, works=False) == Decision(False, False)


@pytest.mark.dist
def test_a_rank_that_is_killed_begins_again_and_the_run_ends_the_same(tmp_path: Path) -> None:
    whole = train(tmp_path / "whole", 2, dropout=True)
    killed = train(tmp_path / "killed", 2, restarts=1, dropout=True, kills=[(0, 1, 9)])
    assert (
        killed[0]["weights"] == whole[0]["weights"] and killed[0]["rows"] == whole[0]["rows"][-len(killed[0]["rows"]) :]
    )
    csv = Path("run", "metrics", "0.csv")
    assert (tmp_path / "killed" / csv).read_bytes() == (tmp_path / "whole" / csv).read_bytes()


@pytest.mark.dist
@pytest.mark.parametrize(
    ("stop_step", "settings"),
    [(7, {}), (5, {"accumulate": 2}), (7, {"parallel": {"shard": True}})],
    ids=["DDP", "accumulated", "FSDP2"],
)
def test_a_stop_that_one_rank_hears_of_stops_all_and_one_process_goes_on(
    stop_step: int, settings: dict[str, Any], tmp_path: Path
) -> None:
    told = train(tmp_path, 2, stop_step=stop_step, **settings)
    assert [facts["stopped"] for facts in told] == ["the last rank was asked to"] * 2
    assert told[0]["step"] == told[1]["step"] == stop_step + 1  # the update after the one where it was asked
    train(tmp_path, 1, **{name: value for name, value in settings.items() if name != "parallel"})
    assert seen(tmp_path) == dict.fromkeys(range(SAMPLES), EPOCHS)


@pytest.mark.dist
def test_parameters_that_no_rank_uses_stay_as_they_are(tmp_path: Path) -> None:
    told, main_told = train(tmp_path / "two", 2, idle=True), train(tmp_path / "one", 1, idle=True)
    assert told[0]["idle"] == told[1]["idle"] == main_told[0]["idle"] == [1.0] * 6, "without weight decay, too"


@pytest.mark.dist
def test_ranks_of_a_sessions_watch_log_for_themselves_also_when_fewer_go_on(tmp_path: Path) -> None:
    watch = {"every": 2, "what": ["output", "weight"], "ranks": "all"}
    train(tmp_path, 2, stop_step=7, watch=watch)
    before = open_watch(tmp_path / "run")
    assert sorted(before.ranks) == [0, 1] and before["0", "output"].count[0] == 8 * BATCH, "outputs of both batches"
    assert not before.alerts, "the weights of both ranks are the same"
    train(tmp_path, 1, watch=watch)
    steps = open_watch(tmp_path / "run").ranks[0]["0", "output"].steps.tolist()
    assert steps == list(range(0, EPOCHS * 6, 2)) and len(open_watch(tmp_path / "run").ranks[1].keys()) > 0


@pytest.mark.dist
def test_a_rule_of_one_ranks_watch_stops_all_ranks(tmp_path: Path) -> None:
    watch = {"every": 1, "ranks": [1], "stop_on": ["nan_inf"]}
    # Epochs without end: on a busy machine the watch's process hears of step 5 when three of them are over.
    told = train(tmp_path, 2, watch=watch, spoil=(1, 5), epochs=1_000_000, checkpoint_steps=1_000_000)
    assert told[0]["stopped"] == told[1]["stopped"] and "nan_inf" in told[0]["stopped"], told
    assert told[0]["step"] == told[1]["step"] > 5


@pytest.mark.parametrize(("samples", "ranks"), [(8, 2), (7, 3), (3, 4), (1, 2), (4, 4), (0, 2)])
def test_each_sample_of_a_batch_belongs_to_one_rank(samples: int, ranks: int) -> None:
    shares = [Share(rank, ranks).of(list(range(samples))) for rank in range(ranks)]
    taken = Counter(sample for mine, stands_in in shares if not stands_in for sample in mine)
    assert taken == dict.fromkeys(range(samples), 1)


@pytest.mark.parametrize(
    ("hosts", "first"), [("gpu[03-05,9],login", "gpu03"), ("a,b", "a"), ("node7", "node7"), ("n[1,3]", "n1")]
)
def test_the_first_host_of_a_slurm_job_is_where_ranks_meet(hosts: str, first: str) -> None:
    assert first_host(hosts) == first


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (3, "ended with status 3, its own message is above"),
        (-9, "was ended by SIGKILL (the system does that when memory runs out)"),
        (-11, "was ended by SIGSEGV"),
        (-99, "was ended by signal 99"),
    ],
)
def test_how_a_rank_ended_is_a_sentence(status: int, text: str) -> None:
    assert describe_end(status) == text


@pytest.mark.parametrize(
    ("statuses", "text"),
    [
        ({0: LOST_STATUS, 1: 1, 2: -15}, "rank 1 ended with status 1, its own message is above"),
        ({0: LOST_STATUS, 1: -15}, "why is above"),
        ({0: 2, 1: 1}, "rank 0 ended with status 2, its own message is above"),
    ],
)
def test_the_rank_that_is_named_is_not_one_that_ended_because_of_another(statuses: dict[int, int], text: str) -> None:
    assert describe_cause(statuses, first=0) == text


def test_the_message_of_a_killed_rank_names_the_newest_checkpoint_and_what_came_after_it(
    alone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = alone / "run"
    newest = max(int(path.name) for path in (run / "checkpoints").iterdir())
    with closing(lock_folder(run, "trained")) as lock:
        lock.note(newest + 2)  # as a trainer does that is killed two steps later
    status = tmp_path / "status.json"
    status.write_text(json.dumps({"process": 1, "session_dir": str(run)}))
    monkeypatch.setenv(STATUS_FILE, str(status))
    assert re.fullmatch(
        rf"\. The newest checkpoint is {run}/checkpoints/{newest}: step {newest}, saved at [0-9:]+, [0-9]+ s ago\. "
        rf"The 2 steps after it are not saved\. Go on with: torcheer train {run}",
        describe_saved(),
    )
    status.write_text(json.dumps({}))
    assert describe_saved() == "", "rank 0 has not begun"


def test_a_port_that_is_taken_is_said_with_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for name, value in {"WORLD_SIZE": 2, "RANK": 0, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}.items():
            monkeypatch.setenv(name, str(value))
        with pytest.raises(BadArgument, match=rf"rank 0 of 2 cannot meet the others .* MASTER_PORT {port}: .*in use"):
            join_ranks("cpu")
