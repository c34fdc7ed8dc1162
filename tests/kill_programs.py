"""The programs of the kill matrix, and a process that has imported torch and forks another for each of them.

A fork is the real thing, but for the import: it has threads, workers, children and files of its own, and ends as any
Python program does. The process adopts whatever a killed program leaves running, and says what that is.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kill_points
import torch
from children import Child
from rank_cases import fork_ranks
from seams import Alert, CheckpointSaved, Resumed
from torch import nn
from training_cases import run_hosted, session

import torcheer as tl
from torcheer import cli
from torcheer.training.control import Control

END_SECS = 40.0  # for what a killed program has started to end by itself: a worker of torch asks every 5 s
_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER
WATCH = {"every": 1, "models": ["body"], "what": "output", "rules": "none", "transport": {"drain_secs": 5.0}}

CODE = """
import os
import time
import torch
from torch import nn

class Rows(torch.utils.data.Dataset):
    def __init__(self, count=64):
        self.count = count
        self.x = torch.rand(count, 4, generator=torch.Generator().manual_seed(0))
    def __len__(self):
        return self.count
    def __getitem__(self, index):
        time.sleep(float(os.environ.get("SLOW_SECS", 0)))
        return self.x[index], int(self.x[index].sum() > 2)

class Net(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 2))
"""
CONFIG = """
session_dir: run
batch_size: 8
seed: 1
checkpoint_steps: 2
steps_csv: 1
system_secs: 0
train: {epochs: 3}
initialize:
  definitions:
  - {group: datasets, name: rows, spec: {class: code_of_kills.Rows}}
  - {group: models, name: net, spec: {class: code_of_kills.Net}}
  - {group: optimizers, name: sgd, spec: {class: SGD, kwargs: {lr: 0.1, momentum: 0.9}, model: net}}
"""


# -- programs: each begins in a folder, or goes on there, and returns the status it ends with -------------------------


def trainer(folder: Path, case: str = "workers") -> int:
    """Train with two data workers; what is saved is noted once the session says so."""
    for event in session(case, folder / "run").run():
        if isinstance(event, CheckpointSaved):
            kill_points.note(saved=event.step)
        elif isinstance(event, Alert | Resumed):
            print(event, flush=True)
    return 0


def accumulation(folder: Path) -> int:
    """Train without workers, with three batches to an update."""
    return trainer(folder, "accumulation")


def stages(folder: Path) -> int:
    """Train in two stages, the second of which stops early."""
    return trainer(folder, "stages")


def pipelines(folder: Path) -> int:
    """Train three pipelines in turn."""
    return trainer(folder, "pipelines")


def watch(folder: Path) -> int:
    """Train with a watch and a host."""
    run_hosted("plain", folder / "run", watch=WATCH)
    return 0


def studio(folder: Path) -> int:
    """`torcheer train --studio`; its page's address is the first line that it prints, and one looks on meanwhile."""
    os.environ["SLOW_SECS"] = "0.01"
    return _command(folder, "train", "training.yaml", "--studio", "--no-browser", "--plain")


def sweep(folder: Path) -> int:
    """`torcheer sweep` with two trials."""
    return _command(folder, "sweep", "training.yaml", "lr=0.1,0.05")


def launcher(folder: Path) -> int:
    """`torcheer train --nproc 2`, which starts a killed rank again."""
    return _command(folder, "train", "training.yaml", "--nproc", "2", "--max-restarts", "1")


def _command(folder: Path, *arguments: str) -> int:
    (folder / "code_of_kills.py").write_text(CODE)
    if not (folder / "training.yaml").exists():
        (folder / "training.yaml").write_text(CONFIG)
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    return cli.main(list(arguments))


class Rows(torch.utils.data.Dataset[Any]):
    """Rows of a fixed tensor."""

    def __init__(self) -> None:
        self.rows = torch.rand(160, 16, generator=torch.Generator().manual_seed(1))

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.rows[index]


def extract(folder: Path, workers: int = 0) -> int:
    """Extract twenty shards, four at a time."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(inplace=True), nn.Linear(32, 8))
    options: dict[str, Any] = {"batch_size": 4, "shard_samples": 8, "writers": 4, "workers": workers, "top": True}
    tl.extract(model, Rows(), layers=["0", "1", "2"], to=folder / "run", **options)
    return 0


def extract_workers(folder: Path) -> int:
    """The same, shared by two processes."""
    return extract(folder, 2)


def ranks(folder: Path) -> int:
    """Two ranks, that nobody starts again."""
    fork_ranks(2, folder, {"dropout": True, "steps_csv": 1, "epochs": 2})
    return 0


def sharded(folder: Path) -> int:
    """Two ranks, each of which writes its part of the weights; alone, the first would wait for that for 10 minutes."""
    settings = {"dropout": True, "epochs": 2, "parallel": {"shard": ["0", "2"]}, "ends_together": True}
    fork_ranks(2, folder, settings)
    return 0


PROGRAMS: dict[str, Callable[[Path], int]] = {
    program.__name__: program
    for program in (
        trainer,
        accumulation,
        stages,
        pipelines,
        extract,
        extract_workers,
        watch,
        studio,
        sweep,
        ranks,
        sharded,
        launcher,
    )
}


# -- the process that forks them --------------------------------------------------------------------------------------


class Keeper:
    """That process, from outside: starts programs one after the other."""

    def __init__(self) -> None:
        self._process = Child(__file__, stdin=subprocess.PIPE, env={"OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"})
        assert self._ask(None) == "ready", self._process.error_text

    def _ask(self, request: Any) -> Any:
        if request is not None:
            assert self._process.stdin is not None
            print(json.dumps(request), file=self._process.stdin, flush=True)
        return json.loads(self._process.line())

    def start(self, program: str, folder: Path, order: dict[str, Any]) -> int:
        """Start a program; its process."""
        folder.mkdir(parents=True, exist_ok=True)
        return int(self._ask({"program": program, "folder": str(folder), "order": order}))

    def wait(self) -> int:
        """Wait for the program; its status, negative where a signal ended it."""
        return int(self._ask("wait"))

    def left(self) -> list[str]:
        """The command lines of what still runs of all programs, `END_SECS` after the last one ended."""
        return list(self._ask("left"))

    def close(self) -> None:
        """End the process, and all that is left."""
        with self._process:
            pass


def serve() -> None:
    """Fork a program for each request of the standard input."""
    torch.set_num_threads(1)
    session("plain")  # a first optimizer imports more of torch than torch itself
    assert Control
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    _answer("ready")
    child = 0
    for line in sys.stdin:
        request = json.loads(line)
        if request == "wait":
            _answer(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        elif request == "left":
            _answer(_left())
        else:
            child = os.fork()
            if not child:
                _run(request["program"], Path(request["folder"]), request["order"])
            _answer(child)


def _answer(value: Any) -> None:
    print(json.dumps(value), flush=True)


def _run(program: str, folder: Path, order: dict[str, Any]) -> None:
    """Be a program: with a session, an output and a folder for temporary files of its own."""
    os.setsid()
    output = os.open(folder / "output.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for stream in (1, 2):
        os.dup2(output, stream)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    temporary = folder / "tmp"
    temporary.mkdir(exist_ok=True)
    os.environ |= {"TMPDIR": str(temporary), "TORCHEER_STATE": str(folder / "state"), "TORCHEER_NO_BROWSER": "1"}
    tests = Path(__file__).parent
    os.environ["PYTHONPATH"] = os.pathsep.join([str(tests / "kill_hook"), os.environ.get("PYTHONPATH", "")])
    tempfile.tempdir = None
    kill_points.arm(order, is_main=True)
    try:
        status = PROGRAMS[program](folder)
    except SystemExit as end:
        status = int(end.code or 0)
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.exit(status)


def _left() -> list[str]:
    """Wait until all descendants have ended; what has not, in words."""
    until = time.monotonic() + END_SECS
    while running := _children():
        if time.monotonic() > until:
            return [f"{pid} {_command_line(pid)}" for pid in running]
        time.sleep(0.02)
    return []


def _children() -> list[int]:
    """The children that still run; those that have ended are forgotten."""
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return [int(child) for child in children if os.waitpid(int(child), os.WNOHANG) == (0, 0)]


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()[-300:]
    except OSError:
        return "(ended)"


if __name__ == "__main__":
    serve()
