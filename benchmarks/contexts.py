"""Models of other libraries, captured, compared with a plain run, replayed: the last table of docs/contexts.md.

`make contexts` makes an environment of these libraries and runs this; `contexts.py diffusers peft` runs some of them.
"""

from __future__ import annotations

import importlib.metadata
import random
import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import redirect_stdout

import numpy
import torch
from capture_models import torchvision_models
from contexts_models import CASES
from zoo_check import DIFFERENT_EACH_TIME, Finding, examine

# Another name for memory that is there: an array of numpy's comes in, a result is put aside. Nothing is computed.
ALIASES = ("aten.lift_fresh.default", "aten.detach.default")
REASONS = {  # why an operation is not replayed, in fewer words
    "unseens come from outside": "constants or arrays from outside",
    "uninitialised memory has no value to compare": "uninitialised memory",
    "inputs come from outside": "",
}


def packages_of(library: str) -> str:
    return {"YOLO (ultralytics)": "ultralytics"}.get(library, library)


def look(library: str, name: str, mode: str) -> Finding:
    """One model in one mode."""
    found = Finding(library, name, mode)
    random.seed(0)
    numpy.random.seed(0)
    torch.manual_seed(0)
    try:
        model, args, kwargs = CASES[library][name]()
    except Exception as error:
        found.absent = f"cannot be built: {type(error).__name__}: {error}"[:300]
        return found
    try:
        examine(found, model, args, kwargs)
    except Exception as error:
        traceback.print_exc(limit=-6)
        found.problem = f"{type(error).__name__}: {error}"[:300]
    found.outside = {name: count for name, count in found.outside.items() if name not in ALIASES}
    return found


def rows(found: list[Finding]) -> Iterator[str]:
    """A line for each model, both modes in it."""
    yield "| library | model | operations, eval / train | replayed equal | held | remarks |"
    yield "|---|---|---:|---:|:-:|---|"
    for library in dict.fromkeys(one.family for one in found):
        version = importlib.metadata.version(packages_of(library))
        for name in dict.fromkeys(one.name for one in found if one.family == library):
            yield row(f"{library} {version}", [one for one in found if (one.family, one.name) == (library, name)])


def row(library: str, modes: list[Finding]) -> str:
    ran = [one for one in modes if not one.absent]
    ops, equal = (" / ".join(f"{getattr(one, field):,}" for one in ran) or "–" for field in ("ops", "equal"))
    held = "yes" if ran and all(one.held for one in ran) else "**no**" if ran else "–"
    return f"| {library} | {modes[0].name} | {ops} | {equal} | {held} | {remarks(modes)} |"


def remarks(modes: list[Finding]) -> str:
    said = list(dict.fromkeys(one.trouble for one in modes if one.trouble))
    said += ["two plain runs differ, too"] * any(one.outputs == DIFFERENT_EACH_TIME for one in modes)
    said += [REASONS.get(reason, reason) for reason in dict.fromkeys(reason for one in modes for reason in one.skipped)]
    return "; ".join(filter(None, said)).replace("|", "/").replace("\n", " ")[:300]


def main(chosen: list[str]) -> int:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torchvision_models()  # peft and ultralytics import torchvision, which has no build for every torch
    found = []
    for library in (one for one in CASES if not chosen or packages_of(one) in chosen):
        for name in CASES[library]:
            for mode in ("eval", "train"):
                with redirect_stdout(sys.stderr):  # what libraries print is no row of the table
                    one = look(library, name, mode)
                found.append(one)
                state = "absent" if one.absent else "held" if one.held else "NOT HELD"
                print(
                    f"{library}: {name}, {mode}: {state} {one.ops} ops, {one.secs:.1f} s {one.trouble}", file=sys.stderr
                )
    print("\n".join(rows(found)))
    ran = [one for one in found if not one.absent]
    models = len({(one.family, one.name) for one in ran})
    print(f"\n{sum(one.held for one in ran)} of {len(ran)} runs of {models} models held.")
    return 0 if all(one.held for one in ran) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
