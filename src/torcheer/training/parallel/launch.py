"""Start the ranks of `torcheer train --nproc N`, or take over the tasks that Slurm's `srun` has started."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from torcheer.data_workers import GROUP_SIGNALS, end_with_parent
from torcheer.disk import noted_number, read_json, require_unix, write_file
from torcheer.errors import BadArgument
from torcheer.terminal import folded
from torcheer.training.checkpoints.saved_steps import newest_text
from torcheer.training.loop.stop_signals import BEFORE, STOPPED
from torcheer.training.parallel.torchrun_agent import STATUS_FILE
from torcheer.wire.child_process import start_command

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
        agent = _run_agent(command, environment, file)
        facts = read_json(file) or {}
        if agent.received and "status" not in facts:
            _say_end(agent.received, facts)
        status = int(facts.get("status", STOPPED if agent.received else agent.status) or 0)
        return status if status >= 0 else 128 - status


class _AgentEnd(NamedTuple):
    """How torchrun has ended."""

    status: int
    received: str  # the signal that this process was sent, if any


def _run_agent(command: Sequence[str], environment: Mapping[str, str], file: Path) -> _AgentEnd:
    """Run torchrun; send rank 0 the signals that this process receives, or torchrun where no rank 0 trains (yet)."""
    received: list[int] = []
    agents: list[subprocess.Popen[bytes]] = []

    def forward(number: int, frame: FrameType | None) -> None:
        received.append(number)
        rank = (read_json(file) or {}).get("process")
        try:
            if rank is not None:
                return os.kill(rank, number)
        except ProcessLookupError:  # that of before a restart
            pass
        for agent in agents:
            agent.send_signal(signal.SIGTERM)

    before = {number: signal.signal(number, forward) for number in GROUP_SIGNALS}
    try:
        # In a session of its own, which no Ctrl-C reaches: rank 0 hears of it, and tells the others.
        with start_command(command, environment, first=end_with_parent) as agent:
            agents.append(agent)
            if received:  # while it was started
                agent.send_signal(signal.SIGTERM)
            status = agent.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return _AgentEnd(status, signal.Signals(received[0]).name if received else "")


def _say_end(received: str, facts: Mapping[str, Any]) -> None:
    """Say that a signal ended ranks that did not train, and what is saved."""
    text = f"{received} was received {BEFORE}"
    if home := facts.get("session_dir"):  # they trained before a restart
        newest = newest_text(Path(home) / "checkpoints", noted_number(Path(home)))
        text = f"{received} was received while the ranks began again. {newest} Go on with: torcheer train {home}"
    print(folded(f"torcheer train: {text}"), file=sys.stderr)


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
