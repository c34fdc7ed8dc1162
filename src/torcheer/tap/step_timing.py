"""Measure how long a watched step takes, and how long the loop waits before the next one."""

from __future__ import annotations

import time
from typing import Any

import torch

from torcheer.tap.sample_sender import Sender


class Timing:
    """Times a watched step by three marks: it begins, its optimizer has stepped, the next one begins.

    Where the model is on a GPU the marks are CUDA events: the loop does not wait for queued work, and a loop that
    waits for its loss (`loss.item()`) does not wait for data.
    """

    def __init__(self, sender: Sender) -> None:
        self._sender, self._device = sender, torch.device("cpu")
        self._step, self._marks = -1, list[Any]()

    def begin(self, step: int, device: torch.device) -> None:
        """Mark the beginning of a watched step."""
        self._step, self._device = step, device
        self._marks = [self._mark()]

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
        if self._device.type != "cuda":
            self._send(marks[1] - marks[0], time.monotonic() - marks[1])
        elif (last := self._mark()) is not None:
            began, ended = marks
            self._sender.run_after(
                last, lambda: self._send(began.elapsed_time(ended) / 1e3, ended.elapsed_time(last) / 1e3)
            )

    def _send(self, step_secs: float, wait_secs: float) -> None:
        self._sender.send_metric("step_secs", step_secs, self._step)
        self._sender.send_metric("wait_secs", wait_secs, self._step)

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
