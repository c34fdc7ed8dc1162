"""What programs written for PyTorch Inspector ask of the handler besides tracking."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from torch import Tensor

from torcheer.errors import BadArgument
from torcheer.inspector import ParallelHandler
from torcheer.inspector.handler_child import ProcessInfoData, ProcessStandIn, QueueFrom, QueueTo, Worker
from torcheer_originals.pytorch_inspector.dict_queue_memory import MemoryOp
from torcheer_originals.pytorch_inspector.met_differences import meet
from torcheer_originals.pytorch_inspector.singleton_meta import SingletonMeta

Counter = dict[str, int]
Hook = Callable[..., None]


class ChildEvent:
    """What ends a child, as an event."""

    def __init__(self, worker: Worker, patience_secs: float) -> None:
        self._worker, self._patience_secs = worker, patience_secs

    def set(self) -> None:
        """Let the child finish."""
        self._worker.stop(self._patience_secs)

    def is_set(self) -> bool:
        """Whether it was told to finish."""
        return self._worker.stopped


class HandlerMeta(type(ParallelHandler), SingletonMeta):  # type: ignore[misc]
    """The metaclass of the handler, one of PyTorch Inspector's `SingletonMeta`s."""


class ParrallelHandler(ParallelHandler, metaclass=HandlerMeta):  # type: ignore[metaclass]
    """The handler with PyTorch Inspector's further names: its processes one by one, and its hooks."""

    # Processes

    @property
    def contexts(self) -> list[list[ProcessStandIn]]:
        """The process of each child, in a list."""
        return [[worker.process] for worker in self._workers.values()]

    @property
    def events(self) -> list[ChildEvent]:
        """For each child, an event that ends it when it is set."""
        return [ChildEvent(worker, self.patience_secs()) for worker in self._workers.values()]

    @property
    def container_process_info(self) -> dict[int, dict[str, Any]]:
        """The queues of each child, by its number."""
        return {number: {"queue_to": worker.queue_to, "queue_from": worker.queue_from}
                for number, worker in self._workers.items()}  # fmt: skip

    @property
    def internal_unique_id(self) -> int:
        """The number that the next child gets."""
        return self._next_id

    @property
    def passed_messages_counter(self) -> list[Counter]:
        """For each child, how many values were sent by each name."""
        return [worker.passed for worker in self._workers.values()]

    @property
    def active_messages_counter(self) -> list[Counter]:
        """For each child, by name: 1 while it has values to deal with, else 0."""
        return [dict.fromkeys(worker.passed, int(not worker.queue_to.empty())) for worker in self._workers.values()]

    def check_can_track(self) -> bool:
        """Whether anything is tracked from now on."""
        return self.enabled

    def create_or_attachto_process(
        self, list_names: Iterable[str], unique_id_connect_to: int
    ) -> tuple[int, QueueTo, QueueFrom, list[ProcessStandIn]]:
        """The child with a number, or a new one with the next: its number, its queues, its process."""
        worker = self.worker(unique_id_connect_to)
        for name in list_names:
            worker.passed.setdefault(name, 0)
        return worker.unique_id, worker.queue_to, worker.queue_from, [worker.process]

    def new_process(
        self, unique_id: int, target_method: str | None = None, daemon: bool = True
    ) -> tuple[QueueTo, QueueFrom, list[ProcessStandIn]]:
        """Start a child with a number, and return its queues and its process; it is always a fresh interpreter."""
        if target_method not in (None, "fork", "spawn"):
            raise BadArgument(
                f"no target_method {target_method!r}; there are fork, spawn and None, and all mean the same"
            )
        if target_method == "fork":
            meet("fork")
        worker = self._workers.get(unique_id)
        worker = self.start_worker(unique_id) if worker is None or worker.stopped else worker
        return worker.queue_to, worker.queue_from, [worker.process]

    def parallel_start_process(self, args: tuple[Any, ...], start_method: str, daemon: bool = True) -> Any:
        """Start a `MultiprocessingWriter` on queues of your own: fork or spawn."""
        from torcheer_originals.pytorch_inspector import multiprocessing_writer as writers

        kinds: dict[str, Any] = {"fork": writers.MultiprocessingWriterFork, "spawn": writers.MultiprocessingWriterSpawn}
        if start_method not in kinds:
            raise BadArgument(f"no start_method {start_method!r}; there are fork and spawn")
        process = kinds[start_method](*args)
        process.daemon = daemon
        process.start()
        return process

    # Hooks

    def pass_tensor_to_queue(
        self, name: str, active_messages_counter: Counter, passed_messages_counter: Counter, queue_to: Any,
        queue_from: Any, internal_counter: Counter, do_add_to_queue: bool, callback_transform: Any, tensor: Tensor,
    ) -> bool:  # fmt: skip
        """Count a value of a name, and put every n-th into a queue; return whether this one was."""
        active_messages_counter.setdefault(name, 0)
        passed_messages_counter.setdefault(name, 0)
        count = internal_counter.get(name, 0)
        internal_counter[name] = count + 1
        if not do_add_to_queue or not self.passes(count):
            return False
        if callback_transform is None:
            value = MemoryOp.assignTo(tensor, self.times_tensor_memory_size, self.same_device_only and tensor.is_cuda)
        else:
            value = callback_transform(tensor)
        if value is None:
            return False
        queue_to.put_nowait(ProcessInfoData(name, self.internal_message, str(count), value.detach()))
        passed_messages_counter[name] += 1
        return True

    def tensor_backpropagation_hook_wrapper(
        self, name: str, maxsize_queue: int, x: Tensor, queue_to: Any, queue_from: Any,
        active_messages_counter: Counter, passed_messages_counter: Counter, callback_transform: Any,
    ) -> Hook:  # fmt: skip
        """A hook of a tensor that sends its value when its gradient arrives."""
        send = self._sender(name, maxsize_queue, queue_to, queue_from, active_messages_counter,
                            passed_messages_counter, callback_transform)  # fmt: skip
        return lambda grad: send(x)

    def layer_backpropagation_hook_wrapper(
        self, name: str, maxsize_queue: int, queue_to: Any, queue_from: Any, active_messages_counter: Counter,
        passed_messages_counter: Counter, callback_transform: Any,
    ) -> Hook:  # fmt: skip
        """A full backward hook that sends the gradient of a module's output."""
        send = self._sender(name, maxsize_queue, queue_to, queue_from, active_messages_counter,
                            passed_messages_counter, callback_transform)  # fmt: skip
        return lambda module, grad_input, grad_output: send(grad_output[0])

    def model_forwardpropagation_hook_wrapper(
        self, name: str, maxsize_queue: int, queue_to: Any, queue_from: Any, active_messages_counter: Counter,
        passed_messages_counter: Counter, callback_transform: Any,
    ) -> Hook:  # fmt: skip
        """A forward hook that sends a module's output, or the first of several."""
        send = self._sender(name, maxsize_queue, queue_to, queue_from, active_messages_counter,
                            passed_messages_counter, callback_transform)  # fmt: skip
        return lambda module, input, output: send(output if output is None or isinstance(output, Tensor) else output[0])

    def _sender(
        self, name: str, most: int, queue_to: Any, queue_from: Any, active: Counter, passed: Counter, transform: Any
    ) -> Callable[[Tensor | None], None]:
        counts: Counter = {}

        def send(tensor: Tensor | None) -> None:
            if tensor is not None:
                room = queue_to.qsize() <= most
                self.pass_tensor_to_queue(name, active, passed, queue_to, queue_from, counts, room, transform, tensor)

        return send
