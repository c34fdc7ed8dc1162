"""Measure how long a watched step takes, and how long the loop waits before the next one."""

from __future__ import annotations

import time
from typing import Any

import torch

from torcheer.ranks import rank_of
from torcheer.tap.sample_sender import Sender


class Timing:
    """Times a watched step by three marks: it begins, its optimizer has stepped, the next one begins.

    Where the model is on a GPU the marks are CUDA events: the loop does not wait for queued work, and a loop that
    waits for its loss (`loss.item()`) does not wait for data.
    """

    def __init__(self, sender: Sender) -> None:
        self._sender, self._device = sender, torch.device("cpu")
        self._step, self._marks = -1, list[Any]()
        self.marks_pass = rank_of()[1] > 1  # of several ranks, who computes longer than the others?
        self._passed: Any = None

    def begin(self, step: int, device: torch.device) -> None:
        """Mark the beginning of a watched step."""
        self._step, self._device = step, device
        self._marks, self._passed = [self._mark()], None

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
        if self._passed is not None:
            spans["forward_secs"] = (marks[0], self._passed)
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
