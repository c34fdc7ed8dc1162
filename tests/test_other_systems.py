"""Where a system lacks what Unix has: what needs one process works, what needs more says so in one sentence."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from children import run_python

PROGRAM = Path(__file__).with_name("other_system.py")


def parts_of(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    return dict(json.loads(done.stdout.splitlines()[-1])["parts"])


def failed(parts: dict[str, Any]) -> list[str]:
    return [f"{name}: {part['text']}" for name, part in parts.items() if not part["ok"]]


@pytest.mark.slow
def test_on_windows_one_process_works_and_a_watch_says_what_it_needs() -> None:
    """Capture with a drawing and an archive, autograd, extraction, training: as `make test-versions` tries them.

    On a code page, as Windows has it for files and pipes.
    """
    names = ("capture", "autograd", "extract", "train", "files", "commands", "refused", "watch")
    environment = {"PYTHONIOENCODING": "cp1252:strict", "CI": "1"}
    done = run_python(PROGRAM, "windows", *names, status=1, env=environment, encoding="cp1252")
    parts = parts_of(done)
    watch = parts.pop("watch")
    assert failed(parts) == []
    assert not watch["ok"] and watch["text"].startswith("UnsupportedSystem: memory that is shared with another process")
    assert "use Linux, macOS or WSL" in watch["text"] and "\n" not in watch["text"]
    assert done.stderr.count("this system has no locks between processes") == 1
    for what in ("--nproc, which starts a process for each rank,", "--studio, which shows a session", "a sweep, which"):
        assert any(line.count(what) and "needs Unix" in line for line in done.stderr.splitlines()), what
    assert parts["refused"]["text"] == "folders: "
    assert "the demo trains without studio and watch" in done.stdout


@pytest.mark.slow
def test_on_macos_a_watch_works_too() -> None:
    done = run_python(PROGRAM, "macos", "capture", "extract", "train", "files", "commands", "watch", env={"CI": "1"})
    assert failed(parts_of(done)) == []
