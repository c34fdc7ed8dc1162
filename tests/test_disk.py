"""The one way to disk: whole files through kills and full disks, locks between processes, checked JSON."""

from __future__ import annotations

import errno
import os
import random
import signal
import stat
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from archive_checks import disk as small_disk
from seams import (
    FolderLock,
    append,
    disk,
    explain_write_errors,
    has_checksum,
    lock_folder,
    lock_holder,
    read_json,
    replacing,
    strict_json,
    with_checksum,
    write_file,
    write_once,
)

from torcheer.errors import ArchiveBusy, ArchiveDamaged, BadArgument, CannotWrite


@contextmanager
def program(code: str, *arguments: object) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process and the first line that it printed; killed at the end."""
    command = [sys.executable, "-c", f"import os, sys\nfrom pathlib import Path\n{code}", *map(str, arguments)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process, process.stdout.readline()
    finally:
        process.kill()
        process.communicate()


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


# -- whole files and folders -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [b"a\xff", "aß"])
@pytest.mark.parametrize("sync", [True, False])
def test_a_file_is_written_with_its_folders_and_replaced(tmp_path: Path, data: bytes | str, sync: bool) -> None:
    path = tmp_path / "b" / "c" / "file.txt"
    for content in ("older and longer", data):
        write_file(path, content, sync=sync)
    assert path.read_bytes() == (data if isinstance(data, bytes) else data.encode())
    assert names(path.parent) == ["file.txt"]
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~mask


@pytest.mark.parametrize("write", [write_file, write_once])
def test_the_file_is_fsynced_before_it_has_its_name_and_the_folder_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Any
) -> None:
    calls = []

    def noting(name: str) -> Any:
        real = getattr(os, name)

        def note(first: Any, *rest: Any, **options: Any) -> Any:
            is_folder = name == "fsync" and stat.S_ISDIR(os.fstat(first).st_mode)
            calls.append("fsync folder" if is_folder else name)
            return real(first, *rest, **options)

        return note

    for name in ("fsync", "replace", "link"):
        monkeypatch.setattr(os, name, noting(name))
    write(tmp_path / "file", b"data")
    assert calls == ["fsync", "replace" if write is write_file else "link", "fsync folder"]
    calls.clear()
    write_file(tmp_path / "file", b"data", sync=False)
    assert calls == ["replace"]


WRITING = """
from torcheer.disk import replacing, write_file
path, folders = Path(sys.argv[1]), sys.argv[2] == "folder"
for number in range(10**9):
    data = b"%d\\n" % (number % 10) * 100_000
    if folders:
        with replacing(path) as part:
            part.mkdir()
            for name in "ab":
                (part / name).write_bytes(data)
    else:
        write_file(path, data)
    if not number:
        print("written", flush=True)
"""


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_a_killed_writer_leaves_the_old_or_the_new(tmp_path: Path, kind: str) -> None:
    path, draw = tmp_path / "x", random.Random(kind)
    for _ in range(4):
        with program(WRITING, path, kind) as (process, _):
            time.sleep(draw.uniform(0, 0.1))
            process.send_signal(signal.SIGKILL)
        found = path if path.exists() else tmp_path / ".x.old"  # killed between the two renames of folders
        contents = [(found / name).read_bytes() for name in "ab"] if kind == "folder" else [found.read_bytes()]
        assert all(content == content[:2] * 100_000 for content in contents) and len(set(contents)) == 1
        if found != path:
            found.rename(path)


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_what_a_killed_writer_left_is_removed_by_the_next_write_beside_it(tmp_path: Path, kind: str) -> None:
    code = """
from torcheer.disk import replacing
with replacing(Path(sys.argv[1])) as part:
    (part / "inside").mkdir(parents=True) if sys.argv[2] == "folder" else part.touch()
    print("begun", flush=True)
    sys.stdin.readline()
"""
    with program(code, tmp_path / "x", kind):
        write_file(tmp_path / "y", b"")
        assert len(names(tmp_path)) == 2  # it runs: what it writes is left
    assert len(names(tmp_path)) == 2
    write_file(tmp_path / "y", b"")
    assert names(tmp_path) == ["y"]


def test_what_a_process_of_another_host_writes_is_left(tmp_path: Path) -> None:
    (tmp_path / ".part-00000000-999999999-0-x").touch()
    write_file(tmp_path / "y", b"")
    assert len(names(tmp_path)) == 2


def test_processes_that_write_one_file_do_not_mix_and_none_fails(tmp_path: Path) -> None:
    code = """
from torcheer.disk import write_file
print("begin", flush=True)
sys.stdin.readline()
for _ in range(20):
    write_file(Path(sys.argv[1]), sys.argv[2].encode() * 300_000)
"""
    path = tmp_path / "x"
    with program(code, path, "a") as (one, _), program(code, path, "b") as (other, _):
        for process in (one, other):
            print(file=process.stdin, flush=True)
        while None in (one.poll(), other.poll()):
            if path.exists():
                assert path.read_bytes() in (b"a" * 300_000, b"b" * 300_000)
        assert (one.returncode, other.returncode) == (0, 0)
    assert names(tmp_path) == ["x"]


@pytest.mark.parametrize("problem", [ValueError, KeyboardInterrupt])
@pytest.mark.parametrize("kind", ["file", "folder"])
def test_a_write_that_fails_leaves_nothing_of_itself(tmp_path: Path, problem: Any, kind: str) -> None:
    path = tmp_path / "x"
    write_file(path, b"old")
    with pytest.raises(problem), replacing(path) as part:
        part.mkdir() if kind == "folder" else part.touch()
        raise problem
    assert names(tmp_path) == ["x"] and path.read_bytes() == b"old"


def test_a_folder_replaces_a_folder_or_a_file_and_a_file_no_folder(tmp_path: Path) -> None:
    path = tmp_path / "x"
    write_file(path, b"")
    for name in "ab":
        with replacing(path) as part:
            write_file(part / name, b"")
    assert names(path) == ["b"] and names(tmp_path) == ["x"]
    with pytest.raises(IsADirectoryError), replacing(path) as part:
        part.touch()
    assert names(path) == ["b"] and names(tmp_path) == ["x"]


def test_the_temporary_name_has_the_suffix_and_is_never_too_long(tmp_path: Path) -> None:
    path = tmp_path / ("ü" * 125 + ".gif")
    with replacing(path) as part:
        assert part.suffix == ".gif" and part.parent == path.parent and part.name.startswith(".")
        part.touch()
    assert names(tmp_path) == [path.name]


def test_of_processes_that_write_once_the_first_one_stays(tmp_path: Path) -> None:
    code = """
from torcheer.disk import write_once
print("begin", flush=True)
sys.stdin.readline()
write_once(Path(sys.argv[1]), sys.argv[2])
print(Path(sys.argv[1]).read_text())
"""
    with program(code, tmp_path / "x", "a") as (one, _), program(code, tmp_path / "x", "b") as (other, _):
        for process in (one, other):
            print(file=process.stdin, flush=True)
        found = {process.communicate()[0].strip() for process in (one, other)}
    assert len(found) == 1 and names(tmp_path) == ["x"]


def test_a_file_system_without_links_is_written_once_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "link", refusing(errno.EPERM))
    write_once(tmp_path / "x", b"a")
    assert (tmp_path / "x").read_bytes() == b"a" and names(tmp_path) == ["x"]


# -- what the system refuses -------------------------------------------------------------------------------------------


def refusing(number: int) -> Any:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(number, os.strerror(number))

    return refuse


def test_a_full_disk_is_told_and_what_was_there_stays(tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", "200k") as folder:
        write_file(folder / "x", b"old")
        with pytest.raises(CannotWrite, match=r"small/x: No space left on device\. Free some space, and go on"):
            write_file(folder / "x", b"n" * 300_000)
        assert (folder / "x").read_bytes() == b"old" and names(folder) == ["x"]
        with pytest.raises(CannotWrite, match=r"small/rows: No space left on device"):
            for _ in range(100):
                append(folder / "rows", b"r" * 9_999 + b"\n")
        lines = (folder / "rows").read_bytes().splitlines(keepends=True)
        assert len(lines) > 2 and set(lines) == {b"r" * 9_999 + b"\n"}


@pytest.mark.parametrize("sync", [errno.EINVAL, errno.EOPNOTSUPP, errno.EIO, errno.ENOSPC])
def test_only_a_folder_that_cannot_be_fsynced_at_all_is_let_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sync: int
) -> None:
    monkeypatch.setattr(os, "fsync", refusing(sync))
    if sync in (errno.EIO, errno.ENOSPC):
        with pytest.raises(OSError, match=os.strerror(sync)):
            disk.sync_folder(tmp_path)
    else:
        disk.sync_folder(tmp_path)
        with pytest.raises(CannotWrite):  # of a file it is a failure
            write_file(tmp_path / "x", b"")


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.ENOSPC, "Free some space"),
        (errno.EDQUOT, "Free some of your quota"),
        (errno.EROFS, "Use a folder that is not mounted read-only"),
        (errno.EACCES, "Use a folder that you may write to"),
        (errno.EMFILE, "Close other files, or raise the limit on open files (ulimit -n)"),
        (errno.EFBIG, "Raise the limit on the size of files (ulimit -f)"),
        (errno.EIO, "See what the system says of this disk"),
    ],
)
def test_a_refusal_says_where_why_what_is_kept_and_what_to_try(number: int, advice: str) -> None:
    with pytest.raises(CannotWrite) as caught, explain_write_errors(Path("x"), "The rest is kept. "):
        refusing(number)()
    assert caught.value.errno == number
    assert caught.value.strerror == f"x: {os.strerror(number)}. The rest is kept. {advice}, and go on"


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.ESTALE, "Mount the storage again: the server has lost this file"),
        (
            errno.ENOENT,
            "See who removes this folder while it is written: a person, a clean-up, or the server has lost it",
        ),
    ],
)
def test_where_the_storage_has_lost_the_files_nothing_is_said_to_be_kept(number: int, advice: str) -> None:
    with pytest.raises(CannotWrite) as caught, explain_write_errors(Path("x"), "The rest is kept. "):
        refusing(number)()
    assert caught.value.strerror == f"x: {os.strerror(number)}. {advice}, and go on"


def test_errors_of_ours_pass_as_they_are() -> None:
    for error in (BadArgument("a"), ArchiveBusy("b"), CannotWrite(1, "c")):
        with pytest.raises(type(error)) as caught, explain_write_errors(Path("x")):
            raise error
        assert caught.value is error


# -- locks -------------------------------------------------------------------------------------------------------------

HOLDING = """
from torcheer.disk import FolderLock, lock_folder
lock = lock_folder(Path(sys.argv[1])) if len(sys.argv) == 2 else FolderLock(Path(sys.argv[1]))
if len(sys.argv) == 3:
    lock.acquire(int(sys.argv[2]))
if fork := os.fork():  # like a worker of a DataLoader
    print(fork, flush=True)
sys.stdin.readline()
"""


def test_a_folder_is_locked_once_and_a_refusal_says_by_whom(tmp_path: Path) -> None:
    lock = lock_folder(tmp_path / "a", "trained")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    for path in (tmp_path / "a", tmp_path / "link"):
        with pytest.raises(ArchiveBusy, match=r"is being trained by this process; close that first, or use another"):
            lock_folder(path, "trained")
    with pytest.raises(ArchiveBusy):
        FolderLock(tmp_path / "a")
    lock.close()
    with program(HOLDING, tmp_path / "a"), pytest.raises(ArchiveBusy, match=r"written by another process; wait for it"):
        lock_folder(tmp_path / "a")
    lock_folder(tmp_path / "a")
    lock_folder(tmp_path / "a").close()  # the one before was collected


def test_a_killed_process_holds_nothing_even_while_its_fork_lives(tmp_path: Path) -> None:
    with program(HOLDING, tmp_path) as (process, fork):
        assert lock_holder(tmp_path) == process.pid
        process.send_signal(signal.SIGKILL)
        process.wait()
        lock_folder(tmp_path).close()
        assert lock_holder(tmp_path) == 0
        os.kill(int(fork), signal.SIGKILL)  # which raises if it is gone


def test_asking_who_holds_a_lock_does_not_free_it(tmp_path: Path) -> None:
    assert lock_holder(tmp_path) == lock_holder(tmp_path / "nothing") == 0
    lock = lock_folder(tmp_path)
    assert lock_holder(tmp_path) == os.getpid()
    code = "from torcheer.disk import lock_holder\nprint(lock_holder(Path(sys.argv[1])), flush=True)"
    done = subprocess.run([sys.executable, "-c", f"import sys\nfrom pathlib import Path\n{code}", tmp_path], stdout=-1)
    assert int(done.stdout) == os.getpid()
    lock.close()
    assert lock_holder(tmp_path) == 0


def test_parts_of_a_folder_are_locked_by_different_processes(tmp_path: Path) -> None:
    lock = FolderLock(tmp_path)
    with program(HOLDING, tmp_path, 7):
        assert [lock.acquire(part) for part in (6, 7, 8)] == [True, False, True]
        lock.release(6)
    assert lock.acquire(7)


def test_a_fork_may_not_lock_what_its_parent_has_locked(tmp_path: Path) -> None:
    lock = lock_folder(tmp_path)
    child = os.fork()
    if not child:
        code = 1
        try:
            lock_folder(tmp_path)
        except ArchiveBusy as error:
            code = 0 if "another process" in str(error) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert lock.acquire()


def test_a_lock_that_the_system_cannot_give_is_an_error_and_left_open_by_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch, pytest.raises(OSError, match="Input/output"):
        patch.setattr(disk.fcntl, "lockf", refusing(errno.EIO))
        lock_folder(tmp_path)
    lock_folder(tmp_path).close()


MOUNTS = """\
22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 22 0:40 / /people rw,relatime - nfs server:/people rw,vers=3,nolock,local_lock=all,addr=10.0.0.1
31 22 0:41 / /data rw,relatime - nfs4 server:/data rw,vers=4.2,local_lock=none,addr=10.0.0.1
32 22 0:42 / /lustre/my\\040scratch rw,localflock - lustre mgs:/scratch rw
"""


@pytest.mark.parametrize(
    ("folder", "option"),
    [
        ("/x", ""),
        ("/people/me", "nolock"),
        ("/peoples", ""),
        ("/data/run", ""),
        ("/lustre/my scratch/run", "localflock"),
    ],
)
def test_locks_that_hold_on_one_machine_only_are_known_by_the_mount(tmp_path: Path, folder: str, option: str) -> None:
    (tmp_path / "mountinfo").write_text(MOUNTS)
    assert disk.local_lock_option(Path(folder), tmp_path / "mountinfo") == option
    is_shared = folder not in ("/x", "/peoples")
    assert disk.is_network_storage(Path(folder), tmp_path / "mountinfo") == is_shared


def test_a_folder_below_no_mount_as_in_a_chroot_is_taken_for_a_local_one(tmp_path: Path) -> None:
    (tmp_path / "mountinfo").write_text("33 22 0:43 / /proc rw,relatime - proc proc rw\n")
    assert disk.local_lock_option(tmp_path, tmp_path / "mountinfo") == ""
    assert not disk.is_network_storage(tmp_path, tmp_path / "mountinfo")


# -- JSON --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b'{"a": 1, "a": 2}', "a key stands twice among"),
        (b'{"a": NaN}', "NaN is not JSON"),
        (b'{"a": 1', "delimiter"),
        (b"\xff", "utf-8"),
        (b"[" * 100_000, "recursion"),
    ],
)
def test_text_that_is_not_strict_json_is_damage(tmp_path: Path, text: bytes, problem: str) -> None:
    (tmp_path / "x.json").write_bytes(text)
    for read in (lambda: strict_json(text, "x.json"), lambda: read_json(tmp_path / "x.json")):
        with pytest.raises(ArchiveDamaged, match=rf"x\.json cannot be read: .*{problem}"):
            read()


def test_a_json_file_is_an_object_or_missing(tmp_path: Path) -> None:
    assert read_json(tmp_path / "x") is None
    write_file(tmp_path / "x", "[1]")
    with pytest.raises(ArchiveDamaged, match="x is not one of ours: it holds no JSON object"):
        read_json(tmp_path / "x")
    write_file(tmp_path / "x", with_checksum(b'{"a":[1]}'))
    assert read_json(tmp_path / "x") == {"a": [1], "crc32": zlib.crc32(b'{"a":[1]')}


def test_every_changed_bit_and_every_cut_differs_from_the_checksum() -> None:
    text = with_checksum(b'{"step":12,"crc32":5,"names":["a"]}')
    assert has_checksum(text)
    flipped = [bytes([*text[:place], text[place] ^ 1 << bit, *text[place + 1 :]])
               for place in range(len(text)) for bit in range(8)]  # fmt: skip
    assert not any(map(has_checksum, [*flipped, *(text[:end] for end in range(len(text))), text + b" "]))


def test_json_that_people_may_have_edited_has_a_limit_and_ends_in_a_sentence(tmp_path: Path) -> None:
    from seams import loose_json

    file = tmp_path / "spec.json"
    file.write_text('{"lr": Infinity}')
    assert loose_json(file) == {"lr": float("inf")}
    for text, words in (("[" * 100_000, "recursion"), ("{", "Expecting"), ("\0", "Expecting")):
        file.write_text(text)
        with pytest.raises(ArchiveDamaged, match=rf"spec\.json cannot be read: .*{words}"):
            loose_json(file)
    with open(file, "wb") as large:
        large.truncate(1 << 40)
    for read in (loose_json, read_json):
        with pytest.raises(ArchiveDamaged, match=r"no file of at most 67,108,864 bytes: it has 1,099,511,627,776"):
            read(file)
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(ArchiveDamaged, match="is no file"):
        loose_json(file)
