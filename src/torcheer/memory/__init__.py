"""How much memory a training step will take, computed on meta tensors: the verb `plan`, and `torcheer plan`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from torcheer.terminal import names_options

if TYPE_CHECKING:
    import torch

    from torcheer.memory.memory_plan import Plan


@names_options
def plan(
    model: torch.nn.Module,
    inputs: Any = (),
    *,
    input_kwargs: Mapping[str, Any] | None = None,
    optimizer: Any = None,
    loss: Callable[[Any], Any] | None = None,
    autocast: Any = None,
    dtype: Any = None,
    checkpoint: Any = None,
    accumulate: int = 1,
    world_size: int = 1,
    device: Any = "cuda",
    savings: bool = True,
) -> Plan:
    """Predict the memory of a training step, without a GPU or weights, for models of any size.

    The step runs on meta tensors, which have shapes but no data. Build a large model under
    `with torch.device("meta"):`; of a model with weights, only shapes are used.

    - `model`: any module, on any device.
    - `inputs`, `input_kwargs`: as for `log_forward_pass`; only shapes matter: torch.empty(8, 512, device="meta").
    - `optimizer`: an optimizer instance, a class, a function of parameters, a name from torch.optim ("AdamW"), or a
      list of optimizers; None: a forward pass without gradients.
    - `loss`: a function of the model's output; None: its `.loss`, or the mean of its outputs.
    - `autocast`: plan under torch.autocast with this dtype ("bfloat16"). `dtype`: plan the model with this dtype.
    - `checkpoint`: modules whose activations are recomputed in backward: a path, pattern ('layers.*'), class.
    - `accumulate`: batches per update: with more than one, gradients persist between batches.
    - `world_size`: number of GPUs over which FSDP2 shards parameters, gradients and optimizer state; the batch is that
      of one GPU.
    - `device`: "cuda" or "cpu".
    - `savings`: also plan what bfloat16, checkpointing and sharding would save.
    """
    from torcheer.memory.planned_step import PlanSettings
    from torcheer.memory.planning import plan_model

    settings = PlanSettings(
        autocast=autocast, dtype=dtype, checkpoint=checkpoint, accumulate=accumulate, world_size=world_size,
        device=str(device).partition(":")[0],
    )  # fmt: skip
    return plan_model(model, inputs, input_kwargs, settings, optimizer=optimizer, loss=loss, savings=savings)
