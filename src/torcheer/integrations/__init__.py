"""Other people's loops and trackers: drop-in writers, callbacks, exporters.

Each module loads the package it is for when it is used, and none when torcheer is imported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torcheer.lazy_names import lazy_names

__all__ = ["ExportedRun", "OutsideRun", "attribute", "export_model", "export_run"]

if TYPE_CHECKING:
    from torcheer.integrations.captum import attribute
    from torcheer.integrations.outside_run import OutsideRun
    from torcheer.training.checkpoints.model_export import export_model
    from torcheer.training.trackers.log_export import ExportedRun, export_run

if not TYPE_CHECKING:  # to type checkers a name that is not imported above is an error
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "ExportedRun": "torcheer.training.trackers.log_export",
            "OutsideRun": "torcheer.integrations.outside_run",
            "attribute": "torcheer.integrations.captum",
            "export_model": "torcheer.training.checkpoints.model_export",
            "export_run": "torcheer.training.trackers.log_export",
        },
    )
