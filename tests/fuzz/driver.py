"""Writes files, has them opened in children, counts, and keeps each finding as a folder that replays it."""

from __future__ import annotations

import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from fuzz.comparing import Finding, findings_of
from fuzz.dice import Dice
from fuzz.explained import explanation
from fuzz.grammars import Grammar, grammars
from fuzz.serving import CPU_SECS

_ANSWER_SECS: Final = 120.0  # generous: CPU time ends what hangs, this what waits
_MOST_FILES: Final = 3000  # of one child
_MOST_KEPT: Final = 3  # findings of one cause


class Child:
    """A process that opens files; started when it is needed, and anew when it has died."""

    def __init__(self, role: str, cpu_secs: float = CPU_SECS) -> None:
        """`role`: "opening", "reference", or "misbehaving", which tests this class. `cpu_secs`: for one file."""
        self._role, self._cpu_secs = role, cpu_secs
        self._process: Any = None
        self._asked = 0
        self._errors: Any = None
        self._answers: queue.Queue[str] = queue.Queue()

    def ask(self, door: str, path: Path) -> dict[str, Any]:
        """Have a file opened; return the answer, or how the process died: "crash" or "hang", and where."""
        if self._process is None or self._asked >= _MOST_FILES:
            self.close()
            self._start()
        self._asked += 1
        try:
            self._process.stdin.write(json.dumps({"door": door, "path": str(path), "cpu_secs": self._cpu_secs}) + "\n")
            self._process.stdin.flush()
            line = self._answers.get(timeout=_ANSWER_SECS)
        except (queue.Empty, BrokenPipeError):
            line = ""
        if line:
            return json.loads(line)
        return self._death()

    def _start(self) -> None:
        self._errors = tempfile.TemporaryFile()
        self._answers, self._asked = queue.Queue(), 0
        environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1]), "OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "fuzz.serving", self._role], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=self._errors, text=True, env=environment,
        )  # fmt: skip
        threading.Thread(target=_forward, args=(self._process.stdout, self._answers), daemon=True).start()

    def _death(self) -> dict[str, Any]:
        is_stuck = self._process.poll() is None and _ended(self._process) is None
        if is_stuck:
            self._process.kill()
        code = self._process.wait()
        self._errors.seek(0)
        said = self._errors.read().decode("utf-8", "replace")
        self.close()
        if is_stuck or code == -signal.SIGPROF:
            return {"died": "hang", "place": _top_frames(said) or f"no answer for {_ANSWER_SECS:.0f} s"}
        return {"died": "crash", "place": f"exit status {code}: {_top_frames(said) or said[-300:]}"}

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.stdin.close()
            self._process.kill()
            self._process.wait()
            self._process.stdout.close()
            self._errors.close()
            self._process = None


def _forward(lines: Any, answers: queue.Queue[str]) -> None:
    try:
        for line in lines:
            answers.put(line)
    except ValueError:  # closed
        pass
    answers.put("")


def _ended(process: subprocess.Popen[str]) -> int | None:
    try:
        return process.wait(5)
    except subprocess.TimeoutExpired:
        return None


def _top_frames(said: str) -> str:
    """The innermost frames of the first thread in a traceback of faulthandler."""
    frames = [line.strip() for line in said.splitlines() if line.startswith("  File ")]
    ours = [frame for frame in frames if "torcheer" in frame] or frames
    return "; ".join(frame.rpartition("/")[2] for frame in ours[:3])


# -- a number of files of one format -----------------------------------------------------------------------------------


@dataclass(slots=True)
class Report:
    """What came of some files."""

    files: int = 0
    accepted: int = 0
    refused: int = 0
    explained: int = 0
    findings: Counter[str] = field(default_factory=Counter)
    kept: list[str] = field(default_factory=list)

    def add(self, other: Report) -> None:
        """Count another's, too."""
        self.files, self.accepted = self.files + other.files, self.accepted + other.accepted
        self.refused, self.explained = self.refused + other.refused, self.explained + other.explained
        self.findings += other.findings
        self.kept += other.kept


class Fuzzer:
    """Two children and a folder for the files; a good file in between shows whether one of them has left a trace."""

    def __init__(self, seed: str, saved: Path, known: Counter[str] | None = None) -> None:
        """`saved`: the folder for findings; `known`: how often each was seen, so that few of a kind are kept."""
        self._seed, self._saved, self._known = seed, saved, known if known is not None else Counter()
        self._ours, self._theirs = Child("opening"), Child("reference")
        self._grammars = grammars()

    def run(self, format: str, numbers: range) -> Report:
        """Write and open some files of a format."""
        report, grammar = Report(), self._grammars[format]
        for number in numbers:
            with tempfile.TemporaryDirectory(prefix="torcheer-fuzz-") as folder:
                self._run_file(grammar, format, f"{self._seed}/{format}/{number}", Path(folder), report)
        return report

    def _run_file(self, grammar: Grammar, format: str, seed: str, folder: Path, report: Report) -> None:
        dice = Dice(seed)
        path = grammar.write(dice, folder)
        findings, ours = self.look(grammar, path, dice.is_good)
        report.files += 1
        report.accepted += "facts" in ours
        report.refused += "refused" in ours
        for finding in findings:
            if explanation(format, finding.text):
                report.explained += 1
                continue
            key = f"{format}: {finding.key}"
            report.findings[key] += 1
            self._known[key] += 1
            if self._known[key] <= _MOST_KEPT:
                report.kept.append(str(self._keep(format, seed, folder, path, dice, finding)))

    def look(self, grammar: Grammar, path: Path, is_good: bool) -> tuple[list[Finding], dict[str, Any]]:
        """Open a file in both children; return the findings, and our answer."""
        ours = self._ours.ask(grammar.door, path)
        theirs = self._theirs.ask(grammar.reference, path) if grammar.reference and "died" not in ours else None
        return list(findings_of(path, ours, theirs, is_good)), ours

    def _keep(self, format: str, seed: str, folder: Path, path: Path, dice: Dice, finding: Finding) -> Path:
        place = self._saved / f"{format}-{finding.kind}-{seed.replace('/', '-')}"
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(folder, place / "files", symlinks=True)
        facts = {"format": format, "path": str(path.relative_to(folder)), "seed": seed, "is_good": dice.is_good,
                 "kind": finding.kind, "text": finding.text}  # fmt: skip
        (place / "finding.json").write_text(json.dumps(facts, indent=1))
        return place

    def close(self) -> None:
        """End both children."""
        self._ours.close()
        self._theirs.close()


def replay(place: Path) -> list[Finding]:
    """Open a kept finding again."""
    facts = json.loads((place / "finding.json").read_text())
    fuzzer = Fuzzer("replay", place)
    try:
        findings, ours = fuzzer.look(grammars()[facts["format"]], place / "files" / facts["path"], facts["is_good"])
    finally:
        fuzzer.close()
    print(f"{place}: ours: {str(ours)[:1000]}")
    return findings
