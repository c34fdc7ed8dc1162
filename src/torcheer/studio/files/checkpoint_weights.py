"""The weights of a run at its checkpointed steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from torcheer.errors import TorcheerError
from torcheer.modelfiles import FileTensor
from torcheer.modelfiles.model_file import open_apart
from torcheer.vocabulary.dtypes import FLOATS


class Checkpoints:
    """The weights of a run at its checkpointed steps."""

    def __init__(self, run: Path) -> None:
        self._folder = run / "checkpoints"
        self._files: dict[int, dict[str, FileTensor]] = {}
        self.steps: list[int] = []  # that have a checkpoint

    def refresh(self) -> None:
        """List the checkpoints that exist now."""
        try:
            folders = [folder for folder in self._folder.iterdir() if folder.name.isdecimal()]
        except OSError:
            folders = []
        self.steps = sorted(int(folder.name) for folder in folders if (folder / "MANIFEST.json").is_file())
        self._files = {step: tensors for step, tensors in self._files.items() if step in self.steps}

    def weights(self, step: int, name: str) -> NDArray[Any] | None:
        """A parameter at a step, or at the last checkpoint before it."""
        place = self.place(step, name)
        return None if place is None else self._tensors(step)[place[1]].mapped()

    def names(self, step: int) -> list[str]:
        """The names of the parameters at a step, as its checkpoint has them."""
        return list(self._tensors(step))

    def place(self, step: int, name: str) -> tuple[Path, str] | None:
        """The file of a parameter at a step, and its name there, which may begin with that of its model."""
        tensors = self._tensors(step)
        matches = [name] if name in tensors else [key for key in tensors if key.endswith(f".{name}")]
        return (self._file(self._last(step)), matches[0]) if len(matches) == 1 else None

    def _last(self, step: int) -> int:
        """The step of the last checkpoint so far; -1 without one."""
        return max((saved for saved in self.steps if saved <= step), default=-1)

    def _file(self, step: int) -> Path:
        return self._folder / str(step) / "model.safetensors"

    def _tensors(self, step: int) -> dict[str, FileTensor]:
        """The tensors of real numbers; empty if the file is invalid."""
        last = self._last(step)
        if last >= 0 and last not in self._files:
            try:
                tensors = open_apart(self._file(last)).tensors
            except (OSError, TorcheerError):
                tensors = {}
            self._files[last] = {name: tensor for name, tensor in tensors.items() if tensor.type in FLOATS}
        return self._files.get(last, {})
