"""What it costs on a GPU to keep some layers, or none: `python benchmarks/gpu_partial.py`.

    python benchmarks/gpu_partial.py                 measure; gpu_partial.json and gpu_partial.md go to $OUT or here
    python benchmarks/gpu_partial.py --tiny          small models, on a CPU if need be: does it run?
    python benchmarks/gpu_partial.py --profile none  where one way spends its time on the host, by cProfile

Each way is compared with a plain forward beside it, run by run. Needs transformers; torchvision where there is one.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import io
import json
import os
import pstats
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

import torch
from capture_models import Built, torchvision_models
from gpu import _gpt2, _llama, host_name
from report import table
from torch import Tensor, nn

import torcheer as tl

Run = Callable[[], Any]
WARM_UP = 5


@dataclass(frozen=True)
class Case:
    """One model, and the modules whose outputs are kept."""

    title: str
    make: Callable[[bool], Built]  # takes whether the model should be tiny
    modules: Callable[[nn.Module], list[str]]
    generates: bool = False  # tokens, one pass after the other, in one recording


class _Bottleneck(nn.Module):
    """ResNet-50's block, with torchvision's in-place operations."""

    def __init__(self, inner: int, width: int, stride: int) -> None:
        super().__init__()
        sizes = [(inner, width, 1, 1), (width, width, 3, stride), (width, 4 * width, 1, 1)]
        self.convs = nn.ModuleList(nn.Conv2d(i, o, k, s, k // 2, bias=False) for i, o, k, s in sizes)
        self.norms = nn.ModuleList(nn.BatchNorm2d(o) for _, o, _, _ in sizes)
        self.relu = nn.ReLU(inplace=True)
        changes = stride != 1 or inner != 4 * width
        shortcut = [nn.Conv2d(inner, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width)]
        self.downsample = nn.Sequential(*shortcut) if changes else None

    def forward(self, x: Tensor) -> Tensor:
        out = x
        for number, (conv, norm) in enumerate(zip(self.convs, self.norms, strict=True)):
            out = norm(conv(out))
            out = self.relu(out) if number < 2 else out
        out += x if self.downsample is None else self.downsample(x)
        return self.relu(out)


class ResNet50(nn.Module):
    """ResNet-50 as torchvision lays it out, for a machine without it."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)
        )
        inner = 64
        for number, (width, blocks) in enumerate([(64, 3), (128, 4), (256, 6), (512, 3)], 1):
            layers = []
            for block in range(blocks):
                layers.append(_Bottleneck(inner, width, 2 if block == 0 and number > 1 else 1))
                inner = 4 * width
            setattr(self, f"layer{number}", nn.Sequential(*layers))
        self.avgpool, self.fc = nn.AdaptiveAvgPool2d((1, 1)), nn.Linear(2048, 1000)

    def forward(self, x: Tensor) -> Tensor:
        x = self.layer4(self.layer3(self.layer2(self.layer1(self.stem(x)))))
        return self.fc(torch.flatten(self.avgpool(x), 1))


def _resnet50(tiny: bool) -> Built:
    models = torchvision_models()
    return (models.resnet50() if models else ResNet50()), (torch.randn(2 if tiny else 32, 3, 224, 224),)


def _gpt2_prompt(tiny: bool) -> Built:
    model, _ = _gpt2(tiny)
    return model.float(), (torch.randint(0, 50257, (1, 16)),)


def _blocks(model: nn.Module) -> list[str]:
    names = [name for name, _ in model.named_modules()]
    if any(name.startswith("transformer.h.") for name in names):
        return [name for name in names if name.rpartition(".")[0] == "transformer.h"]
    return [name for name in names if name.rpartition(".")[0].endswith(("layers", "layer1", "layer2", "layer3"))] + [
        name for name in names if name.rpartition(".")[0] == "layer4"
    ]


CASES = [
    Case("Llama-shaped 1B, 4×1024, bf16", _llama, _blocks),
    Case("ResNet-50, b32", _resnet50, _blocks),
    Case("GPT-2, generate", _gpt2_prompt, _blocks, generates=True),
]


def generating_ways(model: nn.Module, inputs: tuple[Any, ...], names: list[str], *, tiny: bool) -> dict[str, Run]:
    """Ways to look at the tokens that a model generates."""
    count = 4 if tiny else 64
    modules = [model.get_submodule(name) for name in names]
    options = {"max_new_tokens": count, "min_new_tokens": count, "do_sample": False, "pad_token_id": 0}

    def generate(*_: Any) -> Any:
        return model.generate(*inputs, **options)  # type: ignore[operator]

    def record(layers: Any, **more: Any) -> Run:
        def run() -> Any:
            with tl.recording(model, layers_to_save=layers, **more) as history:
                generate()
            return history

        return run

    return {
        "plain": generate,
        "hooks": lambda: _hooked(generate, inputs, modules, lambda value: value),
        "all": record("all"),
        "none": record("none"),
        "modules": record(names),
        "structure=False": record(names, structure=False),
    }


# -- ways ------------------------------------------------------------------------------------------------------------


def ways(model: nn.Module, inputs: tuple[Any, ...], names: list[str]) -> dict[str, Run]:
    """Each way to look into the model, by its title."""
    modules = [model.get_submodule(name) for name in names]
    pattern = f"{names[0].rpartition('.')[0]}.*"
    last = tl.log_forward_pass(model, inputs, layers_to_save="none").find(lambda layer: layer.stored)[-1]
    label, function = last.label, last.name
    found: dict[str, Run] = {
        "plain": lambda: model(*inputs),
        "hooks": lambda: _hooked(model, inputs, modules, lambda value: value),
        "hooks .cpu()": lambda: _hooked(model, inputs, modules, lambda value: value.cpu()),
        "all": lambda: tl.log_forward_pass(model, inputs),
        "none": lambda: tl.log_forward_pass(model, inputs, layers_to_save="none"),
        "modules": lambda: tl.log_forward_pass(model, inputs, layers_to_save=names),
        "modules, cpu": lambda: tl.log_forward_pass(model, inputs, layers_to_save=tl.Save(names, device="cpu")),
        "glob": lambda: tl.log_forward_pass(model, inputs, layers_to_save=pattern),
        "one op": lambda: tl.log_forward_pass(model, inputs, layers_to_save=label),
        "predicate": lambda: tl.log_forward_pass(model, inputs, layers_to_save=lambda layer: layer.name == function),
        "positions": lambda: tl.log_forward_pass(model, inputs, layers_to_save=[3, 7, -1, -2]),
    }
    if "structure" in tl.log_forward_pass.__kwdefaults__:
        found["structure=False"] = lambda: tl.log_forward_pass(model, inputs, layers_to_save=names, structure=False)
        found["structure=False, cpu"] = lambda: tl.log_forward_pass(
            model, inputs, layers_to_save=tl.Save(names, device="cpu"), structure=False
        )
    return found


def _hooked(
    model: Callable[..., Any], inputs: Any, modules: list[nn.Module], take: Callable[[Tensor], Tensor]
) -> list[Tensor]:
    kept: list[Tensor] = []

    def keep(module: nn.Module, args: Any, output: Any) -> None:
        kept.append(take(output if isinstance(output, Tensor) else output[0]))

    handles = [module.register_forward_hook(keep) for module in modules]
    model(*inputs)
    for handle in handles:
        handle.remove()
    return kept


# -- measuring -------------------------------------------------------------------------------------------------------


def measure(case: Case, device: torch.device, options: argparse.Namespace) -> dict[str, Any]:
    """Ratios of wall time with the device idle before and after; peak memory; what stays; equal bits."""
    torch.manual_seed(0)
    with device:
        model, inputs = case.make(options.tiny)
    names = case.modules(model.eval())
    runs = generating_ways(model, inputs, names, tiny=options.tiny) if case.generates else ways(model, inputs, names)
    if options.profile:
        print(_profile(runs[options.profile], device))
        return {}
    for run in runs.values():
        for _ in range(WARM_UP):
            run()
    took: dict[str, list[tuple[float, float]]] = {title: [] for title in runs if title != "plain"}
    for number in range(options.pairs):
        for title in took:
            if number % 2:
                first, second = _timed(runs["plain"], device), _timed(runs[title], device)
            else:
                second, first = _timed(runs[title], device), _timed(runs["plain"], device)
            took[title].append((first, second))
    plain = [first for pairs in took.values() for first, _ in pairs]
    answer: dict[str, Any] = {
        "title": case.title,
        "modules": len(names),
        "plain_ms": statistics.median(plain) * 1e3,
        "ms": {title: statistics.median(second for _, second in pairs) * 1e3 for title, pairs in took.items()},
        "ratio": {title: statistics.median(b / a for a, b in pairs) for title, pairs in took.items()},
        "equal": _equal(runs, names),
    }
    _held.clear()
    if device.type == "cuda":
        answer["peak_gib"] = {title: _peak_gib(run) for title, run in runs.items()}
        answer["left_bytes"] = {title: _left_bytes(run) for title, run in runs.items()}
        if not case.generates:  # the profiler would take minutes over its 50,000 operations
            answer["waits"] = {title: _waits(run) for title, run in runs.items()}
    return answer


_held: dict[int, Any] = {}  # `history = …` in a loop keeps one until the next is there


def _timed(run: Run, device: torch.device) -> float:
    _finish(device)
    start = time.perf_counter()
    _held[id(run)] = run()
    _finish(device)
    return time.perf_counter() - start


def _finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def _peak_gib(run: Run) -> float:
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    run()
    return torch.cuda.max_memory_allocated() / 2**30


def _left_bytes(run: Run) -> int:
    """Bytes on the device that are left when what a run gave is dropped, without the garbage collector."""
    run()
    gc.collect()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    gc.disable()
    try:
        kept = run()
        torch.cuda.synchronize()
        del kept
        return torch.cuda.memory_allocated() - before
    finally:
        gc.enable()


def _waits(run: Run) -> int:
    """How often CUDA was asked to wait during a run, by the driver's own record."""
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=activities) as profile:
        run()
    return sum(event.count for event in profile.key_averages() if "Synchronize" in event.key)


def _equal(runs: dict[str, Run], names: list[str]) -> dict[str, bool]:
    """Whether what each way kept is what the full capture kept, bit for bit."""
    full = runs["all"]()
    if len(list(full[names[0]])) > 1:  # several passes: the first of each
        names = [f"{name}:1" for name in names]
    expected = [_first(full[name].tensor_contents).cpu() for name in names]
    answers = {}
    for title in ("modules", "modules, cpu", "structure=False", "structure=False, cpu"):
        if title in runs:
            history = runs[title]()
            values = [_first(history[name].tensor_contents).cpu() for name in names]
            answers[title] = all(torch.equal(a, b) for a, b in zip(values, expected, strict=True))
    return answers


def _first(value: Any) -> Tensor:
    return value if isinstance(value, Tensor) else value[0]


def _profile(run: Run, device: torch.device) -> str:
    for _ in range(WARM_UP):
        run()
    _finish(device)
    profile = cProfile.Profile()
    profile.enable()
    for _ in range(5):
        run()
        _finish(device)
    profile.disable()
    text = io.StringIO()
    pstats.Stats(profile, stream=text).sort_stats("tottime").print_stats(45)
    return text.getvalue()


# -- telling ---------------------------------------------------------------------------------------------------------


def as_text(answer: dict[str, Any]) -> str:
    """The numbers as Markdown."""
    lines = [f"{answer['device']}; {answer['host']}; {answer['versions']}; {answer['pairs']} pairs."]
    for found in answer["cases"]:
        peak, left, waits = (found.get(key, {}) for key in ("peak_gib", "left_bytes", "waits"))
        rows = [
            [
                title,
                f"{found['ms'][title]:.2f}",
                f"{found['ratio'][title]:.2f}",
                f"{peak[title]:.2f}" if peak else "–",
                str(left.get(title, "–")),
                str(waits[title] - waits["plain"]) if waits else "–",
                {True: "equal", False: "DIFFERS"}.get(found["equal"].get(title), "–"),
            ]
            for title in found["ratio"]
        ]
        header = ["way", "ms", "ratio", "peak GiB", "bytes left", "waits added", "kept values"]
        peak_text = f", peak {peak['plain']:.2f} GiB" if peak else ""
        lines.append(f"**{found['title']}**: {found['modules']} modules, plain {found['plain_ms']:.2f} ms{peak_text}")
        lines.append(table(header, rows))
    return "\n\n".join(lines)


def main() -> None:
    """Measure, then tell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--profile", default="", help="one of the ways, for the first model")
    parser.add_argument("--only", type=int, default=-1, help="number of the model")
    options = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.type == "cpu" and not options.tiny:
        sys.exit("no GPU here; --tiny tries the script on the CPU")
    name = torch.cuda.get_device_name() if device.type == "cuda" else "CPU"
    versions = f"Python {sys.version.split()[0]}, torch {torch.__version__}"
    answer: dict[str, Any] = {"device": name, "host": host_name(), "versions": versions, "pairs": options.pairs}
    answer["cases"] = []
    for number, case in enumerate(CASES):
        if options.only in (-1, number):
            with torch.no_grad():
                found = measure(case, device, options)
            if not found:
                return
            answer["cases"].append(found)
            print(json.dumps(found), flush=True)
            gc.collect()
    folder = Path(os.environ.get("OUT", "."))
    (folder / "gpu_partial.json").write_text(json.dumps(answer, indent=1))
    (folder / "gpu_partial.md").write_text(as_text(answer) + "\n")
    print(as_text(answer))


if __name__ == "__main__":
    main()
