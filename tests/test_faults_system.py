"""What a system does to programs, at places that they prove: full disks, stops, a second trainer, clocks, cut files."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from archive_checks import disk
from children import has_ended, run_python
from kill_matrix import PLACES, RUN_SECS, Place, differences, end_of, facts_of, left_in, short_folder
from kill_programs import Keeper
from seams import read_checkpoint, write_file
from training_cases import results
from waiting import wait_until

pytestmark = pytest.mark.faults
NOTHING: dict[str, Any] = {"mode": "", "places": []}
DAY_BACK = -86_400


def place_of(program: str, name: str) -> Place:
    (place,) = (place for place in PLACES if (place.program, place.name) == (program, name))
    return place


@dataclass
class Held:
    """A program that stands at a place until it may go on."""

    keeper: Keeper
    folder: Path
    facts: Path
    pid: int
    here: dict[str, Any]
    has_gone: bool = False

    def go(self) -> int:
        """Let it go on; how it ends."""
        self.has_gone = True
        (self.facts / "facts.jsonl.go").touch()
        return self.keeper.wait()

    @property
    def output(self) -> str:
        """What it has printed, and those before it in this folder."""
        return (self.folder / "output.txt").read_text(errors="replace")


@dataclass
class Programs:
    """Programs of the kill matrix, and what each leaves where nothing happens to it."""

    keeper: Keeper
    folder: Path
    _ends: dict[str, dict[str, Any]]
    _held: list[Held] = field(default_factory=list)

    def held(self, place: Place, folder: Path, *, call: int = 4, line: int = 2) -> Held:
        """Start a program, and wait until it stands in a call of a place. It notes so beside its folder."""
        facts = folder.with_name(f"{folder.name}-facts")
        facts.mkdir()
        order = {"mode": "wait", "places": [place.order], "call": call, "line": line}
        pid = self.keeper.start(place.program, folder, order | {"file": str(facts / "facts.jsonl")})

        def arrived() -> Any:
            assert not has_ended(pid), f"it never came to {place.name}"
            return next((fact for fact in facts_of(facts) if "here" in fact), None)

        here = wait_until(arrived, place.name, secs=RUN_SECS)
        self._held.append(Held(self.keeper, folder, facts, pid, here))
        return self._held[-1]

    def end_held(self) -> None:
        """Kill what a failed test has left standing at its place."""
        while self._held:
            held = self._held.pop()
            if not held.has_gone:
                os.kill(held.pid, signal.SIGKILL)
                held.go()

    def run(self, program: str, folder: Path) -> int:
        """Run a program as it is; how it ends."""
        self.keeper.start(program, folder, NOTHING | {"file": str(self.folder / "facts.jsonl")})
        return self.keeper.wait()

    def assert_equal(self, program: str, folder: Path) -> None:
        """What is in a folder is what an undisturbed run leaves, and nothing more; nothing runs."""
        whole = self.folder / program
        if program not in self._ends:
            assert self.run(program, whole) == 0
            self._ends[program] = end_of(program, whole)
        assert differences(end_of(program, folder), self._ends[program]) == []
        assert self.keeper.left() == [] and left_in(folder, whole) == []


@pytest.fixture(scope="module")
def programs() -> Iterator[Programs]:
    keeper = Keeper()
    with short_folder() as folder:
        yield Programs(keeper, folder, {})
    keeper.close()


@pytest.fixture(autouse=True)
def nothing_is_held(programs: Programs) -> Iterator[None]:
    yield
    programs.end_held()


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder with a short path: there are sockets in it."""
    with short_folder() as folder:
        yield folder


# -- a disk that is full ----------------------------------------------------------------------------------------------


def fill(folder: Path) -> None:
    """Leave no byte: other threads of the program may write meanwhile, until there is no room for them either."""
    with open(folder / "ballast", "wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(os.statvfs(folder).f_frsize))
    status = os.statvfs(folder)
    assert status.f_bavail == 0


@pytest.mark.parametrize(
    ("place", "function"),
    [
        (place_of("trainer", "in a checkpoint's write"), "write_tensors"),
        (place_of("trainer", "in the log's commit"), "LogWriter._write"),
        (place_of("extract", "in a shard's write"), "ShardWriter._write_batch"),
    ],
    ids=["checkpoint", "log", "shard"],
)
def test_a_disk_that_fills_up_within_a_write_is_named_and_nothing_before_it_is_lost(
    place: Place, function: str, programs: Programs, short: Path
) -> None:
    folder = short / "x"
    folder.mkdir()
    with disk(folder / "run", "8m") as small:
        held = programs.held(place, folder)
        assert function in held.here["here"] or any(function in line for line in held.here["stack"])
        before = {path: path.read_bytes() for path in small.glob("checkpoints/[0-9]*/*")}
        fill(small)
        assert held.go() == 1
        assert "No space left on device" in held.output and "Free some space" in held.output
        assert programs.run(place.program, folder) == 1, "still full: still refused"
        assert all(path.read_bytes() == data for path, data in before.items() if path.exists())
        assert all(read_checkpoint(path) for path in small.glob("checkpoints/[0-9]*"))
        (small / "ballast").unlink()
        assert programs.run(place.program, folder) == 0, held.output
        programs.assert_equal(place.program, folder)


@pytest.mark.parametrize("program", ["trainer", "extract", "watch"])
def test_a_folder_that_is_read_only_is_named_and_what_is_there_goes_on_once_it_is_not(
    program: str, programs: Programs, short: Path
) -> None:
    folder = short / "x"
    folder.mkdir()
    with disk(folder / "run", "8m") as small:
        place = next(place for place in PLACES if place.program == program and place.process == "main")
        held = programs.held(place, folder)
        os.kill(held.pid, signal.SIGKILL)
        assert held.go() == -signal.SIGKILL and programs.keeper.left() == []
        subprocess.run(["mount", "-o", "remount,ro", small], check=True)
        assert programs.run(program, folder) == 1
        assert "Read-only file system" in held.output
        subprocess.run(["mount", "-o", "remount,rw", small], check=True)
        assert programs.run(program, folder) == 0, held.output
        programs.assert_equal(program, folder)


# -- processes that are stopped ---------------------------------------------------------------------------------------


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.mark.parametrize(
    "place",
    [
        place_of("trainer", "in a step"),
        place_of("trainer", "in a data worker"),
        place_of("trainer", "in its rename"),
        place_of("watch", "in the watch's child"),
        place_of("watch", "in its child's log"),
        place_of("extract_workers", "in a worker's commit"),
        place_of("ranks", "in rank 1's step"),
    ],
    ids=lambda place: f"{place.program} {place.name}",
)
def test_a_process_that_is_stopped_and_continued_changes_nothing(place: Place, programs: Programs, short: Path) -> None:
    held = programs.held(place, short / "x", call=3)
    os.kill(held.here["pid"], signal.SIGSTOP)
    wait_until(lambda: state_of(held.here["pid"]) == "T")
    (held.facts / "facts.jsonl.go").touch()  # the others go on meanwhile, or wait for it
    with pytest.raises(AssertionError, match="waited"):
        wait_until(lambda: any("left" in fact for fact in facts_of(held.facts)), secs=2.0)
    os.kill(held.here["pid"], signal.SIGCONT)
    assert held.go() == 0, held.output
    programs.assert_equal(place.program, held.folder)


# -- two trainers, clocks, cut files ----------------------------------------------------------------------------------


def test_a_second_trainer_of_a_folder_is_refused_and_the_first_ends_as_it_would(
    programs: Programs, short: Path
) -> None:
    held = programs.held(place_of("trainer", "in a step"), short / "x")
    other = Keeper()
    try:
        before = len(held.output)
        other.start("trainer", held.folder, NOTHING | {"file": str(short / "other")})
        assert other.wait() == 1
        assert "is being trained by another process" in held.output[before:]
        os.kill(held.pid, signal.SIGSTOP)  # it cannot answer, and has the folder all the same
        other.start("trainer", held.folder, NOTHING | {"file": str(short / "other")})
        assert other.wait() == 1
        os.kill(held.pid, signal.SIGCONT)
    finally:
        other.close()
    assert held.go() == 0, held.output
    programs.assert_equal("trainer", held.folder)


# libfaketime 0.9 breaks the sleep of Python 3.11, and a namespace has no wall clock of its own.
CLOCK = """
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long offset_secs(void) {
    char text[32] = {0};
    int file = open(getenv("CLOCK_OFFSET_FILE"), O_RDONLY | O_CLOEXEC);
    if (file < 0 || read(file, text, sizeof text - 1) < 0) abort();
    close(file);
    return atol(text);
}
int clock_gettime(clockid_t clock, struct timespec *now) {
    int status = syscall(SYS_clock_gettime, clock, now);
    if (!status && clock == CLOCK_REALTIME) now->tv_sec += offset_secs();
    return status;
}
int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec precise;
    int status = clock_gettime(CLOCK_REALTIME, &precise);
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return status;
}
time_t time(time_t *now) {
    struct timespec precise;
    clock_gettime(CLOCK_REALTIME, &precise);
    if (now) *now = precise.tv_sec;
    return precise.tv_sec;
}
"""


@contextmanager
def own_clock(folder: Path) -> Iterator[Callable[[int], None]]:
    """What sets the wall clock of processes that are started meanwhile, by seconds, and of nobody else."""
    compiler = shutil.which("cc")
    if compiler is None or sys.platform != "linux":
        pytest.skip("no C compiler, or no Linux: a library gives the processes their clock")
    (folder / "clock.c").write_text(CLOCK)
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", folder / "clock.so", folder / "clock.c"], check=True)
    (folder / "offset").write_text("0")
    settings = {"LD_PRELOAD": str(folder / "clock.so"), "CLOCK_OFFSET_FILE": str(folder / "offset")}
    os.environ.update(settings)
    try:
        yield lambda secs: write_file(folder / "offset", str(secs))
    finally:
        for name in settings:
            del os.environ[name]


@pytest.mark.parametrize("program", ["trainer", "watch", "extract"])
@pytest.mark.parametrize("is_killed", [False, True], ids=["goes on", "killed"])
def test_a_clock_that_is_set_back_by_a_day_changes_nothing(
    program: str, is_killed: bool, programs: Programs, short: Path
) -> None:
    place = next(place for place in PLACES if place.program == program and place.process == "main")
    with own_clock(short) as set_clock:
        set_clock(DAY_BACK)
        assert float(run_python("-c", "import time; print(time.time())").stdout) < time.time() - 80_000
        set_clock(0)
        theirs = replace(programs, keeper=Keeper())
        try:
            held = theirs.held(place, short / "x", call=8)
            set_clock(DAY_BACK)
            if is_killed:
                os.kill(held.pid, signal.SIGKILL)
                assert held.go() == -signal.SIGKILL
                assert theirs.run(program, held.folder) == 0, held.output
            else:
                assert held.go() == 0, held.output
            assert theirs.keeper.left() == []
        finally:
            theirs.keeper.close()
    programs.assert_equal(program, held.folder)


@pytest.mark.parametrize("name", ["MANIFEST.json", "state.json", "model.safetensors", "optim.safetensors"])
def test_a_cut_newest_checkpoint_is_named_and_the_one_before_it_goes_on(
    name: str, programs: Programs, short: Path
) -> None:
    held = programs.held(place_of("trainer", "in its rename"), short / "x", call=7, line=1)
    os.kill(held.pid, signal.SIGKILL)
    assert held.go() == -signal.SIGKILL
    steps = sorted(int(path.name) for path in (held.folder / "run" / "checkpoints").glob("[0-9]*"))
    assert len(steps) >= 2
    file = held.folder / "run" / "checkpoints" / str(steps[-1]) / name
    os.truncate(file, file.stat().st_size // 2)
    assert programs.run("trainer", held.folder) == 0, held.output
    assert f"checkpoint {file.parent} cannot be used: " in held.output
    assert f"resumed from checkpoint {steps[-2]} " in held.output
    programs.assert_equal("trainer", held.folder)


def test_a_log_cut_before_the_last_checkpoint_is_named_and_costs_no_step(programs: Programs, short: Path) -> None:
    held = programs.held(place_of("trainer", "in its rename"), short / "x", call=7, line=1)
    os.kill(held.pid, signal.SIGKILL)
    assert held.go() == -signal.SIGKILL
    file = held.folder / "run" / "log" / "train" / "000000.index"
    os.truncate(file, file.stat().st_size // 5)
    assert programs.run("trainer", held.folder) == 0, held.output
    assert re.search("log/train was cut: of the rows that it lost, [0-9]+ come from the CSV files", held.output)
    assert "resumed from checkpoint " in held.output
    assert programs.run("trainer", short / "whole") == 0
    assert results(held.folder / "run") == results(short / "whole" / "run")
