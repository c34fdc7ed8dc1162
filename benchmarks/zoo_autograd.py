"""`make zoo-autograd`: one backward pass of every model we can get, on ours and on torch's, in double precision.

    python benchmarks/zoo_autograd.py [--only 'timm/*'] [--secs 600] [--seed 0]

Models are taken in a random order until the time is up; each is in train mode, with the same seed both times.
"""

from __future__ import annotations

import argparse
import copy
import fnmatch
import importlib
import os
import random
import statistics
import time
import warnings
from collections import Counter
from typing import Any

import numpy
import torch
from zoo import FAMILIES, list_jobs

from torcheer import autograd
from torcheer.capture.record.tensor_trees import leaves, replace, tensors_in
from torcheer.terminal import Progress

LARGEST = 60_000_000  # numbers in a model
CLOSE = 1e-6  # of a parameter's largest gradient, or of a ten-thousandth of the model's where that is more


def main() -> None:
    """Go through the zoo, and say what did not hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="PATTERN", default="*")
    parser.add_argument("--secs", type=float, default=3600)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    warnings.filterwarnings("ignore")
    os.environ["HF_HUB_OFFLINE"] = "1"
    torch.set_num_threads(1)
    jobs = [(family, name) for family, name, mode in list_jobs(quick=False) if mode == "train"]
    jobs = [job for job in jobs if fnmatch.fnmatch("/".join(job), asked.only)]
    random.Random(asked.seed).shuffle(jobs)
    told: Counter[str] = Counter()
    ratios: list[float] = []
    end = time.monotonic() + asked.secs
    with Progress("one backward each", len(jobs), "models") as progress:
        for family, name in jobs:
            if time.monotonic() > end:
                break
            said, ratio = examine(family, name)
            told["equal" if not said else said.split(":")[0]] += 1
            if ratio:
                ratios.append(ratio)
            if said and not said.startswith("left out"):
                print(f"{family}/{name}: {said}")
            progress.add(1)
    print(f"of {', '.join(FAMILIES)}: {dict(told)}; time over torch's, median: {statistics.median(ratios or [0]):.2f}")


def examine(family: str, name: str) -> tuple[str, float]:
    """What did not hold for one model, and how much longer it took than with torch."""
    seed()
    try:
        model, args, kwargs = importlib.import_module(f"zoo_{family}").build(name, True)
        size = sum(parameter.numel() for parameter in model.parameters())
        if size > LARGEST:
            return f"left out: {size:,} numbers", 0
        model = model.double().train()
        tensors = [one.double() if one.is_floating_point() else one for one in leaves((args, kwargs))]
        args, kwargs = replace((args, kwargs), iter(tensors))
        before = copy.deepcopy(model.state_dict())
        loss, theirs, secs = run(model, args, kwargs)
    except Exception as error:  # it cannot be built or trained without us either
        return f"left out: {type(error).__name__}", 0
    model.load_state_dict(before)
    try:
        with autograd.record():
            our_loss, ours, our_secs = run(model, args, kwargs)
    except Exception as error:
        return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}", 0
    if abs(loss - our_loss) > 1e-7 * max(abs(loss), 1e-3):
        return f"another loss: {loss} and {our_loss}", 0
    return compare(theirs, ours), our_secs / secs


def run(model: torch.nn.Module, args: Any, kwargs: Any) -> tuple[float, dict[str, Any], float]:
    """A number made of everything the model returns, its gradients, and how long it took."""
    seed()
    model.zero_grad()
    begin = time.process_time()
    total: Any = 0.0
    for one in tensors_in(model(*args, **kwargs)):
        if one.is_floating_point() and one.numel():
            total = total + (one * torch.linspace(0.5, 1.5, one.numel(), dtype=one.dtype).view(one.shape)).mean()
    total.backward()
    secs = time.process_time() - begin
    return total.item(), {name: one.grad for name, one in model.named_parameters() if one.numel()}, secs


def compare(theirs: dict[str, Any], ours: dict[str, Any]) -> str:
    """The parameter whose gradients are furthest apart, if they are too far."""
    largest = max((one.abs().max().item() for one in theirs.values() if one is not None), default=0.0)
    worst, where = 0.0, ""
    for name, mine in ours.items():
        other = theirs[name]
        if mine is None or other is None:
            present = other if mine is None else mine
            apart = 0.0 if present is None else present.abs().max().item() / (largest or 1)
        else:
            apart = (mine - other).abs().max().item() / max(other.abs().max().item(), 1e-4 * largest, 1e-300)
        if not apart <= worst:
            worst, where = apart, name
    return "" if worst <= CLOSE else f"gradients apart: {where} by {worst:.1e}"


def seed() -> None:
    """The same random numbers each time."""
    torch.manual_seed(0)
    random.seed(0)
    numpy.random.seed(0)


if __name__ == "__main__":
    main()
