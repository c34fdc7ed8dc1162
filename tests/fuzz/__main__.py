"""python -m fuzz: fresh files of every format for a stated time, with a table of what came of them.

python -m fuzz --secs 60 [--seed 7] [--formats gguf,onnx] [--jobs 2] [--save FOLDER]
python -m fuzz --replay FOLDER…
"""

from __future__ import annotations

import argparse
import random
import sys
from pathlib import Path

from fuzz.driver import Report, replay
from fuzz.grammars import grammars
from fuzz.rounds import run_rounds


def main() -> int:
    """Run what the command line asks for; 1 where there is a finding."""
    parser = argparse.ArgumentParser(prog="python -m fuzz")
    parser.add_argument("--secs", type=float, default=60.0, help="for how long, all formats together")
    parser.add_argument("--seed", default=str(random.SystemRandom().randrange(2**32)))
    parser.add_argument("--formats", default=",".join(grammars()))
    parser.add_argument("--jobs", type=int, default=2, help="files that are looked at at the same time")
    parser.add_argument("--save", type=Path, default=Path("build/fuzz"), help="the folder for findings")
    parser.add_argument("--replay", type=Path, nargs="+", metavar="FOLDER", help="findings to open again")
    given = parser.parse_args()
    if given.replay:
        return max(_replayed(place) for place in given.replay)
    print(f"make fuzz SEED={given.seed}: {given.formats} for {given.secs:.0f} s", flush=True)
    reports = run_rounds(given.formats.split(","), given.seed, given.secs, given.save, given.jobs)
    _print_table(reports)
    for report in reports.values():
        for key, count in report.findings.most_common():
            print(f"{count:6} × {key}")
        for place in report.kept:
            print(f"       python -m fuzz --replay {place}")
    return int(any(report.findings for report in reports.values()))


def _replayed(place: Path) -> int:
    findings = replay(place)
    for finding in findings:
        print(f"{finding.kind}: {finding.text}")
    return int(bool(findings))


def _print_table(reports: dict[str, Report]) -> None:
    names = ("files", "accepted", "refused", "explained")
    print(f"{'format':20}", *(f"{name:>10}" for name in (*names, "findings")))
    for format, report in reports.items():
        counts = [*(getattr(report, name) for name in names), report.findings.total()]
        print(f"{format:20}", *(f"{count:10,}" for count in counts))


if __name__ == "__main__":
    sys.exit(main())
