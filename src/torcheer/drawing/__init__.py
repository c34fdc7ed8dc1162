"""Drawings of histories and backward passes, as SVG, PNG, PDF, HTML, DOT or text: the verb `draw`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torcheer.errors import BadArgument
from torcheer.public_names import lazy_names
from torcheer.terminal import names_options

if TYPE_CHECKING:
    import torch

    from torcheer.disk import StrPath
    from torcheer.drawing.drawing import Drawing, draw_history
    from torcheer.drawing.looks.style import Style
    from torcheer.drawing.writers.text_tree import draw_text
    from torcheer.history import ModelHistory
    from torcheer.modelfiles import ModelFile

__all__ = ["Drawing", "Style", "draw_history", "draw_text"]

_HOMES = {
    "Drawing": "torcheer.drawing.drawing",
    "Style": "torcheer.drawing.looks.style",
    "draw_history": "torcheer.drawing.drawing",
    "draw_text": "torcheer.drawing.writers.text_tree",
}

if not TYPE_CHECKING:  # to type checkers a name that is not imported above is an error
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)  # `torcheer.Style` alone needs no layout and no writers


@names_options
def draw(
    what: ModelHistory | torch.nn.Module | torch.Tensor | ModelFile,
    inputs: Any = None,
    *,
    input_kwargs: Mapping[str, Any] | None = None,
    path: StrPath | None = None,
    rolled: bool = False,
    depth: int | str | None = None,
    direction: str = "auto",
    colour_by: str = "kind",
    style: Style | Mapping[str, Any] | None = None,
) -> Drawing:
    """Draw a history; a model, which is run once with `inputs`; the graph of an .onnx or .pt2 file that was loaded; or
    a loss recorded by `torcheer.autograd`, with its backward pass.

    - `what`: what to draw. After a history or a loss the second argument may be the path: `draw(history, "a.svg")`.
    - `inputs`, `input_kwargs`: of a model, as for `log_forward_pass`.
    - `path`: the file to write; the suffix selects the format: .svg, .png, .pdf, .html, .dot, .txt. None: no file.
    - `rolled`: draw repeated layers as one box with a loop; False draws every pass.
    - `depth`: how many levels of modules are expanded; "all" for every operation; None for what fits on a page.
    - `direction`: "down", "right" or "auto".
    - `colour_by`: "kind", "time", "memory", "flops", "parameters" or "gradient".
    - `style`: a `Style`, or a dict of its fields.

    >>> import torch
    >>> drawing = draw(torch.nn.Linear(2, 3), torch.ones(1, 2))
    >>> drawing.boxes
    3
    """
    from torcheer.drawing.drawing import draw_history
    from torcheer.history import doors

    if not doors.is_model(what) and isinstance(inputs, (str, os.PathLike)):
        if path is not None:
            raise BadArgument(f"draw: two paths, {os.fspath(inputs)!r} and {os.fspath(path)!r}; give one")
        inputs, path = None, inputs
    if doors.is_tensor(what) and (inputs is not None or input_kwargs or rolled or colour_by != "kind"):
        raise BadArgument("draw(loss): inputs, rolled and colour_by belong to a model or a history")
    history = doors.history_to_draw(what, inputs, input_kwargs)
    return draw_history(
        history, path, rolled=rolled, depth=depth, direction=direction, colour_by=colour_by, style=style
    )
