"""A worker process: reads its job from a pipe, runs it, and exits when that pipe closes."""

from __future__ import annotations

import json
import os
import pickle
import sys
import threading

_job_done = threading.Event()


def main() -> None:
    """Read one job and run it."""
    output = os.fdopen(os.dup(1), "w")  # prints of the model or the data must not mix with the messages
    os.dup2(2, 1)
    pipe = sys.stdin.buffer
    length = int.from_bytes(pipe.read(8), "little")
    payload = pipe.read(length)
    threading.Thread(target=_exit_when_pipe_closes, daemon=True).start()
    try:
        from torcheer.extraction.worker_pool import run_worker_job

        job, threads = pickle.loads(payload)  # from the parent process, never from a file
        run_worker_job(job, threads, output)
        _job_done.set()
    except BaseException as problem:
        text = "\n".join([f"{type(problem).__name__}: {problem}", *getattr(problem, "__notes__", ())])
        print(json.dumps({"problem": text}), file=output, flush=True)
        raise


def _exit_when_pipe_closes() -> None:
    """Exit when the parent process closes the pipe.

    It was killed, or it has received the result.
    """
    os.read(0, 1)
    os._exit(0 if _job_done.is_set() else 1)


if __name__ == "__main__":
    main()
