"""Worker processes of an extraction: each a new interpreter that claims free shards."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from dataclasses import replace
from queue import SimpleQueue
from typing import Any, TextIO

import torch

from torcheer.errors import BadArgument, TorcheerError
from torcheer.extraction.extraction_run import ExtractionJob, run_job
from torcheer.terminal import ProgressCallback


def run_workers(job: ExtractionJob, count: int, on_progress: ProgressCallback) -> None:
    """Run `count` worker processes until no free shard is left."""
    if type(count) is not int or count < 1:
        raise BadArgument(f"workers={count!r}: give a whole number, 0 to work in this process")
    if job.batches.is_single_pass:
        raise BadArgument("workers: a generator can be gone through only once, here; give a Dataset, or workers=0")
    if job.trial is not None and not job.batches.starts_with(job.trial.checksum):
        raise BadArgument("workers: the data begins otherwise each time, so that they cannot share it; use workers=0")
    threads = max(1, torch.get_num_threads() // count)
    payload = _pickle_job((replace(job, trial=None), threads))  # the trial is cheaper to compute than to send
    messages: SimpleQueue[Any] = SimpleQueue()
    workers = [_WorkerProcess(payload, messages) for _ in range(count)]
    try:
        running = count
        while running:
            samples = messages.get()
            running -= samples is None  # a worker exited
            on_progress(samples or 0)
    finally:
        problems = [problem for worker in workers if (problem := worker.close())]
    if problems and len(problems) == count:
        raise TorcheerError(f"every worker failed; the first one said: {problems[0]}")
    for problem in problems:  # the other workers computed its shards, or this process will
        print(f"torcheer: a worker failed and its shards were taken over: {problem}", file=sys.stderr)


def _pickle_job(job: Any) -> bytes:
    """Pickle the job for the workers' private pipes; objects of the user's script go by value."""
    try:
        import cloudpickle
    except ImportError:
        raise TorcheerError("workers need cloudpickle: pip install 'torcheer[all]'") from None
    try:
        payload: bytes = cloudpickle.dumps(job)
        return payload
    except Exception as error:
        raise BadArgument(f"workers: the model or the data cannot be sent to another process: {error}") from None


class _WorkerProcess:
    """A worker process, and the threads that serve its pipes."""

    def __init__(self, payload: bytes, messages: SimpleQueue[Any]) -> None:
        # It has this process's import path; "-m" alone would search the current folder first.
        import_paths = os.pathsep.join(path or os.getcwd() for path in sys.path)
        environment = {**os.environ, "PYTHONPATH": import_paths, "PYTHONSAFEPATH": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "torcheer.extraction.shard_worker"], env=environment, start_new_session=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        self._problem = ""  # the error that it reported
        self._errors: list[bytes] = []
        for target in (self._send, self._read_messages, self._read_errors):
            arguments = {self._send: (payload,), self._read_messages: (messages,)}.get(target, ())
            threading.Thread(target=target, args=arguments, daemon=True).start()

    def _send(self, payload: bytes) -> None:
        """Send the job; the pipe stays open, and the worker exits when it closes."""
        pipe = self._process.stdin
        assert pipe is not None
        try:
            pipe.write(len(payload).to_bytes(8, "little") + payload)
            pipe.flush()
        except BrokenPipeError:
            pass  # the worker died; its stderr has the reason

    def _read_messages(self, messages: SimpleQueue[Any]) -> None:
        assert self._process.stdout is not None
        try:
            for line in self._process.stdout:
                message = json.loads(line)
                self._problem = message.get("problem", self._problem)
                messages.put(message.get("samples", 0))
        finally:
            messages.put(None)

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._errors = [*self._errors[-20:], line]

    def close(self) -> str:
        """End the process; return its error, or ""."""
        if self._process.stdin is not None:
            try:
                self._process.stdin.close()
            except BrokenPipeError:
                pass
        code = self._process.wait()
        if code == 0:
            return ""
        text = b"".join(self._errors).decode(errors="replace").strip()
        return self._problem or (text.splitlines()[-1] if text else f"it ended with code {code}")


def run_worker_job(job: ExtractionJob, threads: int, output: TextIO) -> None:
    """Run a worker's job."""
    torch.set_num_threads(threads)

    def send(samples: int) -> None:
        print(json.dumps({"samples": samples}), file=output, flush=True)

    run_job(job, send, is_helper=True)
