"""How long a watched step takes, and how long the next one is waited for."""

from __future__ import annotations

import time
from typing import Any

import torch

from torcheer.tap.sample_sender import Sender


class Timing:
    """Takes the time of a watched step by marks: it begins, its optimizer has stepped, the next one begins.

    Where the model is on a GPU they are marks in the GPU's own work: what is queued there is not waited for by the
    loop, and a loop that waits for its loss (`loss.item()`) does not wait for data.
    """

    def __init__(self, sender: Sender) -> None:
        self._sender, self._device = sender, torch.device("cpu")
        self._step, self._marks = -1, list[Any]()

    def begin(self, step: int, device: torch.device) -> None:
        """A watched step begins."""
        self._step, self._device = step, device
        self._marks = [self._mark()]

    def stepped(self) -> None:
        """An optimizer has stepped; of several in a step the last one ends it."""
        if self._marks:
            self._marks[1:] = [self._mark()]

    def spoil(self) -> None:
        """There is something else between the steps, such as an evaluation: that is no wait."""
        self._marks.clear()

    def settle(self) -> None:
        """Another step begins: send what was measured."""
        marks, self._marks = self._marks, []
        if len(marks) < 2 or any(mark is None for mark in marks):
            return
        if self._device.type != "cuda":
            self._send(marks[1] - marks[0], time.monotonic() - marks[1])
        elif (last := self._mark()) is not None:
            began, ended = marks
            self._sender.later(
                last, lambda: self._send(began.elapsed_time(ended) / 1e3, ended.elapsed_time(last) / 1e3)
            )

    def _send(self, step_secs: float, wait_secs: float) -> None:
        self._sender.number("step_secs", step_secs, self._step)
        self._sender.number("wait_secs", wait_secs, self._step)

    def _mark(self) -> Any:
        """Now; None where nothing may be put among the GPU's work."""
        if self._device.type != "cuda":
            return time.monotonic()
        cuda: Any = torch.cuda  # it is not all annotated
        if cuda.is_current_stream_capturing():
            return None
        event = cuda.Event(enable_timing=True)
        event.record(cuda.current_stream(self._device))
        return event
