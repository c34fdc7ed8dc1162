"""A Slurm of one node, started for the test: `srun -n 2 torcheer train`, stopped by scancel, gone on with one task."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch
from children import RUN_SECS, run_python
from seams import CheckpointStore
from training_spec_cases import WHOLE, Project, epochs
from waiting import wait_until

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun")
MISSING = [name for name in PROGRAMS if shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin") is None]
pytestmark = [
    pytest.mark.dist,
    pytest.mark.skipif(bool(MISSING), reason=f"no {', '.join(MISSING)} here: apt-get install slurm-wlm munge"),
    pytest.mark.skipif(os.getuid() != 0, reason="slurmd starts jobs as other users, so only root runs it"),
]


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@pytest.fixture
def slurm(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment in which `srun` finds a cluster of this machine alone."""
    home, host = tmp_path / "slurm", socket.gethostname()
    for folder in (home, home / "state", home / "spool"):
        folder.mkdir()
    (home / "munge.key").write_bytes(os.urandom(1024))
    (home / "munge.key").chmod(0o400)
    config = {
        "ClusterName": "test", "SlurmctldHost": f"{host}(127.0.0.1)", "SlurmUser": "root", "AuthType": "auth/munge",
        "AuthInfo": f"socket={home}/munge.sock", "CredType": "cred/munge", "StateSaveLocation": f"{home}/state",
        "SlurmdSpoolDir": f"{home}/spool", "SlurmctldPidFile": f"{home}/slurmctld.pid",
        "SlurmdPidFile": f"{home}/slurmd.pid", "SlurmctldPort": free_port(), "SlurmdPort": free_port(),
        "ProctrackType": "proctrack/linuxproc", "TaskPlugin": "task/none", "SelectType": "select/linear",
        "MpiDefault": "none", "ReturnToService": 2, "NodeName": f"{host} NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN",
        "PartitionName": "debug Nodes=ALL Default=YES MaxTime=INFINITE State=UP",
    }  # fmt: skip
    (home / "slurm.conf").write_text("".join(f"{key}={value}\n" for key, value in config.items()))
    files = {
        "--socket": "munge.sock", "--key-file": "munge.key", "--pid-file": "munged.pid", "--log-file": "munged.log",
        "--seed-file": "munged.seed",
    }  # fmt: skip
    munged = ["munged", "--foreground", "--force", *(f"{option}={home}/{file}" for option, file in files.items())]
    path = f"{os.environ['PATH']}:/usr/sbin"
    environment = {**os.environ, "PATH": path, "SLURM_CONF": str(home / "slurm.conf"), "OMP_NUM_THREADS": "1"}
    with ExitStack() as stack:

        def start(*command: str) -> None:
            log = stack.enter_context(open(home / f"{command[0]}.out", "w"))
            process = stack.enter_context(subprocess.Popen(command, env=environment, stdout=log, stderr=log))
            stack.callback(process.terminate)

        start(*munged)
        wait_until((home / "munge.sock").exists)
        start("slurmctld", "-D")
        start("slurmd", "-D", "-N", host)
        states = ("sinfo", "--noheader", "--format=%t")
        wait_until(lambda: "idle" in subprocess.run(states, env=environment, capture_output=True, text=True).stdout)
        yield environment


def srun(tasks: int, home: Path, environment: dict[str, str], *changes: str) -> subprocess.Popen[str]:
    command = [
        "srun",
        "-n",
        str(tasks),
        sys.executable,
        "-m",
        "torcheer",
        "train",
        "training.json",
        "--plain",
        *changes,
    ]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen(command, cwd=home, env=environment, **pipes)


def newest(run: Path) -> dict[str, Any]:
    state, _, problems = CheckpointStore(run).newest(with_rows=False)
    assert state is not None and not problems
    return state


def test_tasks_of_srun_train_as_ranks_do_and_a_job_that_was_stopped_goes_on_with_one(
    slurm: dict[str, str], tmp_path: Path
) -> None:
    homes = [tmp_path / name for name in ("slurm-home", "ranks")]
    for home in homes:
        home.mkdir()
        Project(home)
        (home / "training.json").write_text(json.dumps(WHOLE))
    with srun(2, homes[0], slurm, epochs(3)) as job:
        said, _ = job.communicate(timeout=RUN_SECS)
    assert job.returncode == 0, said
    run_python("-m", "torcheer", "train", "training.json", epochs(3), "--nproc", "2", cwd=homes[1])
    states = [newest(home / "run") for home in homes]
    assert states[0]["place"] == states[1]["place"] and states[0]["place"]["epoch"] == 3
    first, other = (next(iter(state["models"].values())) for state in states)
    assert all(torch.equal(first[name], other[name]) for name in first), "the bits of torchrun's ranks"

    with srun(2, homes[0], slurm, epochs(100_000), "checkpoint_steps=10") as job:
        step = states[0]["place"]["step"]
        wait_until(lambda: newest(homes[0] / "run")["place"]["step"] > step, secs=RUN_SECS)
        # As Slurm itself does before a job's time is over.
        subprocess.run(["scancel", "--signal=TERM", "--user=root"], env=slurm, check=True)
        said, _ = job.communicate(timeout=RUN_SECS)
    assert job.returncode == 130 and "SIGTERM was received" in said, said
    saved = newest(homes[0] / "run")["place"]
    with srun(1, homes[0], slurm, epochs(saved["epoch"] + 1)) as job:
        said, _ = job.communicate(timeout=RUN_SECS)
    assert job.returncode == 0, said
    assert newest(homes[0] / "run")["place"]["epoch"] == saved["epoch"] + 1
