"""Capture: run a model under a recorder and keep every operation.

The verbs `log_forward_pass`, `recording` and `validate`. They load the recorder, and torch, when they are called.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torcheer.errors import BadArgument
from torcheer.terminal import names_options

if TYPE_CHECKING:
    import torch

    from torcheer.capture.proof.replay import Validation
    from torcheer.capture.values.save_policy import Save
    from torcheer.disk import StrPath
    from torcheer.history import ModelHistory
    from torcheer.selection import Layers


@names_options
def log_forward_pass(
    model: torch.nn.Module,
    inputs: Any = (),
    input_kwargs: Mapping[str, Any] | None = None,
    layers_to_save: Layers | Save = "all",
    *,
    vis_opt: str = "none",
    vis_path: StrPath | None = None,
    save_gradients: bool = False,
    edits: Mapping[Any, Any] | None = None,
    seed: int | None = None,
    fused: bool = False,
    level: str = "function",
    structure: bool = True,
    timing: str = "host",
) -> ModelHistory:
    """Run `model` once and return a history of every operation.

    - `inputs`: a tensor; a tuple or list of arguments; a dict of forward's parameters; or one argument of any kind.
    - `input_kwargs`: keyword arguments of forward, in addition to `inputs`.
    - `layers_to_save`: "all", "none", or one or a list of: labels ('conv2d_3', 'conv2d_3:2'), module paths
      ('features.6': the module's output), positions (7, -1), patterns ('features.*': everything inside),
      module classes ('Conv2d', nn.Conv2d), functions ('relu'), modules, roles (below), predicates
      (lambda layer: layer.shape[-1:] == (512,)); a `Save` also sets device and dtype.
    - `vis_opt`: "rolled" or "unrolled" draws the model to `vis_path`; "none" does not.
    - `vis_path`: the file to draw to; by default `<ModelName>.svg` in the working directory.
    - `save_gradients`: save the gradients of saved values in later `backward` calls (`.grad_contents`).
    - `edits`: functions from a layer's output to a new tensor of the same shape, applied while the model runs:
      {'relu_1': tl.edits.zero(), 'head': lambda output: output * 2}; layers are named as for `layers_to_save`.
    - `seed`: seed for torch's random numbers; None: not seeded.
    - `fused`: record a fused attention kernel as one operation, without the operations inside.
    - `level`: "function" records the functions that the code calls, "aten" also the dispatcher calls below.
    - `structure`: False records only outputs of the modules in `layers_to_save`, by forward hooks: no operations, and
      no more cost than hooks.
    - `timing`: "host" reads the host's clock, which on an accelerator is the time of a launch, and called so; "device"
      measures the operations by events of the accelerator, without waiting for it in between.

    Roles name modules of a transformer, whatever its class: of block i, from 0; of each, [*]; of the last, [-1].

    | role | value |
    |---|---|
    | `resid[i]`, `resid[i].in` | what block i returns, what it receives |
    | `attn[i]` or `attn[i].out`, `attn[i].in` | what the attention's output projection returns, what it receives |
    | `attn[i].q`, `attn[i].k`, `attn[i].v` | queries, keys and values, as projected |
    | `attn[i].z` | the heads' results, before the output projection |
    | `cross[i]`, `cross[i].q` … | the same of the attention to another sequence |
    | `mlp[i]` or `mlp[i].out`, `mlp[i].in` | what the MLP returns, what it receives |
    | `mlp[i].hidden` | its neurons: what its last projection receives |
    | `embed`, `norm`, `unembed` | token embeddings, the norm after the last block, the logits |

    >>> import torch
    >>> history = log_forward_pass(torch.nn.Linear(2, 3), torch.ones(1, 2))
    >>> history['linear_1'].tensor_contents.shape
    torch.Size([1, 3])
    """
    if vis_opt not in ("none", "rolled", "unrolled"):
        raise BadArgument(f"vis_opt={vis_opt!r}: use 'none', 'rolled' (loops as one node) or 'unrolled'")
    if vis_opt != "none" and not structure:
        raise BadArgument(f"vis_opt={vis_opt!r} draws the operations of the run; structure=False records none of them")
    from torcheer.capture.forward_pass import CaptureSettings, run_forward_pass

    settings = CaptureSettings(
        layers_to_save=layers_to_save, save_gradients=save_gradients, edits=edits, fused=fused, level=level,
        structure=structure, timing=timing,
    )  # fmt: skip
    try:
        history = run_forward_pass(model, inputs, input_kwargs, settings, seed=seed)
    except Exception as error:
        if vis_opt != "none" and (partial := getattr(error, "history", None)):
            _write_drawing(partial, vis_path, rolled=vis_opt == "rolled")
        raise
    if vis_opt != "none":
        _write_drawing(history, vis_path, rolled=vis_opt == "rolled")
    return history


def _write_drawing(history: ModelHistory, path: StrPath | None, *, rolled: bool) -> None:
    """Draw every operation in one picture, as `vis_opt` promises."""
    target = Path(path) if path is not None else Path(f"{history.model_name or 'model'}.svg")
    print(f"drawing written to {history.draw(rolled=rolled, depth='all').save(target)}")


@names_options
def recording(
    model: torch.nn.Module | None = None,
    *,
    layers_to_save: Layers | Save = "all",
    save_gradients: bool = False,
    edits: Mapping[Any, Any] | None = None,
    fused: bool = False,
    level: str = "function",
    structure: bool = True,
    timing: str = "host",
) -> AbstractContextManager[ModelHistory]:
    """Record the torch functions that are called inside the block: a training step, a `generate` loop.

    The operations of a backward pass run below these functions: they are recorded with `level="aten"` only. Without it
    gradients are there where an optimizer reads them, and with `save_gradients=True` as `.grad_contents`.

    - `model`: its modules and parameters name the operations; None: operations without modules.
    - `layers_to_save`, `save_gradients`, `edits`, `fused`, `level`, `structure`, `timing`: as for `log_forward_pass`.
    """
    from torcheer.capture.forward_pass import CaptureSettings, record_block

    settings = CaptureSettings(
        layers_to_save=layers_to_save, save_gradients=save_gradients, edits=edits, fused=fused, level=level,
        structure=structure, timing=timing,
    )  # fmt: skip
    return record_block(model, settings)


@names_options
def validate(
    what: torch.nn.Module | ModelHistory,
    inputs: Any = (),
    *,
    input_kwargs: Mapping[str, Any] | None = None,
    seed: int | None = None,
) -> Validation:
    """Validate a capture: every operation is reproduced bit for bit, and every edge matters.

    The `verdict` of the report is "held", "FAILED", or "not judged": a part could not be replayed. Only "held" is true.

    - `what`: a model, which is run once with `inputs` and left as it was, its buffers and random generators, too; or a
      history captured in this process.
    - `inputs`, `input_kwargs`, `seed`: as for `log_forward_pass`.
    """
    from torcheer.capture.proof.replay import validate_history, validate_model
    from torcheer.history import ModelHistory

    if isinstance(what, ModelHistory):
        if inputs != () or input_kwargs or seed is not None:
            raise BadArgument("validate: a history has run already; inputs and a seed go with a model")
        return validate_history(what)
    return validate_model(what, inputs, input_kwargs=input_kwargs, seed=seed)


if "torch" in sys.modules:  # whoever has loaded torch will capture: load the recorder now, not in the first capture
    import torcheer.capture.forward_pass  # noqa: F401
