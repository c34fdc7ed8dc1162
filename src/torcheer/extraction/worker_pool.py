"""Several processes at one extraction: each a fresh interpreter that takes shards nobody has."""

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
from torcheer.extraction.extraction_progress import Progress
from torcheer.extraction.extraction_run import Job, work


def run_workers(job: Job, count: int, bar: Progress) -> None:
    """Let `count` processes work on an extraction until none of them finds anything more to do."""
    if type(count) is not int or count < 1:
        raise BadArgument(f"workers={count!r}: give a whole number, 0 to work in this process")
    if job.batches.is_once:
        raise BadArgument("workers: a generator can be gone through only once, here; give a Dataset, or workers=0")
    if job.trial is not None and not job.batches.begins_alike(job.trial.check):
        raise BadArgument("workers: the data begins otherwise each time, so that they cannot share it; use workers=0")
    threads = max(1, torch.get_num_threads() // count)
    parcel = _packed((replace(job, trial=None), threads))  # the trial is heavier to send than to compute
    said: SimpleQueue[Any] = SimpleQueue()
    workers = [_Worker(parcel, said) for _ in range(count)]
    try:
        running = count
        while running:
            samples = said.get()
            running -= samples is None  # it has ended
            bar.add(samples or 0)
    finally:
        problems = [problem for worker in workers if (problem := worker.close())]
    if problems and len(problems) == count:
        raise TorcheerError(f"every worker failed; the first one said: {problems[0]}")
    for problem in problems:  # the others did its shards, or this process will
        print(f"torcheer: a worker failed and its shards were taken over: {problem}", file=sys.stderr)


def _packed(thing: Any) -> bytes:
    """The job for the workers' private pipes, with what comes from the user's own script by value."""
    try:
        import cloudpickle
    except ImportError:
        raise TorcheerError("workers need cloudpickle: pip install 'torcheer[all]'") from None
    try:
        parcel: bytes = cloudpickle.dumps(thing)
        return parcel
    except Exception as error:
        raise BadArgument(f"workers: the model or the data cannot be sent to another process: {error}") from None


class _Worker:
    """A process, and the thread that hears how far it is."""

    def __init__(self, parcel: bytes, said: SimpleQueue[Any]) -> None:
        # It imports what we would, from where we would; "-m" would look in the current folder first.
        places = os.pathsep.join(path or os.getcwd() for path in sys.path)
        environment = {**os.environ, "PYTHONPATH": places, "PYTHONSAFEPATH": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "torcheer.extraction.shard_worker"], env=environment, start_new_session=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        self._problem = ""  # as it tells it itself
        self._errors: list[bytes] = []
        for target in (self._send, self._hear, self._read_errors):
            arguments = {self._send: (parcel,), self._hear: (said,)}.get(target, ())
            threading.Thread(target=target, args=arguments, daemon=True).start()

    def _send(self, parcel: bytes) -> None:
        """The pipe stays open behind it: when it closes, we are gone, and the worker goes too."""
        pipe = self._process.stdin
        assert pipe is not None
        try:
            pipe.write(len(parcel).to_bytes(8, "little") + parcel)
            pipe.flush()
        except BrokenPipeError:
            pass  # it died; what it said comes with its errors

    def _hear(self, said: SimpleQueue[Any]) -> None:
        assert self._process.stdout is not None
        try:
            for line in self._process.stdout:
                told = json.loads(line)
                self._problem = told.get("problem", self._problem)
                said.put(told.get("samples", 0))
        finally:
            said.put(None)

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._errors = [*self._errors[-20:], line]

    def close(self) -> str:
        """End it; what went wrong, or nothing."""
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


def take_part(job: Job, threads: int, talk: TextIO) -> None:
    """What a worker does with its job."""
    torch.set_num_threads(threads)
    work(job, _Teller(talk), is_helper=True)


class _Teller(Progress):
    """Tells the process that asked, instead of a person."""

    def __init__(self, talk: TextIO) -> None:
        super().__init__("", None, quiet=True)
        self._talk = talk

    def add(self, samples: int, *, were_there: bool = False) -> None:
        print(json.dumps({"samples": samples}), file=self._talk, flush=True)
