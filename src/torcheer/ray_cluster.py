"""The Ray cluster that extractions and sweeps run on: one that is there, or Ray started on this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

_STARTS: Final = 3  # Ray gives up after 30 s, which a busy machine may need more than


@contextmanager
def joined_cluster(ray: Any) -> Iterator[None]:
    """Use the cluster that this process has joined, else the one of RAY_ADDRESS, else start Ray here.

    What was joined or started here is left again at the end. `ray`: the package, imported by the caller.
    """
    if ray.is_initialized():
        yield
        return
    _start(ray)
    try:
        yield
    finally:
        ray.shutdown()


def _start(ray: Any) -> None:
    """Join the cluster of RAY_ADDRESS, else start Ray here, without its dashboard and usage reports."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Without an address, Ray would join any cluster of this machine.
    local = {} if os.environ.get("RAY_ADDRESS") else {"address": "local", "include_dashboard": False}
    for attempt in range(_STARTS):
        try:
            ray.init(log_to_driver=False, logging_level="ERROR", **local)
            return
        except Exception as error:  # Ray raises no narrower one
            ray.shutdown()
            if "timed out during startup" not in str(error) or attempt == _STARTS - 1:
                raise
