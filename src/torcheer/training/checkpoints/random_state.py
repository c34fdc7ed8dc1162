"""Every generator of random numbers that training draws from: its state, and setting it again."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch


def rng_state() -> dict[str, Any]:
    """Where the generators of Python, numpy, torch and its devices stand."""
    devices = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    return {**_plain(_host()), "cuda": devices}


def restore_rng(state: Mapping[str, Any]) -> None:
    """Set them; devices that are not here are left out."""
    _set_host(_raw(state))
    if state["cuda"] and torch.cuda.is_available():
        for device, one in zip(range(torch.cuda.device_count()), state["cuda"]):
            torch.cuda.set_rng_state(one, device)


class Apart:
    """Random numbers of their own for some code; everybody else's stay as they were."""

    def __init__(self, seed: int) -> None:
        self._own: Any = None
        with self.drawing():
            random.seed(seed)
            np.random.seed(seed % 2**32)
            torch.default_generator.manual_seed(seed)

    @contextmanager
    def drawing(self) -> Iterator[None]:
        """Where the code draws from its own."""
        others = _host()
        if self._own is not None:
            _set_host(self._own)
        try:
            yield
        finally:
            self._own = _host()
            _set_host(others)

    def state(self) -> dict[str, Any]:
        return _plain(self._own)

    def restore(self, state: Mapping[str, Any]) -> None:
        self._own = _raw(state)


def _host() -> tuple[Any, Any, Any]:
    return random.getstate(), np.random.get_state(legacy=False), torch.get_rng_state()


def _set_host(raw: tuple[Any, Any, Any]) -> None:
    random.setstate(raw[0])
    np.random.set_state(raw[1])
    torch.set_rng_state(raw[2])


def _plain(raw: tuple[Any, Any, Any]) -> dict[str, Any]:
    version, words, gauss = raw[0]
    python = {"version": version, "words": np.array(words, np.uint32), "gauss": gauss}
    return {"python": python, "numpy": raw[1], "torch": raw[2]}


def _raw(state: Mapping[str, Any]) -> tuple[Any, Any, Any]:
    python = state["python"]
    return (python["version"], tuple(python["words"].tolist()), python["gauss"]), state["numpy"], state["torch"]
