"""Methods of a history that other rooms implement, imported when they are called."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torcheer.errors import TorcheerError

if TYPE_CHECKING:
    from torcheer.network.module_summary import ModuleSummary

StrPath = str | os.PathLike[str]


class Doors:
    """Methods of ModelHistory that are implemented in other rooms."""

    def validate(self, *, perturb: bool = True) -> Any:
        """Replay every operation and compare bit for bit; the report is true if everything held.

        - `perturb`: also prove that every edge matters.
        """
        with _door("validating", "torcheer.capture"):
            from torcheer.capture.proof.replay import validate_history
        return validate_history(self, perturb=perturb)

    def backward(
        self,
        loss: Any = None,
        *,
        gradient: Any = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        inputs: Any = None,
    ) -> Any:
        """Run backward from `loss` and keep gradients; return the history.

        - `loss`: made from the model's output; None for the sum of the first output.
        - `gradient`, `retain_graph`, `create_graph`, `inputs`: as for `Tensor.backward`.
        """
        with _door("backward", "torcheer.capture"):
            from torcheer.capture.values.saved_gradients import backward
        return backward(
            self, loss, gradient=gradient, retain_graph=retain_graph, create_graph=create_graph, inputs=inputs
        )

    def save(self, to: StrPath, *, overwrite: bool = False, parameters: bool = False, codec: Any = "raw") -> Path:
        """Write the history with its values and gradients to the folder `to`; `torcheer.load` opens it.

        - `overwrite`: replace an archive that is there.
        - `parameters`: also write the values of parameters and buffers.
        - `codec`: how values are stored: "raw", "float16", "int8", "zstd", or two joined by "+".
        """
        with _door("saving", "torcheer.archive"):
            from torcheer.archive import save_history
        history: Any = self
        return save_history(history, to, overwrite=overwrite, parameters=parameters, codec=codec)

    def summary(self) -> ModuleSummary:
        """Return parameters, FLOPs, memory, time and repeats (×N) of each module."""
        with _door("summarising", "torcheer.network"):
            from torcheer.network.module_summary import summarise
        history: Any = self
        return summarise(history)

    def draw(
        self,
        path: StrPath | None = None,
        *,
        rolled: bool = False,
        depth: int | str | None = None,
        direction: str = "auto",
        colour_by: str = "kind",
        style: Any = None,
    ) -> Any:
        """Draw the history to the file `path`, if any; see `torcheer.draw` for `rolled` and the others."""
        with _door("drawing to a file", "torcheer.drawing"):
            from torcheer.drawing import draw_history
        history: Any = self
        return draw_history(
            history, path, rolled=rolled, depth=depth, direction=direction, colour_by=colour_by, style=style
        )

    def attention(self, layer: Any) -> Any:
        """Return the attention weights of a layer, recomputed where a fused operation hides them.

        `layer`: a role ("attn[3]"), a module's path, or the label of the operation. The result says whether its
        `weights`, of shape (batch, heads, positions, keys), were recomputed.
        """
        with _door("attention weights", "torcheer.interpret"):
            from torcheer.interpret.attention_weights import attention
        history: Any = self
        return attention(history, layer)

    def report(self, path: StrPath) -> Any:
        """Write the history to the file `path`, a self-contained page."""
        with _door("reporting", "torcheer.drawing"):
            from torcheer.drawing import report_history  # type: ignore[attr-defined, unused-ignore]
        return report_history(self, path)


@contextmanager
def _door(verb: str, room: str) -> Iterator[None]:
    """Raise a clear error if a room does not exist; errors inside an existing room pass through."""
    try:
        yield
    except ImportError as error:
        if not (error.name or "").startswith(room):
            raise
        raise TorcheerError(
            f"{verb} is not part of this version of torcheer: {room} does not offer it yet. "
            f"print(history), history.to_pandas() and history.draw('model.html') work today."
        ) from None
