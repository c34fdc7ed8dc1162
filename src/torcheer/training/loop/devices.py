"""Device and determinism of a session."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from torcheer.errors import BadArgument


def resolve_device(name: str) -> torch.device:
    """Return the device of a name; "auto" is a GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if problem := missing_device(name):
        raise BadArgument(f"device {name!r}: {problem}")
    return torch.device(name)


def missing_device(name: str) -> str:
    """Explain why this machine lacks a device.

    "" where it has it, or where only torch can tell.
    """
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
def deterministic(is_on: bool) -> Iterator[None]:
    """Make torch raise for operations that are not deterministic."""
    if not is_on:
        yield
        return
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)
