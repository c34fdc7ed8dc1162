"""Python processes that tests start: run to their end, or watched, signalled and killed, with nothing left of them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from waiting import WAIT_SECS

RUN_SECS = 600.0  # a whole program, perhaps one that imports torch on a busy machine


def run_python(
    *arguments: Any,
    status: int | None = 0,
    secs: float = RUN_SECS,
    env: Mapping[str, str] | None = None,
    **options: Any,
) -> subprocess.CompletedProcess[str]:
    """Run Python as a command line has it (`"-c", code, …` or a file), and assert how it ends.

    status: its exit status, negative for a signal; None for any.
    env: what to set beside this process's own environment.
    """
    options = {"capture_output": True, "text": True, "timeout": secs, "env": {**os.environ, **(env or {})}, **options}
    done = subprocess.run(_command(arguments), **options)
    assert status is None or done.returncode == status, f"ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


class Child(subprocess.Popen[str]):
    """A Python process in a session of its own; leaving its `with` block kills it and all that it has started.

    What it writes to stderr goes to a file, so that it never waits for a reader.
    """

    def __init__(self, *arguments: Any, env: Mapping[str, str] | None = None, **options: Any) -> None:
        self._errors = tempfile.TemporaryFile("w+")
        pipes = {"stdout": subprocess.PIPE, "stderr": self._errors, "text": True}
        environment = {**os.environ, **(env or {})}
        super().__init__(_command(arguments), env=environment, start_new_session=True, **{**pipes, **options})

    def line(self) -> str:
        """The next line that it prints, without its end."""
        assert self.stdout is not None
        line = self.stdout.readline()
        assert line.endswith("\n"), f"it ended: {self.error_text}"
        return line[:-1]

    @property
    def error_text(self) -> str:
        """What it has written to stderr so far."""
        number = self._errors.fileno()  # the child writes where this file stands: it must not be moved
        return os.pread(number, os.fstat(number).st_size, 0).decode(errors="replace")

    def ends(self, status: int = 0, secs: float = WAIT_SECS) -> str:
        """Wait for its end and assert its exit status; what it printed that was not read yet."""
        rest: list[str] = []
        # Not by `communicate`, which passes over what `line` has read ahead.
        reader = threading.Thread(target=lambda: rest.append(self.stdout.read() if self.stdout else ""), daemon=True)
        reader.start()
        self.wait(secs)
        reader.join(secs)
        assert self.returncode == status, f"ended with {self.returncode}: {self.error_text}"
        return "".join(rest)

    def __exit__(self, *_: Any) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        super().__exit__(*_)
        self._errors.close()


# How the script of a rank ends: now and then gloo's threads abort a process that ends in order, even without its group.
LEAVE_GROUP = """
import os, sys, torch.distributed
torch.distributed.barrier()
torch.distributed.destroy_process_group()
sys.stdout.flush()
os._exit(0)
"""


def run_ranks(script: str, folder: Path, count: int = 2) -> list[Any]:
    """Run a script once per rank, at the same time; what each left in `told<rank>.json`. Its argument is its rank.

    The script makes a process group and leaves it to be ended here.
    """
    (folder / "script.py").write_text(textwrap.dedent(script) + LEAVE_GROUP)
    with ExitStack() as stack:
        options = {"cwd": folder, "env": {"OMP_NUM_THREADS": "1"}}
        ranks = [stack.enter_context(Child("script.py", rank, **options)) for rank in range(count)]
        for rank in ranks:
            rank.ends(secs=RUN_SECS)
    return [json.loads((folder / f"told{rank}.json").read_text()) for rank in range(count)]


def has_ended(pid: int | str) -> bool:
    """Whether a process has ended; one whose parent has not asked how it ended has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


def children_of(pid: int) -> list[int]:
    """The processes that the main thread of a process has started and that are still there."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _command(arguments: tuple[Any, ...]) -> list[str]:
    """The command line; the code after a `-c` may be indented."""
    texts = [str(argument) for argument in arguments]
    after = ["", *texts]
    return [sys.executable, *(textwrap.dedent(text) if before == "-c" else text for before, text in zip(after, texts))]
