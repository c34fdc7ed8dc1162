"""Network storage and its faults: no locks, late names, quotas, stale handles, on a file system of our own (FUSE).

An NFS client is part of the kernel, and not every kernel has one; what it does to a program are these faults.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import extraction_ranks
import faulty_mounts
import numpy as np
import pytest
import rank_cases
from children import Child, run_python
from seams import ExtractionPlan, lock_folder, write_or_match
from test_extraction_ranks import SCRIPT, files_of
from waiting import wait_until

from torcheer.archive import Archive, Writer
from torcheer.errors import BadArgument, CannotWrite
from torcheer.records import Sample

pytestmark = [
    pytest.mark.dist,
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.skipif(bool(faulty_mounts.MISSING), reason=faulty_mounts.MISSING or "-"),
]
Mount = Callable[[str, float], Path]
PLAN = ExtractionPlan("Net", 1, ("0",), 4, 8, 2, None, 2, "raw", 0)


@pytest.fixture
def faults(tmp_path: Path) -> Path:
    (tmp_path / "faults").mkdir()
    return tmp_path / "faults"


@pytest.fixture
def mount(tmp_path: Path, faults: Path) -> Iterator[Mount]:
    """Mount one folder under several names, as several machines do; late_secs: how late each sees what others do."""
    (tmp_path / "server").mkdir()
    with ExitStack() as stack:
        yield lambda name, late_secs: stack.enter_context(
            faulty_mounts.mounted(tmp_path / "server", tmp_path / name, faults, late_secs)
        )


@pytest.fixture
def whole(tmp_path: Path) -> dict[str, bytes]:
    """The files of an extraction that nobody disturbed."""
    (tmp_path / "gates").mkdir()
    extraction_ranks.main(str(tmp_path / "whole"), tmp_path / "gates", progress=False)
    return files_of(tmp_path / "whole")


def test_ranks_on_two_machines_without_locks_that_see_each_other_late_write_the_bytes_of_one_process(
    tmp_path: Path, faults: Path, mount: Mount, whole: dict[str, bytes]
) -> None:
    (faults / "nolocks").touch()
    machines = [mount("first", 1.0), mount("second", 1.0)]
    with ExitStack() as stack:
        both = [
            stack.enter_context(
                Child(SCRIPT, machine / "x", tmp_path / "gates", env={"RANK": str(rank), "WORLD_SIZE": "2"})
            )
            for rank, machine in enumerate(machines)
        ]
        assert [rank.ends() for rank in both] == ["done\n", "done\n"]
        first_line = both[0].error_text.splitlines()[0]
    assert "is on storage without locks (No locks available): a second process" in first_line
    assert files_of(tmp_path / "server" / "x") == whole


@pytest.mark.parametrize(
    ("has_locks", "settings"),
    [(True, {}), (False, {"parallel": {"shard": ["0", "2"]}})],
    ids=["DDP", "FSDP2 without locks"],
)
def test_ranks_on_two_machines_that_see_each_other_late_train_stop_and_go_on_as_on_one(
    tmp_path: Path, faults: Path, mount: Mount, has_locks: bool, settings: dict[str, Any]
) -> None:
    if not has_locks:
        (faults / "nolocks").touch()
    folder, server = tmp_path / "shared", tmp_path / "server"
    folder.mkdir()
    machines = [str(mount("first", 0.2)), str(mount("second", 60.0))]
    for stop_step in (5, None):
        text = json.dumps({**settings, "dropout": True, "machines": machines, "stop_step": stop_step})
        run_python(rank_cases.__file__, folder, text, 2, env={"OMP_NUM_THREADS": "1"})
    whole = rank_cases.train(tmp_path / "whole", 2, dropout=True, **settings)
    told = [json.loads((server / f"told{rank}.json").read_text()) for rank in range(2)]
    assert [facts["weights"] for facts in told] == [facts["weights"] for facts in whole]
    for name in ("0.csv", "steps.csv"):
        file = Path("run", "metrics", name)
        assert (server / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()
    assert not list((server / "run" / "checkpoints").glob(".*"))


def test_a_machine_that_remembers_that_there_was_no_plan_joins_the_extraction(mount: Mount) -> None:
    here, there = mount("first", 0) / "x", mount("second", 600.0) / "x"
    here.mkdir()
    assert not (there / "extraction.json").exists()  # which that machine remembers for ten minutes
    assert write_or_match(here, PLAN) == PLAN
    (here / "LOCK").touch()
    assert not (there / "extraction.json").exists()
    assert write_or_match(there, PLAN) == PLAN


def test_a_folder_with_other_files_is_refused_on_network_storage_at_once(mount: Mount) -> None:
    folder = mount("first", 600.0) / "x"
    folder.mkdir()
    (folder / "thesis.tex").touch()
    with pytest.raises(BadArgument, match="is not empty and holds no extraction"):
        write_or_match(folder, PLAN)
    assert [file.name for file in folder.iterdir()] == ["thesis.tex"]


def test_a_run_on_storage_without_locks_says_so_first(faults: Path, mount: Mount) -> None:
    (faults / "nolocks").touch()
    code = "import sys; from pathlib import Path; from torcheer.disk import lock_folder; lock_folder(Path(sys.argv[1]))"
    done = run_python("-c", code, mount("first", 0) / "run")
    assert done.stderr.startswith("torcheer: ") and "without locks" in done.stderr.splitlines()[0]


def test_locks_of_storage_that_has_them_hold_between_processes(mount: Mount) -> None:
    home = mount("first", 0) / "run"
    lock = lock_folder(home)
    code = "import sys; from pathlib import Path; from torcheer.disk import lock_folder; lock_folder(Path(sys.argv[1]))"
    assert "is being written by another process" in run_python("-c", code, home, status=1).stderr
    lock.close()
    run_python("-c", code, home)


def test_an_archive_is_followed_by_another_machine_that_sees_it_late(mount: Mount) -> None:
    here, there = mount("first", 0), mount("second", 0.5)
    assert not (there / "a").exists()  # which that machine remembers for a while
    with Writer(here / "a") as writer:
        writer.step([Sample(0, "x", "value", -1, np.full(100_000, 0.0))])
        wait_until(lambda: (there / "a" / "archive.json").exists(), "the folder on the other machine")
        archive = Archive(there / "a")
        for step in range(1, 4):
            writer.step([Sample(step, "x", "value", -1, np.full(100_000, float(step)))])
            wait_until(lambda step=step: archive.refresh() or len(archive.frames) == step + 1, "the next step")
            assert archive.steps == list(range(step + 1))
            assert archive.verify() == step + 1
    wait_until(lambda: (archive.refresh(), archive.sealed)[1], "the seal")


def test_a_quota_is_told_and_with_more_of_it_the_bytes_end_the_same(
    tmp_path: Path, faults: Path, mount: Mount, whole: dict[str, bytes]
) -> None:
    target = mount("first", 0) / "x"
    (faults / "quota").write_text("20000")
    with pytest.raises(CannotWrite, match=r"Disk quota exceeded\..*Free some of your quota"):
        extraction_ranks.main(str(target), tmp_path / "gates", progress=False)
    (faults / "quota").unlink()
    extraction_ranks.main(str(target), tmp_path / "gates", progress=False)
    assert files_of(tmp_path / "server" / "x") == whole


def test_a_file_that_the_server_has_lost_is_told_and_the_next_run_goes_on(
    tmp_path: Path, faults: Path, mount: Mount, whole: dict[str, bytes]
) -> None:
    target = mount("first", 0) / "x"
    (faults / "stale").touch()
    with pytest.raises(CannotWrite, match=r"Stale file handle\..*the server has lost this file"):
        extraction_ranks.main(str(target), tmp_path / "gates", progress=False)
    (faults / "stale").unlink()
    extraction_ranks.main(str(target), tmp_path / "gates", progress=False)
    assert files_of(tmp_path / "server" / "x") == whole
