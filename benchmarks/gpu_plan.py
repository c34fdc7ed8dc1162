"""What `tl.plan` predicts and what a GPU then allocates: `python benchmarks/gpu_plan.py`.

    python benchmarks/gpu_plan.py            the table: predicted, measured and their ratio, by phase
    python benchmarks/gpu_plan.py --parts    single layers, too: which part of a prediction is wrong
    python benchmarks/gpu_plan.py --peak     what lives at the measured peak, from torch's memory snapshot
    python benchmarks/gpu_plan.py --predict  the predictions alone, where there is no GPU

Needs torchvision and transformers; nothing is downloaded, weights are random. Each case runs three steps (forward,
loss, backward, optimizer); what is printed is the third.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

import torch
import torch.nn.functional as F
from capture_models import torchvision_models, transformers
from torch import Tensor, nn

import torcheer as tl

PHASES = ("forward", "backward", "step")
MB = 1 << 20
Measured = dict[str, tuple[int, int]]  # phase -> its peak, what is allocated at its end


@dataclass(frozen=True)
class Case:
    """One model, how it is trained, and on what."""

    title: str
    model: Callable[[], nn.Module]
    inputs: Callable[[str], dict[str, Any]]  # of a device, as keywords of forward
    optimizer: Callable[[Any], torch.optim.Optimizer]
    loss: Callable[[Any], Tensor] | None = None  # of the output; None: its own
    settings: tuple[tuple[str, Any], ...] = ()  # of tl.plan: autocast, checkpoint
    is_goal: bool = False  # one of the five that have to be within 10%


# -- models ------------------------------------------------------------------------------------------------------------


class UNet(nn.Module):
    """A U-Net of four levels."""

    def __init__(self, width: int = 64, levels: int = 4) -> None:
        super().__init__()
        sizes = [width << level for level in range(levels)]
        self.down = nn.ModuleList(self.block(a, b) for a, b in zip([3, *sizes[:-1]], sizes, strict=True))
        self.middle = self.block(sizes[-1], 2 * sizes[-1])
        self.grow = nn.ModuleList(nn.ConvTranspose2d(2 * size, size, 2, 2) for size in reversed(sizes))
        self.up = nn.ModuleList(self.block(2 * size, size) for size in reversed(sizes))
        self.head = nn.Conv2d(width, 2, 1)

    @staticmethod
    def block(before: int, after: int) -> nn.Sequential:
        layers: list[nn.Module] = []
        for size in (before, after):
            layers += [nn.Conv2d(size, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU(inplace=True)]
        return nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        kept = []
        for block in self.down:
            x = block(x)
            kept.append(x)
            x = F.max_pool2d(x, 2)
        x = self.middle(x)
        for grow, block in zip(self.grow, self.up, strict=True):
            x = block(torch.cat([kept.pop(), grow(x)], 1))
        return self.head(x)


class Reader(nn.Module):
    """An LSTM over words."""

    def __init__(self, words: int = 20000, width: int = 1024) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.lstm = nn.LSTM(width, width, 2, batch_first=True, dropout=0.1)
        self.head = nn.Linear(width, words)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.lstm(self.words(x))[0])


class Attention(nn.Module):
    """Attention alone, with weights so that there is something to train."""

    def __init__(self, width: int, heads: int, key_heads: int | None = None) -> None:
        super().__init__()
        self.heads, self.key_heads = heads, key_heads or heads
        self.q = nn.Linear(width, width, bias=False)
        self.k = nn.Linear(width, width // heads * self.key_heads, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        q = self.q(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        k = self.k(x).unflatten(-1, (self.key_heads, -1)).transpose(1, 2)
        return F.scaled_dot_product_attention(q, k, k, is_causal=True, enable_gqa=self.heads != self.key_heads)


def gpt2(**settings: Any) -> nn.Module:
    return transformers().GPT2LMHeadModel(transformers().GPT2Config(**settings))


def llama() -> nn.Module:
    shape = {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "vocab_size": 128256}
    config = transformers().LlamaConfig(**shape, num_attention_heads=32, num_key_value_heads=8)
    return transformers().LlamaForCausalLM(config).bfloat16()


def images(batch: int, size: int = 224, name: str = "x") -> Callable[[str], dict[str, Any]]:
    return lambda device: {name: torch.empty(batch, 3, size, size, device=device)}


def tokens(batch: int, length: int, words: int) -> Callable[[str], dict[str, Any]]:
    def make(device: str) -> dict[str, Any]:
        ids = torch.zeros(batch, length, dtype=torch.long, device=device)
        return {"input_ids": ids, "labels": ids.clone()}

    return make


def values(*shape: int, name: str = "input", dtype: torch.dtype = torch.float32) -> Callable[[str], dict[str, Any]]:
    return lambda device: {name: torch.zeros(shape, dtype=dtype, device=device)}


def classes(output: Tensor) -> Tensor:
    """Cross entropy of images, or of words, against class 0."""
    flat = output.flatten(0, -2) if output.dim() == 3 else output
    where = [len(flat), *flat.shape[2:]]
    return F.cross_entropy(flat, torch.zeros(where, dtype=torch.long, device=output.device))


SGD = partial(torch.optim.SGD, lr=1e-3, momentum=0.9)
PLAIN = partial(torch.optim.SGD, lr=1e-3)
ADAM = torch.optim.Adam
ADAMW = torch.optim.AdamW
FUSED = partial(torch.optim.AdamW, fused=True)
BF16 = (("autocast", "bfloat16"),)


def cases() -> list[Case]:
    vision = torchvision_models()
    words, wide = tokens(8, 512, 50257), tokens(4, 1024, 128256)
    return [
        Case("ResNet-50, b32, SGD", vision.resnet50, images(32), SGD, classes, is_goal=True),
        Case("ViT-B/16, b32, AdamW", vision.vit_b_16, images(32), ADAMW, classes, is_goal=True),
        Case("GPT-2, 8×512, AdamW", gpt2, words, ADAMW, is_goal=True),
        Case("Llama-shaped 1B, 4×1024, bf16, AdamW", llama, wide, ADAMW, is_goal=True),
        Case("U-Net, b8, 256², Adam", UNet, images(8, 256), ADAM, classes, is_goal=True),
        Case("LSTM, 32×128, Adam", Reader, values(32, 128, name="x", dtype=torch.long), ADAM, classes),
        Case("Llama-shaped 1B, fused AdamW", llama, wide, FUSED),
        Case("ResNet-50, b32, SGD, autocast", vision.resnet50, images(32), SGD, classes, BF16),
        Case("GPT-2, 8×512, AdamW, autocast", gpt2, words, ADAMW, None, BF16),
        Case(
            "GPT-2, 8×512, AdamW, checkpointed",
            partial(gpt2, use_cache=False),
            words,
            ADAMW,
            None,
            (("checkpoint", "GPT2Block"),),
        ),
    ]


def parts() -> list[Case]:
    """Single layers: what does each take?"""
    half = torch.bfloat16

    def one(title: str, layer: Callable[[], nn.Module], *shape: int, name: str = "input", **options: Any) -> Case:
        dtype = options.pop("dtype", torch.float32)
        make = (lambda: layer().to(dtype)) if dtype.is_floating_point else layer
        return Case(title, make, values(*shape, name=name, dtype=dtype), PLAIN, lambda out: out.float().mean())

    return [
        one("Linear 1024, 8192 rows", lambda: nn.Linear(1024, 1024), 8192, 1024),
        one("Linear 1024, 8192 rows, bf16", lambda: nn.Linear(1024, 1024), 8192, 1024, dtype=half),
        one("Linear without bias, bf16", lambda: nn.Linear(1024, 1024, bias=False), 8192, 1024, dtype=half),
        one("Conv 3×3, 64, 56²", lambda: nn.Conv2d(64, 64, 3, padding=1), 32, 64, 56, 56),
        one("Conv 1×1, 256→64, 56²", lambda: nn.Conv2d(256, 64, 1), 32, 256, 56, 56),
        one("Conv 7×7, stride 2", lambda: nn.Conv2d(3, 64, 7, 2, 3), 32, 3, 224, 224),
        one("Conv 3×3, 512, 7²", lambda: nn.Conv2d(512, 512, 3, padding=1), 32, 512, 7, 7),
        one("Conv 3×3, 64, 256²", lambda: nn.Conv2d(64, 64, 3, padding=1), 8, 64, 256, 256),
        one("Conv 3×3, 64, 56², bf16", lambda: nn.Conv2d(64, 64, 3, padding=1), 32, 64, 56, 56, dtype=half),
        one("ConvTranspose 2×2, 128→64", lambda: nn.ConvTranspose2d(128, 64, 2, 2), 8, 128, 128, 128),
        one("BatchNorm 64, 112²", lambda: nn.BatchNorm2d(64), 32, 64, 112, 112),
        one("LayerNorm 768", lambda: nn.LayerNorm(768), 4096, 768),
        one("Embedding 50k", lambda: nn.Embedding(50257, 768), 8, 512, dtype=torch.long),
        one("attention, float32", lambda: Attention(768, 12), 8, 512, 768, name="x"),
        one("attention, bf16", lambda: Attention(2048, 32), 4, 1024, 2048, name="x", dtype=half),
        one("attention of groups, bf16", lambda: Attention(2048, 32, 8), 4, 1024, 2048, name="x", dtype=half),
        one("LSTM 1024, 2 layers", lambda: First(nn.LSTM(1024, 1024, 2)), 128, 32, 1024),
        one("LSTM 512, both ways", lambda: First(nn.LSTM(512, 512, bidirectional=True)), 128, 32, 512),
        one("GRU 1024", lambda: First(nn.GRU(1024, 1024)), 128, 32, 1024),
        one("RNN 1024", lambda: First(nn.RNN(1024, 1024)), 128, 32, 1024),
    ]


class First(nn.Module):
    """The first output of a module."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, input: Tensor) -> Tensor:
        return self.inner(input)[0]


# -- prediction and measurement ----------------------------------------------------------------------------------------


def predict(case: Case) -> tuple[Measured, float]:
    with torch.device("meta"):
        model = case.model()
    begin = time.perf_counter()
    plan = tl.plan(
        model, case.inputs("meta"), optimizer=case.optimizer, loss=case.loss, savings=False, **dict(case.settings)
    )
    secs = time.perf_counter() - begin
    return {phase.name: (phase.peak_bytes, phase.end_bytes) for phase in plan.phases}, secs


def measure(case: Case) -> Measured:
    with torch.device("cuda"):
        model = case.model()
    settings = dict(case.settings)
    if "checkpoint" in settings:
        for module in model.modules():
            if type(module).__name__ == settings["checkpoint"]:
                forward = module.forward
                module.forward = partial(torch.utils.checkpoint.checkpoint, forward, use_reentrant=False)
    optimizer, inputs = case.optimizer(model.parameters()), case.inputs("cuda")
    found: Measured = {}

    def mark(phase: str) -> None:
        found[phase] = (torch.cuda.max_memory_allocated(), torch.cuda.memory_allocated())
        torch.cuda.reset_peak_memory_stats()

    def step() -> None:
        optimizer.zero_grad()
        torch.cuda.reset_peak_memory_stats()
        with torch.autocast("cuda", torch.bfloat16, enabled="autocast" in settings):
            output = model(**inputs)
            loss = case.loss(output) if case.loss else output.loss
        mark("forward")
        loss.backward()
        mark("backward")
        optimizer.step()
        mark("step")

    for _ in range(3):
        step()
    return found


def report_peak(case: Case) -> None:
    """Print what lives at the measured peak, by size and line."""
    torch.cuda.memory._record_memory_history(max_entries=1_000_000, stacks="python")
    measure(case)
    trace = torch.cuda.memory._snapshot()["device_traces"][0]
    torch.cuda.memory._record_memory_history(enabled=None)
    live: dict[int, int] = {}
    total = most = place = 0
    for number, event in enumerate(trace):
        if event["action"] == "alloc":
            total += event["size"]
        elif event["action"] == "free_completed":
            total -= event["size"]
        if total > most:
            most, place = total, number
    for number, event in enumerate(trace[: place + 1]):
        if event["action"] == "alloc":
            live[event["addr"]] = number
        elif event["action"] == "free_completed":
            live.pop(event["addr"], None)
    groups = Counter[tuple[int, str]]()
    for number in live.values():
        groups[trace[number]["size"], line_of(trace[number])] += 1
    print(f"    at the peak, {most / MB:,.0f} MB in {len(live)} blocks, last {line_of(trace[place])}:")
    for event in trace[max(place - 8, 0) : place + 1]:
        print(f"      {event['action']:<15} {event['size'] / MB:9,.2f} MB  {line_of(event)}")
    for (size, line), count in sorted(groups.items(), key=lambda item: -item[0][0] * item[1])[:12]:
        print(f"    {size * count / MB:9,.1f} MB = {count} × {size / MB:,.2f}  {line}")


def line_of(event: dict[str, Any]) -> str:
    named = [frame for frame in event.get("frames", ()) if frame["filename"].endswith(".py")]
    places = [f"{Path(frame['filename']).name}:{frame['line']} {frame['name']}" for frame in named[:2]]
    return " < ".join(places) or "?"


def show(case: Case, *, peaks: bool, predict_only: bool) -> float | None:
    try:
        predicted, secs = predict(case)
        if predict_only:
            print(f"{case.title:<40} {text(predicted)}   ({secs:.1f} s)", flush=True)
            return None
        measured = measure(case)
    except Exception:
        print(f"{case.title}: {traceback.format_exc()}", flush=True)
        return None
    finally:
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
    ratio = max(peak for peak, _ in predicted.values()) / max(peak for peak, _ in measured.values())
    print(f"{case.title:<40} ratio {ratio:.3f}{'  OUTSIDE' * (abs(ratio - 1) > 0.1)}   (planned in {secs:.1f} s)")
    print(f"    predicted  {text(predicted)}")
    print(f"    measured   {text(measured)}", flush=True)
    if peaks:
        report_peak(case)
        gc.collect()
        torch.cuda.empty_cache()
    return ratio


def text(found: Measured) -> str:
    cells = (f"{phase} {found[phase][0] / MB:8,.0f} (end {found[phase][1] / MB:8,.0f})" for phase in PHASES)
    return " · ".join(cells) + " MB"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", action="store_true", help="single layers, too")
    parser.add_argument("--peak", action="store_true", help="what lives at the measured peak")
    parser.add_argument("--predict", action="store_true", help="predictions alone")
    parser.add_argument("--only", default="", help="cases whose title has this text")
    chosen = parser.parse_args()
    name = "no GPU" if chosen.predict else torch.cuda.get_device_name()
    print(f"{name}, torch {torch.__version__}; MB of 2^20 bytes", flush=True)
    for case in [*(parts() if chosen.parts else ()), *cases()]:
        if chosen.only in case.title:
            show(case, peaks=chosen.peak and (case.is_goal or chosen.parts), predict_only=chosen.predict)


if __name__ == "__main__":
    main()
