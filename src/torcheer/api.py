"""The public verbs; the only file that may import every room."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from torcheer.capture import edits
from torcheer.capture.replay import Validation, validate_history
from torcheer.capture.run import log_forward_pass as _log_forward_pass
from torcheer.capture.run import recording
from torcheer.capture.saving import Save
from torcheer.errors import BadArgument
from torcheer.history import ModelHistory

__all__ = ["ModelHistory", "Save", "Validation", "edits", "log_forward_pass", "recording", "validate"]


def log_forward_pass(
    model: torch.nn.Module,
    inputs: Any = (),
    *,
    input_kwargs: Mapping[str, Any] | None = None,
    layers_to_save: Any = "all",
    vis_opt: str = "none",
    save_gradients: bool = False,
    edits: Mapping[Any, Any] | None = None,
    seed: int | None = None,
    fused: bool = False,
    level: str = "function",
) -> ModelHistory:
    """Run `model` once and return everything that happened.

    >>> history = log_forward_pass(torch.nn.Linear(2, 3), torch.ones(1, 2))
    >>> history['linear_1'].tensor_contents.shape
    torch.Size([1, 3])
    """
    if vis_opt not in ("none", "rolled", "unrolled"):
        raise BadArgument(f"vis_opt={vis_opt!r}: use 'none', 'rolled' (loops as one node) or 'unrolled'")
    history = _log_forward_pass(
        model,
        inputs,
        input_kwargs=input_kwargs,
        layers_to_save=layers_to_save,
        save_gradients=save_gradients,
        edits=edits,
        seed=seed,
        fused=fused,
        level=level,
    )
    if vis_opt != "none":
        _write_drawing(history, rolled=vis_opt == "rolled")
    return history


def validate(model: torch.nn.Module, inputs: Any = (), *, input_kwargs: Mapping[str, Any] | None = None) -> Validation:
    """Capture a model and prove it: every operation replays bit for bit, and every edge matters."""
    return validate_history(_log_forward_pass(model, inputs, input_kwargs=input_kwargs))


def _write_drawing(history: ModelHistory, *, rolled: bool) -> None:
    from torcheer.drawing.text import draw_text

    path = Path(f"{type(history).__name__ if not history.model_name else history.model_name}.txt")
    path.write_text(draw_text(history, rolled=rolled), encoding="utf-8")
    print(f"drawing written to {path}")
