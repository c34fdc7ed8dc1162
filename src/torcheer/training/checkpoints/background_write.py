"""Write a checkpoint while training goes on: tensors are copied to the host, a thread writes the copies."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from torcheer.training.checkpoints.checkpoint_files import Packed


class HostCopies:
    """Memory for the copies of a checkpoint's tensors, used again by the next one; pinned where they are on a GPU."""

    def __init__(self) -> None:
        self._memory: dict[tuple[str, str], Tensor] = {}

    def of(self, packed: Packed) -> Packed:
        """Return the same checkpoint with copies of its tensors."""
        kept, self._memory = self._memory, {}
        tensors = {
            part: {name: self._copy((part, name), tensor, kept) for name, tensor in values.items()}
            for part, values in packed.tensors.items()
        }
        if any(tensor.is_cuda for values in packed.tensors.values() for tensor in values.values()):
            torch.cuda.synchronize()
        return replace(packed, tensors=tensors)

    def _copy(self, key: tuple[str, str], tensor: Tensor, kept: dict[tuple[str, str], Tensor]) -> Tensor:
        memory = kept.get(key)
        if memory is None or memory.shape != tensor.shape or memory.dtype != tensor.dtype:
            memory = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.is_cuda)
        self._memory[key] = memory
        return memory.copy_(tensor.detach(), non_blocking=True)


class BackgroundWrite:
    """One checkpoint that a thread writes."""

    def __init__(self, path: Path, write: Callable[[], object]) -> None:
        self.path, self._write = path, write
        self._error: BaseException | None = None
        self.secs = 0.0
        self._thread = threading.Thread(target=self._run, name="checkpoint", daemon=True)
        self._thread.start()

    @property
    def is_done(self) -> bool:
        """Whether it is on disk, or has failed."""
        return not self._thread.is_alive()

    def finish(self) -> Path:
        """Wait until it is on disk; raise what has kept it from there."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self.path

    def _run(self) -> None:
        began = time.monotonic()
        try:
            self._write()
        except BaseException as error:
            self._error = error
        self.secs = time.monotonic() - began
