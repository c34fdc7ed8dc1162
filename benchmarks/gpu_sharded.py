"""A model sharded by FSDP2 on one GPU, captured and watched: `python benchmarks/gpu_sharded.py [--tiny]`.

One process and NCCL (gloo where there is no GPU): what capture and watching cost beside the same sharded model alone,
pair by pair, and whether outputs and losses keep their bits. The same model unsharded is captured beside it: FSDP's own
work is left out, so it has as many operations.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

import torch
import torch.distributed as distributed
from gpu import host_name
from gpu_watch import DEVICE, MODELS, Step, timed, training_step
from report import table
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

import torcheer as tl

EVERY = 5  # each so many steps are watched


def llama(tiny: bool) -> Any:
    """The Llama-shaped 1B, in float32."""
    torch.manual_seed(0)
    return MODELS["llama"][1](tiny)[0].float()


def sharded_llama(tiny: bool) -> tuple[Any, torch.Tensor, Step]:
    """The same with each block a shard group, and bf16 for its work."""
    model = llama(tiny)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16)
    for block in model.model.layers:
        fully_shard(block, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    tokens = torch.randint(0, model.config.vocab_size, (4, 32 if tiny else 1024), device=DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    return model, tokens, training_step(model, optimizer, lambda: model(tokens, labels=tokens).loss)


def paired(way: Callable[[], Any], plain: Callable[[], Any], rounds: int) -> float:
    """The median of a way's time over a plain pass beside it."""
    for _ in range(3):
        way(), plain()
    return statistics.median(timed(way) / timed(plain) for _ in range(rounds))


def capture_rows(model: Any, tokens: torch.Tensor, rounds: int) -> list[list[str]]:
    """A forward pass, captured whole and in part."""
    names = [f"model.layers.{number}" for number in range(len(model.model.layers))]
    with torch.no_grad():
        expected = model(tokens).logits
        history = tl.log_forward_pass(model, tokens, layers_to_save=names)
        full = tl.log_forward_pass(model, tokens)
        (logits,) = full.find(lambda layer: layer.name == "output" and layer.shape == expected.shape)
        same = "equal" if torch.equal(logits.tensor_contents, expected) else "DIFFERS"
        del full, logits

        def plain() -> Any:
            return model(tokens)

        ways: dict[str, Callable[[], Any]] = {
            "everything kept": lambda: tl.log_forward_pass(model, tokens),
            "nothing kept": lambda: tl.log_forward_pass(model, tokens, layers_to_save="none"),
            "blocks": lambda: tl.log_forward_pass(model, tokens, layers_to_save=names),
            "blocks, structure=False": lambda: tl.log_forward_pass(
                model, tokens, layers_to_save=names, structure=False
            ),
        }
        rows = [
            ["forward pass, " + title, f"{paired(way, plain, rounds):.2f}x", same if title == "everything kept" else ""]
            for title, way in ways.items()
        ]
    return [*rows, ["operations", str(len(history)), ""]]


def unsharded_rows(tiny: bool, tokens: torch.Tensor, rounds: int) -> list[list[str]]:
    """A forward pass of the model unsharded in bf16, captured whole; its casts are the model's own."""
    model = llama(tiny).bfloat16().eval()
    with torch.no_grad():
        count = len(tl.log_forward_pass(model, tokens, layers_to_save="none"))
        ratio = paired(lambda: tl.log_forward_pass(model, tokens), lambda: model(tokens), rounds)
    return [["unsharded, everything kept", f"{ratio:.2f}x", ""], ["unsharded, operations", str(count), ""]]


def watch_rows(model: Any, step: Step, twin_step: Step, rounds: int) -> list[list[str]]:
    """Training steps, watched and beside a twin that is not."""
    control = [torch.equal(step(), twin_step()) for _ in range(2 * EVERY)]  # kernels may add in any order
    watch = tl.watch(model, every=EVERY)
    mine, others = list[torch.Tensor](), list[torch.Tensor]()  # losses
    took = dict[int, list[float]]()
    for number in range((3 + rounds) * EVERY):
        ratio = timed(lambda: mine.append(step())) / timed(lambda: others.append(twin_step()))
        if number >= 3 * EVERY:
            took.setdefault(number % EVERY, []).append(ratio)
    equal = sum(map(torch.equal, mine, others))
    ratios = [statistics.median(values) for values in took.values()]
    rows = [
        ["training, the watched step", f"{max(ratios):.2f}x", f"{equal} of {len(mine)} losses equal"],
        ["training before the watch", "", f"{sum(control)} of {len(control)} losses equal"],
        ["training, the other steps", f"{statistics.median(sorted(ratios)[:-1]):.2f}x", ""],
        ["problems of the watch", str(list(watch.problems)), ""],
    ]
    watch.close()
    return rows


def main() -> None:
    """Measure, print."""
    warnings.filterwarnings("ignore")
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True, warn_only=True)  # or twins differ in their bits, watched or not
    parser = argparse.ArgumentParser()
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--rounds", type=int, default=8)
    options = parser.parse_args()
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    store = distributed.FileStore(tempfile.mktemp(), 1)
    distributed.init_process_group("nccl" if DEVICE == "cuda" else "gloo", store=store, rank=0, world_size=1)
    model, tokens, step = sharded_llama(options.tiny)
    rows = unsharded_rows(options.tiny, tokens, options.rounds) + capture_rows(model.eval(), tokens, options.rounds)
    _, _, twin_step = sharded_llama(options.tiny)
    rows += watch_rows(model.train(), step, twin_step, options.rounds)
    gpu = torch.cuda.get_device_name() if DEVICE == "cuda" else "no GPU"
    print(table(["FSDP2, one process", "of the same without us", "bits"], rows))
    print(f"\n{gpu}, {host_name()}, torch {torch.__version__}, {distributed.get_backend()}; {options.rounds} rounds.")
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
