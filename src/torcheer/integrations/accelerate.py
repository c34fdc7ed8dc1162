"""Accelerate: a tracker that keeps what `accelerator.log` is given in a run of ours.

from torcheer.integrations.accelerate import TorcheerTracker
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torcheer.errors import BadArgument
from torcheer.integrations.loop_run import published, published_names
from torcheer.integrations.outside_run import OutsideRun
from torcheer.integrations.wandb_parts.wandb_values import pixels
from torcheer.runlog.media.media_types import Image, TableOf, Text

__all__ = ["TorcheerTracker"]

TorcheerTracker: Any


class AccelerateTracker:
    """Keeps settings, numbers, images and tables of a loop with Accelerate.

    tracker = TorcheerTracker("first", logging_dir="runs")
    accelerator = Accelerator(log_with=tracker); accelerator.init_trackers("project", config)

    - `run_name`: the run's folder in `logging_dir`
    - `options`: those of `OutsideRun`: `rules`, `system_secs`, …
    - `tracker.watch(model, every=20)` watches a model as `tl.watch` does
    """

    name = "torcheer"
    requires_logging_directory = False
    main_process_only = True

    def __init__(self, run_name: str, logging_dir: str | os.PathLike[str] = "runs", **options: Any) -> None:
        self.folder = Path(logging_dir) / run_name
        self._options = options
        self._run: OutsideRun | None = None
        super().__init__()

    @property
    def tracker(self) -> OutsideRun:
        """The run; it is opened when it is first asked for."""
        if self._run is None:
            self._run = OutsideRun(self.folder, made_by="accelerate", **self._options)
        return self._run

    def store_init_configuration(self, values: Mapping[str, Any]) -> None:
        self.tracker.configure(values)

    def log(self, values: Mapping[str, Any], step: int | None = None, **_: Any) -> None:
        texts = {name: Text(value) for name, value in values.items() if isinstance(value, str)}
        self.tracker.log({**values, **texts}, self.tracker.step if step is None else step)

    def log_images(self, values: Mapping[str, Any], step: int | None = None, **_: Any) -> None:
        """Keep images: a list of arrays or PIL images under each name."""
        images = {name: [Image(x, layout=layout) for x, layout in map(pixels, each)] for name, each in values.items()}
        self.log(images, step)

    def log_table(
        self, table_name: str, columns: Any = None, data: Any = None, dataframe: Any = None,
        step: int | None = None, **_: Any,
    ) -> None:  # fmt: skip
        """Keep a table."""
        if dataframe is None:
            dataframe = {name: [row[place] for row in data] for place, name in enumerate(columns)}
        self.log({table_name: TableOf(dataframe)}, step)

    def watch(self, model: Any, layers: Any = None, **options: Any) -> Any:
        """Watch a model as `tl.watch` does, in the same run; metrics are judged beside its values."""
        return self.tracker.watch(model, layers, **options)

    def finish(self) -> None:
        if self._run is not None:
            self._run.finish()


@cache
def _tracker() -> type:
    if find_spec("accelerate") is None:
        raise BadArgument("torcheer.integrations.accelerate needs accelerate: pip install accelerate")
    from accelerate.tracking import GeneralTracker

    return published("TorcheerTracker", AccelerateTracker, GeneralTracker)


if not TYPE_CHECKING:
    __getattr__, __dir__ = published_names(__name__, ("accelerate",), {"TorcheerTracker": _tracker})
