"""Worker processes of an extraction: each a new interpreter that claims free shards."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import torch

from torcheer.errors import BadArgument, TorcheerError
from torcheer.extraction.extraction_job import ExtractionJob, run_job
from torcheer.terminal import ProgressCallback, notice
from torcheer.wire.child_process import ChildProcess, Program, payload_memory

_PROGRAM: Final = Program(
    "torcheer.extraction.writers.shard_worker", "computes shards of an extraction", "a worker", {}, imports_as_here=True
)
_POLL_MS: Final = 1000
_END_SECS: Final = 2.0  # for a worker to notice that the wire is closed
_TERMINATE_SECS: Final = 1.0


def run_workers(job: ExtractionJob, count: int, on_progress: ProgressCallback) -> None:
    """Run `count` worker processes until no free shard is left."""
    if type(count) is not int or count < 1:
        raise BadArgument(f"workers={count!r}: give a whole number, 0 to work in this process")
    check_shareable(job, "workers")
    threads = max(1, torch.get_num_threads() // count)
    # The trial is cheaper to compute than to send.
    payload_fd = payload_memory(pickle_job((replace(job, trial=None), threads)))
    workers: list[_WorkerProcess] = []
    problems: list[str] = []
    try:
        for _ in range(count):
            workers.append(_WorkerProcess(payload_fd))
        _receive_all(workers, on_progress)
    finally:
        os.close(payload_fd)
        problems += [problem for worker in workers if (problem := worker.close())]
    if problems and len(problems) == count:
        raise TorcheerError(f"every worker failed; the first one said: {problems[0]}")
    for problem in problems:  # the other workers computed its shards, or this process will
        notice("extraction", f"a worker failed and its shards were taken over: {problem}")


def check_shareable(job: ExtractionJob, asked: str) -> None:
    """Refuse data that another process could not go through as this one does."""
    if job.batches.is_single_pass:
        raise BadArgument(f"{asked}: a generator can be gone through only once, here; give a Dataset, or workers=0")
    if job.trial is not None and not job.batches.starts_with(job.trial.checksum):
        raise BadArgument(f"{asked}: the data begins otherwise each time, so that it cannot be shared; use workers=0")


def pickle_job(job: Any) -> bytes:
    """Pickle the job for other processes, which are ours alone; objects of the user's script go by value."""
    try:
        import cloudpickle
    except ImportError:
        raise TorcheerError("workers need cloudpickle: pip install 'torcheer[all]'") from None
    try:
        payload: bytes = cloudpickle.dumps(job)
        return payload
    except Exception as error:
        raise BadArgument(f"workers: the model or the data cannot be sent to another process: {error}") from None


def _receive_all(running: list[_WorkerProcess], on_progress: ProgressCallback) -> None:
    """Pass on the workers' progress until all have ended."""
    while running:
        poll = select.poll()
        for worker in running:
            poll.register(worker.child.wire, select.POLLIN)
        poll.poll(_POLL_MS)
        ended = [worker for worker in running if worker.child.popen.poll() is not None]  # before its last messages
        for worker in running:
            on_progress(worker.receive())
        running = [worker for worker in running if worker not in ended and not worker.child.wire.closed]


class _WorkerProcess:
    """A worker process, and what it has reported."""

    def __init__(self, payload_fd: int) -> None:
        self.child = ChildProcess(_PROGRAM, fds=(payload_fd,), captures=True)
        self._problem = ""  # the error that it reported

    def receive(self) -> int:
        """Receive its messages; the number of samples that it has finished since the last call."""
        messages = self.child.wire.exchange()
        self._problem = next((message["text"] for message in messages if message["kind"] == "problem"), self._problem)
        return sum(message["samples"] for message in messages if message["kind"] == "progress")

    def close(self) -> str:
        """End the process; return its error, or ""."""
        self.child.wire.close()  # then it exits
        if not self.child.wait(time.monotonic() + _END_SECS):
            self.child.terminate(time.monotonic() + _TERMINATE_SECS)
        self.child.close()
        code, text = self.child.popen.returncode, self.child.printed
        if code == 0:
            return ""
        return self._problem or (text.splitlines()[-1] if text else f"it ended with code {code}")


def run_worker_job(job: ExtractionJob, threads: int, send_message: Callable[[dict[str, Any]], object]) -> None:
    """Run a worker's job."""
    torch.set_num_threads(threads)
    run_job(job, lambda samples: send_message({"kind": "progress", "samples": samples}), is_helper=True)
