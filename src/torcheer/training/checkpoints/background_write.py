"""Write a checkpoint while training goes on: tensors are copied to the host, a thread writes the copies."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from torcheer.training.checkpoints.checkpoint_files import Packed

Key = tuple[str, str]  # part of the checkpoint, name of the tensor

ALIGNMENT = 64  # bytes
LEAST_PINNED = 1 << 20  # bytes: of less, a copy that waits costs nothing


class HostCopies:
    """Memory for the copies of a checkpoint's tensors, used again by the next one; pinned where they are on a GPU."""

    def __init__(self) -> None:
        self._memory: dict[Key, Tensor] = {}  # parts of blocks
        self._pinned: dict[int, Tensor] = {}  # blocks that are registered with CUDA, by address
        weakref.finalize(self, _unpin, self._pinned).atexit = False  # the end of the process unpins it anyway

    def of(self, packed: Packed) -> Packed:
        """Return the same checkpoint with copies of its tensors."""
        tensors = {(part, name): tensor for part, values in packed.tensors.items() for name, tensor in values.items()}
        kept = {key: self._memory[key] for key, tensor in tensors.items() if _fits(self._memory.get(key), tensor)}
        self._memory = kept | self._allocate({key: tensors[key] for key in tensors if key not in kept})
        self._unpin_unused()
        for key, tensor in tensors.items():
            self._memory[key].copy_(tensor.detach(), non_blocking=True)
        if any(tensor.is_cuda for tensor in tensors.values()):
            torch.cuda.synchronize()
        copies = {part: {name: self._memory[part, name] for name in values} for part, values in packed.tensors.items()}
        return replace(packed, tensors=copies)

    def _allocate(self, tensors: dict[Key, Tensor]) -> dict[Key, Tensor]:
        """Allocate one block for tensors like these; return its parts."""
        sizes = [-(-tensor.nbytes // ALIGNMENT) * ALIGNMENT for tensor in tensors.values()]
        block = torch.empty(sum(sizes), dtype=torch.uint8)
        if block.nbytes >= LEAST_PINNED and any(tensor.is_cuda for tensor in tensors.values()) and _pin(block):
            self._pinned[block.data_ptr()] = block
        return {
            key: part[: tensor.nbytes].view(tensor.dtype).view(tensor.shape)
            for (key, tensor), part in zip(tensors.items(), block.split(sizes))
        }

    def _unpin_unused(self) -> None:
        """Unpin blocks of which no part is used any more: tensors have changed their sizes."""
        used = {memory.untyped_storage().data_ptr() for memory in self._memory.values()}
        _unpin({address: self._pinned.pop(address) for address in self._pinned.keys() - used})


def _fits(memory: Tensor | None, tensor: Tensor) -> bool:
    return memory is not None and memory.shape == tensor.shape and memory.dtype == tensor.dtype


def _pin(block: Tensor) -> bool:
    """Pin memory in place; return whether CUDA did.

    It is touched first, by several threads: CUDA touches its pages one by one, as `pin_memory=True` does. On the host
    of an H200, 13 GB take 1.2 s this way and 6.5 s the other, and other threads can launch kernels meanwhile.
    """
    block.zero_()
    if int(torch.cuda.cudart().cudaHostRegister(block.data_ptr(), block.nbytes, 0)) == 0:
        return True
    with suppress(RuntimeError):  # CUDA reports the refusal once more at the next launch: here, not in a training step
        torch.zeros(1, device="cuda")
    return False


def _unpin(blocks: dict[int, Tensor]) -> None:
    for address in blocks:
        torch.cuda.cudart().cudaHostUnregister(address)


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
