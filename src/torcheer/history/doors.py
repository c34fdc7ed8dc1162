"""Doors from a history into other rooms, each opened when it is used."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torcheer.errors import TorcheerError


class Doors:
    """What a history does with the help of the rooms that read or made it."""

    def validate(self, **options: Any) -> Any:
        """Replay every operation and compare bit for bit; the report is true when everything held."""
        with _door("validating", "torcheer.capture"):
            from torcheer.capture.proof.replay import validate_history
        return validate_history(self, **options)

    def backward(self, loss: Any = None, **options: Any) -> Any:
        """Run backward from `loss`, or from the sum of the first output, and keep the gradients of what was saved."""
        with _door("backward", "torcheer.capture"):
            from torcheer.capture.values.saved_gradients import backward
        return backward(self, loss, **options)

    def save(self, path: Any, **options: Any) -> Any:
        """Write the history to disk."""
        with _door("saving", "torcheer.archive"):
            from torcheer.archive import save_history
        history: Any = self
        return save_history(history, path, **options)

    def draw(self, *arguments: Any, **options: Any) -> Any:
        """Draw the history; see `torcheer.draw`."""
        with _door("drawing to a file", "torcheer.drawing"):
            from torcheer.drawing import draw_history
        history: Any = self
        return draw_history(history, *arguments, **options)

    def report(self, *arguments: Any, **options: Any) -> Any:
        """Write the history as a page of its own."""
        with _door("reporting", "torcheer.drawing"):
            from torcheer.drawing import report_history  # type: ignore[attr-defined, unused-ignore]
        return report_history(self, *arguments, **options)


@contextmanager
def _door(verb: str, room: str) -> Iterator[None]:
    """Say plainly that a room is not built yet; an error inside a room that is there passes."""
    try:
        yield
    except ImportError as error:
        if not (error.name or "").startswith(room):
            raise
        raise TorcheerError(
            f"{verb} is not part of this version of torcheer: {room} does not offer it yet. "
            f"print(history), history.to_pandas() and history.draw('model.html') work today."
        ) from None
