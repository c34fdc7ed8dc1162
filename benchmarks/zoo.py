"""`make zoo`: capture and validate every model we can get, and write docs/zoo.md.

Models run one after another in a process of their own, which is replaced when a model takes too long, too much memory
or brings it down. What was found is kept in build/zoo.jsonl, so that `--again` need only repeat what did not hold.
"""

from __future__ import annotations

import argparse
import dataclasses
import fnmatch
import importlib
import json
import os
import resource
import select
import subprocess
import sys
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path

from zoo_check import Finding, examine
from zoo_report import write

from torcheer.terminal import Progress

ROOT = Path(__file__).parent.parent
KEPT = ROOT / "build" / "zoo.jsonl"
FAMILIES = ("torchvision", "timm", "transformers")
PATIENCE_SECS = 400
MEMORY_BYTES = 12 << 30
REPLACE_AT_BYTES = 3 << 30  # a worker that has grown this large makes room for a fresh one


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only", metavar="PATTERN", default="*", help="models whose family/name fits: 'timm/*', '*rcnn*'"
    )
    parser.add_argument("--quick", action="store_true", help="every tenth model, in eval only")
    parser.add_argument("--again", action="store_true", help="only what did not hold last time")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.worker:
        work()
        return
    kept = {(f.family, f.name, f.mode): f for f in _read_kept()}
    jobs = [job for job in list_jobs(asked.quick) if fnmatch.fnmatch(f"{job[0]}/{job[1]}", asked.only)]
    if asked.again:
        jobs = [job for job in jobs if job not in kept or not kept[job].held]
    KEPT.parent.mkdir(exist_ok=True)
    try:
        for found in run(jobs):
            kept[found.family, found.name, found.mode] = found
            KEPT.write_text("".join(json.dumps(dataclasses.asdict(one)) + "\n" for one in kept.values()))
    except KeyboardInterrupt:
        sys.exit(f"stopped; what was found so far is in {KEPT}, `--again` goes on from there")
    partial = asked.quick or asked.only != "*"
    path = ROOT / ("build" if partial else "docs") / "zoo.md"
    write(path, [kept[job] for job in jobs] if partial else list(kept.values()))
    print(f"written to {path}")


def list_jobs(quick: bool) -> list[tuple[str, str, str]]:
    """(family, model, mode) of everything there is to run."""
    jobs = []
    for family in FAMILIES:
        try:
            names = importlib.import_module(f"zoo_{family}").names()
        except ImportError as error:
            print(f"no {family} here: {error}")
            continue
        modes = ("eval",) if quick else ("eval", "train")
        jobs += [(family, name, mode) for name in names[:: 10 if quick else 1] for mode in modes]
    return jobs


# -- the process that waits --------------------------------------------------------------------------------------------


def run(jobs: list[tuple[str, str, str]]) -> Iterator[Finding]:
    """Each job in turn, in a worker."""
    worker: subprocess.Popen[bytes] | None = None
    try:
        with Progress("zoo", len(jobs), "runs") as progress:
            for job in jobs:
                worker = worker or _start()
                found, usable = _ask(worker, job)
                if not usable:
                    _stop(worker)
                    worker = None
                if not found.held:
                    print(f"{found.family}/{found.name} {found.mode}: {found.trouble[:300]}")
                progress.add(1)
                yield found
    finally:
        if worker is not None:
            _stop(worker)


def _start() -> subprocess.Popen[bytes]:
    command = [sys.executable, __file__, "--worker"]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


def _stop(worker: subprocess.Popen[bytes]) -> None:
    worker.kill()
    worker.wait()


def _ask(worker: subprocess.Popen[bytes], job: tuple[str, str, str]) -> tuple[Finding, bool]:
    """What a worker found, and whether it can be asked again."""
    assert worker.stdin is not None and worker.stdout is not None
    worker.stdin.write(json.dumps(job).encode() + b"\n")
    worker.stdin.flush()
    if not select.select([worker.stdout], [], [], PATIENCE_SECS)[0]:
        return Finding(*job, problem=f"took more than {PATIENCE_SECS} s"), False
    answer = worker.stdout.readline()
    if not answer:
        return Finding(*job, problem=f"the process died: {worker.wait()}"), False
    content, grown = json.loads(answer)
    return Finding(**content), grown < REPLACE_AT_BYTES


# -- the process that works --------------------------------------------------------------------------------------------


def work() -> None:
    """Answer each job on stdin with one line."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a library prints is not an answer
    warnings.filterwarnings("ignore")
    os.environ["HF_HUB_OFFLINE"] = "1"  # nothing is downloaded
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    for line in sys.stdin:
        found = run_one(*json.loads(line))
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        print(json.dumps((dataclasses.asdict(found), grown)), file=answers, flush=True)


def run_one(family: str, name: str, mode: str) -> Finding:
    """Build one model and examine it; what goes wrong becomes the finding."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    found = Finding(family, name, mode)
    try:
        built = importlib.import_module(f"zoo_{family}").build(name, mode == "train")
    except Exception as error:
        found.absent = _say(error)
        return found
    try:
        return examine(found, *built)
    except Exception as error:
        found.problem = _say(error)
        return found


def _say(error: BaseException) -> str:
    place = traceback.extract_tb(error.__traceback__)[-1]
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:300]} ({Path(place.filename).name}:{place.lineno})"


def _read_kept() -> list[Finding]:
    return [Finding(**json.loads(line)) for line in KEPT.read_text().splitlines()] if KEPT.exists() else []


if __name__ == "__main__":
    main()
