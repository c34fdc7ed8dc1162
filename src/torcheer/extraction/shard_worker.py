"""A worker process: reads its job from a pipe, works, and ends when that pipe closes."""

from __future__ import annotations

import json
import os
import pickle
import sys
import threading

_done = threading.Event()


def main() -> None:
    """Read one job and do it."""
    talk = os.fdopen(os.dup(1), "w")  # what the model or the data print must not mix with our numbers
    os.dup2(2, 1)
    pipe = sys.stdin.buffer
    length = int.from_bytes(pipe.read(8), "little")
    parcel = pipe.read(length)
    threading.Thread(target=_end_with_the_pipe, daemon=True).start()
    try:
        from torcheer.extraction.worker_pool import take_part

        job, threads = pickle.loads(parcel)  # from the process that started us, never from a file
        take_part(job, threads, talk)
        _done.set()
    except BaseException as problem:
        text = "\n".join([f"{type(problem).__name__}: {problem}", *getattr(problem, "__notes__", ())])
        print(json.dumps({"problem": text}), file=talk, flush=True)
        raise


def _end_with_the_pipe() -> None:
    """Whoever started us is gone, killed perhaps: nobody waits for what we do. Or we are done, and it has heard."""
    os.read(0, 1)
    os._exit(0 if _done.is_set() else 1)


if __name__ == "__main__":
    main()
