"""The whole spine at once: a loop, its watch, its page and the log of both, over processes that end in any order."""

from __future__ import annotations

import json
import os
import random
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import spine_loop
from children import Child, has_ended
from fast_cases import fast_first
from seams import RunLog
from studio_socket import Page
from waiting import wait_until

PROGRAM = Path(__file__).with_name("spine_loop.py")
LIVE, WATCH = "train_step", "metric"  # the tables in which the page and the watch have each step's loss


@contextmanager
def loop(folder: Path, steps: int, *readers: str) -> Iterator[tuple[Child, dict[str, int], str]]:
    """The program, the processes that it has started by name, and the page's address."""
    with Child(PROGRAM, folder, steps, *readers, env={"TORCHEER_NO_BROWSER": "1"}) as child:
        url = child.line() if "page" in readers else ""
        yield child, json.loads(child.line()), url


def losses(folder: Path, table: str) -> dict[int, float]:
    """The losses that a run's log has, by step; no step stands twice, and nothing in the log is damaged."""
    log = RunLog(folder)
    found = log.tables().get(table)
    if found is None:
        return {}
    rows = [row for row in zip(found.columns["Step"], found.columns["loss"]) if row[1] is not None]
    assert len(rows) == len(dict(rows)) and not log.problems, log.problems
    return dict(rows)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a loop leaves that nobody disturbs."""
    folder = tmp_path_factory.mktemp("undisturbed")
    with loop(folder, 600, "watch", "page") as (child, _, _):
        child.ends()
    return folder


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("readers", fast_first([["page", "watch"], ["page"], ["watch"]]))
def test_a_loop_computes_the_same_bits_alone_and_with_readers(readers: list[str], tmp_path: Path) -> None:
    alone = spine_loop.main(str(tmp_path), "150")
    with loop(tmp_path, 150, *readers) as (child, _, url):
        if url:
            with Page(url) as page:
                page.say("look", look=1, variable="Act", train={"unit": "trial", "count": 1})
        assert child.ends().split()[-1] == alone


def killed(folder: Path, draw: random.Random) -> dict[str, dict[int, float]]:
    """Kill loop, watch and viewer in any order; what a reader had seen before the loop ended, by table."""
    seen: dict[str, dict[int, float]] = {}
    with loop(folder, 10**6, "watch", "page") as (child, started, url), Page(url) as page:
        page.say("look", look=1, variable="Grad")
        wait_until(lambda: losses(folder, LIVE) and losses(folder, WATCH), "the first rows")
        for _ in range(draw.randrange(4)):
            child.line()
        for name in draw.sample(["loop", "watch", "page"], 3):
            if name == "loop":
                seen = {table: losses(folder, table) for table in (LIVE, WATCH)}
                child.kill()
                child.wait()
            elif not has_ended(started[name]):
                os.kill(started[name], signal.SIGKILL)
            if draw.random() < 0.5 and child.poll() is None:
                child.line()
        wait_until(lambda: all(map(has_ended, started.values())), "the others to end by themselves")
    return seen


@pytest.mark.faults
@pytest.mark.parametrize("seed", range(67))  # three kills each
def test_whoever_is_killed_and_when_the_log_has_what_was_seen(seed: int, undisturbed: Path, tmp_path: Path) -> None:
    for table, seen in killed(tmp_path, random.Random(seed)).items():
        after, expected = losses(tmp_path, table), losses(undisturbed, table)
        assert seen.items() <= after.items(), "nothing that was seen is lost"
        assert {step: loss for step, loss in after.items() if step in expected}.items() <= expected.items()
    live = sorted(losses(tmp_path, LIVE))
    assert live == list(range(len(live)))


@pytest.mark.slow
def test_memory_is_flat_over_a_hundred_thousand_steps(tmp_path: Path) -> None:
    sizes: dict[str, list[int]] = {}
    with loop(tmp_path, 100_000, "watch", "page") as (child, started, url), Page(url) as page:
        page.say("look", look=1, variable="Act")
        pids = {"loop": child.pid, **started}
        for line in iter(child.line, None):
            if not line.isdecimal():
                break
            if int(line) % 10_000 == 0:
                for name, pid in pids.items():
                    sizes.setdefault(name, []).append(resident(pid))
            _acknowledge(page)
        child.ends()
    print({name: [size // 1000 for size in values] for name, values in sizes.items()})
    for name, values in sizes.items():
        early, late = max(values[2:4]), values[-1]
        assert late < early + 30_000_000, (name, values)


def _acknowledge(page: Page) -> None:
    """Say that what came was seen, so that more comes."""
    for message in page.quiet(0.001):
        if isinstance(message, dict) and message.get("kind") == "shown":
            page.say("seen", look=message["look"], moment=message["moment"])
    page.heard.clear()


def resident(pid: int) -> int:
    """Bytes of memory that a process holds, without what it shares."""
    fields: list[Any] = Path(f"/proc/{pid}/statm").read_text().split()
    return (int(fields[1]) - int(fields[2])) * os.sysconf("SC_PAGE_SIZE")
