"""What keeping values on disk costs, beside plain files of the same bytes: `make bench-archive`.

    python benchmarks/archive.py [--quick] [--folder DIR] [--write docs/benchmarks.md]

Rounds of one run of each way, the order alternating; wall time, as disks are waited for and a second core helps.
"ratio" compares the quickest round of each way, which others on this machine have disturbed least, and is what a floor
is judged by; "median" is over the rounds. Files are read from the system's memory, as they have just been written.
"""

from __future__ import annotations

import argparse
import mmap
import os
import platform
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from processes import processor, python, version_of
from report import table, write_section

from torcheer.archive import Archive, Writer
from torcheer.records import Sample

STEPS, MEBI = 50, 1 << 20
Arrays = list[list[np.ndarray[Any, Any]]]  # of each step its arrays


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few rounds, less data: to see that it runs")
    parser.add_argument("--folder", default=None, help="where to write; the system's folder for such things otherwise")
    parser.add_argument("--write", default="", help="put the tables into this file")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        parts, missed = measured(Path(folder), options.quick)
    print("", *parts, sep="\n\n")
    print("", *(f"floor missed: {one}" for one in missed) if missed else ["every floor is met"], sep="\n")
    if options.write:
        write_section(Path(options.write), "archive", "\n\n".join(parts))


def measured(folder: Path, quick: bool) -> tuple[list[str], list[str]]:
    """Every table, and the rows that miss their floor."""
    rounds = 3 if quick else 15
    tables = [
        ("**Writing, over a plain file of the same bytes**", HEADS["write"], writing(folder, rounds)),
        ("**Reading, over a copy out of a memory map**", HEADS["read"], reading(folder, rounds)),
        (
            "**From a path to the first value, in a fresh process**",
            HEADS["open"],
            opening(folder, 5, 64 if quick else 1024),
        ),
        ("**One file for everything, for comparison**", HEADS["peers"], peers(folder, rounds)),
        # ---- extraction: the table of `torcheer.extraction` over a dataset goes here ----
    ]
    versions = f"numpy {np.__version__}, torch {torch.__version__}, safetensors {version_of('safetensors')}"
    busy = f"{os.getloadavg()[0]:.1f} processes on {os.cpu_count()} cores when it began"
    parts = [f"Python {platform.python_version()}, {versions}; {processor()}, {busy}."]
    for title, head, rows in tables:
        parts += [title, table(head, rows)]
    return parts, [row[0] for _, _, rows in tables for row in rows if "MISSED" in row[-1]]


HEADS = {
    "write": ["what", "plain, ms", "archive, ms", "MB/s", "median", "ratio", "floor"],
    "read": ["what", "plain, ms", "archive, ms", "median", "ratio", "floor"],
    "open": ["archive", "imports, ms", "open, ms", "first value, ms", "open and value, ms", "floor"],
    "peers": ["format", "write, ms", "over a plain file", "read one of it, ms"],
}


# -- ways to write ---------------------------------------------------------------------------------------------------


def steps_of(arrays: int, count: int) -> Arrays:
    """So many steps of so many arrays of so many numbers."""
    draw = np.random.default_rng(0)
    return [[draw.normal(size=count).astype(np.float32) for _ in range(arrays)] for _ in range(STEPS)]


def plain_file(path: Path, steps: Arrays, fsync: bool) -> None:
    """Everything into one file, one after the other."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT)
    for step in steps:
        for array in step:
            os.write(file, array.data)
        if fsync:
            os.fsync(file)
    os.close(file)


def archive(path: Path, steps: Arrays, fsync: bool, codec: str = "raw") -> None:
    """The same as an archive."""
    with Writer(path, fsync="step" if fsync else "never", codec=codec) as writer:
        for number, step in enumerate(steps):
            writer.step([Sample(number, f"layer {place}", "value", -1, array) for place, array in enumerate(step)])


class Case(NamedTuple):
    title: str
    arrays: int
    count: int  # of numbers in each
    fsync: bool
    floor: float | None


CASES = [
    Case("50 steps × 4 tensors of 1 MiB", 4, MEBI // 4, False, 1.8),
    Case("… with fsync at every step", 4, MEBI // 4, True, 2.5),
    Case("50 steps × 400 tensors of 1 KiB", 400, 256, False, None),
    Case("… with fsync at every step", 400, 256, True, None),
]


def writing(folder: Path, rounds: int) -> list[list[str]]:
    """Rows: an archive's time over that of a plain file; the cases take turns: a busy minute meets all of them."""
    steps = {(case.arrays, case.count): steps_of(case.arrays, case.count) for case in CASES}
    times: list[list[list[float]]] = [[[], []] for _ in CASES]
    for number in range(rounds):
        say(f"writing, round {number + 1} of {rounds}")
        for case, found in zip(CASES, times):
            values = steps[case.arrays, case.count]
            for place, took in enumerate(
                alternate(
                    1,
                    lambda path, values=values, case=case: plain_file(path, values, case.fsync),
                    lambda path, values=values, case=case: archive(path, values, case.fsync),
                    folder=folder,
                )
            ):
                found[place] += took
    return [_written(case, found) for case, found in zip(CASES, times)]


def _written(case: Case, times: list[list[float]]) -> list[str]:
    plain, ours = map(min, times)
    megabytes = STEPS * case.arrays * case.count * 4 / 1e6
    numbers = [f"{plain * 1e3:.0f}", f"{ours * 1e3:.0f}", f"{megabytes / ours:.0f}"]
    return [case.title, *numbers, *judged(times, case.floor)]


# -- ways to read ----------------------------------------------------------------------------------------------------


def reading(folder: Path, rounds: int) -> list[list[str]]:
    """Rows: copies of values in random order, from an archive and from a memory map."""
    steps = steps_of(4, MEBI // 4)
    archive(folder / "archive", steps, False)
    plain_file(folder / "plain", steps, False)
    places = [place for place in range(4 * STEPS)]
    random.Random(0).shuffle(places)
    held, mapped = Archive(folder / "archive"), mapping(folder / "plain")
    held.verify()

    def theirs(path: Path) -> None:
        mapped_now = mapped if path.name == "again" else mapping(folder / "plain")
        for place in places:
            np.array(np.frombuffer(mapped_now, np.float32, MEBI // 4, place * MEBI))

    def ours(path: Path) -> None:
        held_now = held if path.name == "again" else Archive(folder / "archive")
        for place in places:
            np.array(held_now.array(held_now.entries[place]))

    rows = []
    for title, name, floor in (
        ("200 tensors of 1 MiB, at random", "again", 2.0),
        ("… the first time, with the check", "first", None),
    ):
        say(f"reading {title}")
        times = alternate(rounds, theirs, ours, folder=folder, name=name)
        plain, mine = map(min, times)
        rows.append([title, f"{plain * 1e3:.0f}", f"{mine * 1e3:.0f}", *judged(times, floor)])
    shutil.rmtree(folder / "archive")
    (folder / "plain").unlink()
    return rows


def mapping(path: Path) -> mmap.mmap:
    with open(path, "rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


OPENING = """
import time; begin = time.perf_counter()
import sys, numpy
from torcheer.archive import Archive
imported = time.perf_counter()
archive = Archive(sys.argv[1])
opened = time.perf_counter()
value = numpy.array(archive.array(archive.entries[len(archive.entries) // 2]))
print((imported - begin) * 1e3, (opened - imported) * 1e3, (time.perf_counter() - opened) * 1e3, "torch" in sys.modules)
"""


def opening(folder: Path, rounds: int, mebibytes: int) -> list[list[str]]:
    """Rows: how long a large archive takes to give its first value."""
    say(f"opening {mebibytes} MiB")
    path, array = folder / "large", np.zeros(MEBI // 4, np.float32)
    with Writer(path, fsync="never") as writer:
        for step in range(mebibytes // 8):
            writer.step(Sample(step, f"layer {place}", "value", -1, array + step + place) for place in range(8))
    found = []
    for _ in range(rounds):
        *times, with_torch = python("-c", OPENING, str(path)).stdout.split()
        assert with_torch == "False"
        found.append([float(one) for one in times])
    imports, opened, value = (statistics.median(column) for column in zip(*found))
    shutil.rmtree(path)
    total = opened + value
    floor = f"50 {'met' if total <= 50 else 'MISSED'}"
    title = f"{mebibytes} MiB, {mebibytes} tensors"
    return [[title, f"{imports:.0f}", f"{opened:.1f}", f"{value:.1f}", f"{total:.1f}", floor]]


# -- other formats ---------------------------------------------------------------------------------------------------


def peers(folder: Path, rounds: int) -> list[list[str]]:
    """Rows: the same 200 MiB at once, as other formats keep them; a kill while they write loses everything."""
    steps = steps_of(4, MEBI // 4)
    flat = {f"{number}.{place}": array for number, step in enumerate(steps) for place, array in enumerate(step)}
    tensors = {name: torch.from_numpy(array) for name, array in flat.items()}
    ways: dict[str, tuple[Callable[[Path], Any], Callable[[Path], Any]]] = {
        "archive": (lambda path: archive(path, steps, False), lambda path: _first(Archive(path))),
        "archive, zstd": (lambda path: archive(path, steps, False, "zstd"), lambda path: _first(Archive(path))),
        "archive, int8": (lambda path: archive(path, steps, False, "int8"), lambda path: _first(Archive(path))),
        "safetensors": (lambda path: _safetensors().save_file(flat, path), _read_safetensors),
        "npz": (lambda path: np.savez(path, **flat), lambda path: np.load(f"{path}.npz")["7.1"]),
        "torch.save": (lambda path: torch.save(tensors, path), lambda path: torch.load(path, mmap=True)["7.1"].clone()),
    }
    rows = []
    for name, (write, read) in ways.items():
        say(f"comparing with {name}")
        reads: list[float] = []

        def both(path: Path, write: Any = write) -> None:
            write(path)

        def after(path: Path, read: Any = read, reads: list[float] = reads) -> None:
            reads.append(timed(lambda: read(path)))

        count = min(rounds, 5)
        times = alternate(count, lambda path: plain_file(path, steps, False), both, folder=folder, after=after)
        ours, ratio = min(times[1]), min(times[1]) / min(times[0])
        rows.append([name, f"{ours * 1e3:.0f}", f"{ratio:.2f}", f"{min(reads) * 1e3:.2f}"])
    return rows


def _first(found: Archive) -> Any:
    return np.array(found.array(found.entries[29]))


def _safetensors() -> Any:
    import safetensors.numpy

    return safetensors.numpy


def _read_safetensors(path: Path) -> Any:
    from safetensors import safe_open

    with safe_open(path, "np") as file:
        return file.get_tensor("7.1")


# -- measuring -------------------------------------------------------------------------------------------------------


def alternate(
    rounds: int,
    *ways: Callable[[Path], None],
    folder: Path,
    name: str = "written",
    after: Callable[[Path], None] | None = None,
) -> list[list[float]]:
    """Seconds of each way in each round; the first round warms up. `after` looks at what the last way has left."""
    times: list[list[float]] = [[] for _ in ways]
    for number in range(rounds + 1):
        order = list(enumerate(ways))
        for place, way in order if number % 2 or after else reversed(order):
            with emptied(folder / name) as path:
                took = timed(lambda way=way, path=path: way(path))
                if number:
                    times[place].append(took)
                if number and after is not None and place == len(ways) - 1:
                    after(path)
    return times


@contextmanager
def emptied(path: Path) -> Iterator[Path]:
    """A path with nothing at it, before and after; what was written is on the disk before the next one begins."""
    yield path
    os.sync()
    for one in path.parent.glob(f"{path.name}*"):
        shutil.rmtree(one) if one.is_dir() else one.unlink()


def timed(run: Callable[[], Any]) -> float:
    """Seconds of one run."""
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def judged(times: list[list[float]], floor: float | None) -> list[str]:
    """The second way over the first: the median over the rounds, the quickest of each, and how that stands."""
    median = statistics.median(ours / plain for plain, ours in zip(*times))
    ratio = min(times[1]) / min(times[0])
    stands = "" if floor is None else f"{floor:g} {'met' if ratio <= floor else 'MISSED'}"
    return [f"{median:.2f}", f"{ratio:.2f}", stands]


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
