"""One way to start a Python process: what it gets, how it ends, what a fork keeps of it."""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from children import has_ended, run_python
from inspector_spine import PATH, QUIET
from leftovers import open_files
from seams import ONE_THREAD, ChildProcess, Host, Link, Program, fork_registry, payload_memory
from waiting import wait_until

from torcheer.errors import CannotWrite

PROGRAM = Program("wire_programs", "does what a test wants", "the test's program", ONE_THREAD, imports_as_here=True)


@contextmanager
def started(*arguments: str, **options: Any) -> Iterator[ChildProcess]:
    child = ChildProcess(PROGRAM, arguments, **options)
    try:
        yield child
    finally:
        child.popen.kill()
        child.popen.wait()
        child.close()


def message(child: ChildProcess, kind: str) -> dict[str, Any]:
    """The next message of a kind."""
    found: list[dict[str, Any]] = []
    wait_until(
        lambda: [each for each in found if each["kind"] == kind], poll=lambda: found.extend(child.wire.exchange())
    )
    return next(each for each in found if each["kind"] == kind)


def test_a_child_gets_arguments_descriptors_folder_environment_and_our_import_path(tmp_path: Path) -> None:
    fds = [payload_memory(b"first"), payload_memory(b"x" * 3_000_000)]
    with started("--a", "two\nlines", fds=fds, folder=str(tmp_path)) as child:
        for fd in fds:
            os.close(fd)  # the child has its own
        report = message(child, "report")
        assert report["arguments"] == ["--a", "two\nlines"] and report["payloads"] == ["first", "x" * 3_000_000]
        assert report["parent"] == os.getpid() and report["folder"] == str(tmp_path) and report["session"]
        assert report["path"] == [entry or os.getcwd() for entry in sys.path]
        assert report["threads"] == os.environ.get("OMP_NUM_THREADS", "1")


def test_messages_go_both_ways_and_the_child_exits_when_the_wire_closes() -> None:
    with started() as child:
        child.wire.send({"kind": "question", "text": "é" * 1_000_000})  # more than a socket holds
        assert message(child, "answer")["text"] == "é" * 1_000_000
        assert child.popen.poll() is None
        child.wire.close()
        assert child.wait(time.monotonic() + 60) and child.popen.returncode == 1


def test_what_it_prints_is_kept_where_that_is_asked_for(capfd: pytest.CaptureFixture[str]) -> None:
    with started(captures=True) as child:
        child.wire.send({"kind": "question without a text"})
        assert child.wait(time.monotonic() + 60) and child.popen.returncode == 1
        text = child.printed
        assert text.startswith("it prints\nTraceback") and text.endswith("KeyError: 'text'")
        child.close()
        assert child.printed == text
    assert capfd.readouterr() == ("", "")


def test_a_child_that_ignores_sigterm_is_killed_at_the_deadline_and_its_messages_are_read() -> None:
    with started("deaf") as child:
        message(child, "deaf")
        heard: list[Any] = []
        assert not child.wait(time.monotonic() + 0.05, heard.extend)
        child.terminate(time.monotonic() + 0.3, heard.extend)
        assert child.popen.returncode == -signal.SIGKILL


def test_a_child_stopped_by_sigstop_is_killed_too() -> None:
    with started() as child:
        message(child, "report")
        os.kill(child.popen.pid, signal.SIGSTOP)
        child.terminate(time.monotonic() + 0.3)
        assert child.popen.returncode in (-signal.SIGKILL, -signal.SIGTERM) and has_ended(child.popen.pid)


def test_without_a_python_there_is_an_error_and_nothing_stays_open(monkeypatch: pytest.MonkeyPatch) -> None:
    before = open_files()
    monkeypatch.setattr(sys, "executable", "")
    with pytest.raises(CannotWrite, match="there is no Python to start the test's program with"):
        ChildProcess(PROGRAM, captures=True)
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(FileNotFoundError):
        ChildProcess(PROGRAM, captures=True)
    assert open_files() <= before


CLOSED = """
import os, sys
from test_wire_child_process import PROGRAM, message
from torcheer.wire.child_process import ChildProcess
for fd in (0, 1, 2):
    os.close(fd)
child = ChildProcess(PROGRAM)
if os.path.lexists("/proc/self/fd/1"):
    os.write(1, b"stray")
child.wire.send({"kind": "question", "text": "hello"})
text = message(child, "answer")["text"]
child.wire.close()
child.popen.wait()
open(sys.argv[1], "w").write(text)
"""


def test_a_process_without_standard_streams_can_start_one(tmp_path: Path) -> None:
    run_python("-c", CLOSED, tmp_path / "said", env=PATH)
    assert (tmp_path / "said").read_text() == "hello"


# -- many open files -------------------------------------------------------------------------------------------------

MANY = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (2048, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
files = [os.open("/dev/null", os.O_RDONLY) for _ in range(1100)]
"""
WATCH = """
from torcheer.monitor.child_link import Link
from torcheer.monitor.child_plan import Plan
link = Link(Plan(statistics=False))
print(link.stop(60.0), link.process.exitcode)
"""
VIEW = """
from torcheer.wire.open_viewer import start
with start(sys.argv[1], browser=False, quiet=True) as viewer:
    print(viewer.url.partition("?")[0], viewer.alive)
"""


@pytest.mark.skipif(resource.getrlimit(resource.RLIMIT_NOFILE)[1] < 2048, reason="this machine allows too few files")
@pytest.mark.parametrize(("code", "text"), [(WATCH, "Account(offered=0, handled=0"), (VIEW, "http://127.0.0.1:")])
def test_a_process_with_more_than_1024_open_files_can_start_one(tmp_path: Path, code: str, text: str) -> None:
    assert run_python("-c", MANY + code, tmp_path).stdout.startswith(text)


# -- forks -----------------------------------------------------------------------------------------------------------


def in_fork(check: Callable[[], bool]) -> bool:
    """What a function says in a forked process."""
    worker = os.fork()
    if not worker:
        os._exit(0 if check() else 1)
    return os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1]) == 0


def sockets() -> set[str]:
    """The sockets that this process holds."""
    links = (f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd"))
    return {os.readlink(link) for link in links if os.path.islink(link) and "socket:" in os.readlink(link)}


def test_a_fork_keeps_no_connection_of_any_kind(tmp_path: Path) -> None:
    before = sockets()
    link = Link(QUIET)
    with Host(tmp_path) as host, started() as child:
        message(child, "report")
        assert len(sockets() - before) == 3  # the host listens, a wire to each child
        assert in_fork(lambda: sockets() <= before and host.closed and child.wire.closed)
        child.wire.send({"kind": "question", "text": "still there?"})
        assert message(child, "answer")["text"] == "still there?" and not host.closed
    link.stop(60.0)


def test_objects_are_called_in_every_fork_and_forgotten_when_they_are_gone() -> None:
    class Noted:
        calls = 0

        def after_fork(self) -> None:
            Noted.calls += 1

    kept, gone = Noted(), Noted()
    for each in (kept, gone):
        fork_registry.register(each)
    assert in_fork(lambda: Noted.calls == 2 and in_fork(lambda: Noted.calls == 4))
    del gone
    del each
    assert in_fork(lambda: Noted.calls == 1) and Noted.calls == 0
