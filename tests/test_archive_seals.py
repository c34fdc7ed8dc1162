"""An archive that was sealed and then cut is damaged; one whose writer was killed is not."""

from __future__ import annotations

import shutil
import signal
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from archive_checks import assert_holds, values, written
from children import run_python
from fast_cases import fast_first
from seams import LogSource, examine

import torcheer as tl
from torcheer import cli
from torcheer.archive import Archive, Writer, repair
from torcheer.errors import TorcheerError
from torcheer.extraction import open_extraction
from torcheer.inspector import open_watch
from torcheer.records import Sample

OLD = Path(__file__).parent / "data" / "0.1"


def told(path: Path) -> bool:
    """Whether both `verify` and whoever opens it say that an archive is damaged."""
    try:
        Archive(path)
    except TorcheerError:
        pass
    else:
        return False
    try:
        return bool(examine(path).lost)
    except TorcheerError:  # no archive.json that could be read
        return True


@pytest.mark.parametrize("options", [{}, {"segment_bytes": 100}])
def test_a_sealed_archive_cut_at_any_length_of_any_file_is_damaged(tmp_path: Path, options: dict[str, int]) -> None:
    path = tmp_path / "a"
    with Writer(path, fsync="never", **options) as writer:
        for step in range(2):
            writer.step([Sample(step, "fc", "value", -1, np.arange(5.0))])
    assert not told(path) and Archive(path).sealed
    files = sorted(file for file in path.iterdir() if file.name != "LOCK")
    assert {file.suffix for file in files} == {".json", ".index", ".data", ".seal"}
    for file in files:
        whole = file.read_bytes()
        for length in range(len(whole)):
            file.write_bytes(whole[:length])
            assert told(path), f"{file.name} cut to {length} of {len(whole)} bytes"
        file.unlink()
        assert told(path), f"{file.name} is gone"
        file.write_bytes(whole)
    assert Archive(path).verify() == 2


def test_verify_ends_with_1_and_says_what_is_cut(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path / "a", 3)
    cut(path / "000000.index", 1)
    assert cli.main(["archive", "verify", str(path)]) == 1
    assert "segment 0 was sealed, and its seal is gone: the end of its index is cut off" in capsys.readouterr().out
    assert repair(path).to == tmp_path / "a-repaired"
    assert assert_holds(tmp_path / "a-repaired", 3).sealed


def cut(file: Path, count: int) -> None:
    file.write_bytes(file.read_bytes()[:-count])


@pytest.mark.parametrize("name", ["archive", "recordings/recording", "extraction/shards/000001"])
def test_what_0_1_always_sealed_is_damaged_without_its_seal(tmp_path: Path, name: str) -> None:
    whole_folder = Path(name).parts[0]
    shutil.copytree(OLD / whole_folder, tmp_path / whole_folder)
    verified = tmp_path / (whole_folder if "shards" in name else name)
    index = tmp_path / name / "000000.index"
    whole = index.read_bytes()
    for length in [*range(0, len(whole), 1999), *range(len(whole) - 120, len(whole), 3), len(whole) - 1]:
        index.write_bytes(whole[:length])
        assert cli.main(["archive", "verify", str(verified)]) == 1
    index.write_bytes(whole)
    assert cli.main(["archive", "verify", str(verified)]) == 0


def test_what_0_1_sealed_needs_no_copy(tmp_path: Path) -> None:
    shutil.copytree(OLD / "watch" / "samples", tmp_path / "old")
    assert Archive(tmp_path / "old").sealed and not list((tmp_path / "old").glob("*.seal"))
    Writer(tmp_path / "old").close()
    with Writer(tmp_path / "old") as writer:
        writer.step([])
    assert Archive(tmp_path / "old").sealed and [file.name for file in (tmp_path / "old").glob("*.seal")] == [
        "000001.seal"
    ]


DIE = """
import os, signal, sys
from archive_checks import values
from torcheer.archive import Writer
from torcheer.archive.format import seals
die = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
path, place = sys.argv[1:]
writer = Writer(path)
for step in range(3):
    writer.step(values(step))
if place == "write_pending_copy" or place == "publish_copy":
    setattr(seals, place, die)
elif place == "seal":
    writer._segment.commit = die
else:
    die()
writer.close()
"""


@pytest.mark.parametrize("place", fast_first(["seal", "publish_copy", "step", "write_pending_copy"], 2))
def test_a_writer_that_is_killed_anywhere_leaves_no_damage(tmp_path: Path, place: str) -> None:
    path, sealed = tmp_path / "a", place == "publish_copy"
    for attempt in range(2):  # the second one goes on where the first was killed
        shutil.rmtree(path, ignore_errors=True)
        if attempt:
            written(path, 0)
        run_python("-c", DIE, path, place, cwd=Path(__file__).parent, status=-signal.SIGKILL)
        assert not examine(path).lost
        assert assert_holds(path, 3).sealed == sealed
    with Writer(path) as writer:
        writer.step(values(3))
    assert assert_holds(path, 4).sealed
    cut(path / f"{len(list(path.glob('*.index'))) - 1:06}.index", 5)
    assert told(path)


def test_a_writer_does_not_go_on_with_what_was_cut(tmp_path: Path) -> None:
    path = written(tmp_path / "a", 3)
    cut(path / "000000.index", 5)
    before = {file: file.read_bytes() for file in path.iterdir()}
    with pytest.raises(TorcheerError, match="its seal is gone"):
        Writer(path)
    assert {file: file.read_bytes() for file in path.iterdir()} == before


def test_who_reads_while_a_writer_ends_sees_no_damage(tmp_path: Path) -> None:
    for number in range(40):
        path = written(tmp_path / str(number), 1, fsync="never")
        writer, faults = Writer(path, fsync="never"), list[str]()

        def read(path: Path = path, faults: list[str] = faults) -> None:
            for _ in range(20):
                try:
                    Archive(path)
                except TorcheerError as error:
                    faults.append(str(error))

        thread = threading.Thread(target=read)
        thread.start()
        writer.step(values(1))
        writer.close()
        thread.join()
        assert faults == []


# Those who read archives


def test_a_watch_that_was_cut_says_so(tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 3))
    with tl.watch(model, every=1, to=tmp_path / "watch", what="output"):
        for _ in range(4):
            model(torch.ones(2, 4)).sum().backward()
    assert open_watch(tmp_path / "watch").problems == [] and open_watch(tmp_path / "watch").sealed
    cut(max((tmp_path / "watch" / "log" / "watch").glob("*.index")), 3)
    watched = open_watch(tmp_path / "watch")
    assert "its seal is gone" in watched.problems[0] and not watched.sealed
    assert list(watched["0", "output"].steps) == [0, 1, 2, 3]


def test_a_recording_that_was_cut_shows_the_rest_and_says_so(tmp_path: Path) -> None:
    shutil.copytree(OLD / "recordings" / "recording", tmp_path / "recording")
    cut(tmp_path / "recording" / "000000.index", 200)
    source = LogSource(tmp_path / "recording")
    problems = source.poll().problems
    assert len(source.moments) == 6 and any("always sealed" in text for text in problems)
    assert any("has 6 of 7 states" in text for text in problems)


def test_an_extraction_that_was_cut_says_so_when_it_is_read(tmp_path: Path) -> None:
    shutil.copytree(OLD / "extraction", tmp_path / "found")
    cut(tmp_path / "found" / "shards" / "000002" / "000000.index", 3)
    with pytest.raises(TorcheerError, match="seal is gone"):
        open_extraction(tmp_path / "found")["head"][:]
