"""Test files shared among processes: one report, each file collected once, and a worker that dies costs one test."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest
from children import Child, has_ended, run_python
from waiting import wait_until

pytestmark = pytest.mark.house

TESTS = Path(__file__).parent
CONFTEST = """
import os, pytest, workers
def pytest_addoption(parser): workers.add_options(parser)
def pytest_configure(config): workers.configure(config)
def pytest_collection_modifyitems(items):
    for item in items:
        if "browser" in item.fixturenames:
            item.add_marker("browser")
@pytest.fixture(scope="session")
def browser():
    return os.getpid()
"""
ENVIRONMENT = {"PYTHONPATH": str(TESTS), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


def run(folder: Path, files: dict[str, str], *options: str, status: int = 0) -> str:
    """What pytest with two workers prints of some test files."""
    write(folder, files)
    return run_python(*command(*options), cwd=folder, env=ENVIRONMENT, status=status).stdout


def write(folder: Path, files: dict[str, str]) -> None:
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n    browser: x\n    odd: x\n")
    (folder / "conftest.py").write_text(CONFTEST)
    for name, text in files.items():
        (folder / f"{name}.py" if "/" in name else folder / f"test_{name}.py").write_text(
            "import os, pytest, signal, time\n" + text
        )


def command(*options: str) -> list[str]:
    return ["-m", "pytest", "-q", "-ra", "--workers", "2", *options]


def test_workers_report_as_one_process_does(tmp_path: Path) -> None:
    files = {
        "good": "@pytest.mark.parametrize('n', range(20))\ndef test_it(n): assert n < 20",
        "bad": "def test_it():\n    print('what it said')\n    assert 1 == 2, 'one is not two'",
        "skipped": "def test_it(): pytest.skip('not here')\n@pytest.mark.xfail\ndef test_other(): assert 0",
        "loud": "import warnings\ndef test_it(): warnings.warn('watch out')",
    }
    text = run(tmp_path, files, status=1)
    assert re.search(r"1 failed, 21 passed, 1 skipped, 1 xfailed, 1 warning in ", text), text
    assert "AssertionError: one is not two" in text and "what it said" in text and "UserWarning: watch out" in text
    assert "not here" in text and text.count("FAILED test_bad.py::test_it") == 2, text  # at once, and in the summary


def test_workers_collect_each_file_once(tmp_path: Path) -> None:
    note = "open('collected', 'a').write(__name__ + ' ')\ndef test_it(): pass"
    run(tmp_path, dict.fromkeys(("a", "b", "c", "d"), note))
    assert sorted((tmp_path / "collected").read_text().split()) == ["test_a", "test_b", "test_c", "test_d"]


def test_a_workers_death_fails_the_test_that_it_was_in_and_the_rest_goes_on(tmp_path: Path) -> None:
    death = "def test_before(): pass\ndef test_it(): os.kill(os.getpid(), signal.SIGKILL)\ndef test_after(): pass"
    text = run(tmp_path, {"death": death, "good": "def test_it(): pass"}, status=1)
    assert "1 failed, 3 passed" in text and "FAILED test_death.py::test_it" in text
    assert "ended with exit status -9 in this test" in text


def test_a_workers_death_in_collection_fails_the_file(tmp_path: Path) -> None:
    last = "os.write(2, b'last words'); os._exit(7)"
    text = run(
        tmp_path, {"a": "def test_it(): pass\n" + "#" * 500, "death": last, "z": "def test_it(): pass"}, status=1
    )
    assert "2 passed, 1 error" in text and "ERROR test_death.py" in text and "exit status 7" in text


def test_a_file_with_a_mistake_is_an_error_and_the_rest_goes_on(tmp_path: Path) -> None:
    text = run(tmp_path, {"mistake": "import nothing_of_this_name", "good": "def test_it(): pass"}, status=1)
    assert "1 passed, 1 error" in text and "nothing_of_this_name" in text


def test_a_worker_that_cannot_begin_is_an_error(tmp_path: Path) -> None:
    write(tmp_path, {"good": "def test_it(): pass"})
    with (tmp_path / "conftest.py").open("a") as file:
        file.write("def pytest_sessionstart(session):\n    assert not hasattr(session.config, 'workerinput')")
    text = run_python(*command(), cwd=tmp_path, env=ENVIRONMENT, status=1).stdout
    assert "a worker ended with exit status 3" in text


def test_a_worker_that_does_not_end_is_an_error(tmp_path: Path) -> None:
    write(
        tmp_path, {"it": "import threading\ndef test_it(): threading.Thread(target=time.sleep, args=(3600,)).start()"}
    )
    with (tmp_path / "conftest.py").open("a") as file:
        file.write("workers.CLOSE_SECS = 0.5")
    text = run_python(*command(), cwd=tmp_path, env=ENVIRONMENT, status=1).stdout
    assert "1 passed, 1 error" in text and "a worker did not end" in text


def test_tests_with_a_browser_run_in_processes_of_their_own_that_share_it(tmp_path: Path) -> None:
    note = "open('notes', 'a').write(f'{name} {os.getpid()}\\n')"
    text = f"def test_a(browser: int):\n    name = 'browser'; {note}\ndef test_b():\n    name = 'plain'; {note}"
    run(tmp_path, {"one": text, "two": text, "three": text}, "--browsers", "1")
    notes = [line.split() for line in (tmp_path / "notes").read_text().splitlines()]
    pids = {kind: {pid for other, pid in notes if other == kind} for kind in ("browser", "plain")}
    assert len(notes) == 6 and len(pids["browser"]) == 1 and not pids["browser"] & pids["plain"]


def test_fixtures_of_a_folder_are_there_for_all_its_files(tmp_path: Path) -> None:
    (tmp_path / "part").mkdir()
    fixture = "import pytest\n@pytest.fixture(scope='session')\ndef thing(): return object()"
    (tmp_path / "part" / "conftest.py").write_text(fixture)
    text = "def test_it(thing): open('things', 'a').write(f'{os.getpid()} {id(thing)}\\n')"
    run(tmp_path, dict.fromkeys(("part/test_a", "part/test_b", "part/test_c", "part/test_d"), text))
    things = [line.split() for line in (tmp_path / "things").read_text().splitlines()]
    assert len(things) == 4 and len({thing for _, thing in things}) <= len({pid for pid, _ in things}) <= 2


def test_options_hold_in_workers(tmp_path: Path) -> None:
    text = "@pytest.mark.odd\ndef test_a(): pass\ndef test_b(): pass\ndef test_c(): assert 0"
    assert "1 passed in" in run(tmp_path, {"it": text}, "-m", "odd")
    assert "1 passed in" in run(tmp_path, {"it": text}, "test_it.py::test_b")
    assert "no tests ran" in run(tmp_path, {"it": text}, "-k", "nothing", status=5)


@pytest.mark.parametrize("option", ["-x", "--maxfail=1"])
def test_the_first_failure_ends_all_where_that_is_asked_for(option: str, tmp_path: Path) -> None:
    endless = "def test_it():\n    while True: time.sleep(0.1)"
    assert "1 failed" in run(tmp_path, {"bad": "def test_it(): assert 0", "endless": endless}, option, status=1)


def test_an_interrupt_ends_all_workers_and_shows_what_has_failed(tmp_path: Path) -> None:
    note = "open(f'pid{os.getpid()}', 'w').close()\n    "
    endless = f"def test_it():\n    {note}while True: time.sleep(0.1)"
    write(tmp_path, {"bad": "def test_it(): assert 0", "endless": endless, "other": endless})
    options: dict[str, Any] = {"cwd": tmp_path, "env": ENVIRONMENT}
    with Child(*command(), **options) as child:
        wait_until(lambda: len(list(tmp_path.glob("pid*"))) == 2)
        os.kill(child.pid, signal.SIGINT)
        text = child.ends(2)
    pids = [file.name.removeprefix("pid") for file in tmp_path.glob("pid*")]
    assert all(has_ended(pid) for pid in pids) and "KeyboardInterrupt" in text


def test_workers_end_when_the_process_that_they_work_for_is_killed(tmp_path: Path) -> None:
    endless = "def test_it():\n    open(f'pid{os.getpid()}', 'w').close()\n    while True: time.sleep(0.1)"
    write(tmp_path, {"it": endless})
    options: dict[str, Any] = {"cwd": tmp_path, "env": ENVIRONMENT}
    with Child(*command(), **options) as child:
        wait_until(lambda: list(tmp_path.glob("pid*")))
        os.kill(child.pid, signal.SIGKILL)
        pid = next(tmp_path.glob("pid*")).name.removeprefix("pid")
        wait_until(lambda: has_ended(pid))
