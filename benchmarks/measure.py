"""What one fresh process measures: `python benchmarks/measure.py WHAT MODEL WAY...` prints one line of JSON.

A process per measurement, because peers change torch for good: TorchLens leaves 957 names of it patched, nnsight wraps
the model. Each is compared with a plain forward in its own process.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from capture_models import CASES, build
from partial_ways import nnsight_ways, partial_ways
from processes import resident
from torch import nn

Run = Callable[[], Any]  # one run; what it returns is what was kept


# -- ways to look into a model ---------------------------------------------------------------------------------------


def plain(model: nn.Module, inputs: tuple[Any, ...]) -> Run:
    """The model and nothing else."""
    return lambda: model(*inputs)


def hooks(model: nn.Module, inputs: tuple[Any, ...]) -> Run:
    """A forward hook on every module that keeps what the module returned."""
    modules = list(model.modules())

    def run() -> Any:
        kept: list[Any] = []

        def keep(module: nn.Module, args: Any, output: Any) -> None:
            kept.append(output)

        handles = [module.register_forward_hook(keep) for module in modules]
        model(*inputs)
        for handle in handles:
            handle.remove()
        return kept

    return run


def torcheer(model: nn.Module, inputs: tuple[Any, ...]) -> Run:
    """A full capture, all values saved."""
    from torcheer import log_forward_pass

    return lambda: log_forward_pass(model, inputs)


def torcheer_records(model: nn.Module, inputs: tuple[Any, ...]) -> Run:
    """A full capture, and every record, layer and label built."""
    from torcheer import log_forward_pass

    def run() -> Any:
        history = log_forward_pass(model, inputs)
        len(history.layer_labels)
        return history

    return run


def torchlens_trace(model: nn.Module, inputs: tuple[Any, ...]) -> Run:
    """TorchLens's own full capture."""
    import torchlens

    return lambda: torchlens.trace(model, list(inputs))


def torchlens_record(model: nn.Module, inputs: tuple[Any, ...]) -> Run:
    """TorchLens's quick way: values, no graph."""
    import torchlens

    return lambda: torchlens.record(model, list(inputs), default_op=True)


def nnsight_cache(model: nn.Module, inputs: tuple[Any, ...]) -> Run:
    """nnsight's cache of every module's output."""
    import nnsight

    wrapped = nnsight.NNsight(model)

    def run() -> Any:
        with wrapped.trace(*inputs) as tracer:
            cache = tracer.cache(device=None)
        return cache

    return run


WAYS = {
    way.__name__: way
    for way in (plain, hooks, torcheer, torcheer_records, torchlens_trace, torchlens_record, nnsight_cache)
}


# -- what is measured ------------------------------------------------------------------------------------------------


def cost(name: str, ways: list[str], most_pairs: int) -> dict[str, Any]:
    """CPU time of each way over that of the plain forward beside it."""
    model, inputs = build(name)
    forward = plain(model, inputs)
    runs = {way: WAYS[way](model, inputs) for way in ways}
    for run in (forward, *runs.values()):
        run()
        run()
    pairs = min(CASES[name].pairs, most_pairs)
    took: dict[str, list[tuple[int, int]]] = {way: [] for way in ways}
    for number in range(pairs):
        for way, run in runs.items():
            if number % 2:  # whoever runs second may find warmer caches
                second, first = _timed(run), _timed(forward)
            else:
                first, second = _timed(forward), _timed(run)
            took[way].append((first, second))
    answer = {way: _summary(pairs) for way, pairs in took.items()}
    everything = [first for pairs in took.values() for first, _ in pairs]
    ops = len(runs["torcheer"]()) if "torcheer" in runs else 0
    return {"plain_ms": statistics.median(everything) / 1e6, "ops": ops, "ways": answer}


_held: dict[int, Any] = {}  # what each way's last run gave: `history = …` in a loop keeps one until the next is there
AT_ONCE = bool(os.environ.get("LET_GO_AT_ONCE"))


def _timed(run: Run) -> int:
    """CPU nanoseconds of one run, letting go of what the run before kept included."""
    start = time.process_time_ns()
    if AT_ONCE:
        run()
    else:
        _held[id(run)] = run()
    return time.process_time_ns() - start


def _summary(pairs: list[tuple[int, int]]) -> dict[str, float]:
    ratios = sorted(second / first for first, second in pairs)
    quarters = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
    return {"ratio": statistics.median(ratios), "low": quarters[0], "high": quarters[2], "pairs": len(pairs)}


def partial(name: str, most_pairs: int, by: str) -> dict[str, Any]:
    """CPU time of each partial capture over the plain forward beside it, all in one process; peak memory of one run."""
    model, inputs = build(name)
    forward, runs = plain(model, inputs), {"torcheer": partial_ways, "nnsight": nnsight_ways}[by](model, inputs, name)
    took: dict[str, list[tuple[int, int]]] = {way: [] for way in runs}
    for run in (forward, forward, *runs.values()):
        run()
    for number in range(min(CASES[name].pairs, most_pairs)):
        for way, run in runs.items():
            if number % 2:
                second, first = _timed(run), _timed(forward)
            else:
                first, second = _timed(forward), _timed(run)
            took[way].append((first, second))
    _held.clear()
    plain_ns = statistics.median(first for pairs in took.values() for first, _ in pairs)
    return {
        "plain_ms": plain_ns / 1e6,
        "ways": {way: _summary(pairs) for way, pairs in took.items()},
        "peak": {way: _peak(run)[0] for way, run in {"plain": forward, **runs}.items()},
    }


def _peak(run: Run) -> tuple[int, Any]:
    """The highest resident memory of one run over that before it, in bytes, and what the run gave."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts here
    before = resident("VmRSS")
    kept = run()
    return resident("VmHWM") - before, kept


def first(name: str, ways: list[str]) -> dict[str, Any]:
    """How much longer the first run in this process takes than later ones."""
    model, inputs = build(name)
    forward, run = plain(model, inputs), WAYS[ways[0]](model, inputs)
    for _ in range(3):
        forward()
    early = _timed(run)
    later = statistics.median(_timed(run) for _ in range(10))
    return {"extra_ms": (early - later) / 1e6}


def memory(name: str, ways: list[str]) -> dict[str, Any]:
    """The highest resident memory of one run over that before it, and how much of it the kept values are; bytes."""
    model, inputs = build(name)
    forward, run = plain(model, inputs), WAYS[ways[0]](model, inputs)
    for _ in range(2):
        forward()
    run()  # what is made once (twins, caches) is no memory of a capture
    peak, kept = _peak(run)
    theirs = {tensor.untyped_storage().data_ptr() for tensor in (*model.parameters(), *model.buffers(), *inputs)}
    return {"peak": peak, "values": _bytes_in(kept, theirs)}


def _bytes_in(kept: Any, without: set[int]) -> int:
    """The size of the storages behind everything that was kept."""
    values = [op.tensor_contents for op in kept] if hasattr(kept, "layer_labels") else kept
    storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in _tensors(values)}
    return sum(size for address, size in storages.items() if address not in without)


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)


def main() -> None:
    """One measurement, one line."""
    what, name, *ways = sys.argv[1:]
    torch.set_num_threads(1)
    torch.backends.mha.set_fastpath_enabled(CASES[name.partition(":")[0]].fastpath)
    with torch.no_grad():
        if what.startswith("partial"):
            answer = partial(name, int(what.partition(":")[2] or 10**9), *ways)
        elif what.startswith("cost"):
            answer = cost(name, ways, int(what.partition(":")[2] or 10**9))
        else:
            answer = {"first": first, "memory": memory}[what](name, ways)
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
