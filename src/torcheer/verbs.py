"""The public verbs; the only file that may import every room."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from torcheer.archive import load
from torcheer.capture import edits
from torcheer.capture.forward_pass import log_forward_pass as _log_forward_pass
from torcheer.capture.forward_pass import recording
from torcheer.capture.proof.replay import Validation, validate_history
from torcheer.capture.values.save_policy import Save
from torcheer.errors import BadArgument
from torcheer.history import ModelHistory

if TYPE_CHECKING:
    from torcheer.drawing import Drawing, Style
    from torcheer.extraction.extract import Estimate
    from torcheer.extraction.extraction_reader import Extraction
    from torcheer.host.live import Live
    from torcheer.monitor.watch import Watch
    from torcheer.wire.open_viewer import Viewer

__all__ = [
    "ModelHistory",
    "Save",
    "Style",
    "Validation",
    "draw",
    "edits",
    "extract",
    "live",
    "load",
    "log_forward_pass",
    "recording",
    "show",
    "validate",
    "watch",
]


def log_forward_pass(
    model: torch.nn.Module,
    inputs: Any = (),
    *,
    input_kwargs: Mapping[str, Any] | None = None,
    layers_to_save: Any = "all",
    vis_opt: str = "none",
    vis_path: str | os.PathLike[str] | None = None,
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
    try:
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
    except Exception as error:
        if vis_opt != "none" and (partial := getattr(error, "history", None)):
            _write_drawing(partial, vis_path, rolled=vis_opt == "rolled")
        raise
    if vis_opt != "none":
        _write_drawing(history, vis_path, rolled=vis_opt == "rolled")
    return history


def draw(
    what: ModelHistory | torch.nn.Module | torch.Tensor,
    inputs: Any = None,
    *,
    path: str | os.PathLike[str] | None = None,
    rolled: bool = False,
    depth: int | str | None = None,
    direction: str = "auto",
    colour_by: str = "kind",
    style: Any = None,
) -> Drawing:
    """Draw a history; or a model with `inputs`, which is run once; or a loss that was recorded by `torcheer.autograd`,
    with its backward pass.

    >>> drawing = draw(torch.nn.Linear(2, 3), torch.ones(1, 2))
    >>> drawing.boxes
    3
    """
    if isinstance(what, torch.Tensor):
        if inputs is not None or rolled or colour_by != "kind":
            raise BadArgument("draw(loss): inputs, rolled and colour_by belong to a model or a history")
        return _draw_loss(what, path, depth=depth, direction=direction, style=style)
    if isinstance(what, torch.nn.Module):
        if inputs is None:
            raise BadArgument(
                f"draw({type(what).__name__}): a model is drawn from a run, so give it inputs: draw(model, x)"
            )
        what = _log_forward_pass(what, inputs, layers_to_save="none")
    elif not isinstance(what, ModelHistory):
        raise BadArgument(f"draw needs a history, a model with inputs, or a loss, got {type(what).__name__}")
    elif inputs is not None:
        raise BadArgument("draw: a history has run already; inputs go with a model")
    from torcheer.drawing import draw_history  # capturing should not wait for it

    return draw_history(what, path, rolled=rolled, depth=depth, direction=direction, colour_by=colour_by, style=style)


def _draw_loss(loss: torch.Tensor, path: Any, **options: Any) -> Drawing:
    from torcheer.autograd import explain
    from torcheer.drawing import draw_steps

    steps = explain(loss)
    return draw_steps(steps, path, title=steps.loss, **options)


def validate(model: torch.nn.Module, inputs: Any = (), *, input_kwargs: Mapping[str, Any] | None = None) -> Validation:
    """Capture a model and prove it: every operation replays bit for bit, and every edge matters."""
    return validate_history(_log_forward_pass(model, inputs, input_kwargs=input_kwargs))


def extract(
    model: torch.nn.Module,
    data: Any,
    *,
    layers: Any,
    to: str | os.PathLike[str],
    batch_size: int | None = None,
    device: Any = None,
    transform: Any = None,
    workers: int = 0,
    dry_run: bool = False,
    **options: Any,
) -> Extraction | Estimate:
    """Run `model` over `data` and keep `layers` of every sample in the folder `to`; run again, it goes on.

    Also takes `ids`, `shard_samples`, `codec`, `seed` and `progress`: see `torcheer.extraction.extract`.
    """
    from torcheer.extraction.extract import extract as _extract  # capturing should not wait for it

    given: dict[str, Any] = {"batch_size": batch_size, "device": device, "transform": transform, "workers": workers}
    return _extract(model, data, layers=layers, to=to, dry_run=dry_run, **given, **options)


def watch(
    model: torch.nn.Module,
    layers: Any = None,
    *,
    what: Any = ("output", "grad", "weight", "update"),
    every: Any = 20,
    to: str | os.PathLike[str] | None = None,
    **options: Any,
) -> Watch:
    """Look at `layers` of a model on every n-th step of any training loop: `with tl.watch(model, to="run") as w:`.

    Also takes `optimizer`, `rules`, `video`, `callback`, `keep`, `stop_on`, `on_alert`, `step_of`, `tell` and
    `transport`: see `torcheer.inspector.watch`.
    """
    from torcheer.monitor.watch import watch as _watch  # capturing should not wait for it

    return _watch(model, layers, what=what, every=every, to=to, **options)


def show(what: Any, inputs: Any = None, **options: Any) -> Viewer:
    """Look at a history, a model with inputs, a run directory or a recording in the browser, in 3D.

    Takes `port`, `browser`, `block` and `title`: see `torcheer.studio.show`.
    """
    from torcheer.host.show import show as _show  # capturing should not wait for it

    return _show(what, inputs, **options)


def live(model: torch.nn.Module, **options: Any) -> Live:
    """Look at a model while any loop trains it: `with tl.live(model) as view:` around the loop.

    Takes `inputs`, `optimizer`, `to`, `port`, `browser`, `title` and `step_of`: see `torcheer.host.live`.
    """
    from torcheer.host.live import live as _live

    return _live(model, **options)


def __getattr__(name: str) -> Any:  # looked up when asked for: capturing should not wait for it
    if name == "Style":
        from torcheer.drawing import Style

        return Style
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _write_drawing(history: ModelHistory, path: Any, *, rolled: bool) -> None:
    """Every operation in one picture, as `vis_opt` promises."""
    from torcheer.drawing import draw_history

    target = Path(path) if path is not None else Path(f"{history.model_name or 'model'}.svg")
    print(f"drawing written to {draw_history(history, rolled=rolled, depth='all').save(target)}")
