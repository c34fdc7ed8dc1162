"""Ranks that hang under `torcheer train --nproc`: they are named, ended on request, and a slow one is left alone."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from children import RUN_SECS, Child, children_of, has_ended
from seams import CheckpointStore
from training_spec_cases import WHOLE, Project, epochs
from waiting import wait_until

pytestmark = [
    pytest.mark.skipif(not torch.distributed.is_available(), reason="torch without distributed"),
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc"),
]
LATEST_SECS = 25.0  # 10 are promised, and less than torchrun's own 30 s are needed on a busy machine
LEFT = (
    "torcheer-ranks-",
    "torchelastic_",
)  # folders of launcher and torchrun; the next start removes those of killed ranks
WITHOUT_END = epochs(1_000_000)

# What goes wrong is named by TROUBLE, on the second rank before torchrun has started it again.
TROUBLED = """

import os
import pathlib
import re
import tempfile
import time

TROUBLE = os.environ.get("TROUBLE", "")
IS_HIT = (os.environ.get("RANK"), os.environ.get("TORCHELASTIC_RESTART_COUNT")) == ("1", "0")


def be_slow(name):
    if TROUBLE == name:
        pathlib.Path("slow").touch()
        time.sleep(float(os.environ["SECS"]))


class Troubled(Points):
    reads = 0

    def __getitem__(self, index):
        self.reads += 1
        if IS_HIT and self.reads == 20:
            while TROUBLE == "python":
                pass
            if TROUBLE == "c":
                re.match("(a|aa)+$", "a" * 60 + "b")
        return super().__getitem__(index)


class Rude(Net):
    def __init__(self):
        super().__init__()
        self.passes, self.group = 0, None

    def forward(self, x):
        import torch.distributed as distributed

        if TROUBLE == "skipped" and self.training:
            self.group = self.group or distributed.new_group(backend="gloo")
            self.passes += 1
            if self.passes == 5 and not IS_HIT:
                distributed.barrier(self.group)
        if not self.training:
            be_slow("evaluation")
        return super().forward(x)
"""

# A launcher that is less patient than ours: its ranks are as they always are.
LAUNCHER = """
import sys
from torcheer.training.parallel import hang_watch
hang_watch.PATIENCE_SECS = float(sys.argv.pop(1))
from torcheer.cli import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with a config of data and a model that go wrong on request."""
    Project(tmp_path)
    with open(tmp_path / "toys.py", "a") as code:
        code.write(TROUBLED)
    text = json.dumps(WHOLE | {"checkpoint_steps": 2, "steps_csv": 1})
    (tmp_path / "training.json").write_text(
        text.replace("toys.Points", "toys.Troubled").replace("toys.Net", "toys.Rude")
    )
    return tmp_path


class Launcher(Child):
    """`torcheer train --nproc 2` that watches its ranks with a patience of so many seconds."""

    def __init__(
        self, project: Path, *options: Any, change: str = WITHOUT_END, patience: float = 2.0, **env: str
    ) -> None:
        self.temporary = Path(tempfile.mkdtemp())  # pytest's are too long for the sockets of workers
        arguments = (patience, "train", "training.json", change, "--nproc", "2", "--plain", *options)
        env |= {"OMP_NUM_THREADS": "1", "TMPDIR": str(self.temporary)}
        super().__init__("-c", LAUNCHER, *arguments, cwd=project, env=env)

    def __exit__(self, *_: Any) -> None:
        super().__exit__(*_)
        shutil.rmtree(self.temporary)

    def trains(self) -> list[int]:
        """Wait until an epoch is over; return torchrun's process and those of the ranks."""
        while not self.line().startswith("Epoch "):
            pass
        (agent,) = children_of(self.pid)
        return [agent, *sorted(children_of(agent))]

    def says(self, pattern: str) -> re.Match[str]:
        """Wait until it has said something that matches."""
        found: re.Match[str] = wait_until(
            lambda: re.search(pattern, self.error_text), pattern, secs=RUN_SECS, seen=lambda: self.error_text
        )
        return found

    def end_by_two_signals(self, first: int = signal.SIGTERM, second: int = signal.SIGTERM) -> float:
        """Send it two signals; seconds from the second until it and its ranks have ended, with nothing left of them."""
        (agent,) = children_of(self.pid)
        ranks = children_of(agent)
        assert len(ranks) == 2
        self.send_signal(first)
        time.sleep(1.0)  # `timeout` sends a signal twice: that is one
        assert self.poll() is None, "nobody can save"
        began = time.monotonic()
        self.send_signal(second)
        self.ends(130)
        wait_until(lambda: all(map(has_ended, (agent, *ranks))))
        secs = time.monotonic() - began
        assert "were received: all ranks were ended at once. The newest checkpoint is " in self.error_text
        left = [path.name for path in self.temporary.iterdir() if path.name.startswith(LEFT)]
        assert left == []
        return secs


def test_a_stopped_rank_is_named_and_a_second_signal_ends_all(project: Path) -> None:
    with Launcher(project) as launcher:
        _, _, rank = launcher.trains()
        os.kill(rank, signal.SIGSTOP)
        launcher.says(
            rf"torcheer train: rank 1 has stood (at|after) step \d+ in [a-z ]+ for \d+ s: its process was stopped by a "
            rf"signal \(kill -CONT {rank} continues it\); rank 0 waits for it"
        )
        assert launcher.end_by_two_signals() < LATEST_SECS


@pytest.mark.dist
def test_a_rank_that_goes_on_is_said_and_a_signal_saves(project: Path) -> None:
    with Launcher(project) as launcher:
        _, _, rank = launcher.trains()
        os.kill(rank, signal.SIGSTOP)
        launcher.says("rank 1 has stood ")
        os.kill(rank, signal.SIGCONT)
        launcher.says(r"torcheer train: rank 1 continues, after \d+ s (at|after) step \d+ in ")
        for _ in range(2):  # at once, as `timeout` does it
            launcher.send_signal(signal.SIGTERM)
        launcher.ends(130, secs=RUN_SECS)
        assert "Saved in run/checkpoints/" in launcher.error_text
        assert launcher.error_text.count("rank 1 has stood ") == 1


@pytest.mark.dist
@pytest.mark.parametrize(
    ("trouble", "text"),
    [
        (
            "python",
            r"rank 1 has stood at step 4 in data for \d+ s: it computes at \S+toys.py:\d+ in Troubled.__getitem__",
        ),
        ("c", r"rank 1 has stood at step 4 in data for \d+ s: it does not answer"),
        (
            "skipped",
            r"rank 0 has stood at step 5 in forward for \d+ s: it waits in gloo:barrier \(number 1 of group \d+\), "
            r"which rank 1 has not called\n(    .*\n)*    .*toys.py:\d+ in Rude.forward\n(    .*\n)*torcheer train: "
            r"rank 1 has stood at step 5 in backward for \d+ s: it waits in gloo:all_reduce \(number \d+ of group "
            r"\d+\), which rank 0 has not called",
        ),
    ],
)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_what_a_rank_hangs_in_is_said_and_two_signals_end_it(
    project: Path, trouble: str, text: str, number: signal.Signals
) -> None:
    with Launcher(project, TROUBLE=trouble) as launcher:
        launcher.says(text)
        assert launcher.end_by_two_signals(second=number) < LATEST_SECS


@pytest.mark.dist
@pytest.mark.parametrize("trouble", ["python", "c", "skipped"])
def test_a_job_that_hangs_for_its_hang_timeout_starts_again_and_ends_as_one_that_does_not(
    project: Path, trouble: str
) -> None:
    states = []
    for name in ("whole", trouble):
        options = (f"session_dir={name}", "--hang-timeout", "4", "--max-restarts", "1")
        with Launcher(project, *options, change=epochs(4), TROUBLE=name) as launcher:
            printed, errors = launcher.ends(0, secs=RUN_SECS), launcher.error_text
        assert ("has stood" in errors) == (name == trouble), errors
        states.append(CheckpointStore(project / name).newest()[0])
    place = "step 5 in forward" if trouble == "skipped" else "step 4 in data"
    restart = re.search(
        rf"torcheer train: rank [01] has stood at {place} for \d+ s: all ranks were ended \(--hang-timeout 4\), and "
        r"start again from checkpoint (\d+): (\d+) steps? runs? again \(restart 1 of 1\)",
        errors,
    )
    assert restart is not None, errors
    step, again = map(int, restart.groups())
    assert step + again == (4 if trouble == "skipped" else 3), "the steps that were done"
    said = f": {again} step{'s run' if again > 1 else ' runs'} again" if again else ""
    assert re.search(rf"resumed from checkpoint {step} \(step {step}, .* old\){said}\n", printed), printed
    first, other = (state["models"]["net"] for state in states if state is not None)
    assert all(torch.equal(value, other[key]) for key, value in first.items())


@pytest.mark.dist
def test_a_job_that_hangs_ends_with_a_sentence_where_no_restart_is_left(project: Path) -> None:
    with Launcher(project, "--hang-timeout", "3", TROUBLE="python") as launcher:
        launcher.ends(1, secs=RUN_SECS)
        last = launcher.error_text.splitlines()[-1]
    assert last.startswith("torcheer train: all ranks have ended: rank 1 has stood at step 4 in data for ")
    assert "SIGKILL" not in last and "Go on with: torcheer train run" in last


@pytest.mark.dist
def test_a_long_evaluation_is_neither_called_hung_nor_ended(project: Path) -> None:
    options = ("--hang-timeout", "2")
    with Launcher(project, *options, change=epochs(1), TROUBLE="evaluation", SECS="15") as launcher:
        assert "Training is completed" in launcher.ends(0, secs=RUN_SECS)
        assert (project / "slow").exists() and not launcher.error_text


@pytest.mark.dist
@pytest.mark.parametrize("stopped", [0, 1])
def test_ranks_of_torchrun_watch_each_other(project: Path, stopped: int) -> None:
    (project / "train.py").write_text(LAUNCHER)
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "train.py")
    train = (2.0, "train", "training.json", WITHOUT_END, "--plain")
    with Child(*torchrun, *train, cwd=project, env={"OMP_NUM_THREADS": "1"}) as launcher:
        while not launcher.line().startswith("Epoch "):
            pass
        ranks = sorted(children_of(launcher.pid))
        os.kill(ranks[stopped], signal.SIGSTOP)
        text = f"torcheer train: rank {stopped} has stood "
        wait_until(lambda: text in launcher.error_text, secs=RUN_SECS, seen=lambda: launcher.error_text)
        os.kill(ranks[stopped], signal.SIGCONT)
        text = f"torcheer train: rank {stopped} continues, after "
        wait_until(lambda: text in launcher.error_text, secs=RUN_SECS, seen=lambda: launcher.error_text)
        assert launcher.error_text.count(text) == 1, "one of them speaks"


@pytest.mark.dist
def test_a_second_signal_ends_workers_of_data_too(project: Path) -> None:
    text = (project / "training.json").read_text()
    workers = text.replace('"batch_size": 6', '"batch_size": 6, "num_workers": 1')
    assert workers != text
    (project / "training.json").write_text(workers)
    with Launcher(project) as launcher:
        _, *ranks = launcher.trains()
        workers = [wait_until(lambda rank=rank: children_of(rank), "its workers")[0] for rank in ranks]
        for process in (ranks[1], workers[0]):
            os.kill(process, signal.SIGSTOP)
        assert launcher.end_by_two_signals() < LATEST_SECS
        wait_until(lambda: all(map(has_ended, workers)))
