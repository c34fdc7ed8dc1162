"""Kill programs at places that prove themselves, let them go on, and compare: `make test-kills`.

    python tests/kill_matrix.py [--kills 200] [--only trainer,extract] [--seed 0]

A kill counts if the process wrote down, as the last thing it did, that it stood within the place, if SIGKILL ended it,
and if what lies on the disk agrees; else it is tried again. Then the program is started again until it ends, and must
have lost nothing that it had said was saved, end with the bits of a run that nobody killed, and leave nothing:
processes, shared memory, temporary files, sockets.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import signal
import stat
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from children import has_ended
from kill_programs import Keeper
from seams import CheckpointStore, RunLog, format_table
from studio_socket import Page
from training_cases import results
from waiting import WAIT_SECS, wait_until

from torcheer.extraction import open_extraction
from torcheer.inspector import open_watch
from torcheer.studio import logs

RUN_SECS = 300.0  # for a program of two seconds, on the busiest of machines
MISSES = 40  # in a row, after which a place cannot be hit
OUTSIDE = 0.3  # of the kills come from another process
_CHECKPOINTS, _LOOP = "torcheer.training.checkpoints", "torcheer.training.loop.training_loop:TrainingLoop._round"
_WRITE, _STORE = f"{_CHECKPOINTS}.checkpoint_files:write_tensors", f"{_CHECKPOINTS}.checkpoint_folders:CheckpointStore"
_SHARDS, _LOG = "torcheer.extraction.writers.shard_writer:ShardWriter", "torcheer.runlog.log_writer:LogWriter._write"
_WATCH, _VIEWER = "torcheer.monitor.child", "torcheer.studio.server"
_TRIAL, _WORKER = "torcheer.training.sweep.trial_process", "torcheer.extraction.writers.shard_worker"


@dataclass(frozen=True)
class Place:
    """Where a program is killed, and how many of 200 kills fall there."""

    program: str
    name: str
    function: str
    kills: int
    process: str = "main"
    environment: dict[str, str] = field(default_factory=dict)
    evidence: Callable[[Path], bool] = lambda folder: True  # whether the disk agrees
    delay_secs: float = 0.0  # of a place in which a process waits: it is killed from outside, after so long at most

    @property
    def order(self) -> dict[str, Any]:
        """What a process is told of it."""
        return {"function": self.function, "process": self.process, "environment": self.environment}


def _half_written(folder: Path) -> bool:
    """A checkpoint has begun, and has no manifest yet."""
    return any(not (part / "MANIFEST.json").exists() for part in folder.rglob("checkpoints/.tmp-*"))


def _written(folder: Path) -> bool:
    """A checkpoint is complete, under its temporary name or its own."""
    return any(folder.rglob("checkpoints/*/MANIFEST.json"))


def _shard_begun(folder: Path) -> bool:
    return any((folder / "run" / "shards").iterdir())


def _shard_sealed(folder: Path) -> bool:
    return any(path.stat().st_size for path in (folder / "run" / "shards").glob("*/*.seal"))


RANK = {"RANK": "1"}
PLACES = [
    Place("trainer", "in a step", _LOOP, 14),
    Place("trainer", "in a data worker", "training_cases:Noisy.__getitem__", 6, "fork"),
    Place("trainer", "in a checkpoint's write", _WRITE, 10, evidence=_half_written),
    Place("trainer", "in its rename", f"{_STORE}._rename_into_place", 10, evidence=_written),
    Place("trainer", "in the saver's thread", f"{_CHECKPOINTS}.background_write:BackgroundWrite._run", 10),
    Place("trainer", "removing old checkpoints", f"{_STORE}._prune", 8, evidence=_written),
    Place("trainer", "in the log's commit", _LOG, 10),
    Place("accumulation", "in a step", _LOOP, 4),
    Place("stages", "in a step", _LOOP, 4),
    Place("pipelines", "in a step", _LOOP, 4),
    Place("extract", "in a batch", "torcheer.extraction.extraction_job:_read_batch", 6),
    Place("extract", "in a shard's write", f"{_SHARDS}._write_batch", 10, evidence=_shard_begun),
    Place("extract", "in a shard's commit", f"{_SHARDS}._publish", 10, evidence=_shard_sealed),
    Place("extract", "in the last commit", "torcheer.extraction.extraction_job:_mark_complete", 6,
          evidence=_shard_sealed),
    Place("extract_workers", "in a worker's commit", f"{_SHARDS}._publish", 4, _WORKER, evidence=_shard_sealed),
    Place("extract_workers", "waiting for workers", "torcheer.extraction.writers.worker_pool:_receive_all", 2,
          delay_secs=2.0),
    Place("watch", "in the watch's child", "torcheer.monitor.analysis:WatchAnalysis.take", 8, _WATCH),
    Place("watch", "in its child's log", _LOG, 8, _WATCH),
    Place("watch", "in a step", _LOOP, 6),
    Place("watch", "in the log's commit", _LOG, 6),
    Place("studio", "in the viewer", "torcheer.studio.sources.live_source:LiveSource.poll", 8, _VIEWER),
    Place("studio", "in a step", _LOOP, 4),
    Place("sweep", "in the sweep", "torcheer.training.sweep.trial_queue:TrialQueue._collect", 4),
    Place("sweep", "in its notes of a trial", "torcheer.training.sweep.sweep_folder:SweepFolder.end", 2),
    Place("sweep", "in a trial's step", _LOOP, 4, _TRIAL),
    Place("sweep", "in a trial's checkpoint", _WRITE, 4, _TRIAL, evidence=_half_written),
    Place("ranks", "in rank 1's step", _LOOP, 6, "fork", RANK),
    Place("ranks", "in rank 0's checkpoint", _WRITE, 6, "fork", {"RANK": "0"}, _half_written),
    Place("sharded", "in rank 1's part", f"{_CHECKPOINTS}.checkpoint_folders:leave_part", 6, "fork", RANK,
          _half_written),
    Place("sharded", "in rank 0's rename", f"{_STORE}._rename_into_place", 4, "fork", {"RANK": "0"}, _written),
    Place("launcher", "in rank 1's step", _LOOP, 4, "train training.yaml", RANK),
    Place("launcher", "waiting for ranks", "torcheer.training.parallel.launch:_Job.run", 2, delay_secs=5.0),
]  # fmt: skip


# -- what must be the same --------------------------------------------------------------------------------------------

_EPHEMERAL = re.compile(r"-[0-9]{15,}")


def end_of(program: str, folder: Path) -> dict[str, Any]:
    """All that a program must leave in the same bits, however often it was killed."""
    run = folder / "run"
    if program.startswith("extract"):
        open_extraction(run).verify()
        return {str(file.relative_to(run)): file.read_bytes() for file in sorted(run.rglob("*")) if file.is_file()}
    if program == "sweep":
        homes = sorted(path for path in (folder / "run-sweep").iterdir() if (path / "checkpoints").is_dir())
        states = [json.loads(file.read_text()) for file in sorted((folder / "run-sweep" / ".sweep").glob("*.json"))]
        ends = {f"{home.name}/{name}": data for home in homes for name, data in _end_of_run(home).items()}
        return ends | {"states": [(state["status"], state["values"]) for state in states]}
    told = {file.name: json.loads(file.read_text()) for file in folder.glob("told*.json")}  # of each rank
    return _end_of_run(run) | {name: (facts["weights"], facts["step"]) for name, facts in told.items()}


def _end_of_run(run: Path) -> dict[str, Any]:
    """The last checkpoint (weights, optimizer, generators), the metrics' files, and the rows of the log."""
    log = RunLog(run)
    assert log.problems == [], log.problems
    tables = {name: table for name, table in logs(run).items() if name.startswith(("train_", "test_"))}
    return results(run) | {f"table {name}": [_cells(row) for row in table] for name, table in tables.items()}


def _cells(row: Any) -> dict[str, Any]:
    return {key: repr(value) for key, value in dict(row).items() if key.lower() not in ("secs", "time", "seconds")}


def watched(run: Path) -> dict[tuple[str, ...], dict[int, float]]:
    """What a watch has logged: means by key and step; no step stands twice."""
    log, found = open_watch(run), {}
    for key in log:
        steps = log[key].steps.tolist()
        assert len(steps) == len(set(steps)), f"{key} twice: {steps}"
        found[key] = dict(zip(steps, log[key].mean.tolist()))
    return found


def newest(folder: Path) -> int:
    """The step of the newest checkpoint that loads, -1 without one; a problem with a newer one is a failure."""
    state, _, problems = CheckpointStore(folder / "run").newest(with_rows=False)
    assert not problems, problems
    return -1 if state is None else int(state["place"]["step"])


def left_in(folder: Path, whole: Path) -> list[str]:
    """Temporary files, hidden files and sockets that an undisturbed run does not leave."""
    known = {_EPHEMERAL.sub("", str(path.relative_to(whole))) for path in whole.rglob("*")}
    left = [str(path.relative_to(folder)) for path in (folder / "tmp").rglob("*")]
    for path in folder.rglob("*"):
        name = str(path.relative_to(folder))
        is_odd = path.name.startswith(".") or path.is_symlink() or stat.S_ISSOCK(path.lstat().st_mode)
        if is_odd and _EPHEMERAL.sub("", name) not in known:
            left.append(name)
    return left


def left_in_memory(pids: set[int]) -> list[str]:
    """Shared memory of these processes, by the numbers in its names."""
    return [name for name in os.listdir("/dev/shm") if pids & set(map(int, re.findall("[0-9]+", name)))]


# -- trials ----------------------------------------------------------------------------------------------------------


@dataclass
class Tally:
    """What became of the kills of one place."""

    place: Place
    meant: int = 0
    landed: int = 0  # of those: it was here, SIGKILL ended it, the disk agrees
    equal: int = 0
    left: int = 0
    outside: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def row(self) -> list[str]:
        """A line of the table."""
        counts = (self.meant, self.landed, self.outside, self.equal, self.left)
        return [self.place.program, self.place.name, *map(str, counts)]


HEADER = ["program", "place", "meant", "counted", "from outside", "resumed equal", "left behind"]


class Trials:
    """Kills of one program after the other, all of them in one folder."""

    def __init__(self, folder: Path, seed: int = 0) -> None:
        self.folder, self._seed, self._number = folder, seed, 0
        self._keeper = Keeper()
        self._whole: dict[str, Path] = {}
        self._ends: dict[str, dict[str, Any]] = {}
        self._calls: dict[str, dict[str, list[tuple[int, int]]]] = {}

    def close(self) -> None:
        """End the process that starts the programs."""
        self._keeper.close()

    def run(self, place: Place, kills: int) -> Tally:
        """Kill a program at a place until so many kills have counted, or that fails too often."""
        tally, draw = Tally(place), random.Random(f"{self._seed} {place.program} {place.name}")
        self._measure(place.program)
        missed = 0
        while tally.landed < kills and missed < MISSES and len(tally.problems) < 3:
            counted = tally.landed
            try:
                self._kill(tally, draw)
            except AssertionError as error:
                tally.problems.append(str(error)[:2000])
            missed = 0 if tally.landed > counted else missed + 1
        if tally.landed < kills and not tally.problems:
            tally.problems.append(f"{missed} kills in a row did not land")
        return tally

    def _measure(self, program: str) -> None:
        """Run a program undisturbed, once for its end and once to count how often it comes to which place."""
        if program in self._ends:
            return
        whole, counted = self.folder / f"{program}-whole", self.folder / f"{program}-counted"
        self._finish(program, whole)
        self._whole[program], self._ends[program] = whole, end_of(program, whole)
        places = [place for place in PLACES if place.program == program]
        order = {"mode": "count", "places": [place.order for place in places]}
        self._start(program, counted, order)
        assert self._keeper.wait() == 0, self._output(counted)
        problems = differences(end_of(program, counted), self._ends[program])
        assert not problems, f"two undisturbed runs differ in {problems}"
        calls = self._calls[program] = {}
        for fact in facts_of(counted):
            if "counted" in fact and fact["lines"]:
                calls.setdefault(fact["counted"], []).append((fact["call"], fact["lines"]))
        shutil.rmtree(counted)

    def _start(self, program: str, folder: Path, order: dict[str, Any]) -> int:
        pid = self._keeper.start(program, folder, order | {"file": str(folder / "facts.jsonl")})
        if program == "studio" and order["mode"]:
            threading.Thread(target=_look_on, args=(folder,), daemon=True).start()
        return pid

    def _finish(self, program: str, folder: Path) -> None:
        """Start a program again until it has ended."""
        self._start(program, folder, {"mode": "", "places": []})
        assert self._keeper.wait() == 0, f"it does not go on: {self._output(folder)}"

    def _output(self, folder: Path) -> str:
        return (folder / "output.txt").read_text(errors="replace")[-1500:]

    def _kill(self, tally: Tally, draw: random.Random) -> None:
        """One trial: kill, look, go on, compare."""
        place, program = tally.place, tally.place.program
        folder, tally.meant, self._number = self.folder / f"{self._number}", tally.meant + 1, self._number + 1
        calls = self._calls[program].get(place.function)
        assert calls, f"{program} never comes to {place.function}"
        call, lines = draw.choice(calls)
        is_outside = bool(place.delay_secs) or draw.random() < OUTSIDE
        line = draw.randrange(1, lines + 1)
        order = {"mode": "outside" if is_outside else "inside", "places": [place.order], "call": call, "line": line}
        pid = self._start(program, folder, order)
        if is_outside:
            _kill_from_outside(folder, pid, draw.uniform(0.0, place.delay_secs or 0.02))
        status = self._keeper.wait()
        here = landing(folder, pid, status)
        if here is None or not place.evidence(folder):
            self._clean(folder)
            return
        tally.landed += 1
        tally.outside += is_outside
        where = f"killed at {here['stack'][:3]}, call {call}, line {line}"
        try:
            self._go_on(tally, folder, status, program)
        except Exception as error:
            raise AssertionError(f"{where}: {type(error).__name__}: {error}; kept in {folder}") from error
        self._clean(folder)

    def _go_on(self, tally: Tally, folder: Path, status: int, program: str) -> None:
        """What was saved is there; the program ends as one that was not killed; nothing is left."""
        if program in ("trainer", "accumulation", "stages", "pipelines", "watch"):
            saved = max((fact["saved"] for fact in facts_of(folder) if "saved" in fact), default=-1)
            assert newest(folder) >= saved, f"a checkpoint of step {saved} was said to be saved"
        if status != 0:
            self._finish(program, folder)
        problems = differences(end_of(program, folder), self._ends[program])
        assert not problems, f"it differs in {problems}"
        if program == "watch":
            expected = watched(self._whole[program] / "run")
            for key, values in watched(folder / "run").items():
                assert key[1] == "metric" or values.items() <= expected[key].items(), f"{key} has other values"
        tally.equal += 1
        left = self._keeper.left() + left_in(folder, self._whole[program])
        left += left_in_memory({fact["started"] for fact in facts_of(folder) if "started" in fact})
        tally.left += bool(left)
        assert not left, f"left behind: {left}"

    def _clean(self, folder: Path) -> None:
        self._keeper.left()
        shutil.rmtree(folder, ignore_errors=True)


def differences(end: dict[str, Any], expected: dict[str, Any]) -> list[str]:
    """The names of what differs."""
    return sorted(name for name in end.keys() | expected.keys() if end.get(name) != expected.get(name))


def facts_of(folder: Path) -> list[dict[str, Any]]:
    """What the processes of a program have written down."""
    with suppress(FileNotFoundError):
        return [json.loads(line) for line in (folder / "facts.jsonl").read_text().splitlines()]
    return []


def _kill_from_outside(folder: Path, pid: int, secs: float) -> None:
    """Wait until a process is at its place, or the program has ended, and a little longer; kill that process."""

    def arrived() -> bool:
        return any("here" in fact for fact in facts_of(folder)) or has_ended(pid)

    wait_until(arrived, "the place", secs=RUN_SECS)
    time.sleep(secs)
    for fact in facts_of(folder):
        if "here" in fact and not any("left" in other for other in facts_of(folder)):
            with suppress(ProcessLookupError):
                os.kill(fact["pid"], signal.SIGKILL)


def landing(folder: Path, pid: int, status: int) -> dict[str, Any] | None:
    """Where the kill landed; None where it did not, or cannot be proved to."""
    facts = facts_of(folder)
    here = next((fact for fact in facts if "here" in fact), None)
    if here is None or any("left" in fact for fact in facts):
        return None
    with suppress(AssertionError):
        wait_until(lambda: has_ended(here["pid"]), secs=10.0)
    if not has_ended(here["pid"]) or (here["pid"] == pid and status != -signal.SIGKILL):
        return None
    return here


@contextmanager
def short_folder() -> Iterator[Path]:
    """A folder whose path leaves room for the names of sockets in it."""
    with tempfile.TemporaryDirectory(prefix="kills-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def _look_on(folder: Path) -> None:
    """Be the page of a studio, until it is gone."""

    def address() -> str:
        match = re.search(r"http://\S+", (folder / "output.txt").read_text())
        return match[0] if match else ""

    with suppress(Exception):  # the viewer is killed while it speaks
        with Page(wait_until(address)) as page:
            while True:
                page.next(WAIT_SECS)


# -- the matrix --------------------------------------------------------------------------------------------------------


def matrix(kills: int, *, only: str = "", seed: int = 0, jobs: int = 2) -> Iterator[Tally]:
    """Kill at every place, in proportion; yield what became of each, as it ends."""
    places = [place for place in PLACES if not only or place.program in only.split(",")]
    total = sum(place.kills for place in PLACES)
    waiting = [(place, max(1, round(kills * place.kills / total))) for place in places]
    done: list[Tally] = []
    lock = threading.Condition()

    def work() -> None:
        with short_folder() as folder:
            trials = Trials(folder, seed)
            try:
                while True:
                    with lock:
                        if not waiting:
                            return
                        mine = waiting.pop(0)
                    try:
                        tally = trials.run(*mine)
                    except Exception as error:
                        tally = Tally(mine[0], problems=[f"{type(error).__name__}: {error}"])
                    with lock:
                        done.append(tally)
                        lock.notify()
            finally:
                trials.close()

    workers = [threading.Thread(target=work, daemon=True) for _ in range(jobs)]
    for worker in workers:
        worker.start()
    for _ in places:
        with lock:
            lock.wait_for(lambda: done)
            tally = done.pop(0)
        yield tally
    for worker in workers:
        worker.join()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=int, default=200, help="how many must count")
    parser.add_argument("--only", default="", help="programs")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2, help="trials at a time")
    chosen = parser.parse_args()
    tallies, began = [], time.monotonic()
    for tally in matrix(chosen.kills, only=chosen.only, seed=chosen.seed, jobs=chosen.jobs):
        tallies.append(tally)
        print("  ".join(tally.row), *tally.problems, sep="\n    ", flush=True)
    print("", *format_table([HEADER, *(tally.row for tally in tallies)], 2), sep="\n")
    counted, equal = sum(tally.landed for tally in tallies), sum(tally.equal for tally in tallies)
    meant, failed = sum(tally.meant for tally in tallies), [tally for tally in tallies if tally.problems]
    print(f"\n{meant} kills meant, {counted} counted, {equal} resumed equal, {time.monotonic() - began:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
