"""Run tests that failed in CI once more, where a busy machine may be to blame: `retry.py FAILURES`.

FAILURES is what `pytest --failures` wrote in one run. Only tests marked `timing` or `browser` get a
second try, each by itself, at most two a run. One that then passes is printed as FLAKY and must be mended, or listed in
docs/log.md under "Flaky tests"; one that is listed there gets no second try.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parent.parent
MOST = 2
FORGIVABLE = {"timing", "browser"}


def main(path: str) -> int:
    """Decide on the run whose failures are in `path`; the exit status of CI."""
    facts = [json.loads(line) for line in Path(path).read_text().splitlines()]
    failed = {fact["test"]: set(fact["marks"]) for fact in facts if "test" in fact}
    exits = [fact["exit"] for fact in facts if "exit" in fact]
    problem = refusal(failed, exits, listed(ROOT / "docs" / "log.md"))
    if problem:
        print(f"retry: {problem}", file=sys.stderr)
        return 1
    return retry(sorted(failed), passes)


def refusal(failed: dict[str, set[str]], exits: list[int], known: set[str]) -> str:
    """Why there is no second try for these failures; "" where there is."""
    if exits != [1] or not failed:
        return f"the tests did not run to their end (exit codes {exits})"
    if strict := [test for test, marks in failed.items() if not marks & FORGIVABLE or "hypothesis" in marks]:
        return f"{len(strict)} failed that may not fail once: {', '.join(sorted(strict)[:5])}"
    if len(failed) > MOST:
        return f"{len(failed)} tests failed; at most {MOST} are run again"
    if again := sorted(known & {test.partition("[")[0] for test in failed}):
        return f"flaky, and listed as such in docs/log.md: {', '.join(again)}"
    return ""


def retry(tests: list[str], passes: Callable[[str], bool]) -> int:
    """Run each test once more."""
    for test in tests:
        if not passes(test):
            print(f"retry: {test} failed again", file=sys.stderr)
            return 1
        print(f"FLAKY {test}")
    return 0


def passes(test: str) -> bool:
    """Whether a test passes when it is run by itself."""
    return subprocess.run([sys.executable, "-m", "pytest", "-q", test], cwd=ROOT).returncode == 0


def listed(log: Path) -> set[str]:
    """The flaky tests that the log names: lines `- tests/test_x.py::test_y` under the heading "Flaky tests"."""
    section = log.read_text().partition("## Flaky tests")[2].partition("\n## ")[0]
    return set(re.findall(r"^- `?(tests/\w+\.py::\w+)", section, re.MULTILINE))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
