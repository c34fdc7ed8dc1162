"""What holds on NFS: run by `test_dist_nfs.py` on the machine that `nfs_machine.sh` sets up, where the mounts are.

/run/first and /run/second are two clients of one server (NFS 4.2, attributes cached as by default), /run/nolock is one
of NFS 3 without locks, /run/small one whose disk is small, and /run/export is the server's own view.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import extraction_ranks
import numpy as np
import pytest
import training_cases
from children import RUN_SECS, Child, run_python
from test_extraction_ranks import SCRIPT, files_of
from waiting import wait_until

from torcheer.archive import Archive, Writer
from torcheer.errors import CannotWrite
from torcheer.records import Sample

SERVER, FIRST, SECOND, NO_LOCKS, SMALL = (
    Path("/run", name) for name in ("export", "first", "second", "nolock", "small")
)
THREADS = Path("/proc/fs/nfsd/threads")
LOCK = "import sys; from pathlib import Path; from torcheer.disk import lock_folder; lock_folder(Path(sys.argv[1]))"
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def gates(tmp_path: Path) -> Path:
    (tmp_path / "gates").mkdir()
    return tmp_path / "gates"


@pytest.fixture
def whole(tmp_path: Path, gates: Path) -> dict[str, bytes]:
    """The files of an extraction on a local disk."""
    extraction_ranks.main(str(tmp_path / "whole"), gates, progress=False)
    return files_of(tmp_path / "whole")


@pytest.fixture(scope="module")
def nursery() -> Iterator[training_cases.Nursery]:
    found = training_cases.Nursery()
    yield found
    found.close()


@contextmanager
def server_away() -> Iterator[None]:
    """Stop the server, and start it again: its clients wait meanwhile, and then reclaim their locks."""
    threads = THREADS.read_text()
    THREADS.write_text("0\n")
    try:
        yield
    finally:
        THREADS.write_text(threads)


@contextmanager
def two_ranks(folders: tuple[Path, Path], gates: Path) -> Iterator[list[Child]]:
    with ExitStack() as stack:
        yield [
            stack.enter_context(Child(SCRIPT, folder, gates, env={"RANK": str(rank), "WORLD_SIZE": "2"}))
            for rank, folder in enumerate(folders)
        ]


def test_the_mounts_are_those_of_a_kernels_nfs() -> None:
    mounts = {line.split()[1]: line.split()[2:4] for line in Path("/proc/mounts").read_text().splitlines()}
    assert [mounts[str(path)][0] for path in (FIRST, SECOND, SMALL, NO_LOCKS)] == ["nfs4", "nfs4", "nfs4", "nfs"]
    assert "nolock" in mounts[str(NO_LOCKS)][1] and "local_lock=none" in mounts[str(FIRST)][1]


def test_a_killed_ranks_shards_are_finished_by_the_one_on_the_other_machine(
    gates: Path, whole: dict[str, bytes]
) -> None:
    (gates / "stop1").touch()
    with two_ranks((FIRST / "shared", SECOND / "shared"), gates) as (first, second):
        shards = SERVER / "shared" / "shards"
        wait_until(lambda: len(list(shards.glob("[0-9]*"))) == 9, "all shards but one", secs=RUN_SECS)
        assert first.poll() is None
        second.kill()
        second.ends(-signal.SIGKILL)
        assert first.ends(secs=RUN_SECS) == "done\n"
        assert "lock" not in first.error_text
    assert files_of(SERVER / "shared") == whole


def test_without_locks_the_first_line_says_so_and_ranks_have_every_second_shard(
    gates: Path, whole: dict[str, bytes]
) -> None:
    with two_ranks((NO_LOCKS / "x", NO_LOCKS / "x"), gates) as both:
        assert [rank.ends(secs=RUN_SECS) for rank in both] == ["done\n", "done\n"]
        first_line = both[0].error_text.splitlines()[0]
    assert "whose locks hold on one machine only (mounted with nolock): a second process" in first_line
    assert files_of(SERVER / "x") == whole


def test_a_lock_holds_between_machines_until_its_process_is_gone_also_where_the_server_was_away() -> None:
    hold = LOCK.replace("lock_folder(P", "lock = lock_folder(P") + "; print('held', flush=True); sys.stdin.read()"
    with Child("-c", hold, FIRST / "locked", stdin=subprocess.PIPE) as holder:
        assert holder.line() == "held"
        assert "is being written by another process" in run_python("-c", LOCK, SECOND / "locked", status=1).stderr
        with server_away():
            pass
        assert "is being written by another process" in run_python("-c", LOCK, SECOND / "locked", status=1).stderr
        holder.kill()
        holder.ends(-signal.SIGKILL)
    run_python("-c", LOCK, SECOND / "locked")


def test_an_archive_is_followed_from_another_machine() -> None:
    assert not (SECOND / "a").exists()  # which that machine remembers for a while
    with Writer(FIRST / "a") as writer:
        writer.step([Sample(0, "x", "value", -1, np.full(100_000, 0.0))])
        wait_until(lambda: (SECOND / "a" / "archive.json").exists(), "the folder on the other machine", secs=RUN_SECS)
        archive = Archive(SECOND / "a")
        for step in range(1, 4):
            writer.step([Sample(step, "x", "value", -1, np.full(100_000, float(step)))])
            wait_until(lambda step=step: archive.refresh() or len(archive.frames) == step + 1, secs=RUN_SECS)
            assert archive.steps == list(range(step + 1))
            assert archive.verify() == step + 1
    wait_until(lambda: (archive.refresh(), archive.sealed)[1], "the seal", secs=RUN_SECS)


def test_a_run_that_is_killed_on_one_machine_goes_on_on_another_to_the_same_bytes(
    tmp_path: Path, nursery: training_cases.Nursery
) -> None:
    nursery.finish("plain", tmp_path / "whole")
    here, there = FIRST / "run", SECOND / "run"
    number = nursery.start("plain", here, waits_at=20)
    wait_until((here / "at-20").exists, secs=RUN_SECS)
    assert "is being written by another process" in run_python("-c", LOCK, there, status=1).stderr
    os.kill(number, signal.SIGKILL)
    assert nursery.wait() == -signal.SIGKILL
    with server_away():
        pass
    nursery.finish("plain", there)
    assert training_cases.results(here) == training_cases.results(tmp_path / "whole")


def test_a_full_disk_of_the_server_is_an_error_and_with_more_room_the_bytes_end_the_same(
    gates: Path, whole: dict[str, bytes]
) -> None:
    with pytest.raises(CannotWrite, match="No space left on device"):
        extraction_ranks.main(str(SMALL / "x"), gates, progress=False)
    subprocess.run(["mount", "-o", "remount,size=100m", SERVER / "small"], check=True)
    extraction_ranks.main(str(SMALL / "x"), gates, progress=False)
    assert files_of(SERVER / "small" / "x") == whole


@pytest.mark.parametrize("fsync", ["step", "interval"])
def test_files_that_the_server_has_lost_are_an_error_at_the_latest_when_the_archive_is_closed(fsync: str) -> None:
    writer = Writer(FIRST / fsync, fsync=fsync)
    writer.step([Sample(0, "x", "value", -1, np.zeros(1000))])
    with server_away():
        shutil.rmtree(SERVER / fsync)
    with pytest.raises(CannotWrite, match=r"No such file|Stale|Input/output") as caught:
        writer.step([Sample(1, "x", "value", -1, np.zeros(1000))])
        writer.close()
    print(caught.value)
    with suppress(CannotWrite):
        writer.close()
    with Writer(FIRST / fsync) as again:  # nothing holds its lock
        again.step([Sample(0, "x", "value", -1, np.zeros(1000))])
    assert Archive(SECOND / fsync).verify() == 1
