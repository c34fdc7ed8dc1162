"""What one fresh process draws: `python benchmarks/drawing_measure.py WHAT CASE [WAY]` prints one line of JSON.

model swin_v2_t torchlens        capture and draw, CPU seconds of each
history nested:100000 folded     draw a history that is already there
memory nested:25000              the same unrolled, and its peak memory
"""

from __future__ import annotations

import gc
import json
import re
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import drawing_cases
from processes import resident

DEPTHS = {"folded": None, "unrolled": "all"}
ENOUGH_SECS = 20.0  # of CPU time: no further repeat is begun after these
REPEATS = 4  # drawings after the first

Capture = Callable[[Any, tuple[Any, ...]], Any]  # model, inputs -> what is drawn
Draw = Callable[[Any, Path], int]  # what is drawn, file to write -> how many boxes it shows


# -- ways to draw ----------------------------------------------------------------------------------------------------


def torcheer(depth: str) -> tuple[Capture, Draw]:
    """Our own."""
    from torcheer import log_forward_pass

    return log_forward_pass, _ours(depth)


def torchlens(placement: str) -> tuple[Capture, Draw]:
    """TorchLens, every operation; "auto" leaves Graphviz's dot for a plain layout by rank where the graph is large."""
    import torchlens

    def draw(trace: Any, path: Path) -> int:
        where = {"vis_outpath": str(path.with_suffix("")), "vis_save_only": True, "vis_fileformat": "svg"}
        trace.draw(vis_mode="unrolled", vis_node_placement=placement, **where)
        return _nodes(path)

    return lambda model, inputs: torchlens.trace(model, list(inputs)), draw


def torchview() -> tuple[Capture, Draw]:
    """torchview, all that it can show: every depth, and functions inside modules."""
    import torchview

    def capture(model: Any, inputs: tuple[Any, ...]) -> Any:
        everything = {"depth": 1000, "expand_nested": True, "hide_module_functions": False}
        return torchview.draw_graph(model, input_data=inputs, **everything).visual_graph

    def draw(graph: Any, path: Path) -> int:
        path.write_bytes(graph.pipe(format="svg"))
        return _nodes(path)

    return capture, draw


WAYS: dict[str, Callable[[], tuple[Capture, Draw]]] = {
    "unrolled": lambda: torcheer("unrolled"),
    "folded": lambda: torcheer("folded"),
    "torchlens": lambda: torchlens("auto"),
    "torchlens_dot": lambda: torchlens("dot"),
    "torchview": torchview,
}


def _ours(depth: str) -> Draw:
    return lambda history, path: int(history.draw(path=path, depth=DEPTHS[depth]).boxes)


def _nodes(path: Path) -> int:
    """The boxes in what Graphviz wrote."""
    return len(re.findall('class="node"', path.read_text(encoding="utf-8")))


# -- what is measured ------------------------------------------------------------------------------------------------


def model(name: str, way: str) -> dict[str, Any]:
    """Capture and draw, the first time and again."""
    import torch

    torch.set_num_threads(1)
    torch.backends.mha.set_fastpath_enabled(False)  # peers would see one operation where we see all
    built, inputs = drawing_cases.model(name)
    capture, draw = WAYS[way]()
    with torch.no_grad():
        built(*inputs)  # what torch does once is nobody's cost
        return _repeated(lambda: capture(built, inputs), draw)


def history(case: str, way: str) -> dict[str, Any]:
    """Draw a history whose records are there already; it is made anew each time, for no view of it to be kept."""
    return _repeated(_maker(case), _ours(way)) | {"capture": []}


def memory(case: str) -> dict[str, Any]:
    """The highest resident memory while a history is drawn, over that before it; bytes."""
    drawn, draw = _maker(case)(), _ours("unrolled")
    with tempfile.TemporaryDirectory() as folder:
        gc.collect()
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts here
        before = resident("VmRSS")
        boxes = draw(drawn, Path(folder) / "drawing.svg")
        peak = resident("VmHWM") - before
    return {"ops": len(drawn), "boxes": boxes, "peak": peak}


def _maker(case: str) -> Callable[[], Any]:
    shape, _, ops = case.partition(":")
    return lambda: {"nested": drawing_cases.nested, "flat": drawing_cases.flat}[shape](int(ops)).history()


def _repeated(make: Callable[[], Any], draw: Draw) -> dict[str, Any]:
    captures: list[float] = []
    drawings: list[float] = []
    began = cpu_secs()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "drawing.svg"
        for _ in range(1 + REPEATS):
            start = cpu_secs()
            made = make()
            captured = cpu_secs()
            boxes = draw(made, path)
            drawings.append(cpu_secs() - captured)
            captures.append(captured - start)
            if cpu_secs() - began > ENOUGH_SECS:
                break
        size = path.stat().st_size
    ops = len(made) if hasattr(made, "__len__") else 0
    return {"ops": ops, "boxes": boxes, "bytes": size, "capture": captures, "drawing": drawings}


def cpu_secs() -> float:
    """CPU time of this process and of the children it has waited for: Graphviz is one."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def main() -> None:
    """One measurement, one line."""
    what, *arguments = sys.argv[1:]
    print(json.dumps({"model": model, "history": history, "memory": memory}[what](*arguments)))


if __name__ == "__main__":
    main()
