"""Other people's loops and trackers: drop-in writers, callbacks, exporters.

- `lightning`: `TorcheerCallback`, which watches a `Trainer`'s module, and `TorcheerLogger`
- `transformers`: `TorcheerCallback` for Hugging Face's `Trainer`
- `accelerate`: `TorcheerTracker`, for `accelerator.log`
- `tensorboard`: `SummaryWriter`, with TensorBoard's methods
- `wandb`: `init`, `log`, `watch` and the other names of W&B: `import torcheer.integrations.wandb as wandb`
- `captum`: `attribute`, which is also here

`from torcheer.integrations.lightning import TorcheerCallback`: a module loads the package that it is for when it is
used, and none of them is loaded when torcheer is imported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torcheer.public_names import lazy_names

__all__ = [
    "ExportedRun", "OutsideRun", "accelerate", "attribute", "captum", "export_model", "export_run", "lightning",
    "tensorboard", "transformers", "wandb",
]  # fmt: skip

if TYPE_CHECKING:
    from torcheer.integrations import accelerate, captum, lightning, tensorboard, transformers, wandb
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
        }
        | {
            name: f"{__name__}.{name}"
            for name in ("accelerate", "captum", "lightning", "tensorboard", "transformers", "wandb")
        },
    )
