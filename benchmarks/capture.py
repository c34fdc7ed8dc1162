"""What a capture costs, with the peers beside it where they are installed: `make bench-capture`.

    python benchmarks/capture.py [--only mlp,gpt2] [--quick] [--no-peers] [--write docs/benchmarks.md]

Every measurement is a fresh process (`measure.py`); numbers are ratios to a plain forward measured in that process.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from capture_models import CASES
from partial_ways import KEPT
from processes import processor, python, version_of
from report import mark, table, write_section

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parent / "src"
OURS = ("torcheer", "torcheer_records", "hooks")
# Dropping a history before the next is made: glibc hands its memory back, and taking it again faults in every page.
AT_ONCE = {"LET_GO_AT_ONCE": "1"}
PEERS = {  # package -> its ways, and how many pairs
    "torchlens": (("torchlens_trace", "torchlens_record"), 5),
    "nnsight": (("nnsight_cache",), 20),
}
TITLES = {
    "torcheer": "torcheer",
    "at_once": "… let go at once",
    "torcheer_records": "… and all records",
    "hooks": "forward hooks",
    "torchlens_trace": "TorchLens trace",
    "torchlens_record": "TorchLens record",
    "nnsight_cache": "nnsight cache",
}
FIRST_FLOOR_MS = 50
IMPORT_FLOOR_MS = 60
MEMORY_FLOOR = 1.1
# Every operation is a module and nothing is overwritten, so hooks and a capture keep the same values.
SAME_VALUES = ("alexnet:kept", "mlp-wide")
FRESH = 5  # fresh processes whose median is taken


def main() -> None:
    """Measure, print, write."""
    options = _options()
    names = [name for name in CASES if not options.only or name in options.only.split(",")]
    peers = {} if options.no_peers else {package: PEERS[package] for package in PEERS if version_of(package)}
    parts = [
        _environment(peers),
        _costs([name for name in names if CASES[name].timed], peers, most_pairs=8 if options.quick else 10**9),
        _partial([name for name in KEPT if name in names], peers, most_pairs=8 if options.quick else 10**9),
        _first([name for name in ("mlp", "resnet18", "gpt2") if name in names]),
        _memory([name for name in (*SAME_VALUES, "alexnet", "resnet18", "encoder", "gpt2") if _base(name) in names]),
        _imports(),
    ]
    print("", *filter(None, parts), sep="\n\n")
    missed = [line.strip("| ") for part in parts for line in part.splitlines() if "MISSED" in line]
    print("", *(f"floor missed: {line}" for line in missed) if missed else ["every floor is met"], sep="\n")
    if options.write:
        write_section(Path(options.write), "capture", "\n\n".join(filter(None, parts)))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help=f"some of {','.join(CASES)}")
    parser.add_argument("--quick", action="store_true", help="at most 8 pairs: to see that it runs")
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--write", default="", help="put the tables into this file")
    return parser.parse_args()


# -- the tables ------------------------------------------------------------------------------------------------------


def _environment(measured: dict[str, Any]) -> str:
    known = {package: version_of(package) for package in ("torch", "torchvision", "transformers")}
    versions = [f"{package} {found}" for package, found in known.items() if found]
    absent = [package for package in PEERS if not version_of(package)]
    peers = [f"{package} {version_of(package)}" for package in measured]
    text = f"Python {platform.python_version()}, {', '.join(versions + peers)}; {processor()}."
    if absent:
        text += f" Not installed, so not measured: {', '.join(absent)} (`make setup-peers`)."
    return text


def _costs(names: Sequence[str], peers: dict[str, Any], most_pairs: int) -> str:
    ways = ["torcheer", "at_once", *OURS[1:], *(way for ways, _ in peers.values() for way in ways)]
    rows = []
    for name in names:
        case = CASES[name]
        found = _measure(f"cost:{most_pairs}", name, "torcheer")
        cells = {way: _cell(f"cost:{most_pairs}", name, way) for way in OURS[1:]}
        cells["torcheer"] = found.get("ways", {}).get("torcheer", {})
        cells["at_once"] = _cell(f"cost:{most_pairs}", name, "torcheer", **AT_ONCE)
        for peer_ways, pairs in peers.values():
            cells |= {way: _cell(f"cost:{min(pairs, most_pairs)}", name, way) for way in peer_ways}
        ratio = cells["torcheer"].get("ratio", float("nan"))
        rows.append(
            [
                case.title,
                f"{found.get('plain_ms', float('nan')):.2f}",
                str(found.get("ops", "–")),
                *(_ratio(cells[way]) for way in ways),
                mark(ratio, case.floor, case.aim) if ratio == ratio else found.get("error", "not measured"),
            ]
        )
        print("  ".join(rows[-1]), flush=True)
    header = ["model", "plain, ms", "ops", *(TITLES[way] for way in ways), "floor (aim)"]
    return f"**CPU time of a full capture over a plain `no_grad` forward**\n\n{table(header, rows)}"


def _partial(names: Sequence[str], peers: dict[str, Any], most_pairs: int) -> str:
    """What it costs to keep less, with hooks on the same modules beside it, and the peak of resident memory."""
    found = {name: _measure(f"partial:{most_pairs}", name, "torcheer") for name in names}
    found = {name: answer for name, answer in found.items() if "ways" in answer}
    if not found:
        return ""
    for name in found if "nnsight" in peers else ():
        answer = _measure(f"partial:{min(20, most_pairs)}", name, "nnsight")
        for part in ("ways", "peak"):  # in a process of its own, over its own plain forward
            found[name][part] |= answer.get(part, {})
    ways = dict.fromkeys(way.replace(str(number), "n") for answer in found.values() for way, number in _counted(answer))
    rows = []
    for title in ways:
        cells = []
        for answer in found.values():
            way = next((way for way, number in _counted(answer) if way.replace(str(number), "n") == title), None)
            cells.append("–" if way is None else f"{_ratio(answer['ways'][way])} ({answer['peak'][way] / 2**20:.1f})")
        rows.append([title, *cells])
        print("keeping less:", *rows[-1], flush=True)
    header = ["kept", *(f"{CASES[name].title}, {found[name]['plain_ms']:.1f} ms" for name in found)]
    return f"**CPU time of keeping less over a plain forward (peak memory, MiB)**\n\n{table(header, rows)}"


def _counted(answer: dict[str, Any]) -> list[tuple[str, str]]:
    """The ways, each with the number of modules in its title, or a text that is in none."""
    return [(way, way.partition(" ")[0] if way[0].isdigit() else "\0") for way in answer["ways"]]


def _cell(what: str, name: str, way: str, **environment: str) -> dict[str, float]:
    cell: dict[str, float] = _measure(what, name, way, **environment).get("ways", {}).get(way, {})
    return cell


def _ratio(cell: dict[str, float]) -> str:
    if not cell:
        return "fails"
    digits = 2 if cell["ratio"] < 20 else 0
    return f"{cell['ratio']:.{digits}f}"


def _first(names: Sequence[str]) -> str:
    rows = []
    for name in names:
        found = [_measure("first", name, "torcheer").get("extra_ms", float("nan")) for _ in range(FRESH)]
        rows.append([CASES[name].title, *_milliseconds(found, FIRST_FLOOR_MS)])
        print("first capture:", *rows[-1], flush=True)
    header = ["model", "first − later, ms", "least … most", "floor"]
    return f"**First capture in a fresh process over a later one, CPU time**\n\n{table(header, rows)}" if rows else ""


def _memory(names: Sequence[str]) -> str:
    rows = []
    for name in names:
        hooks, ours = (_measure("memory", name, way, MALLOC_MMAP_THRESHOLD_="65536") for way in ("hooks", "torcheer"))
        if "peak" not in hooks or "peak" not in ours:
            continue
        ratio, own = ours["peak"] / hooks["peak"], ours["peak"] / ours["values"]
        judged = _met(ratio, MEMORY_FLOOR) if name in SAME_VALUES else "(hooks keep less)"
        title = CASES[_base(name)].title + (", nothing in place" if ":" in name else "")
        sizes = [f"{size / 2**20:.1f}" for size in (hooks["values"], hooks["peak"], ours["values"], ours["peak"])]
        rows.append([title, *sizes, f"{own:.2f}", f"{ratio:.2f}", judged])
        print("peak memory:", *rows[-1], flush=True)
    header = [
        "model",
        "hooks keep, MiB",
        "hooks' peak",
        "torcheer keeps",
        "torcheer's peak",
        "peak / kept",
        "peak / hooks' peak",
        "floor",
    ]
    return f"**Peak memory of one full capture**\n\n{table(header, rows)}" if rows else ""


def _imports() -> str:
    rows = []
    for statement in ("import torcheer", "from torcheer import log_forward_pass"):
        code = f"import time, torch; t = time.process_time(); {statement}; print((time.process_time() - t) * 1000)"
        found = [float(python("-c", code).stdout or "nan") for _ in range(2 * FRESH)]
        rows.append([f"`{statement}`", *_milliseconds(found, IMPORT_FLOOR_MS)])
        print(*rows[-1], flush=True)
    return f"**Import, beyond `import torch`, CPU time**\n\n{table(['', 'ms', 'least … most', 'floor'], rows)}"


def _milliseconds(found: list[float], floor: float) -> list[str]:
    middle = statistics.median(found)
    return [f"{middle:.1f}", f"{min(found):.1f} … {max(found):.1f}", _met(middle, floor)]


def _met(found: float, floor: float) -> str:
    return f"{floor:g} met" if found <= floor else f"{floor:g} FLOOR MISSED"


# -- processes -------------------------------------------------------------------------------------------------------


def _measure(what: str, name: str, *ways: str, **environment: str) -> dict[str, Any]:
    """The answer of one fresh process; {"error": …} where it failed."""
    done = python(str(HERE / "measure.py"), what, name, *ways, **environment)
    if done.returncode:
        error = (done.stderr.strip().splitlines() or ["killed"])[-1]
        print(f"{what} {name} {' '.join(ways)}: {error}", file=sys.stderr)
        return {"error": error}
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def _base(name: str) -> str:
    return name.partition(":")[0]


if __name__ == "__main__":
    main()
