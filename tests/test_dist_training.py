"""Training on two and four ranks, in all its ways: `make test-dist`."""

from __future__ import annotations

import json
import random
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from children import RUN_SECS, Child, children_of, has_ended, run_python
from rank_cases import BATCH, EPOCHS, SAMPLES, seen, train, train_until_killed
from seams import CheckpointStore
from training_spec_cases import WHOLE, Project, epochs
from waiting import wait_until

import torcheer as tl

pytestmark = [
    pytest.mark.dist,
    pytest.mark.skipif(not torch.distributed.is_available(), reason="torch without distributed"),
]
KILLS = 20
SHARDED = {"parallel": {"shard": ["0", "2"]}}
SPLIT = {"parallel": {"tensor": {"size": 2, "plan": {"0": "colwise", "2": "rowwise"}}}}
WAYS: dict[str, tuple[int, dict[str, Any]]] = {
    "DDP": (2, {}),
    "DDP on four": (4, {}),
    "FSDP2": (2, SHARDED),
    "FSDP2 on four": (4, {"parallel": {"shard": True}}),
    "tensor": (2, SPLIT),
    "tensor and DDP": (4, SPLIT),
    "tensor and FSDP2": (4, {"parallel": SPLIT["parallel"] | {"shard": ["0", "2"]}}),
}
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "everything": {"accumulate": 4, "ema": 0.9, "clip": 0.5, "activation_checkpointing": ["0", "2"]},
}


def state_of(folder: Path) -> dict[str, Any]:
    state, _, problems = CheckpointStore(folder / "run").newest()
    assert state is not None and not problems
    return state


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Any, Any]]:
    """Runs of one process: what each told, and its last state."""
    folders = {name: tmp_path_factory.mktemp(name) for name in OPTIONS}
    return {name: (train(folder, 1, **OPTIONS[name])[0], state_of(folder)) for name, folder in folders.items()}


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("way", WAYS)
def test_every_way_trains_what_one_process_does(
    way: str, options: str, alone: dict[str, tuple[Any, Any]], tmp_path: Path
) -> None:
    ranks, settings = WAYS[way]
    told = train(tmp_path, ranks, **settings, **OPTIONS[options])
    expected, last = alone[options]
    assert all(facts == told[0] for facts in told)
    for row, one in zip(told[0]["rows"], expected["rows"], strict=True):
        assert row == pytest.approx(one, rel=1e-3)
    state = state_of(tmp_path)
    for name, value in last["models"]["net"].items():
        torch.testing.assert_close(state["models"]["net"][name], value, rtol=1e-3, atol=1e-4)
    assert state["optimizers"].keys() == last["optimizers"].keys()


@pytest.mark.parametrize(
    ("ranks", "settings"),
    [(2, {}), (4, {}), (2, SHARDED), (4, SHARDED)],
    ids=["DDP", "DDP on four", "FSDP2", "FSDP2 on four"],
)
def test_twenty_killed_ranks_end_with_the_same_hash(ranks: int, settings: dict[str, Any], tmp_path: Path) -> None:
    whole = train(tmp_path / "whole", ranks, dropout=True, **settings)[0]
    draw, kills, runs = random.Random(ranks), 0, 0
    while kills < KILLS:
        steps = sorted(draw.sample(range(1, whole["step"] + 1), 5))
        plan = [(attempt, draw.randrange(ranks), step) for attempt, step in enumerate(steps)]
        folder = tmp_path / f"{runs}"
        killed = train(folder, ranks, restarts=len(plan), dropout=True, kills=plan, **settings)
        assert [facts["weights"] for facts in killed] == [whole["weights"]] * ranks, plan
        for name in ("0.csv", "steps.csv"):
            file = Path("run", "metrics", name)
            assert (folder / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()
        kills, runs = kills + len(plan), runs + 1
    print(f"{kills} kills in {runs} runs on {ranks} ranks: all with the same hash")


@pytest.mark.parametrize("settings", [{}, SHARDED], ids=["DDP", "FSDP2"])
def test_a_run_goes_on_at_other_numbers_of_ranks_with_every_sample_once(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    for ranks, stop_step in ((4, 4), (2, 7), (1, 9), (2, 13), (4, None)):
        way = settings if ranks > 1 else {}
        train(tmp_path, ranks, stop_step=stop_step, dropout=True, **way)
    assert seen(tmp_path) == dict.fromkeys(range(SAMPLES), EPOCHS)


@pytest.mark.parametrize("settings", [{}, SHARDED], ids=["DDP", "FSDP2"])
def test_a_run_killed_on_four_ranks_goes_on_on_two_and_one_as_one_that_was_stopped_does(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    """Samples are counted in the one that was stopped: what was lost in a kill is read again."""
    killed, stopped = tmp_path / "killed", tmp_path / "stopped"
    train_until_killed(killed, 4, (2, 8), dropout=True, **settings)
    step = state_of(killed)["place"]["step"]
    assert 0 < step <= 8
    train(stopped, 4, stop_step=step - 1, dropout=True, **settings)
    assert state_of(stopped)["place"] == state_of(killed)["place"]
    ends = []
    for folder in (killed, stopped):
        train(folder, 2, stop_step=step + 3, dropout=True, **settings)
        ends.append(train(folder, 1, dropout=True)[0])
    assert ends[0]["weights"] == ends[1]["weights"] and ends[0]["rows"] == ends[1]["rows"]
    assert seen(stopped) == dict.fromkeys(range(SAMPLES), EPOCHS)


def test_accumulated_batches_synchronize_gradients_with_the_last_of_them(tmp_path: Path) -> None:
    told = train(tmp_path, 2, counted=True, accumulate=4)
    batches = EPOCHS * -(-SAMPLES // BATCH)
    assert batches == 18 and told[0]["step"] == 6, "of six batches of an epoch four are an update, and two"
    assert [facts["unsynced"] for facts in told] == [15, 15], "DDP's no_sync; the two are added when the epoch ends"


@pytest.mark.parametrize("settings", [{}, SHARDED], ids=["DDP", "FSDP2"])
def test_ranks_train_in_bfloat16_to_the_losses_of_one_process(settings: dict[str, Any], tmp_path: Path) -> None:
    one, told = (train(tmp_path / str(ranks), ranks, autocast="bfloat16", **settings)[0] for ranks in (1, 2))
    whole = train(tmp_path / "float32", 1)[0]
    for row, expected in zip(told["rows"], one["rows"], strict=True):
        assert row["loss"] == pytest.approx(expected["loss"], rel=0.03)
    assert told["weights"] != one["weights"] != whole["weights"], "bfloat16 rounds"


FATAL = """

class Fatal(Points):
    '''Data that kills the second rank, the first time that it has read so much.'''

    reads = 0

    def __getitem__(self, index):
        import os, signal
        self.reads += 1
        names = ("KILLS", "RANK", "TORCHELASTIC_RESTART_COUNT")
        if self.reads == 20 and [os.environ.get(name) for name in names] == ["1", "1", "0"]:
            open("killed", "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(index)
"""


def test_the_command_trains_what_a_config_shards_and_starts_a_killed_rank_again(tmp_path: Path) -> None:
    config: dict[str, Any] = WHOLE | {"parallel": {"shard": True}, "autocast": "bfloat16", "checkpoint_steps": 2}
    text = json.dumps(config).replace("toys.Points", "toys.Fatal")
    states = []
    for name, kills in (("whole", "0"), ("killed", "1")):
        home = tmp_path / name
        home.mkdir()
        Project(home)
        with open(home / "toys.py", "a") as code:
            code.write(FATAL)
        (home / "training.json").write_text(text)
        command = ("-m", "torcheer", "train", "training.json", epochs(3), "--nproc", "2", "--max-restarts", "1")
        done = run_python(*command, cwd=home, env={"KILLS": kills, "OMP_NUM_THREADS": "1"})
        assert ("resumed from checkpoint " in done.stdout) == (kills == "1")
        assert (home / "killed").exists() == (kills == "1")
        states.append(state_of(home))
    first, other = (state["models"]["net"] for state in states)
    assert states[0]["place"] == states[1]["place"] and states[0]["place"]["epoch"] == 3
    assert all(torch.equal(value, other[name]) for name, value in first.items())


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with a config of data that kills a rank on request."""
    Project(tmp_path)
    with open(tmp_path / "toys.py", "a") as code:
        code.write(FATAL)
    (tmp_path / "training.json").write_text(json.dumps(WHOLE).replace("toys.Points", "toys.Fatal"))
    return tmp_path


def test_a_rank_that_is_killed_is_named_in_a_sentence_without_a_traceback(project: Path) -> None:
    command = ("-m", "torcheer", "train", "training.json", epochs(3), "--nproc", "2")
    done = run_python(*command, cwd=project, env={"KILLS": "1", "OMP_NUM_THREADS": "1"}, status=1)
    assert "Traceback" not in done.stderr and "torch/distributed" not in done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("torcheer train: all ranks have ended: rank 1 was ended by SIGKILL")
    assert "The newest checkpoint is " in last and " Go on with: torcheer train " in last


def test_ctrl_c_while_ranks_start_is_one_line_and_leaves_no_process(project: Path) -> None:
    with open(project / "toys.py", "a") as code:
        code.write("\n__import__('pathlib').Path('started').touch(); __import__('time').sleep(600)\n")
    with Child("-m", "torcheer", "train", "training.json", "--nproc", "2", cwd=project) as launcher:
        wait_until((project / "started").exists, secs=RUN_SECS)
        (agent,) = children_of(launcher.pid)
        ranks = children_of(agent)
        launcher.send_signal(signal.SIGINT)
        launcher.ends(130, secs=RUN_SECS)
        assert launcher.error_text == (
            "torcheer train: SIGINT was received before training began: nothing is lost, and the same command trains\n"
        )
    assert len(ranks) == 2
    wait_until(lambda: all(map(has_ended, ranks)))


def test_a_sharded_checkpoint_is_one_file_when_exported(tmp_path: Path) -> None:
    train(tmp_path, 4, **SHARDED)
    (tmp_path / "run" / "spec.json").write_text("{}")
    run_python("-m", "torcheer", "export", tmp_path / "run", tmp_path / "net.safetensors")
    from safetensors.torch import load_file

    exported, weights = load_file(tmp_path / "net.safetensors"), state_of(tmp_path)["models"]["net"]
    assert exported.keys() == weights.keys()
    assert all(torch.equal(exported[name], value) for name, value in weights.items())
    newest = max((tmp_path / "run" / "checkpoints").iterdir(), key=lambda path: int(path.name))
    opened = tl.load(newest / "model.safetensors")
    assert len(list(newest.glob("model*.safetensors"))) == 4, "each rank wrote its own"
    assert all((opened[f"net.{name}"].numpy() == value.numpy()).all() for name, value in weights.items())
