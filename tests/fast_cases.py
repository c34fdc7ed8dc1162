"""Cases of a test of which CI has time for some: the others are left to `make test-slow`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def fast_first(cases: Iterable[Any], fast: int = 1) -> list[Any]:
    """The same cases; from the `fast`-th on they are marked slow."""
    return [
        case if number < fast else pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.slow)
        for number, case in enumerate(cases)
    ]
