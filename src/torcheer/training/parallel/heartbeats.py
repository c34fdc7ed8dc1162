"""Where a rank stands: a few counters in memory that its launcher maps, too, and an answer when it is asked for more.

The counters cost a step a few stores and no system call. Nothing here loads torch: a rank that starts has them first.
"""

from __future__ import annotations

import json
import mmap
import os
import sys
import threading
from array import array
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from torcheer.disk import write_file

SLOT_BYTES: Final = 64  # of a rank: counters of eight bytes
MEMORY: Final = "heartbeats"  # the file of all ranks' slots, in the launcher's folder
_PID, _ATTEMPT, _STEP, _FIRST, _BEAT = range(5)  # places in a slot; the last: beats and phase, in one store
_MOST_PHASES: Final = 16
_MOST_FRAMES: Final = 100


@dataclass(frozen=True, slots=True)
class Phase:
    """What a rank is at."""

    name: str
    patience_secs: float = 0.0  # how long one may take at least before it counts as a hang; 0: as a part of a step
    is_step: bool = False  # whether it is a part of the next step, not something after the last one


_LONG: Final = 600.0
PHASES: Final = (
    Phase("start", _LONG),
    Phase("data", is_step=True),
    Phase("forward", is_step=True),
    Phase("backward", is_step=True),
    Phase("optimizer", is_step=True),
    Phase("metrics", is_step=True),
    Phase("work between steps"),
    Phase("evaluation", _LONG),
    Phase("checkpoint", _LONG),
    Phase("callbacks", _LONG),
    Phase("pause", float("inf")),
    Phase("end", float("inf")),
)
START, DATA, FORWARD, BACKWARD, OPTIMIZER, METRICS = range(6)
BETWEEN, EVALUATION, CHECKPOINT, CALLBACKS, PAUSE, END = range(6, len(PHASES))


class Standing(NamedTuple):
    """What a rank's slot says."""

    pid: int  # 0 before the rank has begun
    attempt: int  # how often torchrun has started the ranks again
    step: int  # updates that are done
    first: int  # updates that were done when it began
    beat: int  # another whenever the rank advances

    @property
    def phase(self) -> int:
        """What it is at, as an index of PHASES."""
        return self.beat % _MOST_PHASES

    @property
    def patience_secs(self) -> float:
        """How long this may take at least: a first step may compile, allocate and read data for long."""
        phase = PHASES[self.phase]
        return _LONG if phase.is_step and self.step <= self.first else phase.patience_secs

    @property
    def place(self) -> str:
        """Where it stands, for people: "at step 32 in backward", "after step 32 in evaluation"."""
        phase = PHASES[self.phase]
        if self.phase == START:
            return "at its start"
        return (
            f"at step {self.step + 1} in {phase.name}" if phase.is_step else f"after step {self.step} in {phase.name}"
        )


class Heartbeat:
    """The counters of this process; plain memory until `join` maps those that others read."""

    def __init__(self) -> None:
        self._words: Any = array("Q", bytes(SLOT_BYTES))
        self._beat, self._phase = 0, START

    def join(self, folder: Path, rank: int, attempt: int) -> None:
        """Write into the memory of a folder from now on, and answer what is asked there.

        rank: among those that share the memory. attempt: how often torchrun has started them again.
        """
        with open(folder / MEMORY, "r+b") as file:
            memory = memoryview(mmap.mmap(file.fileno(), 0)).cast("Q")
        places = SLOT_BYTES // 8
        self._words = memory[rank * places : (rank + 1) * places]
        self._words[_ATTEMPT] = attempt
        self._words[_STEP] = self._words[_FIRST] = 0
        self.enter(START)
        _answer_in_thread(folder, rank)
        self._words[_PID] = os.getpid()  # last: now all else holds

    def begin(self, step: int) -> None:
        """Training begins, with so many updates done."""
        self._words[_STEP] = self._words[_FIRST] = step
        self.enter(BETWEEN)

    def enter(self, phase: int, step: int | None = None) -> None:
        """Say what begins; `step`: updates that are done, where that may have changed."""
        if step is not None:
            self._words[_STEP] = step
        self._phase = phase
        self._beat = beat = self._beat + _MOST_PHASES
        self._words[_BEAT] = beat + phase

    def beat(self) -> None:
        """Say that this process advances, in what it is at."""
        self.enter(self._phase)

    @contextmanager
    def during(self, phase: int) -> Iterator[None]:
        """Be at something for the body; then at what was before."""
        before = self._phase
        self.enter(phase)
        try:
            yield
        finally:
            self.enter(before)


HEARTBEAT: Final = Heartbeat()  # of this process, which is one rank


def make_heartbeats(folder: Path, count: int) -> memoryview:
    """Map the memory of so many ranks, which `standing_of` reads; it is made where it is not there yet."""
    with open(folder / MEMORY, "ab") as file:
        file.truncate(SLOT_BYTES * count)  # also what is there: it is as long
    with open(folder / MEMORY, "r+b") as file:
        return memoryview(mmap.mmap(file.fileno(), 0)).cast("Q")


def standing_of(memory: memoryview, rank: int) -> Standing:
    """What a rank's slot says now."""
    start = rank * SLOT_BYTES // 8
    return Standing(*memory[start : start + len(Standing._fields)])


# -- on demand -------------------------------------------------------------------------------------------------------


class Frame(NamedTuple):
    """A line of a stack."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in {self.function}"


class Collective(NamedTuple):
    """A collective that a rank has called and that has not ended."""

    name: str  # "gloo:all_reduce"
    group: str
    number: int  # among those of its group

    def __str__(self) -> str:
        return f"{self.name} (number {self.number} of group {self.group})"


@dataclass(frozen=True, slots=True)
class Answer:
    """What a rank says of itself."""

    stack: tuple[Frame, ...] = ()  # of its main thread, innermost first
    pending: tuple[Collective, ...] = ()
    called: dict[str, int] | None = None  # group -> how many collectives it has called there; None: not recorded


def ask(folder: Path, rank: int, number: int) -> None:
    """Ask a rank where it is; `read_answer` has what it says, with the same number (1 to 255)."""
    with suppress(OSError):  # the rank does not listen yet, or no more
        pipe = os.open(_question(folder, rank), os.O_WRONLY | os.O_NONBLOCK)
        try:
            os.write(pipe, bytes([number]))
        finally:
            os.close(pipe)


def read_answer(folder: Path, rank: int, number: int) -> Answer | None:
    """What a rank has said when it was asked with this number; None if it has not answered (yet)."""
    try:
        record = json.loads(_reply(folder, rank).read_bytes())
    except FileNotFoundError:
        return None
    if record["number"] != number:
        return None
    stack = tuple(Frame(*frame) for frame in record["stack"])
    return Answer(stack, tuple(Collective(*each) for each in record["pending"]), record["called"])


def _question(folder: Path, rank: int) -> Path:
    return folder / f"ask-{rank}"


def _reply(folder: Path, rank: int) -> Path:
    return folder / f"answer-{rank}.json"


def _answer_in_thread(folder: Path, rank: int) -> None:
    """Have a thread wait for questions: it blocks in a read, which costs nothing."""
    main = threading.main_thread().ident
    with suppress(FileExistsError):  # of the attempt before
        os.mkfifo(_question(folder, rank), 0o600)
    pipe = os.open(_question(folder, rank), os.O_RDWR)  # for writing, too: else it would end with the first writer

    def answer() -> None:
        while question := os.read(pipe, 64):
            frame, stack = sys._current_frames().get(main or 0), list[Any]()
            while frame is not None and len(stack) < _MOST_FRAMES:
                stack.append([frame.f_code.co_filename, frame.f_lineno or 0, frame.f_code.co_qualname])
                frame = frame.f_back
            pending, called = _collectives()
            record = {"number": question[-1], "stack": stack, "pending": pending, "called": called}
            with suppress(OSError):  # a full disk; the launcher's folder is gone
                write_file(_reply(folder, rank), json.dumps(record), sync=False)

    threading.Thread(target=answer, name="torcheer-heartbeat", daemon=True).start()


def _collectives() -> tuple[list[list[Any]], dict[str, int] | None]:
    """What torch's flight recorder knows: unfinished collectives, and how many were called by group."""
    torch: Any = sys.modules.get("torch")
    try:
        record = json.loads(torch._C._distributed_c10d._dump_fr_trace_json(True, True))
        groups = {name: int(status["last_enqueued_collective"]) for name, status in record["pg_status"].items()}
        pending = [
            [entry["profiling_name"], str(entry["process_group"][0]), int(entry["collective_seq_id"])]
            for entry in record["entries"]
            if not entry["retired"] and entry["state"] != "completed"
        ]
    except (AttributeError, RuntimeError, LookupError, TypeError, ValueError):  # none yet, or another version's record
        return [], None
    return pending, groups or None
