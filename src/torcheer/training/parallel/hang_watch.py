"""Judge from the heartbeats of ranks whether their job hangs, and say which rank does; nothing here loads torch.

The launcher watches its ranks; those that torchrun has started by itself watch each other.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from torcheer.ranks import from_environment, local_rank, rank_of
from torcheer.runlog.ranks.rank_facts import name_ranks
from torcheer.terminal import folded, human_secs
from torcheer.training.parallel.heartbeats import (
    HEARTBEAT,
    PHASES,
    START,
    Answer,
    Standing,
    ask,
    make_heartbeats,
    read_answer,
    standing_of,
)
from torcheer.training.parallel.torchrun_agent import STATUS_FILE

PATIENCE_SECS = 30.0  # for a part of a step, and for what is between two
_COMPILING_SECS: Final = 600.0
_TIMES_LONGEST: Final = 10.0  # a part of a step may take so many times as long as it ever has
ANSWER_SECS = 3.0  # for ranks to say where they are
_POLL_SECS: Final = 0.02
_PAUSE_SECS: Final = 1.0  # between two looks of a rank at the others
_MOST_GAP_SECS: Final = 10.0  # between two looks
_BUSY: Final = 0.1  # of a core: a process that uses more computes
_COMPILERS: Final = ("/torch/_dynamo/", "/torch/_inductor/", "/triton/compiler/")
_OURS: Final = str(Path(__file__).parents[2]) + os.sep
_MOST_FRAMES: Final = 12

Say = Callable[[str], object]
Answers = Mapping[int, Answer | None]


class Process(NamedTuple):
    """What the system says of a process; as of one that sleeps, where it says nothing."""

    state: str = "S"  # R, S, D, T (stopped), Z …
    cpu_secs: float = 0.0

    @classmethod
    def of(cls, pid: int) -> Process:
        """Ask /proc."""
        if sys.platform != "linux":
            return cls()
        try:
            fields = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
        except OSError:
            return cls("X")
        return cls(fields[0], (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"))

    @property
    def is_gone(self) -> bool:
        """Whether it has ended."""
        return self.state in "ZX"

    @property
    def is_stopped(self) -> bool:
        """Whether SIGSTOP has stopped it."""
        return self.state == "T"


class _Rank:
    """A rank, where it was last seen."""

    def __init__(self, standing: Standing, now: float) -> None:
        self._take(standing, now)

    def _take(self, standing: Standing, now: float) -> None:
        self.standing, self.since, self._cpu_secs = standing, now, Process.of(standing.pid).cpu_secs

    def see(self, standing: Standing, now: float) -> bool:
        """Take in what its slot says; return whether it has advanced."""
        if standing == self.standing:
            return False
        self._take(standing, now)
        return True

    def is_busy(self, process: Process, now: float) -> bool:
        """Whether it has computed since it stands."""
        return process.state == "R" or process.cpu_secs - self._cpu_secs > _BUSY * (now - self.since)

    def describe(self, rank: int, now: float) -> str:
        """ "rank 1 has stood at step 32 in backward for 30 s"."""
        return f"rank {rank} has stood {self.standing.place} for {human_secs(round(now - self.since))}"


@dataclass(frozen=True, slots=True)
class Hang:
    """A job that stands, because of some of its ranks."""

    ranks: tuple[int, ...]  # those that are named
    since: float  # when the first of them has advanced last
    place: str  # where that stands


class HangWatch:
    """The ranks of a job on this machine; `look` is called a few times a second.

    A job hangs where no rank has advanced for the longest patience that any of them asks for: a rank that waits for
    another one at work is no hang. A process that SIGSTOP has stopped is one by itself.
    """

    def __init__(self, folder: Path, ranks: range, say: Say, own: int | None = None) -> None:
        """`ranks` are on this machine; `own` is the one that watches the others, None for their launcher."""
        self._memory, self._folder, self._numbers = make_heartbeats(folder, len(ranks)), folder, ranks
        self._say_here, self._own = say, own
        self._ranks: dict[int, _Rank] = {}
        self._longest: dict[int, float] = {}  # phase -> the longest seconds that a rank has stood in it
        self._hang: Hang | None = None  # that was said
        self._compiling: float | None = None  # since when the job has stood, where that is as one of its ranks compiles
        self._looked = time.monotonic()
        self._questions = 0

    @property
    def pids(self) -> list[int]:
        """The processes of the ranks that have begun."""
        return [rank.standing.pid for rank in self._ranks.values()]

    @property
    def step(self) -> int:
        """Updates that the ranks have done."""
        return max((rank.standing.step for rank in self._ranks.values()), default=0)

    @property
    def attempt(self) -> int:
        """How often the ranks were started again."""
        return max((rank.standing.attempt for rank in self._ranks.values()), default=0)

    def forget(self) -> None:
        """Forget the ranks: they were ended."""
        for place in range(len(self._memory)):
            self._memory[place] = 0
        self._ranks, self._hang = {}, None

    def look(self, end_secs: float | None = None) -> str:
        """Read the counters; say once for each hang which rank stands, and when it goes on.

        Return who stands where, once the job is to be ended: it has stood for `end_secs` and longer than it may.
        """
        now = time.monotonic()
        if now - self._looked > _MOST_GAP_SECS:  # this process was stopped, and perhaps all of them were
            for known in self._ranks.values():
                known.since = now
        self._see(now)
        self._looked = now
        if self._hang is None and self._stands(now, min(PATIENCE_SECS, end_secs or PATIENCE_SECS)):
            self._judge()
        if self._hang is None or end_secs is None or not self._stands(now, end_secs):
            return ""
        return self._ranks[self._hang.ranks[0]].describe(self._hang.ranks[0], now)

    def run(self) -> None:
        """Look for ever."""
        while True:
            self.look()
            time.sleep(_PAUSE_SECS)

    def describe(self) -> str:
        """Say where all ranks are: "rank 0 has stood at step 32 in backward for 8 s, rank 1 …"."""
        now = time.monotonic()
        return ", ".join(known.describe(rank, now) for rank, known in sorted(self._ranks.items()))

    def _see(self, now: float) -> None:
        """Take in all counters; say where a rank goes on that was named."""
        hang, gone_on = self._hang, []
        for slot, rank in enumerate(self._numbers):
            standing, known = standing_of(self._memory, slot), self._ranks.get(rank)
            if not standing.pid:
                continue
            if known is None or known.standing.pid != standing.pid:  # it was started (again)
                self._ranks[rank], self._hang = _Rank(standing, now), None
                continue
            before, secs = known.standing, now - known.since
            if known.see(standing, now):
                gone_on.append(rank)
                if hang is None and not before.patience_secs:
                    self._longest[before.phase] = max(secs, self._longest.get(before.phase, 0.0))
        if hang is None or self._hang is None or not (named := [rank for rank in hang.ranks if rank in gone_on]):
            return
        self._hang = None
        verb = "continues" if len(named) == 1 else "continue"
        lasted = human_secs(round(now - hang.since))
        self._say(f"{name_ranks(named)} {verb}, after {lasted} {hang.place}", hang.ranks)

    def _stands(self, now: float, least_secs: float) -> bool:
        """Whether the job has stood for so long, and for longer than what its ranks are at may take."""
        processes = [(known, Process.of(known.standing.pid)) for known in self._ranks.values()]
        if not processes or any(process.is_gone for _, process in processes):
            return False  # torchrun ends the others
        if any(process.is_stopped and now - known.since >= least_secs for known, process in processes):
            return True
        patience = [least_secs, *(self._patience_secs(known.standing) for known, _ in processes)]
        if len(processes) < len(self._numbers):
            patience.append(PHASES[START].patience_secs)
        if self._compiling == (since := self._since):
            patience.append(_COMPILING_SECS)
        return now - since >= max(patience)

    @property
    def _since(self) -> float:
        """When any rank has advanced last."""
        return max(known.since for known in self._ranks.values())

    def _patience_secs(self, standing: Standing) -> float:
        """How long a rank may stand there at least: as the phase says, or as it usually does."""
        return standing.patience_secs or _TIMES_LONGEST * self._longest.get(standing.phase, 0.0)

    # -- who it is ---------------------------------------------------------------------------------------------------

    def _judge(self) -> None:
        """Ask the ranks where they are, and say which of them stand; nothing where one compiles or goes on."""
        before = {rank: known.since for rank, known in self._ranks.items()}
        answers, now = self._ask(), time.monotonic()
        self._see(now)
        if before != {rank: known.since for rank, known in self._ranks.items()}:
            return
        processes = {rank: Process.of(self._ranks[rank].standing.pid) for rank in answers}
        if any(map(_compiles, answers.values())) and not any(process.is_stopped for process in processes.values()):
            if self._compiling != self._since:
                self._compiling = self._since
                return
        named = _named(answers, processes, {rank: self._ranks[rank].standing for rank in answers})
        first = min(named, key=before.__getitem__)
        self._hang = Hang(tuple(named), before[first], self._ranks[first].standing.place)
        waiting = [rank for rank in answers if rank not in named]
        waits = f"; {name_ranks(waiting)} {'waits' if len(waiting) == 1 else 'wait'} for it" if waiting else ""
        for rank in named:
            known, process, answer = self._ranks[rank], processes[rank], answers[rank]
            why = _why(known.standing.pid, process, answer, answers, is_busy=known.is_busy(process, now))
            self._say("\n".join([f"{known.describe(rank, now)}: {why}{waits}", *_stack_lines(answer)]), named)

    def _say(self, text: str, named: Sequence[int]) -> None:
        """Say something of ranks; of several that watch each other, the first speaks of which nothing is said."""
        if self._own in (None, next((rank for rank in self._numbers if rank not in named), self._numbers[0])):
            self._say_here(text)

    def _ask(self) -> Answers:
        """Ask all ranks, and wait for their answers for a moment."""
        self._questions = number = self._questions % 255 + 1
        answers: dict[int, Answer | None] = dict.fromkeys(sorted(self._ranks))
        asked = [rank for rank, known in self._ranks.items() if not Process.of(known.standing.pid).is_stopped]
        for rank in asked:
            ask(self._folder, self._numbers.index(rank), number)
        end = time.monotonic() + ANSWER_SECS
        while any(answers[rank] is None for rank in asked) and time.monotonic() < end:
            time.sleep(_POLL_SECS)
            answers |= {
                rank: answers[rank] or read_answer(self._folder, self._numbers.index(rank), number) for rank in asked
            }
        return answers


def say(text: str) -> None:
    """Print what is said of ranks."""
    first, *lines = f"torcheer train: {text}".splitlines()
    print(folded(first), *lines, sep="\n", file=sys.stderr, flush=True)


_watching: list[threading.Thread] = []  # in this process


def watch_each_other() -> None:
    """Have a thread watch the ranks of this machine that torchrun has started by itself, without our launcher.

    They meet in the folder that torchrun has made for the errors of this attempt, which is its own to remove.
    """
    file = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if not file or STATUS_FILE in os.environ or _watching:
        return
    count, local = from_environment("LOCAL_WORLD_SIZE", 1), local_rank()
    folder, own = Path(file).parents[1], rank_of()[0]
    with suppress(OSError):  # nobody can write there: they train unwatched
        watch = HangWatch(folder, range(own - local, own - local + count), say, own)
        HEARTBEAT.join(folder, local, from_environment("TORCHELASTIC_RESTART_COUNT", 0))
        _watching.append(threading.Thread(target=watch.run, name="torcheer-hang-watch", daemon=True))
        _watching[0].start()


def _named(answers: Answers, processes: Mapping[int, Process], standing: Mapping[int, Standing]) -> list[int]:
    """The ranks because of which a job stands: the others wait for them."""
    stopped = [rank for rank, process in processes.items() if process.is_stopped]
    if silent := stopped or [rank for rank, answer in answers.items() if answer is None]:
        return silent
    free = [rank for rank, answer in answers.items() if answer is not None and not answer.pending]
    if len(free) < len(answers):  # a collective waits for those that are in none; or each waits in another one
        return free or list(answers)
    behind = min((each.step, each.phase) for each in standing.values())
    return [rank for rank, each in standing.items() if (each.step, each.phase) == behind]


def _why(pid: int, process: Process, answer: Answer | None, answers: Answers, *, is_busy: bool) -> str:
    """Say why a rank stands, as far as that is known."""
    if process.is_stopped:
        return f"its process was stopped by a signal (kill -CONT {pid} continues it)"
    if answer is None:
        return "it does not answer, as it computes outside of Python" if is_busy else "it does not answer"
    where = f" at {answer.stack[0]}" if answer.stack else ""
    if not answer.pending:
        return f"it {'computes' if is_busy else 'waits'}{where}"
    collective = answer.pending[0]
    missing = [
        rank
        for rank, other in answers.items()
        if other is not None and other.called is not None and other.called.get(collective.group, 0) < collective.number
    ]
    skipped = f", which {name_ranks(missing)} {'has' if len(missing) == 1 else 'have'} not called" if missing else ""
    return f"it waits in {collective}{skipped}"


def _compiles(answer: Answer | None) -> bool:
    return answer is not None and any(part in frame.file for frame in answer.stack for part in _COMPILERS)


def _stack_lines(answer: Answer | None) -> Iterator[str]:
    """A rank's stack for people: from where it is to where torcheer has called that."""
    for frame in () if answer is None else answer.stack[:_MOST_FRAMES]:
        yield f"    {frame}"
        if frame.file.startswith(_OURS):
            break
