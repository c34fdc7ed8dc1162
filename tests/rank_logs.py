"""Logs of several ranks as their watches write them, for tests of who reads them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from seams import LogWriter, statistics_of

from torcheer.records import Sample
from torcheer.samples import Delivery, bits_hash


class RankLog:
    """One rank's log; `look` writes what a watched step gives."""

    def __init__(self, run: Path, rank: int, of: int, parts: Mapping[str, Any] | None = None, **options: Any) -> None:
        facts = {"rank": {"rank": rank, "of": of, "parts": dict(parts or {}), "hashed": ["weight"]}} if of > 1 else {}
        writer = f"watch@rank{rank}" if rank else "watch"
        self.looks = 0
        self.writer = LogWriter(run, writer, **{"tell": None, "keep": ["*/*"], "facts": facts} | options)

    def look(self, step: int, values: Mapping[tuple[str, str], np.ndarray[Any, Any]], **secs: float) -> None:
        """Write arrays by layer and variable, and metrics, of a step; readers see them from here on."""
        for (layer, variable), array in values.items():
            bits = bits_hash(array, 1) if variable == "weight" else None
            delivery = Delivery(Sample(step, layer, variable, array=array), time_secs=time.time(), count=self.looks)
            self.writer.value(delivery, statistics_of(array), bits)
        for name, number in secs.items():
            delivery = Delivery(Sample(step, name, "metric", array=np.array(number)), time_secs=time.time())
            self.writer.value(delivery, statistics_of(delivery.sample.array))
        self.writer.commit()
        self.looks += 1

    def close(self) -> None:
        self.writer.close()
