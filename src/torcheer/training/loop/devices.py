"""Where a session computes, and how strictly."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from torcheer.errors import BadArgument


def device_of(name: str) -> torch.device:
    """The device of a name; "auto" is a GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if said := missing_device(name):
        raise BadArgument(f"device {name!r}: {said}")
    return torch.device(name)


def missing_device(name: str) -> str:
    """Why this machine does not have a device; "" where it does, or where torch alone can tell."""
    kind, _, number = name.partition(":")
    counts = {"cuda": torch.cuda.device_count, "mps": torch.mps.device_count, "xpu": torch.xpu.device_count}
    if kind not in counts:
        return ""
    count = counts[kind]()
    if not count:
        return f"there is no {kind} device here that torch {torch.__version__} can use; 'auto' takes what there is"
    if number and int(number) >= count:
        return (
            f"there are {count} of them here, {kind}:0 to {kind}:{count - 1}"
            if count > 1
            else f"there is only {kind}:0 here"
        )
    return ""


@contextmanager
def deterministic(wanted: bool) -> Iterator[None]:
    """Let torch refuse operations that may give other numbers a second time."""
    if not wanted:
        yield
        return
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)
