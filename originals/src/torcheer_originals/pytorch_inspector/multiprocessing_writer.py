"""PyTorch Inspector's processes, for programs that bring queues of their own; the handler needs none of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from queue import Empty
from typing import Any

from torch import multiprocessing

from torcheer.inspector.handler_child import ProcessInfoData
from torcheer_originals.pytorch_inspector.dict_queue_memory import QueueOp

POLL_SECS = 0.1  # how soon a set event is noticed while nothing comes


class MultiprocessingCtx:
    """The ways to start a process: `ctx_fork`, where the system has it, and `ctx_spawn`."""

    ctx_spawn: Any = multiprocessing.get_context("spawn")
    ctx_fork: Any = (
        multiprocessing.get_context("fork") if "fork" in multiprocessing.get_all_start_methods() else ctx_spawn
    )


class MultiprocessingWriter:
    """Calls `callback_onrun` with every `ProcessInfoData` of a queue, until an event is set or nothing comes.

    - `unique_id`: its number, handed to the callback.
    - `event`: ends the loop when it is set.
    - `queue_from`: what it reads.
    - `queue_to`: gets `[]` when it begins, and `[key]` after each value.
    - `timeout`: seconds without a value after which it ends; 0 or less: never.
    - `callback_onclosing`: called without arguments at the end.
    """

    def __init__(
        self, unique_id: int, event: Any, queue_from: Any, queue_to: Any, timeout: float,
        callback_onrun: Callable[..., Any] | None, callback_onclosing: Callable[[], Any] | None,
    ) -> None:  # fmt: skip
        self.this_unique_id, self.event, self.timeout = unique_id, event, timeout
        self.queue_from, self.queue_to = queue_from, queue_to
        self.callback_onrun, self.callback_onclosing = callback_onrun, callback_onclosing

    def on_closing(self) -> None:
        """Call the closing callback."""
        if self.callback_onclosing is not None:
            self.callback_onclosing()

    def run(self) -> None:
        """Handle values until the end."""
        self.queue_to.put([])
        last = time.monotonic()
        while not self.event.is_set() and not 0 < self.timeout <= time.monotonic() - last:
            try:
                content = self.queue_from.get(timeout=POLL_SECS)
            except Empty:
                continue
            if isinstance(content, ProcessInfoData) and content.shared_data is not None:
                self._handle(content)
                last = time.monotonic()
        self.on_closing()
        QueueOp.clear(self.queue_from)

    def _handle(self, content: ProcessInfoData) -> None:
        if self.callback_onrun is not None:
            self.callback_onrun(
                unique_id=self.this_unique_id,
                key=content.name,
                internal_message=content.internal_message,
                message=content.message,
                input_data=content.shared_data,
            )
        self.queue_to.put([content.name])


class MultiprocessingWriterFork(MultiprocessingCtx.ctx_fork.Process, MultiprocessingWriter):  # type: ignore[misc]
    """A writer in a forked process."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()  # type: ignore[call-arg]
        MultiprocessingWriter.__init__(self, *args, **kwargs)

    def run(self) -> None:
        """Handle values until the end."""
        MultiprocessingWriter.run(self)


class MultiprocessingWriterSpawn(MultiprocessingCtx.ctx_spawn.Process, MultiprocessingWriter):  # type: ignore[misc]
    """A writer in a fresh process."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()  # type: ignore[call-arg]
        MultiprocessingWriter.__init__(self, *args, **kwargs)

    def run(self) -> None:
        """Handle values until the end."""
        MultiprocessingWriter.run(self)
