"""A worker process: maps its job, runs it, and exits when its parent closes the wire."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Final

from torcheer.wire.parent import Parent, map_payload

_LAST_SECS: Final = 5.0  # for the parent to read the last messages


def main(_: Sequence[str], parent: Parent) -> None:
    """Run the job of the process that started this one."""
    parent.exit_when_gone()
    try:
        from torcheer.extraction.writers.worker_pool import run_worker_job

        with map_payload(*parent.fds) as payload:
            job, threads = pickle.loads(payload)  # from the parent process, never from a file
        run_worker_job(job, threads, parent.wire.send)
    except BaseException as problem:
        text = "\n".join([f"{type(problem).__name__}: {problem}", *getattr(problem, "__notes__", ())])
        parent.wire.send({"kind": "problem", "text": text})
        raise
    finally:
        parent.wire.drain(_LAST_SECS)
