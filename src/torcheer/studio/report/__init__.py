"""Reports: a run or a recorded pass as one HTML file, the studio's own page with what it would have been sent.

The verb `report` writes one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torcheer.terminal import names_options

if TYPE_CHECKING:
    import torch

    from torcheer.disk import StrPath
    from torcheer.history import ModelHistory
    from torcheer.runlog.run_folder import RunFolder
    from torcheer.studio.report.report_writer import Report

MOST_BYTES = 5_000_000


@names_options
def report(
    what: ModelHistory | RunFolder | torch.Tensor | StrPath,
    path: StrPath,
    *,
    steps: Sequence[int] | None = None,
    most_bytes: int = MOST_BYTES,
    title: str = "",
) -> Report:
    """Write a history or a run as a single HTML file: the studio's page, without a server or a network.

    - `what`: a history; a loss of `torcheer.autograd`, with its backward pass step by step; or the path of a run, a
      watch, a recording or a saved history.
    - `path`: the file to write.
    - `steps`: the steps whose values are kept for the 3D view; None: up to 50, evenly spaced.
    - `most_bytes`: the file's maximum size. Pictures get coarser and older states are omitted until it fits; the
      report and the returned object list what was omitted. Statistics and numbers stay exact.
    - `title`: the page's title; by default the run's or model's name.
    """
    from torcheer.history.doors import explained
    from torcheer.studio.report.report_writer import ReportSettings, report_of

    return report_of(explained(what), path, ReportSettings(steps, most_bytes, title))
