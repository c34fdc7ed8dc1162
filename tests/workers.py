"""`pytest --workers 4`: processes that claim test files one after the other, each collecting only what it runs.

The process that was called collects nothing. It hands out files, the longest first, and prints one report of what its
workers tell. Tests with a browser, and those that fork, get processes of their own kind: Playwright's greenlets end a
process that forks, and so may any of the libraries that other tests load. A worker that dies fails the test that it was
in; another takes over what it had left.
"""

from __future__ import annotations

import ctypes
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Iterator
from contextlib import suppress
from fnmatch import fnmatch
from functools import cache
from itertools import pairwise
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NamedTuple
from warnings import WarningMessage

import pytest

USES_BROWSER = re.compile(r"open_page|browser_page|mark\.browser|\bbrowser: ")
FORKING = "test_training_control*.py"
BROWSER_KIND, FORKING_KIND, PLAIN_KIND = KINDS = ("browser", "forking", "plain")
END_SECS = 10.0  # for workers that were interrupted to tidy up
CLOSE_SECS = 120.0  # for a worker without work to end its session
TAIL = 6000  # characters of what a dead worker wrote
SHOWN_SECS = 0.005  # as pytest's --durations: a shorter set-up that passed is not reported


@cache
def is_browser_file(path: Path) -> bool:
    """Whether tests of this file may use a browser."""
    return USES_BROWSER.search(path.read_text(encoding="utf-8")) is not None


class Unit(NamedTuple):
    """What a worker claims: the tests of one kind of a file."""

    kind: str
    place: str  # a file, perhaps with ::test
    skipped: frozenset[str] = frozenset()  # tests that a worker that died had run


def add_options(parser: pytest.Parser) -> None:
    group = parser.getgroup("workers", "test files shared among processes")
    group.addoption("--workers", type=int, default=0, metavar="N", help="run the test files in N processes")
    group.addoption("--browsers", type=int, default=2, metavar="N", help="at most N of them with a browser")
    group.addoption("--claims", help="the connection of a worker to the process that it works for; internal")


def configure(config: pytest.Config) -> None:
    """Make this process a worker, or one that hands out files, or leave it an ordinary pytest."""
    if config.option.claims:
        config.workerinput = {}  # type: ignore[attr-defined]  # by which plugins know a process that does not report
        config.pluginmanager.register(Worker(config, int(config.option.claims)), "worker")
    elif config.option.workers and not config.option.collectonly and not config.option.usepdb:
        config.pluginmanager.register(Dispatcher(config), "dispatcher")


class Others(pytest.Item):
    """What follows the last test of a file: fixtures of the session stay, those of the file end."""

    def runtest(self) -> None:
        raise NotImplementedError


class Worker:
    """Runs the units that it claims, and reports on them."""

    def __init__(self, config: pytest.Config, claims: int) -> None:
        os.set_inheritable(claims, False)  # programs that tests start would hold it open
        self._link = Connection(claims)
        if sys.platform == "linux":  # elsewhere it ends with its test
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGINT)
        os.register_at_fork(after_in_child=self._link.close)
        self._config = config
        self._unit = Unit(PLAIN_KIND, "")
        self._reports: list[Any] = []
        self._folders: dict[Path, Any] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> bool:
        return True  # file by file, as they are claimed

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        others = Others.from_parent(session, name="tests of other files")
        while (unit := self._claim()) is not None:
            self._unit = unit
            items = session.perform_collect([unit.place])
            self._link.send(("collected", len(items)))
            for item, following in pairwise([*items, others]):
                self._link.send(("running", item.nodeid))
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                self._link.send(("reports", item.nodeid, self._reports))
                self._reports = []
        return True

    def _claim(self) -> Unit | None:
        self._link.send(("claim",))
        unit: Unit | None = self._link.recv()
        return unit

    @pytest.hookimpl(wrapper=True)
    def pytest_collect_directory(self, path: Path) -> Generator[None, Any, Any]:
        """A folder is the same node for all its files: to it belong the fixtures of its conftest."""
        return self._folders.setdefault(path, (yield))

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leave out tests of the other kind, and those that a worker that died had run."""
        browser = self._unit.kind == BROWSER_KIND
        items[:] = [item for item in items if (BROWSER_KIND in item.keywords) == browser]
        items[:] = [item for item in items if item.nodeid not in self._unit.skipped]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or not report.passed or report.duration >= SHOWN_SECS:
            self._reports.append(self._data(report))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if not report.passed:
            self._link.send(("collect report", self._data(report)))

    def pytest_warning_recorded(self, warning_message: Any, when: Any, nodeid: str, location: Any) -> None:
        facts = (str(warning_message.message), warning_message.category.__name__)
        self._link.send(("warning", *facts, warning_message.filename, warning_message.lineno, when, nodeid, location))

    def _data(self, report: Any) -> Any:
        return self._config.hook.pytest_report_to_serializable(config=self._config, report=report)


class Process:
    """A worker, seen from the process that it works for."""

    def __init__(self, kind: str, command: list[str]) -> None:
        self.kind = kind
        self.link, theirs = Pipe()
        self._output = tempfile.TemporaryFile()
        claims = theirs.fileno()
        self._process = subprocess.Popen(
            [*command, "--claims", str(claims)],
            pass_fds=[claims],
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._output,
            start_new_session=True,  # an interrupt from the keyboard comes once, from us
        )
        theirs.close()
        self.unit: Unit | None = None  # claimed
        self.tests_left: int | None = None  # of it; None before it was collected
        self.done: set[str] = set()
        self.running = ""  # a test
        self.has_claimed = False
        self.ends_by: float | None = None  # once there is no work for it

    @property
    def has_died(self) -> bool:
        return self._process.poll() is not None and not self.link.poll()

    @property
    def is_overdue(self) -> bool:
        return self.ends_by is not None and time.monotonic() > self.ends_by

    def end(self, secs: float) -> int | None:
        """Wait for its end, and end it with all it has started when that takes too long; its exit status."""
        with suppress(subprocess.TimeoutExpired):
            return self._process.wait(secs)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        return None

    def interrupt(self) -> None:
        self._process.send_signal(signal.SIGINT)

    @property
    def last_words(self) -> str:
        self._output.seek(0)
        return self._output.read().decode(errors="replace")[-TAIL:]


class Dispatcher:
    """Hands out the test files, and has pytest report on what came back."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._processes: list[Process] = []
        self._waiting: dict[str, list[Unit]] = {kind: [] for kind in KINDS}
        self._started = 0
        self._tests = self._files = self._all_files = 0
        self._begun = time.monotonic()

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> bool:
        return True  # what there is, the workers find

    @pytest.hookimpl(wrapper=True)
    def pytest_report_teststatus(self) -> Generator[None, Any, tuple[str, str, str]]:
        """A line every now and then instead of a letter for each test."""
        category, _, word = yield
        return category, "", word

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self._session = session
        for unit in sorted(_units(self._config), key=_weight, reverse=True):
            self._waiting[unit.kind].append(unit)
        self._all_files = sum(map(len, self._waiting.values()))
        try:
            self._start()
            while self._processes:
                self._listen()
        finally:
            self._end()
        return True

    def _start(self) -> None:
        """Fill up the number of processes, as long as there is work for them."""
        while len(self._processes) < self._config.option.workers and (kind := self._kind()):
            self._started += 1
            folder = self._config._tmp_path_factory.getbasetemp() / f"worker-{self._started}"  # type: ignore[attr-defined]
            arguments = [*map(str, self._config.invocation_params.args), "--workers=0", f"--basetemp={folder}"]
            self._processes.append(Process(kind, [sys.executable, "-m", "pytest", *arguments]))

    def _kind(self) -> str | None:
        """The kind of process that is wanted most."""
        of_kind = {kind: sum(process.kind == kind for process in self._processes) for kind in KINDS}
        most = {BROWSER_KIND: self._config.option.browsers, FORKING_KIND: 1, PLAIN_KIND: self._config.option.workers}
        wanted = (kind for kind in KINDS if of_kind[kind] < min(most[kind], len(self._waiting[kind])))
        return next(wanted, None)

    def _listen(self) -> None:
        for link in wait([process.link for process in self._processes], timeout=1):
            process = next(process for process in self._processes if process.link is link)
            try:
                message = process.link.recv()
            except (EOFError, OSError):
                self._bury(process)
            else:
                self._heed(process, *message)
        for process in [process for process in self._processes if process.has_died or process.is_overdue]:
            self._bury(process)
        if reason := self._session.shouldfail or self._session.shouldstop:
            raise self._session.Failed(reason) if self._session.shouldfail else self._session.Interrupted(reason)

    def _heed(self, process: Process, word: str, *facts: Any) -> None:
        hook, config = self._config.hook, self._config
        match word, *facts:
            case ["claim"]:
                self._hand_out(process)
            case ["collected", tests]:
                process.tests_left = tests
                self._session.testscollected += tests
            case ["running", test]:
                process.running = test
            case ["reports", test, reports]:
                for data in reports:
                    report = hook.pytest_report_from_serializable(config=config, data=data)
                    self._report(report)
                process.running = ""
                process.tests_left -= 1
                process.done.add(test)
                self._tests += 1
            case ["collect report", data]:
                hook.pytest_collectreport(report=hook.pytest_report_from_serializable(config=config, data=data))
            case ["warning", text, name, file, line, *place]:
                category = type(name, (Warning,), {})  # its own may be another package's
                message = WarningMessage(category(text), category, file, line)
                facts = dict(zip(("warning_message", "when", "nodeid", "location"), (message, *place), strict=True))
                hook.pytest_warning_recorded.call_historic(kwargs=facts)

    def _hand_out(self, process: Process) -> None:
        if process.unit is not None:
            self._has_run_one()
        waiting = self._waiting[process.kind]
        process.has_claimed, process.tests_left, process.done = True, None, set()
        process.unit = waiting.pop(0) if waiting else None
        if process.unit is None:
            process.ends_by = time.monotonic() + CLOSE_SECS
        process.link.send(process.unit)

    def _has_run_one(self) -> None:
        """Say how far the whole is, now and then."""
        self._files += 1
        if self._files * 10 // self._all_files != (self._files - 1) * 10 // self._all_files:
            secs = time.monotonic() - self._begun
            self._say(f"{self._files} of {self._all_files} files, {self._tests} tests, {secs:.0f} s")

    def _bury(self, process: Process) -> None:
        """Report how a process ended, if it was not told to, and let another do the rest of its work."""
        self._processes.remove(process)
        status, unit = process.end(0 if process.is_overdue else CLOSE_SECS), process.unit
        how = "did not end" if status is None else f"ended with exit status {status}"
        if process.running:
            self._fail(process.running, f"the worker {how} in this test\n{process.last_words}")
        elif unit is not None:
            self._fail_collection(unit.place, f"the worker {how}\n{process.last_words}")
        elif not process.has_claimed or status not in _ORDINARY:
            self._fail_collection("tests", f"a worker {how}\n{process.last_words}")
            if not process.has_claimed:  # nor would the next
                self._waiting[process.kind].clear()
        if unit is not None and process.tests_left and process.running:
            done = unit.skipped | process.done | {process.running}
            self._waiting[unit.kind].insert(0, unit._replace(skipped=done))
        elif unit is not None:
            self._has_run_one()
        self._start()

    def _fail(self, test: str, text: str) -> None:
        place = (test.partition("::")[0], None, test)
        self._report(pytest.TestReport(test, place, {}, "failed", text, "call"))

    def _report(self, report: pytest.TestReport) -> None:
        self._config.hook.pytest_runtest_logreport(report=report)
        if report.failed:
            self._say(f"FAILED {report.nodeid}")

    def _fail_collection(self, place: str, text: str) -> None:
        name = Path(os.path.relpath(place, self._config.rootpath)).as_posix()
        report = pytest.CollectReport(name, "failed", text, [])
        self._config.hook.pytest_collectreport(report=report)

    def _say(self, text: str) -> None:
        reporter: Any = self._config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            reporter.write_line(text)

    def _end(self) -> None:
        """End every process, which have a while to tidy up."""
        for process in self._processes:
            process.interrupt()
        until = time.monotonic() + END_SECS
        for process in self._processes:
            process.end(max(0.1, until - time.monotonic()))


_PR_SET_PDEATHSIG = 1
_ORDINARY = {0, 1, 5}  # all passed, some failed, there were none


def _units(config: pytest.Config) -> Iterator[Unit]:
    """What there is to claim in the files and folders of the command line."""
    for argument in config.args:
        place, _, test = str(argument).partition("::")
        path = Path(config.invocation_params.dir, place)
        for file in sorted(path.rglob("test_*.py")) if path.is_dir() else [path]:
            kind = FORKING_KIND if fnmatch(file.name, FORKING) else PLAIN_KIND
            for each in (kind, BROWSER_KIND) if is_browser_file(file) else (kind,):
                yield Unit(each, f"{file}::{test}" if test else str(file))


def _weight(unit: Unit) -> float:
    """How long a unit may take."""
    return Path(unit.place.partition("::")[0]).stat().st_size
