"""`torcheer demo`: from an installed wheel, somewhere else, to the end, with all that it promises."""

from __future__ import annotations

import csv
import os
import pty
import re
import resource
import select
import signal
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import pytest
from children import Child, run_python
from control_cases import page_at
from packages import NEEDS_PAGE, installed_package  # noqa: F401
from seams import Digits, new_folder
from seams import DigitsNet as Net
from waiting import wait_until

from torcheer.archive import Archive
from torcheer.inspector import open_watch

pytestmark = NEEDS_PAGE
EPOCHS = "train.epochs=2"


def command(package: Path, *arguments: str) -> list[str]:
    """What stands on Python's command line for `torcheer …` of an installed package, and nothing of the checkout."""
    begin = f"import sys; sys.path.insert(0, {str(package)!r}); from torcheer.cli import main; sys.exit(main())"
    return ["-P", "-c", begin, *arguments]


def run(package: Path, where: Path, *arguments: str) -> str:
    """What a command prints, once it has ended well."""
    one_thread = {"OMP_NUM_THREADS": "1"}  # several tests run at once
    return run_python(*command(package, *arguments), cwd=where, env=one_thread).stdout


def test_the_digits_are_those_of_uci_and_say_so() -> None:
    digits = Digits()
    assert len(digits) == 1797
    assert [int((digits.labels == digit).sum()) for digit in range(10)] == [
        178, 182, 177, 183, 181, 182, 181, 179, 174, 180,
    ]  # fmt: skip
    image, label = digits[0]
    assert (tuple(image.shape), int(label), float(image.max())) == ((1, 8, 8), 0, 15 / 16)
    about = (resources.files("torcheer.demo") / "project" / "ABOUT-THE-DIGITS.txt").read_text()
    assert "E. Alpaydin, C. Kaynak" in about and "CC BY 4.0" in about
    assert sum(parameter.numel() for parameter in Net().parameters()) < 20_000


def test_the_help_says_whose_digits_they_are(package: Path, tmp_path: Path) -> None:
    assert "E. Alpaydin, C. Kaynak (1998)" in run(package, tmp_path, "demo", "--help")
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def made(package: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A short demo from start to end without a terminal: where it ran, and what it printed."""
    where = tmp_path_factory.mktemp("demo")
    return where, run(package, where, "demo", "out", "--no-browser", EPOCHS)


def test_the_demo_ends_by_itself_and_prints_the_address_first(made: tuple[Path, str]) -> None:
    lines = made[1].splitlines()
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/\?token=[\w-]{20,}", lines[0])
    assert "This is what there is now:" in lines
    assert "  torcheer studio out/run" in lines


def test_everything_that_the_demo_says_it_made_is_there(made: tuple[Path, str]) -> None:
    where, printed = made
    named = re.search(r"This is what there is now:\n(.*?)\n\n", printed, re.DOTALL)
    assert named is not None
    paths = [where / line.split()[0] for line in named[1].splitlines()]
    assert len(paths) == 7 and all(path.exists() for path in paths)
    run = where / "out" / "run"
    assert [path.suffix for path in (run / "watch" / "videos").iterdir()] == [".mp4"]
    assert (where / "out" / "network.png").read_bytes()[:4] == b"\x89PNG"
    assert b"<svg" in (where / "out" / "network.svg").read_bytes()[:400]
    assert [frame["step"] for frame in Archive(run / "captures").frames] == [0, 90]
    assert "dead_relu" in [alert.rule for alert in open_watch(run).alerts]


@pytest.mark.slow
def test_what_the_demo_says_to_try_works_as_printed(made: tuple[Path, str], package: Path) -> None:
    where, printed = made
    hints = [line.split() for line in printed.partition("\nTry:\n")[2].splitlines()]
    assert [hint[:2] for hint in hints] == [["torcheer", name] for name in ("studio", "evaluate", "train")]
    assert "val acc 0." in run(package, where, *hints[1][1:])
    assert hints[2][-1].endswith("=12")  # ten epochs more; one is enough here
    assert "Results are under out/run" in run(package, where, *hints[2][1:-1], hints[2][-1].replace("=12", "=3"))
    with open(where / "out" / "run" / "metrics" / "0.csv", newline="") as file:
        assert [row["epoch"] for row in csv.DictReader(file)] == ["1", "2", "3"]
    with Child(*command(package, *hints[0][1:]), cwd=where) as viewer:
        assert page_at(viewer.line()) == 200


def test_a_second_demo_writes_over_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = tmp_path / "demo"
    assert new_folder(home) == home
    home.mkdir()
    assert new_folder(home) == home
    (home / "mine").touch()
    assert new_folder(home) == tmp_path / "demo-2"
    assert capsys.readouterr().err == f"{home} is there already; this demo goes to {home}-2\n"


class Terminal:
    """A demo at a terminal."""

    def __init__(self, arguments: list[str], where: Path) -> None:
        self._ours, theirs = pty.openpty()
        env = {"TERM": "xterm", "TORCHEER_NO_BROWSER": "1"}
        self.process = Child(*arguments, cwd=where, stdin=theirs, stdout=theirs, stderr=theirs, env=env)
        os.close(theirs)
        self.shown = ""

    def until(self, text: str) -> None:
        """Read what comes until a text is shown."""
        wait_until(lambda: text in self.shown, text, secs=240, poll=self._read, seen=lambda: self.shown[-2000:])

    def _read(self) -> None:
        if select.select([self._ours], [], [], 0.1)[0]:
            self.shown += os.read(self._ours, 65536).decode(errors="replace")


@pytest.fixture
def terminal(package: Path, tmp_path: Path) -> Iterator[Terminal]:
    made = Terminal(command(package, "demo", EPOCHS), tmp_path)  # in the folder that it names itself
    with made.process, open(made._ours, closefd=True):
        yield made


@pytest.mark.slow
def test_at_a_terminal_the_demo_stays_open_until_ctrl_c(terminal: Terminal) -> None:
    terminal.until("The studio stays open; Ctrl-C ends it")
    url = re.search(r"http://127\.0\.0\.1:\d+/\?token=[\w-]+", terminal.shown)
    assert url is not None
    assert page_at(url[0]) == 200
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.process.wait(120) == 0


@pytest.mark.slow
def test_the_whole_demo_reads_digits_in_time(package: Path, tmp_path: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run(package, tmp_path, "demo", "out")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    # Seconds of the processor, which others may have for as long as they like; it takes 25.
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 90
    with open(tmp_path / "out" / "run" / "metrics" / "0.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 40 and float(rows[-1]["val acc"]) > 0.95
