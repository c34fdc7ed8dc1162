"""What a capture costs on a GPU, and whether it waits for one: `python benchmarks/gpu.py`.

    python benchmarks/gpu.py                                             measure; gpu.json and gpu.md go to $OUT or here
    python benchmarks/gpu.py --read gpu.json --write docs/benchmarks.md  put earlier numbers into a file
    python benchmarks/gpu.py --tiny                                      small models, on a CPU if need be: does it run?

Needs torchvision and transformers; nothing is downloaded, weights are random.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

import torch
from capture_models import Built, torchvision_models, transformers
from measure import Run, hooks, plain, torcheer, torcheer_records
from report import mark, table, write_section
from torch import nn

WAYS = (plain, hooks, torcheer, torcheer_records)
WARM_UP = 5


@dataclass(frozen=True)
class Case:
    """One row of the table."""

    title: str
    make: Callable[[bool], Built]  # takes whether the model should be tiny
    floor: float
    aim: float


# -- models, made where they run -------------------------------------------------------------------------------------


def _resnet50(tiny: bool) -> Built:
    return torchvision_models().resnet50(), (torch.randn(2 if tiny else 32, 3, 224, 224),)


def _vit(tiny: bool) -> Built:
    return torchvision_models().vit_b_16(), (torch.randn(1 if tiny else 32, 3, 224, 224),)


def _gpt2(tiny: bool) -> Built:
    hf = transformers()
    config = hf.GPT2Config(n_layer=2, n_embd=64, n_head=4) if tiny else hf.GPT2Config()
    return hf.GPT2LMHeadModel(config).bfloat16(), (torch.randint(0, 50257, (8, 32 if tiny else 512)),)


def _llama(tiny: bool) -> Built:
    hf = transformers()
    shape = {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "vocab_size": 128256}
    if tiny:
        shape = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2, "vocab_size": 1000}
    config = hf.LlamaConfig(**shape, num_attention_heads=32, num_key_value_heads=8)
    tokens = torch.randint(0, shape["vocab_size"], (4, 32 if tiny else 1024))
    return hf.LlamaForCausalLM(config).bfloat16(), (tokens,)


CASES = [
    Case("ResNet-50, b32", _resnet50, 1.8, 1.4),
    Case("ViT-B/16, b32", _vit, 1.08, 1.04),
    Case("GPT-2, 8×512, bf16", _gpt2, 2.4, 1.6),
    Case("Llama-shaped 1B, 4×1024, bf16", _llama, 1.15, 1.05),
]


# -- measuring -------------------------------------------------------------------------------------------------------


def measure(case: Case, device: torch.device, *, tiny: bool, pairs: int) -> dict[str, Any]:
    """Wall time of each way, the device idle before and after; memory; waiting."""
    torch.manual_seed(0)
    with device:
        model, inputs = case.make(tiny)
    runs = {way.__name__: way(model.eval(), inputs) for way in WAYS}
    for run in runs.values():
        for _ in range(WARM_UP):
            run()
    took: dict[str, list[float]] = {name: [] for name in runs if name != "plain"}
    plains: dict[str, list[float]] = {name: [] for name in took}
    for number in range(pairs):
        for name in took:
            order = ("plain", name) if number % 2 else (name, "plain")
            for which in order:
                (plains if which == "plain" else took)[name].append(_timed(runs[which], device))
    everything = [seconds for found in plains.values() for seconds in found]
    history = runs["torcheer"]()
    answer = {
        "title": case.title,
        "plain_ms": statistics.median(everything) * 1e3,
        "plain_quarters_ms": [quarter * 1e3 for quarter in statistics.quantiles(everything, n=4)],
        "ops": len(history),
        "pairs": pairs,
        "ms": {name: statistics.median(found) * 1e3 for name, found in took.items()},
        "ratio": {
            name: statistics.median(way / base for way, base in zip(took[name], plains[name], strict=True))
            for name in took
        },
        "difference": _difference(model, inputs, history),
    }
    del history
    if device.type == "cuda":
        answer["peak_gib"] = {name: _peak_gib(runs[name]) for name in ("plain", "hooks", "torcheer")}
        answer["waits"] = {name: _waits(runs[name]) for name in ("plain", "torcheer")}
        answer["runs_where_waiting_is_an_error"] = {name: _never_waits(runs[name]) for name in ("plain", "torcheer")}
    return answer


def _timed(run: Run, device: torch.device) -> float:
    _finish(device)
    start = time.perf_counter()
    run()
    _finish(device)
    return time.perf_counter() - start


def host_name() -> str:
    """The name of the CPU that drives the device: on a slow one a capture costs more."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


def _finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def _peak_gib(run: Run) -> float:
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    run()
    return torch.cuda.max_memory_allocated() / 2**30


def _waits(run: Run) -> int:
    """How often CUDA was asked to wait during a run, by the driver's own record."""
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=activities) as profile:
        run()
    return sum(event.count for event in profile.key_averages() if "Synchronize" in event.key)


def _never_waits(run: Run) -> str:
    """ "yes", or the complaint of torch's own check."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "a prototype feature"
        torch.cuda.set_sync_debug_mode("error")
    try:
        run()
    except RuntimeError as error:
        return str(error).splitlines()[0]
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return "yes"


def _difference(model: nn.Module, inputs: tuple[Any, ...], history: Any) -> float:
    """How far the captured run's output is from a plain one's."""
    output = model(*inputs)
    expected = output if isinstance(output, torch.Tensor) else output.logits
    values = [op.tensor_contents for op in history if op.record.kind == "output"]
    return min(float((value - expected).abs().max()) for value in values if value.shape == expected.shape)


# -- proof -----------------------------------------------------------------------------------------------------------


def _small_models() -> dict[str, Built]:
    convolutions = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.Dropout(0.5), nn.Flatten(), nn.LazyLinear(5)
    )
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    gpt2, tokens = _gpt2(True)
    return {
        "convolutions, batch norm and dropout, training": (convolutions.train(), (torch.randn(4, 3, 16, 16),)),
        "LSTM": (nn.LSTM(16, 16, 2, batch_first=True).eval(), (torch.randn(4, 10, 16),)),
        "TransformerEncoder, training": (nn.TransformerEncoder(layer, 2).train(), (torch.randn(2, 10, 32),)),
        "GPT-2 of two layers, bf16": (gpt2.eval(), tokens),
        "ResNet-18, training": (torchvision_models().resnet18().train(), (torch.randn(4, 3, 64, 64),)),
    }


def prove(device: torch.device) -> dict[str, str]:
    """Validate small models on the device: "valid", or what was wrong."""
    from torcheer import validate

    answers = {}
    with device:
        models = _small_models()
    for title, (model, inputs) in models.items():
        try:
            model(*inputs)  # lazy layers take their shape
            report = validate(model, inputs)
            answers[title] = "valid" if report else str(report)
        except Exception as error:  # one model's failure must not lose the others' numbers
            answers[title] = f"{type(error).__name__}: {error}"
        print(f"{title}: {answers[title].splitlines()[0]}", flush=True)
    return answers


# -- telling ---------------------------------------------------------------------------------------------------------


def as_text(answer: dict[str, Any]) -> str:
    """The numbers as Markdown."""
    rows = []
    for case, found in zip(CASES, answer["cases"], strict=True):
        if "error" in found:
            rows.append([case.title, *["–"] * 9, found["error"]])
            continue
        peak, waits = found.get("peak_gib", {}), found.get("waits", {})
        per_op = (found["ms"]["torcheer"] - found["plain_ms"]) * 1e3 / found["ops"]
        rows.append(
            [
                found["title"],
                f"{found['plain_ms']:.2f}",
                str(found["ops"]),
                f"{found['ms']['hooks']:.2f} ({found['ratio']['hooks']:.2f}x)",
                f"{found['ms']['torcheer']:.2f} ({found['ratio']['torcheer']:.2f}x)",
                f"{found['ms']['torcheer_records']:.1f} ({found['ratio']['torcheer_records']:.2f}x)",
                f"{per_op:.1f}",
                mark(found["ratio"]["torcheer"], case.floor, case.aim),
                " / ".join(f"{peak[way]:.2f}" for way in peak) or "–",
                str(waits["torcheer"] - waits["plain"]) if waits else "–",
                "0" if not found["difference"] else f"{found['difference']:.1g}",
            ]
        )
    header = ["model", "plain, ms", "ops", "hooks, ms", "torcheer, ms", "… and all records", "µs per op"]
    header += ["floor (aim)", "peak GiB plain / hooks / torcheer", "waits added", "output differs by"]
    complaints = [
        f"{found['title']}, {way}: {answered}"
        for found in answer["cases"]
        for way, answered in found.get("runs_where_waiting_is_an_error", {}).items()
        if answered != "yes"
    ]
    strict = "Under `torch.cuda.set_sync_debug_mode('error')` every plain run and every capture passes."
    if complaints:
        strict = "Under `torch.cuda.set_sync_debug_mode('error')`: " + "; ".join(complaints) + "."
    lines = [
        f"{answer['device']}; {answer['versions']}; {answer['pairs']} pairs.",
        table(header, rows),
        strict if any("waits" in found for found in answer["cases"]) else "",
        "Validated on the device: " + "; ".join(f"{title}: {found}" for title, found in answer["proof"].items()) + ".",
    ]
    return "\n\n".join(filter(None, lines))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--pairs", type=int, default=30)
    parser.add_argument("--read", default="")
    parser.add_argument("--write", default="")
    return parser.parse_args()


def main() -> None:
    """Measure, or read what was measured; then tell."""
    options = _options()
    folder = Path(os.environ.get("OUT", "."))
    if options.read:
        answer = json.loads(Path(options.read).read_text())
    else:
        answer = _measure_all(torch.device("cuda" if torch.cuda.is_available() else "cpu"), options)
        (folder / "gpu.json").write_text(json.dumps(answer, indent=1))
        (folder / "gpu.md").write_text(as_text(answer) + "\n")
    print(as_text(answer))
    if options.write:
        write_section(Path(options.write), "gpu", as_text(answer))


def _measure_all(device: torch.device, options: argparse.Namespace) -> dict[str, Any]:
    if device.type == "cpu" and not options.tiny:
        sys.exit("no GPU here; --tiny tries the script on the CPU, --read gpu.json shows what another machine measured")
    hf = transformers()
    versions = f"Python {sys.version.split()[0]}, torch {torch.__version__}, transformers {hf.__version__}"
    name = torch.cuda.get_device_name() if device.type == "cuda" else "CPU"
    answer: dict[str, Any] = {
        "device": f"{name}, {host_name()}",
        "versions": versions,
        "pairs": options.pairs,
        "cases": [],
    }
    for case in CASES:
        try:
            with torch.no_grad():
                found = measure(case, device, tiny=options.tiny, pairs=options.pairs)
        except Exception as error:  # one model's failure must not lose the others' numbers
            found = {"title": case.title, "error": f"{type(error).__name__}: {error}".splitlines()[0]}
        answer["cases"].append(found)
        print(json.dumps(found), flush=True)
        gc.collect()
    answer["proof"] = prove(device)
    return answer


if __name__ == "__main__":
    main()
