"""What a drawing costs, with the peers beside it where they and Graphviz are installed: `make bench-drawing`.

    python benchmarks/drawing.py [--only models,histories,memory] [--no-peers] [--write docs/benchmarks.md]

Every measurement is a fresh process (`drawing_measure.py`); numbers are seconds of CPU time, Graphviz's included.
"""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from processes import processor, python, version_of
from report import table, write_section

MEASURE = Path(__file__).resolve().parent / "drawing_measure.py"
LIMIT_SECS = 300
PEERS = {"torchlens": ("torchlens", "torchlens_dot"), "torchview": ("torchview",)}  # package -> its ways
TITLES = {
    "unrolled": "torcheer",
    "folded": "torcheer, folded",
    "torchlens": "TorchLens",
    "torchlens_dot": "TorchLens, dot",
    "torchview": "torchview",
}
MODELS = {"swin_v2_t": ("swin_v2_t", 0.5), "translator": ("transformer, 19 + 19 layers", 1.0)}  # title, floor in s
HISTORIES = [  # case, way, floor in s or None, most boxes or None
    ("nested:100000", "folded", 2.0, 300),
    ("nested:100000", "unrolled", 15.0, None),
    ("flat:100000", "folded", None, None),
    ("flat:100000", "unrolled", None, None),
]
SIZES = (25_000, 50_000, 100_000)
LINEAR = 1.2  # bytes per operation may grow so much from the smallest size to the largest
PARTS = ("models", "histories", "memory")


def main() -> None:
    """Measure, print, write."""
    options = _options()
    chosen = options.only.split(",") if options.only else list(PARTS)
    peers = [] if options.no_peers or not shutil.which("dot") else [package for package in PEERS if version_of(package)]
    make = {"models": lambda: _models(peers), "histories": _histories, "memory": _memory}
    parts = [_environment(peers), *(make[part]() for part in chosen)]
    print("", *parts, sep="\n\n")
    missed = [line.strip("| ") for part in parts for line in part.splitlines() if "MISSED" in line]
    failed = [line.strip("| ") for part in parts for line in part.splitlines() if "fails:" in line]
    print("", *(f"floor missed: {line}" for line in missed), *(f"not measured: {line}" for line in failed), sep="\n")
    if not missed and not failed:
        print("every floor is met")
    if options.write:
        write_section(Path(options.write), "drawing", "\n\n".join(parts))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help=f"some of {','.join(PARTS)}")
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--write", default="", help="put the tables into this file")
    options = parser.parse_args()
    if unknown := set(filter(None, options.only.split(","))) - set(PARTS):
        parser.error(f"--only knows {','.join(PARTS)}, not {','.join(sorted(unknown))}")
    return options


# -- the tables ------------------------------------------------------------------------------------------------------


def _environment(peers: list[str]) -> str:
    versions = [f"{name} {version_of(name)}" for name in ("torch", "torchvision", *peers) if version_of(name)]
    if peers:
        versions.append(_graphviz())
    text = f"Python {platform.python_version()}, {', '.join(versions)}; {processor()}."
    if not shutil.which("dot"):
        return f"{text} Peers are left out: they draw with Graphviz, and there is no `dot` on PATH."
    if absent := [package for package in PEERS if not version_of(package)]:
        text += f" Not installed, so not measured: {', '.join(absent)} (`make setup-peers`)."
    return text


def _models(peers: list[str]) -> str:
    ways = ["unrolled", "folded", *(way for package in peers for way in PEERS[package])]
    rows = []
    for name, (title, floor) in MODELS.items():
        for way in ways:
            found = _measure("model", name, way)
            judged = floor if way == "unrolled" else None
            rows.append([title, TITLES[way], *_cells(found, captured=True), _judge(found, judged)])
            print("  ".join(rows[-1]), flush=True)
    header = ["model", "drawn by", "ops", "boxes", "capture, s", "drawing, s", "… again", "SVG, MiB", "floor"]
    return f"**From a model to an SVG, CPU time**\n\n{table(header, rows)}"


def _histories() -> str:
    rows = []
    for case, way, floor, most in HISTORIES:
        found = _measure("history", case, way)
        rows.append([case.partition(":")[0], way, *_cells(found, captured=False), _judge(found, floor, most)])
        print("  ".join(rows[-1]), flush=True)
    header = ["synthetic history", "", "ops", "boxes", "drawing, s", "… again", "SVG, MiB", "floor"]
    return f"**From a history of 100,000 operations to an SVG, CPU time**\n\n{table(header, rows)}"


def _memory() -> str:
    rows, per_op = [], []
    for shape in ("nested", "flat"):
        per_op.clear()
        for size in SIZES:
            found = _measure("memory", f"{shape}:{size}")
            if "error" in found:
                rows.append([shape, f"{size}", "–", "–", "–", _judge(found, None)])
                continue
            per_op.append(found["peak"] / found["ops"])
            cells = [f"{found['ops']}", f"{found['boxes']}", f"{found['peak'] / 2**20:.0f}", f"{per_op[-1] / 1024:.2f}"]
            rows.append([shape, *cells, _linear(per_op) if size == SIZES[-1] else ""])
            print("  ".join(rows[-1]), flush=True)
    header = ["synthetic history", "ops", "boxes", "peak, MiB", "KiB per op", "linear"]
    return f"**Peak memory of drawing it unrolled**\n\n{table(header, rows)}"


def _cells(found: dict[str, Any], *, captured: bool) -> list[str]:
    if "error" in found:
        return ["–"] * (6 if captured else 5)
    capture = [f"{found['capture'][0]:.2f}"] if captured else []
    again = f"{statistics.median(found['drawing'][1:]):.2f}" if found["drawing"][1:] else "–"
    ops = str(found["ops"] or "–")
    return [ops, str(found["boxes"]), *capture, f"{found['drawing'][0]:.2f}", again, f"{found['bytes'] / 2**20:.1f}"]


def _judge(found: dict[str, Any], floor: float | None, most_boxes: int | None = None) -> str:
    """How the first drawing stands; a drawing of too many boxes is no folded one, however quick."""
    if "error" in found:
        return f"{floor:g} FLOOR MISSED: {found['error']}" if floor else str(found["error"])
    if floor is None:
        return ""
    if most_boxes is not None and found["boxes"] > most_boxes:
        return f"{floor:g} FLOOR MISSED: more than {most_boxes} boxes"
    return f"{floor:g} met" if found["drawing"][0] <= floor else f"{floor:g} FLOOR MISSED"


def _linear(per_op: list[float]) -> str:
    if len(per_op) < len(SIZES):
        return "fails: not all sizes were measured"
    growth = per_op[-1] / per_op[0]
    return f"{growth:.2f} ≤ {LINEAR} met" if growth <= LINEAR else f"{growth:.2f} > {LINEAR} FLOOR MISSED"


# -- processes -------------------------------------------------------------------------------------------------------


def _measure(*arguments: str) -> dict[str, Any]:
    """The answer of one fresh process; {"error": …} where it failed or took too long."""
    try:
        done = python(str(MEASURE), *arguments, limit_secs=LIMIT_SECS)
    except subprocess.TimeoutExpired:
        return {"error": f"did not finish in {LIMIT_SECS} s"}
    if done.returncode:
        error = (done.stderr.strip().splitlines() or ["killed"])[-1]
        print(f"{' '.join(arguments)}: {error}", file=sys.stderr)
        return {"error": f"fails: {error.split(': ')[0]}"}  # the kind of error; its text is on the screen
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def _graphviz() -> str:
    said = subprocess.run(["dot", "-V"], capture_output=True, text=True, check=False).stderr
    return said.strip().replace("dot - graphviz version", "Graphviz").partition(" (")[0]


if __name__ == "__main__":
    main()
