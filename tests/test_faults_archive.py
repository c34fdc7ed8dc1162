"""Faults by the hundred: kills, cuts, damage, full disks, interrupts. `make test-faults` runs them."""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import struct
import time
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from archive_checks import assert_holds_patterns, disk, held, mixed, patterns
from children import Child
from seams import CODECS

from torcheer.archive import Archive, Writer
from torcheer.errors import ArchiveDamaged, CannotWrite, NotAnArchive, TorcheerError

pytestmark = pytest.mark.faults


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Callable[[str], None]:
    """Print past pytest: what a run of faults found is worth seeing."""

    def speak(text: str) -> None:
        with capsys.disabled():
            print(f"\n  {text}", flush=True)

    return speak


# -- kills -----------------------------------------------------------------------------------------------------------

WRITING = """
import os, sys
sys.path.insert(0, sys.argv[1])
from archive_checks import mixed, patterns
from torcheer.archive import Writer
path, fsync, limit, large, codec = sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5] == "True", sys.argv[6]
os.write(1, b"begin\\n")
writer = Writer(path, fsync=fsync, interval_secs=0.005, segment_bytes=limit, codec=mixed if codec == "mixed" else codec)
step = int(sys.argv[7])
while True:
    writer.step(patterns(step, large))
    os.write(1, b"%d\\n" % step)
    step += 1
"""


def killed(arguments: list[object], begun: int, wait_steps: int, wait_secs: float) -> int:
    """Let a child write until it has said so many steps and some time has passed; the last step it had committed."""
    with Child("-c", WRITING, Path(__file__).parent, *arguments, begun) as process:
        said = [process.line() for _ in range(wait_steps)]
        time.sleep(wait_secs)
        process.kill()
        said += process.ends(-signal.SIGKILL).split()
    return max((int(line) for line in said if line.isdigit()), default=begun - 1)


def test_200_kills_lose_nothing_that_was_committed(tmp_path: Path, say: Callable[[str], None]) -> None:
    draw, kills, found = random.Random(0), 0, Counter[str]()
    while kills < 200:
        path, large = tmp_path / str(kills), draw.random() < 0.4
        limit = draw.choice([1, 5_000, 1 << 30]) if not large else draw.choice([4_000_000, 1 << 30])
        codec = draw.choice(["raw", "raw", "mixed"])
        arguments = [path, draw.choice(["step", "interval", "never"]), limit, large, codec]
        begun = 0
        for _ in range(5):
            wait_steps = draw.choice([0, 1, 2, 4])  # 1: the line that says that it begins
            last = killed(arguments, begun, wait_steps, draw.random() * (0.25 if wait_steps == 0 else 0.02))
            kills += 1
            begun = verified(path, last, begun, large, mixed if codec == "mixed" else codec, found)
    say(f"{kills} kills, 0 committed steps lost, 0 wrong values; after a kill there was: {dict(found)}")
    assert min(found["an unfinished frame or values that do not count"], found["nothing new"], found["new steps"]) >= 5
    assert found["a folder that is no archive yet"] and found["a segment just begun or just sealed"]


def verified(path: Path, last: int, begun: int, large: bool, codec: Any, found: Counter[str]) -> int:
    """How many steps are there now; all that were committed, and nothing else."""
    try:
        archive = Archive(path)
    except NotAnArchive:
        assert last < 0 and not list(path.glob("*.index"))
        found["a folder that is no archive yet"] += 1
        return 0
    assert_holds_patterns(archive, large, codec)
    assert len(archive.steps) > last and len(archive.steps) <= last + 2, (
        "a step that was said is lost, or one was made up"
    )
    assert not archive.sealed
    found["new steps" if len(archive.steps) > begun else "nothing new"] += 1
    last_segment = max(path.glob("*.index"), default=None)
    if last_segment is not None:
        used = max((e.offset + e.stored for e in archive.entries if e.segment == int(last_segment.stem)), default=0)
        data = last_segment.with_suffix(".data")
        more = archive.torn_bytes or (data.exists() and data.stat().st_size > used)
        found["an unfinished frame or values that do not count"] += bool(more)
        found["a segment just begun or just sealed"] += not used
    return len(archive.steps)


# -- cuts ------------------------------------------------------------------------------------------------------------


def test_1000_lengths_of_index_and_data_give_exactly_the_whole_frames(
    tmp_path: Path, say: Callable[[str], None]
) -> None:
    path, ends = tmp_path / "a", [(0, 0)]
    index, data = path / "000000.index", path / "000000.data"
    writer = Writer(path, codec=mixed, fsync="never")
    for step in range(40):
        writer.step(patterns(step, large=False))
        ends.append((index.stat().st_size, data.stat().st_size))
    writer.close(seal=False)
    whole_index, whole_data, draw = index.read_bytes(), data.read_bytes(), random.Random(0)
    for length in cuts(draw, len(whole_index), [end for end, _ in ends]):
        index.write_bytes(whole_index[:length])
        archive = Archive(path)
        assert len(archive.steps) == sum(0 < end <= length for end, _ in ends)
        assert_holds_patterns(archive, False, mixed)
    refused = 0
    for length in cuts(draw, len(whole_data), [end for _, end in ends]):
        data.write_bytes(whole_data[:length])
        complete = sum(end <= length for _, end in ends) - 1
        index.write_bytes(whole_index[: ends[complete][0]])
        assert_holds_patterns(Archive(path), False, mixed)
        if complete < 40:  # a frame whose values are gone is told, not left out
            index.write_bytes(whole_index[: ends[complete + 1][0]])
            with pytest.raises(ArchiveDamaged, match="outside"):
                Archive(path)
            refused += 1
    say(f"1,000 lengths of the index and 1,000 of the data: exactly the whole frames; {refused} told of lost values")


def cuts(draw: random.Random, length: int, ends: list[int]) -> list[int]:
    """A thousand lengths, those around the ends of frames among them."""
    near = {end + by for end in ends for by in (-1, 0, 1) if 0 <= end + by <= length}
    others = draw.sample(sorted(set(range(length + 1)) - near), 1000 - len(near))
    return sorted([*near, *others])


# -- damage ----------------------------------------------------------------------------------------------------------


def flip(draw: random.Random, text: bytearray) -> None:
    text[draw.randrange(len(text))] ^= 1 << draw.randrange(8)


def overwrite(draw: random.Random, text: bytearray) -> None:
    at, count = draw.randrange(len(text)), draw.choice([1, 4, 16, 64, 512])
    text[at : at + count] = draw.randbytes(len(text[at : at + count]))


def zero(draw: random.Random, text: bytearray) -> None:
    at, count = draw.randrange(len(text)), draw.choice([1, 4, 64, 512, 4096])
    text[at : at + count] = bytes(len(text[at : at + count]))


def insert(draw: random.Random, text: bytearray) -> None:
    at = draw.randrange(len(text))
    text[at:at] = draw.randbytes(draw.choice([1, 3, 64, 500]))


def remove(draw: random.Random, text: bytearray) -> None:
    at = draw.randrange(len(text))
    del text[at : at + draw.choice([1, 3, 64, 500])]


def swap(draw: random.Random, text: bytearray) -> None:
    size = draw.choice([1, 16, 64, 512])
    one, two = sorted(draw.randrange(len(text)) for _ in range(2))
    text[one : one + size], text[two : two + size] = text[two : two + size], text[one : one + size]


def repeat(draw: random.Random, text: bytearray) -> None:
    at = draw.randrange(len(text))
    text[at:at] = text[at : at + draw.choice([16, 64, 700])]


def append(draw: random.Random, text: bytearray) -> None:
    text += draw.choice([draw.randbytes(40), bytes(64), bytes(text[-draw.randrange(1, 400) :])])


def cut(draw: random.Random, text: bytearray) -> None:
    del text[draw.randrange(len(text)) :]


DAMAGE = [flip, flip, overwrite, zero, insert, remove, swap, repeat, append, cut]


def test_10000_damaged_files_are_told_or_read_as_they_were(tmp_path: Path, say: Callable[[str], None]) -> None:
    draw, found = random.Random(0), Counter[str]()
    folders = {}
    for sealed in (True, False):
        for limit in (3_000, 1 << 30):
            path = tmp_path / f"{sealed} {limit}"
            writer = Writer(
                path, about={"model": "AlexNet", "seed": 7}, codec=mixed, fsync="never", segment_bytes=limit
            )
            for step in range(6):
                writer.step(patterns(step, large=False), note=step)
            writer.close(seal=sealed)
            folders[path] = [sample.array.tobytes() for sample in Archive(path).samples()]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(10_000):
        path = draw.choice(list(folders))
        file = draw.choice(sorted(file for file in path.iterdir() if file.name != "LOCK"))
        whole = file.read_bytes()
        text = bytearray(whole)
        draw.choice(DAMAGE)(draw, text)
        file.write_bytes(text)
        found[outcome(path, folders[path], "True" in path.name)] += 1
        file.write_bytes(whole)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    say(f"10,000 damaged files: {dict(found)}; 0 crashes, 0 silent differences, {grown:.0f} MB more memory at most")
    assert grown < 100 and found["told"] > 5_000


def outcome(path: Path, expected: list[bytes], sealed: bool) -> str:
    try:
        archive = Archive(path)
        values = [sample.array.tobytes() for sample in archive.samples()]
    except TorcheerError:
        return "told"
    assert archive.about == {"model": "AlexNet", "seed": 7}
    assert archive.steps == list(range(len(archive.steps))) and values == expected[: len(values)]
    assert [body["about"] for body in archive.frames] == [{"note": step} for step in archive.steps]
    if len(values) == len(expected):
        return "as it was"
    assert not archive.sealed and not sealed, "steps are gone, and nothing says so"
    return "the last step of an open archive is gone"


def test_3000_hostile_indexes_are_told_or_read(tmp_path: Path, say: Callable[[str], None]) -> None:
    """Checksums that are right, around a body that somebody has changed on purpose."""
    draw, found = random.Random(0), Counter[str]()
    path = tmp_path / "a"
    writer = Writer(path, codec=mixed, fsync="never")
    for step in range(3):
        writer.step(patterns(step, large=False))
    writer.close(seal=False)
    bodies, data = bodies_of((path / "000000.index").read_bytes()), (path / "000000.data").read_bytes()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(3_000):
        changed = json.loads(json.dumps(bodies))
        for _ in range(draw.choice([1, 1, 2, 5])):
            change_one(draw, changed)
        (path / "000000.index").write_bytes(index_of(changed))
        (path / "000000.data").write_bytes(data)
        for ask in (lambda: Archive(path).verify(), lambda: Writer(path)._segment.close()):
            try:
                ask()
                found["read"] += 1
            except TorcheerError:
                found["told"] += 1
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    say(f"3,000 hostile indexes, read and written to: {dict(found)}; 0 crashes, {grown:.0f} MB more memory at most")
    assert grown < 100 and min(found["told"], found["read"]) > 200


ODD: list[Any] = [
    None, True, False, -1, 0, 1, 63, 64, 2**31, 2**32, 2**53, 2**63, 2**64, 10**300, -(2**63), 0.0, 1.5, 1e308, "", "x",
    "float16", "int8", "bool", [], [0], [2**62, 2**62], [-1], {}, {"type": "int8", "scale": 1e308}, {"type": "float16"},
    "\ud800", "a" * 10_000,
]  # fmt: skip


def change_one(draw: random.Random, value: Any) -> None:
    """Put something odd into one place of a JSON value."""
    places = []
    todo = [value]
    while todo:
        holder = todo.pop()
        for key in holder if isinstance(holder, dict) else range(len(holder)):
            places.append((holder, key))
            if isinstance(holder[key], (dict, list)):
                todo.append(holder[key])
    holder, key = draw.choice(places)
    way = draw.random()
    if way < 0.7:
        holder[key] = draw.choice(ODD)
    elif way < 0.85:
        del holder[key]
    elif isinstance(holder, list):
        holder.insert(draw.randrange(len(holder) + 1), draw.choice([*ODD, holder[key]]))
    else:
        holder[draw.choice(["as", "zstd", "seal", "more", "entries"])] = draw.choice(ODD)


def bodies_of(index: bytes) -> list[Any]:
    at, found = 16, []
    while at < len(index):
        (length,) = struct.unpack_from("<I", index, at + 4)
        found.append(json.loads(index[at + 16 : at + 16 + length]))
        at += 16 + length
    return found


def index_of(bodies: list[Any]) -> bytes:
    text, after = struct.pack("<8sII", b"torchidx", 1, 0), 0
    for body in bodies:
        body = {**body, "after": after} if isinstance(body, dict) and "after" in body else body
        raw = json.dumps(body).encode()
        after = zlib.crc32(raw)
        start = struct.pack("<4sII", b"FRME", len(raw), after)
        text += start + struct.pack("<I", zlib.crc32(start)) + raw
    return text


# -- the disk, and the user ------------------------------------------------------------------------------------------


def test_a_disk_that_fills_up_40_times_loses_nothing(tmp_path: Path, say: Callable[[str], None]) -> None:
    draw, step, refusals, at_once = random.Random(0), 0, 0, 0
    with disk(tmp_path / "disk", "100m") as small:
        ballast = small / "ballast"
        writer = Writer(small / "a", fsync="step", segment_bytes=3_000_000, codec=mixed)
        while refusals < 40:
            free = os.statvfs(small).f_bavail * os.statvfs(small).f_frsize
            left = draw.choice([0, draw.randrange(100_000), *(draw.randrange(8_000_000) for _ in range(4))])
            ballast.write_bytes(bytes(max(free - left, 0)))
            began = step
            with pytest.raises(CannotWrite, match="No space") as found:
                while True:
                    writer.step(patterns(step, large=step % 7 == 3))
                    step += 1
            assert f"The {step} steps" in str(found.value) and "Free some space" in str(found.value)
            assert Archive(small / "a").steps == list(range(step))
            refusals, at_once = refusals + 1, at_once + (step == began)
            ballast.unlink()
        writer.step(patterns(step, large=step % 7 == 3))
        writer.close()
        archive = Archive(small / "a")
        assert archive.sealed and archive.steps == list(range(step + 1))
        for body in archive.frames:
            for entry, sample in zip(body["entries"], patterns(body["step"], body["step"] % 7 == 3), strict=True):
                assert archive.array(entry).tobytes() == held(sample, mixed(sample))
    say(f"{refusals} times full ({at_once} at the first step), {step + 1} steps committed, none lost")
    assert step > 100 and at_once < 30


def test_500_interrupts_leave_each_step_whole_or_not_at_all(tmp_path: Path, say: Callable[[str], None]) -> None:
    draw, path, step, interrupts, kept = random.Random(0), tmp_path / "a", 0, 0, 0
    writer = Writer(path, fsync="never", segment_bytes=20_000, codec=mixed)
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        while interrupts < 500:
            try:
                signal.setitimer(signal.ITIMER_REAL, draw.uniform(0.0001, 0.002))
                writer.step(patterns(step, large=False))
                signal.setitimer(signal.ITIMER_REAL, 0)
                step += 1
            except KeyboardInterrupt:
                signal.setitimer(signal.ITIMER_REAL, 0)
                interrupts += 1
                there = len(Archive(path).steps)
                kept += there > step
                assert there in (step, step + 1)
                step = there
            if step > 400:  # so that looking takes no longer
                writer.close()
                assert_holds_patterns(Archive(path), False, mixed)
                path, step = tmp_path / f"{interrupts}", 0
                writer = Writer(path, fsync="never", segment_bytes=20_000, codec=mixed)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
    writer.close()
    assert_holds_patterns(Archive(path), False, mixed)
    say(f"{interrupts} interrupts in step(): {kept} steps were committed already, the others were written again")


def test_codecs_are_all_among_the_faults() -> None:
    from archive_checks import Sample

    assert {mixed(Sample(step, "x", "value")) for step in range(10)} == set(CODECS)
    assert np.isfinite(patterns(3, False)[0].array).all()
