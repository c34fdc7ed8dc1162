"""Methods of a history that other rooms implement, imported when they are called."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torcheer.errors import TorcheerError


class Doors:
    """Methods of ModelHistory that are implemented in other rooms."""

    def validate(self, **options: Any) -> Any:
        """Replay every operation and compare bit for bit; the report is true if everything held."""
        with _door("validating", "torcheer.capture"):
            from torcheer.capture.proof.replay import validate_history
        return validate_history(self, **options)

    def backward(self, loss: Any = None, **options: Any) -> Any:
        """Run backward from `loss` (default: the sum of the first output) and keep gradients."""
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
        """Write the history as a self-contained page."""
        with _door("reporting", "torcheer.drawing"):
            from torcheer.drawing import report_history  # type: ignore[attr-defined, unused-ignore]
        return report_history(self, *arguments, **options)


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
