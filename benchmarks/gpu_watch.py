"""What a watched training step costs on a GPU: `python benchmarks/gpu_watch.py [--profile] [--tiny] [--only resnet]`.

A watched model and an unwatched twin take turns, step by step; each step is waited for and timed by the clock. With
`--profile` the functions, launches and kernels of a watched step are printed beside those of a plain one.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from gpu import transformers
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

import torcheer as tl

Step = Callable[[], Any]
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def resnet(tiny: bool) -> tuple[nn.Module, Step]:
    import torchvision

    model = torchvision.models.resnet18(weights=None).to(DEVICE)
    x = torch.rand(4 if tiny else 128, 3, *(2 * (64 if tiny else 224,)), device=DEVICE)
    y = torch.randint(0, 10, (len(x),), device=DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3, momentum=0.9)
    return model, training_step(model, optimizer, lambda: nn.functional.cross_entropy(model(x), y))


def llama(tiny: bool) -> tuple[nn.Module, Step]:
    hf = transformers()
    shape = {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "vocab_size": 128256}
    if tiny:
        shape = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2, "vocab_size": 1000}
    config = hf.LlamaConfig(**shape, num_attention_heads=32, num_key_value_heads=8)
    model = hf.LlamaForCausalLM(config).bfloat16().to(DEVICE).train()
    tokens = torch.randint(0, shape["vocab_size"], (4, 32 if tiny else 1024), device=DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    return model, training_step(model, optimizer, lambda: model(tokens, labels=tokens).loss)


def training_step(model: nn.Module, optimizer: torch.optim.Optimizer, loss_of: Callable[[], torch.Tensor]) -> Step:
    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = loss_of()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


MODELS = {"resnet": ("ResNet-18, 128 of 224×224", resnet), "llama": ("Llama-shaped 1B, 4×1024, bf16", llama)}


def wait() -> None:
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def timed(step: Step) -> float:
    wait()
    start = time.perf_counter()
    step()
    wait()
    return time.perf_counter() - start


def measure(name: str, tiny: bool, rounds: int, every: int = 5) -> None:
    title, make = MODELS[name]
    torch.manual_seed(0)
    _, plain = make(tiny)
    torch.manual_seed(0)
    model, step = make(tiny)
    for _ in range(3):
        plain(), step()
    idle = statistics.median(timed(step) / timed(plain) for _ in range(rounds))
    watch = tl.watch(model, every=every)
    lines = []
    while watch.watched_count < 3 if hasattr(watch, "watched_count") else len(lines) < 3 * every:
        lines.append((step(), plain()))
    peak = [0.0, 0.0]
    took: dict[int, list[tuple[float, float]]] = {}
    for number in range(rounds * every):
        took.setdefault(number % every, []).append((timed(step), timed(plain)))
    ratios = {place: statistics.median(a / b for a, b in pairs) for place, pairs in took.items()}
    plain_ms = 1e3 * statistics.median(b for pairs in took.values() for _, b in pairs)
    print(
        f"{title}: plain {plain_ms:.1f} ms; before a watch {idle:.3f}x; steps of {every}: "
        + ", ".join(f"{ratio:.2f}x" for ratio in ratios.values()),
        flush=True,
    )
    watch.close()
    del watch, peak


def profile(name: str, tiny: bool) -> None:
    title, make = MODELS[name]
    torch.manual_seed(0)
    model, step = make(tiny)
    for _ in range(3):
        step()
    plain = kernels(step)
    watch = tl.watch(model, every=1)
    for _ in range(4):
        step()
    watched = kernels(step)
    print(f"{title}: plain {plain}; watched {watched}", flush=True)
    wait()
    with cProfile.Profile() as profiler:
        for _ in range(3):
            step()
            wait()
    pstats.Stats(profiler).sort_stats("tottime").print_stats(38)
    watch.close()


def kernels(step: Step) -> dict[str, float]:
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as trace

    wait()
    with trace(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as traced:
        step()
        wait()
    events = traced.key_averages()
    launches = sum(event.count for event in events if "Launch" in event.key or "cudaMemcpy" in event.key)
    device = sum(getattr(event, "self_device_time_total", 0) for event in events) / 1e3
    syncs = sum(event.count for event in events if "Synchronize" in event.key)
    return {"launches": launches, "device_ms": round(device, 1), "syncs": syncs}


def main() -> None:
    warnings.filterwarnings("ignore")
    parser = argparse.ArgumentParser()
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--rounds", type=int, default=8)
    options = parser.parse_args()
    for name in MODELS:
        if options.only in ("", name):
            measure(name, options.tiny, options.rounds)
            if options.profile:
                profile(name, options.tiny)


if __name__ == "__main__":
    main()
