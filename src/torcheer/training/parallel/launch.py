"""Start the ranks of `torcheer train --nproc N`, or take over the tasks that Slurm's `srun` has started."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from torcheer.data_workers import GROUP_SIGNALS, end_with_parent
from torcheer.disk import read_json, require_unix, write_file
from torcheer.errors import BadArgument
from torcheer.wire.child_process import start_command

STATUS_FILE = "TORCHEER_STATUS_FILE"  # where rank 0 leaves its process number, and its exit status at the end
STOPPED = 130  # as the command that was stopped early
_FIRST_PORT, _PORTS = 20_000, 40_000


def launch(count: int, arguments: Sequence[str], *, restarts: int = 0) -> int:
    """Run `torcheer train` on several ranks of this machine; return the exit status of the first.

    restarts: how often all ranks begin anew from the newest checkpoint where one of them was lost.
    """
    if "RANK" in os.environ:
        raise BadArgument("--nproc starts ranks, and this process is one already: give it to torcheer, not to torchrun")
    require_unix("--nproc, which starts a process for each rank,")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with tempfile.TemporaryDirectory(prefix="torcheer-ranks-") as folder:
        file = Path(folder) / "status.json"
        environment = {
            "OMP_NUM_THREADS": str(max(cores // count, 1)),
            **os.environ,
            STATUS_FILE: str(file),
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",  # gloo hangs in a restart that meets in the old store
        }
        command = [sys.executable, "-m", "torcheer.training.parallel.torchrun_agent", "--standalone"]
        command += [f"--nproc-per-node={count}"]
        command += [f"--max-restarts={restarts}", "-m", "torcheer", "train", *arguments]
        # In a session of its own, which no Ctrl-C reaches: rank 0 hears of it, and tells the others.
        received: list[int] = []
        with start_command(command, environment, first=end_with_parent) as agent, _forwarding(agent, file, received):
            agent.wait()
        facts = read_json(file) or {}
        if received and "process" not in facts and "status" not in facts:
            print("torcheer train: stopped before training began", file=sys.stderr)
        status = int(facts.get("status", STOPPED if received else agent.returncode) or 0)
        return status if status >= 0 else 128 - status


@contextmanager
def _forwarding(agent: subprocess.Popen[bytes], file: Path, received: list[int]) -> Iterator[None]:
    """Send rank 0 the signals that this process receives; torchrun, where no rank 0 trains yet, or not again."""

    def forward(number: int, frame: FrameType | None) -> None:
        received.append(number)
        rank = (read_json(file) or {}).get("process")
        try:
            if rank is not None:
                return os.kill(rank, number)
        except ProcessLookupError:  # that of before a restart
            pass
        agent.send_signal(signal.SIGTERM)

    before = {number: signal.signal(number, forward) for number in GROUP_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def tell_launcher(**facts: Any) -> None:
    """Leave facts for the process that started this rank, where there is one."""
    if path := os.environ.get(STATUS_FILE):
        write_file(Path(path), json.dumps(facts).encode())


def take_over_slurm() -> None:
    """Let a task of `srun` know its rank as torchrun would say it; nothing where there is none, or torchrun has."""
    tasks = int(os.environ.get("SLURM_NTASKS", 1))
    if "RANK" in os.environ or "SLURM_STEP_ID" not in os.environ or "SLURM_PROCID" not in os.environ or tasks == 1:
        return
    job = int(os.environ.get("SLURM_JOB_ID", 0)) * 16 + int(os.environ["SLURM_STEP_ID"])
    os.environ |= {
        "RANK": os.environ["SLURM_PROCID"],
        "WORLD_SIZE": str(tasks),
        "LOCAL_RANK": os.environ.get("SLURM_LOCALID", "0"),
        "MASTER_ADDR": os.environ.get("MASTER_ADDR") or first_host(os.environ["SLURM_STEP_NODELIST"]),
        "MASTER_PORT": os.environ.get("MASTER_PORT") or str(_FIRST_PORT + job % _PORTS),
    }


def first_host(hosts: str) -> str:
    """The first of Slurm's list of hosts: "gpu[03-05,9],login" is gpu03."""
    match = re.match(r"([^,\[]+)(?:\[([^\],-]+))?", hosts)
    if match is None:
        raise BadArgument(f"SLURM_STEP_NODELIST={hosts!r}: this is no list of hosts. Set MASTER_ADDR")
    return match[1] + (match[2] or "")
