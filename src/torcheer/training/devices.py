"""Where a session computes, and how strictly."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


def device_of(name: str) -> torch.device:
    """The device of a name; "auto" is a GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return torch.device(name)


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
