"""Save and restore every random generator that training draws from."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch


def rng_state() -> dict[str, Any]:
    """Return the state of the generators of Python, numpy, torch and its devices."""
    devices = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    return {**_to_state(_host()), "cuda": devices}


def restore_rng(state: Mapping[str, Any]) -> None:
    """Restore the generators; devices that this machine lacks are skipped."""
    _set_host(_from_state(state))
    if state["cuda"] and torch.cuda.is_available():
        for device, device_state in zip(range(torch.cuda.device_count()), state["cuda"]):
            torch.cuda.set_rng_state(device_state, device)


@contextmanager
def preserved_random() -> Iterator[None]:
    """Run the body; all generators are afterwards as they were."""
    before = rng_state()
    try:
        yield
    finally:
        restore_rng(before)


class IsolatedRandom:
    """Random generators for some code alone; the global ones stay unchanged."""

    def __init__(self, seed: int) -> None:
        self._generators: Any = None
        with self.active():
            random.seed(seed)
            np.random.seed(seed % 2**32)
            torch.default_generator.manual_seed(seed)

    @contextmanager
    def active(self) -> Iterator[None]:
        """Run the body with these generators in place of the global ones."""
        outer = _host()
        if self._generators is not None:
            _set_host(self._generators)
        try:
            yield
        finally:
            self._generators = _host()
            _set_host(outer)

    def state(self) -> dict[str, Any]:
        return _to_state(self._generators)

    def restore(self, state: Mapping[str, Any]) -> None:
        self._generators = _from_state(state)


def _host() -> tuple[Any, Any, Any]:
    return random.getstate(), np.random.get_state(legacy=False), torch.get_rng_state()


def _set_host(raw: tuple[Any, Any, Any]) -> None:
    random.setstate(raw[0])
    np.random.set_state(raw[1])
    torch.set_rng_state(raw[2])


def _to_state(raw: tuple[Any, Any, Any]) -> dict[str, Any]:
    version, words, gauss = raw[0]
    python = {"version": version, "words": np.array(words, np.uint32), "gauss": gauss}
    return {"python": python, "numpy": raw[1], "torch": raw[2]}


def _from_state(state: Mapping[str, Any]) -> tuple[Any, Any, Any]:
    python = state["python"]
    return (python["version"], tuple(python["words"].tolist()), python["gauss"]), state["numpy"], state["torch"]
