"""Measure how long a watched step takes, and how long the loop waits before the next one."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import nn

from torcheer.ranks import rank_of, shard_of
from torcheer.tap.sample_sender import Sender


class Timing:
    """Times a watched step by three marks: it begins, its optimizer has stepped, the next one begins.

    Where the model is on a GPU the marks are CUDA events: the loop does not wait for queued work, and a loop that
    waits for its loss (`loss.item()`) does not wait for data.
    """

    def __init__(self, sender: Sender, model: nn.Module) -> None:
        self._sender, self._model, self._device = sender, model, torch.device("cpu")
        self._step, self._marks = -1, list[Any]()
        # Of several ranks, who computes longer than the others? A pass that waits for them cannot tell.
        self.marks_pass = rank_of()[1] > 1 and not _waits_in_pass(model)
        self._entered: Any = None  # where the forward pass begins
        self._passed: Any = None

    def begin(self, step: int, device: torch.device) -> None:
        """Mark the beginning of a watched step."""
        self._step, self._device = step, device
        self._marks, self._passed = [self._mark()], None
        self._entered = self._marks[0]
        if self.marks_pass and isinstance(self._model, nn.parallel.DistributedDataParallel):
            self._enter_after_buffers(self._model.module)

    def _enter_after_buffers(self, module: nn.Module) -> None:
        """Mark the forward pass from the module on that DDP wraps: before it, DDP waits for rank 0's buffers."""

        def mark(*_: Any) -> None:
            handle.remove()
            self._entered = self._mark()

        handle = module.register_forward_pre_hook(mark)

    def passed(self) -> None:
        """Mark the end of the forward pass, before gradients wait for other ranks."""
        if self._passed is None and len(self._marks) == 1:
            self._passed = self._mark()

    def stepped(self) -> None:
        """Mark that an optimizer has stepped; of several in a step the last one counts."""
        if self._marks:
            self._marks[1:] = [self._mark()]

    def discard(self) -> None:
        """Drop the measurement: something else, such as an evaluation, came between the steps."""
        self._marks.clear()

    def settle(self) -> None:
        """Send the measurement as another step begins."""
        marks, self._marks = self._marks, []
        if len(marks) < 2 or any(mark is None for mark in marks):
            return
        last, step = self._mark(), self._step
        spans = {"step_secs": (*marks,), "wait_secs": (marks[1], last)}
        if self._passed is not None and self._entered is not None:
            spans["forward_secs"] = (self._entered, self._passed)
        if self._device.type != "cuda":
            self._send(step, {name: end - start for name, (start, end) in spans.items()})
        elif last is not None:
            self._sender.run_after(
                last,
                lambda: self._send(step, {name: start.elapsed_time(end) / 1e3 for name, (start, end) in spans.items()}),
            )

    def _send(self, step: int, secs: dict[str, float]) -> None:
        for name, number in secs.items():
            self._sender.send_metric(name, number, step)

    def _mark(self) -> Any:
        """The current time or CUDA event; None while a CUDA graph is being captured."""
        if self._device.type != "cuda":
            return time.monotonic()
        cuda: Any = torch.cuda  # it is not all annotated
        if cuda.is_current_stream_capturing():
            return None
        event = cuda.Event(enable_timing=True)
        event.record(cuda.current_stream(self._device))
        return event


def _waits_in_pass(model: nn.Module) -> bool:
    """Return whether a forward pass waits for other ranks: for shards of weights, or for sums of their batches."""
    is_sharded = any(shard_of(parameter) is not None for parameter in model.parameters())
    return is_sharded or any(isinstance(module, nn.SyncBatchNorm) for module in model.modules())
