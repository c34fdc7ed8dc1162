"""Start the ranks of `torcheer train --nproc N`, or take over the tasks that Slurm's `srun` has started."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

from torcheer.data_workers import GROUP_SIGNALS, end_with_parent
from torcheer.disk import noted_number, read_json, require_unix, write_file
from torcheer.errors import BadArgument
from torcheer.ranks import from_environment
from torcheer.terminal import plural
from torcheer.training.checkpoints.saved_steps import newest_complete, newest_text
from torcheer.training.loop.stop_signals import BEFORE, STOPPED
from torcheer.training.parallel.hang_watch import HangWatch, Process, say
from torcheer.training.parallel.heartbeats import HEARTBEAT
from torcheer.training.parallel.torchrun_agent import HANG, STATUS_FILE
from torcheer.wire.child_process import start_command
from torcheer.wire.temporary_folders import TemporaryFolder

_LOOK_SECS = 0.5  # between two looks at the heartbeats
_LATE_SECS = 10.0  # after the first signal
_DOUBLE_SECS = 0.2  # `timeout` sends a signal to its child and to its group: that is one
_STOP_SECS = 1.0  # for the system to stop a process
_FIRST_PORT, _PORTS = 20_000, 40_000


def launch(count: int, arguments: Sequence[str], *, restarts: int = 0, hang_secs: float | None = None) -> int:
    """Run `torcheer train` on several ranks of this machine; return the exit status of the first.

    restarts: how often all ranks begin anew from the newest checkpoint where one of them was lost.
    hang_secs: how long the job may hang before it is ended; None for ever.
    """
    if "RANK" in os.environ:
        raise BadArgument("--nproc starts ranks, and this process is one already: give it to torcheer, not to torchrun")
    require_unix("--nproc, which starts a process for each rank,")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    temporary = TemporaryFolder("ranks")  # of a launcher that was killed, the next start removes it
    try:
        folder = temporary.path
        file = folder / "status.json"
        environment = {
            "OMP_NUM_THREADS": str(max(cores // count, 1)),
            **os.environ,
            STATUS_FILE: str(file),
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",  # gloo hangs in a restart that meets in the old store
        }
        command = [sys.executable, "-m", "torcheer.training.parallel.torchrun_agent", "--standalone"]
        command += [f"--nproc-per-node={count}", f"--log-dir={folder / 'logs'}"]  # of one that is killed, too
        command += [f"--max-restarts={restarts}", "-m", "torcheer", "train", *arguments]
        job = _Job(file, HangWatch(folder, range(count), say), hang_secs, restarts)
        status = job.run(command, environment)
        facts = read_json(file) or {}
        if job.end or (job.received and "status" not in facts):
            _say_end(job, facts)
        status = int(STOPPED if job.end else facts.get("status", STOPPED if job.received else status) or 0)
        return status if status >= 0 else 128 - status
    finally:
        temporary.remove()


class _Job:
    """The ranks of this machine and torchrun, their agent: watched for hangs, sent the signals of this process."""

    def __init__(self, file: Path, watch: HangWatch, hang_secs: float | None, restarts: int) -> None:
        self._file, self._watch, self._hang_secs, self._restarts = file, watch, hang_secs, restarts
        self._agent: subprocess.Popen[bytes] | None = None
        self.received: list[str] = []  # signals that this process was sent
        self._first_at, self._late_at = 0.0, float("inf")  # of the first signal; when ranks that save should have ended
        self.end = ""  # why all ranks were ended at once, where they were

    def run(self, command: Sequence[str], environment: Mapping[str, str]) -> int:
        """Run torchrun to its end; return its exit status."""
        before = {number: signal.signal(number, self._receive) for number in GROUP_SIGNALS}
        try:
            # In a session of its own, which no Ctrl-C reaches: rank 0 hears of it, and tells the others.
            with start_command(command, environment, first=end_with_parent) as self._agent:
                if self.end:  # while it was started
                    self._end_all(self.end)
                elif self.received:
                    self._agent.send_signal(signal.SIGTERM)
                while True:
                    try:
                        return self._agent.wait(_LOOK_SECS)
                    except subprocess.TimeoutExpired:
                        self._look()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        """Send rank 0 the first signal, or torchrun where no rank 0 trains (yet); the second ends all of them."""
        now = time.monotonic()
        if self.received:
            if now - self._first_at >= _DOUBLE_SECS:
                self._end_all(f"{self.received[0]} and {signal.Signals(number).name} were received")
            return
        self.received, self._first_at = [signal.Signals(number).name], now
        rank = (read_json(self._file) or {}).get("process")
        try:
            if rank is not None:
                os.kill(rank, number)
                self._late_at = now + _LATE_SECS
                return
        except ProcessLookupError:  # that of before a restart
            pass
        if self._agent is not None:
            self._agent.send_signal(signal.SIGTERM)

    def _end_all(self, why: str) -> None:
        """End torchrun and all ranks at once, whatever they do; what these have started ends with them."""
        self.end = why
        if self._agent is None:
            return
        self._agent.send_signal(signal.SIGSTOP)  # it starts no more ranks
        wait_until = time.monotonic() + _STOP_SECS
        while not Process.of(self._agent.pid).is_stopped and time.monotonic() < wait_until:
            time.sleep(0.001)
        self._kill_ranks()
        self._agent.kill()

    def _kill_ranks(self) -> None:
        ranks = None if self._agent is None else _children_of(self._agent.pid)
        for rank in self._watch.pids if ranks is None else ranks:
            with suppress(ProcessLookupError):
                os.kill(rank, signal.SIGKILL)

    def _look(self) -> None:
        """Watch the ranks; end a job that has hung for longer than the user allows."""
        if hang := self._watch.look(self._hang_secs):
            if self.received:
                self._end_all(f"{self.received[0]} was received, and {hang}")
            else:
                self._end_hang(hang)
        if time.monotonic() > self._late_at:
            self._late_at, where = float("inf"), self._watch.describe()
            say(
                f"{self.received[0]} was received, and the ranks have not stopped yet{where and ': '}{where}. "
                "A second signal ends them at once, without saving"
            )

    def _end_hang(self, hang: str) -> None:
        """Kill the ranks of a job that hangs: torchrun starts them again, if it was told to."""
        reached, restart = self._watch.step, self._watch.attempt + 1
        if restart > self._restarts:
            write_file(self._file.with_name(HANG), hang)  # for what torchrun's agent says at the end
        self._kill_ranks()
        self._watch.forget()
        if restart > self._restarts:
            return
        home = (read_json(self._file) or {}).get("session_dir")
        path = newest_complete(Path(home) / "checkpoints") if home else None
        begins = "the beginning" if path is None else f"checkpoint {path.name}"
        lost = max(reached - (0 if path is None else int(path.name)), 0)
        again = f"{plural(lost, 'step')} {'runs' if lost == 1 else 'run'} again"
        say(
            f"{hang}: all ranks were ended (--hang-timeout {self._hang_secs:g}), and start again from {begins}: "
            f"{again} (restart {restart} of {self._restarts})"
        )


def _say_end(job: _Job, facts: Mapping[str, Any]) -> None:
    """Say that signals ended ranks that did not train, or all of them at once, and what is saved."""
    text, home = f"{job.received[0]} was received {BEFORE}", facts.get("session_dir")
    newest = home and newest_text(Path(home) / "checkpoints", noted_number(Path(home)))
    if job.end:
        text = f"{job.end}: all ranks were ended at once."
    elif home:  # they trained before a restart
        text = f"{job.received[0]} was received while the ranks began again."
    say(f"{text} {newest} Go on with: torcheer train {home}" if home else text)


def _children_of(pid: int) -> list[int] | None:
    """The processes that a process has started; None where the system does not say it."""
    try:
        texts = [file.read_text("utf-8") for file in Path(f"/proc/{pid}/task").glob("*/children")]
    except OSError:  # it has just ended
        return []
    return [int(child) for text in texts for child in text.split()] if texts else None


def tell_launcher(**facts: Any) -> None:
    """Leave facts for the process that started this rank, where there is one."""
    if path := os.environ.get(STATUS_FILE):
        write_file(Path(path), json.dumps(facts).encode())


def join_launcher() -> None:
    """Let the launcher see where this rank stands, where there is one; before torch is imported."""
    if path := os.environ.get(STATUS_FILE):
        with suppress(OSError):  # it has ended, and so will this rank
            attempt = from_environment("TORCHELASTIC_RESTART_COUNT", 0)
            HEARTBEAT.join(Path(path).parent, from_environment("RANK", 0), attempt)


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
