"""Threads that write batches while the next ones are computed, each with one beside it that waits for the disk."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Final

WAITING_BATCHES: Final = 2  # that may wait for the disk, besides one for each thread; more would only use memory
_POLL_SECS: Final = 0.2
Task = Callable[[], None]


class WriterThreads:
    """`lanes` threads that each run their tasks in order, and as many beside them that wait for the disk.

    At most `lanes + WAITING_BATCHES` batches are waiting or being written: `put_batch` blocks until one is done. The
    first error of any task ends all; it is raised by the next call, and by `close`.
    """

    def __init__(self, lanes: int) -> None:
        self._slots = threading.Semaphore(lanes + WAITING_BATCHES)
        self._ends = threading.Semaphore(2 * lanes)  # ends that may wait: each keeps files open
        self._queues: list[queue.SimpleQueue[Task | None]] = [queue.SimpleQueue() for _ in range(2 * lanes)]
        self._problem: BaseException | None = None
        self._threads = [
            threading.Thread(target=self._run, args=(tasks,), name="torcheer-extraction", daemon=True)
            for tasks in self._queues
        ]
        for thread in self._threads:
            thread.start()

    def put_batch(self, lane: int, task: Task) -> None:
        """Queue the writing of a batch; blocks while too many are on their way."""
        self._acquire(self._slots)

        def write() -> None:
            try:
                if self._problem is None:
                    task()
            finally:
                self._slots.release()

        self._queues[lane].put(write)

    def put_end(self, lane: int, task: Task) -> None:
        """Queue a task that the thread beside the lane runs once the lane's tasks before it are done."""

        def pass_on() -> None:
            self._acquire(self._ends)
            self.put_beside(lane, end)

        def end() -> None:
            try:
                if self._problem is None:
                    task()
            finally:
                self._ends.release()

        self._queues[lane].put(pass_on)

    def put_beside(self, lane: int, task: Task) -> None:
        """Queue a task for the thread beside a lane."""
        self._queues[len(self._queues) // 2 + lane].put(task)

    def _acquire(self, semaphore: threading.Semaphore) -> None:
        while not semaphore.acquire(timeout=_POLL_SECS):
            if self._problem is not None:
                break
        if self._problem is not None:
            raise self._problem

    def _run(self, tasks: queue.SimpleQueue[Task | None]) -> None:
        while (task := tasks.get()) is not None:
            try:
                task()
            except BaseException as problem:
                self._problem = self._problem or problem

    def close(self) -> BaseException | None:
        """Wait for every task; return the first error of one."""
        for tasks, thread in zip(
            self._queues, self._threads
        ):  # those beside the lanes after the lanes, which pass them their ends
            tasks.put(None)
            thread.join()
        return self._problem
