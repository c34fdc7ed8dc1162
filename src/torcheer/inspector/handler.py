"""PyTorch Inspector's interface: one handler, numbered children, every n-th value of the tracked items.

handler = ParallelHandler(callback_onrun=recorder.tensor_plot2D, callback_onclosing=recorder.flush, frequency=20)
handler.track_model(-1, {"model": model})
"""

from __future__ import annotations

import atexit
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, fields, replace
from inspect import signature
from numbers import Real
from typing import Any, Final

from torch import Tensor, nn

from torcheer.errors import BadArgument
from torcheer.inspector.handler_child import ProcessStandIn, QueueFrom, QueueTo, StaysHere, Worker, tell
from torcheer.inspector.tracked_values import LayerProbe, ModelProbe, Probe, TensorProbe, Transform
from torcheer.monitor.callbacks import packed
from torcheer.monitor.child_plan import Plan
from torcheer.samples import Account
from torcheer.terminal import met_difference
from torcheer.wire import fork_registry

Tracked = tuple[int | None, QueueTo | None, QueueFrom | None, list[ProcessStandIn] | None]

_NOTHING: Final[Tracked] = (None, None, None, None)
_PATIENCE_SECS: Final = 30.0  # for the children's end, where no timeout says how long
_METHODS: Final = (None, "spawn", "fork", "forkserver")


@dataclass(frozen=True)
class Settings:
    """The validated settings of a handler."""

    callback_onrun: Callable[..., Any] | None
    callback_onclosing: Callable[[], Any] | None = None
    frequency: int = 1
    timeout: float = 30.0
    target_method: str | None = None
    max_queue_size: int = 1000
    daemon: bool = True
    ring_bytes: int = 64 << 20

    def __post_init__(self) -> None:
        for name in ("callback_onrun", "callback_onclosing"):
            if (callback := getattr(self, name)) is not None and not callable(callback):
                raise BadArgument(f"{name} is {callback!r}, which cannot be called; give a function or None")
        if self.target_method not in _METHODS:
            raise BadArgument(
                f"no target_method {self.target_method!r}; a child is always a fresh process: leave it out"
            )
        for name in ("timeout", "max_queue_size", "ring_bytes"):
            number(getattr(self, name), name)
        if self.target_method == "fork":
            met_difference("pytorch-inspector", "fork")


def every_nth(frequency: Any) -> int:
    """A frequency as a whole number: 20.0 is every 20th call."""
    value = number(frequency, "frequency")
    if not math.isfinite(value) or value < 1 or value != int(value):
        raise BadArgument(f"frequency is {frequency!r}; it says which calls are passed on: 1 all, 20 every 20th")
    return int(value)


def number(value: Any, name: str) -> float:
    """A setting that must be a number."""
    if not isinstance(value, Real) or math.isnan(value):
        raise BadArgument(f"{name} is {value!r}, and must be a number")
    return float(value)


def _limit(value: float) -> float:
    """A limit; 0 where there is none."""
    return float(value) if 0 < value < math.inf else 0.0


_SETTABLE: Final = {field.name for field in fields(Settings)} - {"frequency"}


class _Single(type):
    """Metaclass of a singleton: calling the class returns the first instance; once that is stopped, or another."""

    first: dict[type, Any] = {}
    lock = threading.RLock()

    def __init__(cls, *args: Any) -> None:
        super().__init__(*args)
        fork_registry.register(cls)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        with _Single.lock:
            instance = _Single.first.get(cls)
            if instance is not None and (args or kwargs) and (instance._process != os.getpid() or instance._stopped):
                if instance._stopped:
                    met_difference("pytorch-inspector", "new handler")
                instance = None  # a fork may create its own
            if instance is None and not args and not kwargs:
                raise BadArgument(
                    f"there is no {cls.__name__} yet; make the first one with its callbacks and frequency"
                )
            if instance is None:
                instance = _Single.first[cls] = type.__call__(cls, *args, **kwargs)
            else:
                instance._compare(args, kwargs)
            return instance

    def after_fork(cls) -> None:
        """Replace the lock in a fork: the thread that may have held it does not exist there."""
        _Single.lock = threading.RLock()


class ParallelHandler(StaysHere, metaclass=_Single):
    """Sends every n-th value of what it tracks to child processes, where the callbacks are called.

    There is one: `ParallelHandler()` anywhere returns the first. After `stop()` it may track again, with new children,
    or another be made. `callback_onrun` is called in the
    child with the keywords unique_id, key, internal_message, message (how often the name was seen before, as text) and
    input_data (a tensor); `callback_onclosing` with nothing. A child ends after `timeout` seconds without data (0 or
    less: never), and is started again when some comes. What does not fit into its queue is dropped and counted.
    """

    enabled = True  # False: nothing is tracked from now on, and nothing sent
    same_device_only = push_only_single_tensor = False  # accepted: values are always copied, and a queue
    times_tensor_memory_size = 1.0  # is a ring that cannot grow

    def __init__(
        self, callback_onrun: Callable[..., Any] | None, callback_onclosing: Callable[[], Any] | None = None,
        frequency: float = 1, timeout: float = 30.0, target_method: str | None = None, max_queue_size: int = 1000,
        daemon: bool = True, *, max_elapsed_time: float | None = None, ring_bytes: int = 64 << 20,
    ) -> None:  # fmt: skip
        timeout = timeout if max_elapsed_time is None else max_elapsed_time
        self._settings = Settings(
            callback_onrun, callback_onclosing, every_nth(frequency), timeout, target_method, max_queue_size, daemon,
            ring_bytes,
        )  # fmt: skip
        self.frequency = self._settings.frequency
        self.internal_message, self.pass_to_process = "", True
        self._workers: dict[int, Worker] = {}
        self._probes: list[Probe] = []
        self._next_id, self._process, self._stopped = 0, os.getpid(), False

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _SETTABLE:  # for the children to come
            name, value = "_settings", replace(self._settings, **{name: value})
        super().__setattr__(name, every_nth(value) if name == "frequency" else value)

    def __getattr__(self, name: str) -> Any:
        if name in _SETTABLE and "_settings" in vars(self):
            return getattr(self._settings, name)
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def _compare(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        arguments = signature(type(self).__init__).bind_partial(self, *args, **kwargs).arguments
        arguments = {"timeout" if name == "max_elapsed_time" else name: value for name, value in arguments.items()}
        differ = [name for name, value in arguments.items() if getattr(self._settings, name, value) != value]
        if differ:
            tell(f"the first one stays, with its own {', '.join(differ)}; stop() it to make another")

    # What is tracked

    def track_tensor(
        self, unique_id: int = -1, items: Mapping[str, Tensor] | None = None,
        callback_transform: Transform | None = None, num_process: int = 1, **older: Any,
    ) -> Tracked:  # fmt: skip
        """Send the value of tensors whenever their gradient arrives."""
        return self._track(TensorProbe, unique_id, items, callback_transform, num_process, older)

    def track_layer(
        self, unique_id: int = -1, items: Mapping[str, nn.Module] | None = None,
        callback_transform: Transform | None = None, num_process: int = 1, **older: Any,
    ) -> Tracked:  # fmt: skip
        """Send the gradient of the output of modules, whenever it arrives."""
        return self._track(LayerProbe, unique_id, items, callback_transform, num_process, older)

    def track_model(
        self, unique_id: int = -1, items: Mapping[str, nn.Module] | None = None,
        callback_transform: Transform | None = None, num_process: int = 1, **older: Any,
    ) -> Tracked:  # fmt: skip
        """Send the output of modules, of exactly those given; returns the child's number, its queues, its process.

        The number of a child attaches to it, any other starts a new one. `callback_transform` is called here, and its
        result is sent in place of the tensor. `num_process` shares the modules out among so many children.
        """
        return self._track(ModelProbe, unique_id, items, callback_transform, num_process, older)

    def _track(
        self, kind: type[Probe], unique_id: Any, items: Any, transform: Transform | None, num_process: int,
        older: dict[str, Any],
    ) -> Tracked:  # fmt: skip
        unique_id, items = _older_names(unique_id, items, older)
        if self._process != os.getpid():
            raise BadArgument(
                "this handler was made before this process was forked; make a new one with its callbacks and frequency"
            )
        if not self.enabled:
            return _NOTHING
        _check(unique_id, items, transform)
        if not items:
            tell("nothing to track was given")
            return _NOTHING
        for name, item in items.items():
            kind.check(name, item)
        parts = _shared_out(dict(items), num_process)
        with _Single.lock:
            workers = [self.worker(unique_id if place == 0 else None) for place in range(len(parts))]
            for worker, part in zip(workers, parts):
                for name, item in part.items():
                    self._probes.append(kind(self, worker, name, item, transform))
        last = workers[-1]
        return last.unique_id, last.queue_to, last.queue_from, [worker.process for worker in workers]

    def worker(self, unique_id: Any) -> Worker:
        """The child with a number, started anew if it was stopped; for another number, a new child with the next."""
        worker = self._workers.get(unique_id)
        if worker is not None and not worker.stopped:
            return worker
        return self.start_worker(self._next_id if worker is None else unique_id)

    def start_worker(self, unique_id: int) -> Worker:
        """Start a child with a number."""
        self._stopped, settings = False, self._settings
        plan = Plan(statistics=False, timeout_secs=_limit(settings.timeout), unique_id=unique_id)
        worker = Worker(
            plan,
            packed(settings.callback_onrun, settings.callback_onclosing, as_torch=True),
            ring_bytes=settings.ring_bytes,
            most_records=int(_limit(settings.max_queue_size)),
        )
        self._workers[unique_id] = worker
        self._next_id = max(self._next_id, unique_id + 1)
        atexit.unregister(_finish)  # again after each child, so that it runs before what ends them one by one
        atexit.register(_finish)
        return worker

    # What is said

    def set_internal_message(self, internal_message: str) -> None:
        """A text that goes with every value from now on."""
        self.internal_message = str(internal_message)

    def set_pass_to_process(self, pass_to_process: bool) -> None:
        """Whether values are sent; they are counted either way."""
        self.pass_to_process = bool(pass_to_process)
        if not pass_to_process:
            met_difference("pytorch-inspector", "paused")

    def get_last_key(self) -> int | None:
        """The number of the newest child."""
        return next(reversed(self._workers), None)

    def get_internal_unique_id(self) -> int:
        """The number given last; -1 before the first."""
        return self._next_id - 1

    def is_alive(self) -> bool:
        """Whether any child runs."""
        return any(worker.process.is_alive() for worker in self._workers.values())

    @property
    def accounts(self) -> dict[int, Account]:
        """What became of the values that were sent to each child."""
        return {unique_id: worker.account for unique_id, worker in self._workers.items()}

    # The end

    def stop(self, check_is_alive: bool = True) -> None:
        """Stop tracking and let the children finish: for `timeout` seconds all together, then end them.

        With `check_is_alive=False` they finish by themselves, and nobody waits.
        """
        if self._process != os.getpid():
            return
        with _Single.lock:
            self._stopped = True
            probes, self._probes = self._probes, []
        for probe in probes:
            probe.remove()
        if "torch._dynamo" in sys.modules:
            for why in dict.fromkeys(filter(None, (probe.silence for probe in probes))):
                tell(f"nothing came from {', '.join(silent.name for silent in probes if silent.silence == why)}: {why}")
        _stop_all(list(self._workers.values()), self.patience_secs(), wait=check_is_alive)
        atexit.unregister(_finish)
        if not all(handler._stopped for handler in _Single.first.values()):
            atexit.register(_finish)

    def patience_secs(self) -> float:
        """How long children may take to finish."""
        return _limit(self._settings.timeout) or _PATIENCE_SECS

    def passes(self, count: int) -> bool:
        """Whether the value of a name with this number is sent."""
        return (
            self.pass_to_process
            and self.enabled
            and not count % self.frequency
            and not self._stopped
            and self._process == os.getpid()
        )


def _older_names(unique_id: Any, items: Any, older: dict[str, Any]) -> tuple[Any, Any]:
    """The arguments by the names that versions of PyTorch Inspector gave them."""
    unique_id = older.pop("unique_id_connect_to", unique_id)
    for name in ("list_items", "list_tensors", "list_layers", "list_models"):
        items = older.pop(name, items)
    if older:
        raise BadArgument(
            f"no argument {next(iter(older))!r}; there are unique_id, items, callback_transform, num_process"
        )
    return unique_id, items


def _check(unique_id: Any, items: Any, transform: Any) -> None:
    """Validate the arguments of a track method."""
    if not isinstance(items, Mapping):
        hint = "; the number of a child stands before it, -1 for a new one" if isinstance(unique_id, Mapping) else ""
        raise BadArgument(
            f"names and what they stand for are a dict, such as {{'model': model}}, not {items!r:.80}{hint}"
        )
    if not isinstance(unique_id, Hashable):
        raise BadArgument(f"unique_id is {unique_id!r:.80}; it is the number of a child, or -1 for a new one")
    if transform is not None and not callable(transform):
        raise BadArgument(f"callback_transform is {transform!r:.80}, which cannot be called; give a function or None")


def _shared_out(items: dict[str, Any], num_process: Any) -> list[dict[str, Any]]:
    """The items in turn to each of so many processes, or as many as there are items."""
    shares = min(max(int(number(num_process, "num_process")), 1), len(items))
    return [dict(list(items.items())[start::shares]) for start in range(shares)]


def _stop_all(workers: list[Worker], timeout_secs: float, wait: bool) -> None:
    """Stop all workers concurrently, each in its own thread."""
    deadline = time.monotonic() + timeout_secs
    threads = [threading.Thread(target=worker.stop, args=(timeout_secs,)) for worker in workers]
    for thread, worker in zip(threads, workers):
        try:
            thread.start()
        except RuntimeError:  # no new threads when the interpreter ends: one after the other
            worker.stop(max(deadline - time.monotonic(), 1.0))
    for thread in threads:
        if wait and thread.ident is not None:
            thread.join()


def _finish() -> None:
    """Stop the handlers at exit."""
    for handler in list(_Single.first.values()):
        handler.stop()


ParrallelHandler = ParallelHandler  # as PyTorch Inspector spells it
