"""Options of the test suite, and fixtures that more than one file uses."""

import gc
import json
import random
import signal
import sys
from contextlib import suppress
from pathlib import Path

import numpy
import pytest
import workers
from browser import browser, browser_page  # noqa: F401
from hypothesis import settings

# The same examples every time, whoever runs them; what fuzzing finds is kept as an `@example`. No deadline: a loaded
# machine is no failure. `make fuzz` draws fresh ones, and says how to draw them again.
settings.register_profile("torcheer", deadline=None, derandomize=True, database=None)
settings.register_profile("fuzz", deadline=None, derandomize=False, database=None, print_blob=True)
settings.load_profile("torcheer")
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # begun in the background by a script: programs would inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # begun by nohup, which training respects
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_addoption(parser):
    workers.add_options(parser)
    parser.addoption("--overwrite", action="store_true", help="write the golden files anew")
    parser.addoption("--failures", metavar="FILE", help="append every failed test and its marks to FILE (.ci/retry.py)")


class Failures:
    """Appends what failed, and how the session ended, to a file: a JSON object in each line."""

    def __init__(self, path):
        self._path = path

    def _append(self, **fact):
        with open(self._path, "a") as file:
            file.write(json.dumps(fact) + "\n")

    def pytest_runtest_logreport(self, report):
        if report.failed:
            marks = sorted({"timing", "browser", "hypothesis"} & set(report.keywords))
            self._append(test=report.nodeid, marks=marks)

    def pytest_collectreport(self, report):
        if report.failed:
            self._append(test=report.nodeid, marks=[])

    def pytest_sessionfinish(self, exitstatus):
        self._append(exit=int(exitstatus))


def pytest_configure(config):
    workers.configure(config)
    path = config.getoption("--failures")
    if path and not hasattr(config, "workerinput"):  # the process that hears from all workers writes
        config.pluginmanager.register(Failures(path), "failures")


def pytest_collection_modifyitems(items):
    """Mark what needs a browser: `make test` runs that apart, as Playwright's greenlets end a process that forks."""
    for item in items:
        if "browser" in getattr(item, "fixturenames", ()):
            item.add_marker("browser")
            if not workers.is_browser_file(item.path):
                raise pytest.UsageError(
                    f"{item.nodeid} needs a browser: only files with {workers.USES_BROWSER.pattern} are looked into"
                )


def pytest_collection_finish():
    """Leave what stands now, millions of objects, out of every later collection and search of a test's garbage.

    And what `torch.manual_seed` does for devices that are not there.
    """
    gc.collect()
    gc.freeze()
    gc.get_freeze_count = lambda: 1  # which each drawing asks for: counting them takes a tenth of a second
    import torch  # not before: the process that hands out the tests has no use for it

    for kind in (torch.cuda, torch.xpu, torch.mtia):
        if not kind.is_available():
            kind.manual_seed_all = lambda seed: None  # `torch.manual_seed` takes a traceback for each: a millisecond


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Begin each test with the same random numbers, whichever tests ran before it in its process."""
    import torch  # which begins with another seed in every process

    seed = int(item.config.getoption("--hypothesis-seed", None) or 0) % 2**32
    for sow in (random.seed, numpy.random.seed, torch.manual_seed):
        sow(seed)


@pytest.fixture(autouse=True)
def nothing_was_compiled_before():
    """A history says so where something was compiled in its process; other tests' doings are none of its business."""
    if "torch._dynamo.utils" in sys.modules:
        sys.modules["torch._dynamo.utils"].counters.clear()
        sys.modules["torch"].compiler.reset()  # or what another test had compiled, in parts, is taken


@pytest.fixture
def one_thread():
    """Small tensors are not worth sharing, and test processes with several threads each wait for one another."""
    import torch  # some tests are about doing without it

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A working directory with the code and the configs of training_spec_cases."""
    from training_spec_cases import Project

    monkeypatch.chdir(tmp_path)
    return Project(tmp_path)


@pytest.fixture
def no_handler_left():
    """A handler of one test is not the first of another."""
    from seams import _Single

    yield
    for handler in list(_Single.first.values()):
        handler.stop()
    _Single.first.clear()


@pytest.fixture
def doubles():
    """New tensors are of double precision."""
    import torch

    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture
def torchvision_without_its_compiled_half():
    """Libraries import torchvision where it is installed, which has no compiled half for this build of torch."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
    with suppress(ImportError):
        import zoo_torchvision

        zoo_torchvision.load()
