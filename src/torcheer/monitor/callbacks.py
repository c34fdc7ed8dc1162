"""The user's callbacks: serialized for the child, and called there."""

from __future__ import annotations

import os
import site
import sys
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torcheer.errors import BadArgument
from torcheer.monitor.child_plan import Plan
from torcheer.samples import Delivery, SendMessage

OnValue = Callable[..., Any]
OnClose = Callable[[], Any]


def packed(on_value: OnValue | None, on_close: OnClose | None = None, *, as_torch: bool) -> bytes:
    """Serialize both callbacks in one pickle, so that they share their object in the child; b"" where there are none.

    What the user's script, notebook or a module beside it defines is pickled by value: none of it runs again.
    """
    if on_value is None and on_close is None:
        return b""
    try:
        import cloudpickle
    except ImportError:
        raise BadArgument("callbacks need cloudpickle; try pip install 'torcheer[all]'") from None
    callbacks = (on_value, on_close, as_torch)
    try:
        with _by_value(cloudpickle):
            return bytes(cloudpickle.dumps(callbacks))
    except Exception:  # a lock or an open file in a module: let the child import that module
        try:
            return bytes(cloudpickle.dumps(callbacks))
        except Exception as error:
            names = " and ".join(_name(callback) for callback in (on_value, on_close) if callback is not None)
            raise BadArgument(
                f"{names} cannot be sent to the watching process: {error}. "
                "Open files, locks and the like inside the callback, when it is first called."
            ) from error


@contextmanager
def _by_value(cloudpickle: Any) -> Iterator[None]:
    """Pickle the user's own modules by value, not by name."""
    registered = cloudpickle.list_registry_pickle_by_value()
    modules = [
        module for name, module in list(sys.modules.items()) if name not in registered and _is_user_module(name, module)
    ]
    try:
        for module in modules:
            cloudpickle.register_pickle_by_value(module)
        yield
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)


def _is_user_module(name: str, module: ModuleType | None) -> bool:
    """Whether a module is a single file of the user; packages and installed modules are imported by the child."""
    file = getattr(module, "__file__", None)
    if name == "__main__" or "." in name or not isinstance(file, str) or not file.endswith(".py"):
        return False
    if getattr(module, "__name__", None) != name or hasattr(module, "__path__"):
        return False
    return not os.path.abspath(file).startswith(_installed_folders())


@cache
def _installed_folders() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    folders = {paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    return tuple(os.path.join(folder, "") for folder in (*folders, *site.getsitepackages()))


def _name(callback: Any) -> str:
    return getattr(callback, "__qualname__", None) or repr(callback)


class Callbacks:
    """A `Reader` that calls the user's callbacks."""

    def __init__(self, blob: bytes, plan: Plan, say: SendMessage) -> None:
        import pickle  # loads cloudpickle's output; it came through our own pipe

        self._on_value, self._on_close, as_torch = pickle.loads(blob)
        self._plan = plan
        self._call = self._with_keywords if as_torch else self._with_numpy
        self._ours = _is_ours(self._on_value)
        if as_torch and not self._ours and self._on_value is not None:
            import torch  # noqa: F401  # import it now, not with the first value

    def take(self, delivery: Delivery) -> None:
        """Call the callback; what a person logged (images, texts) does not go to it."""
        if self._on_value is not None and delivery.media is None:
            self._call(delivery)

    def _with_numpy(self, delivery: Delivery) -> None:
        sample = delivery.sample
        array = sample.array.copy() if self._plan.keep else sample.array  # the log may still write it
        self._on_value(sample.layer, sample.variable, sample.step, array)

    def _with_keywords(self, delivery: Delivery) -> None:
        self._on_value(
            unique_id=self._plan.unique_id,
            key=delivery.sample.layer,
            internal_message=delivery.message,
            message=str(delivery.count),
            **self._data(delivery),
        )

    def _data(self, delivery: Delivery) -> dict[str, Any]:
        """The tensor argument; for our own callbacks an array and its original device."""
        if self._ours:
            return {"input_data": delivery.sample.array, "device": delivery.device}
        return {"input_data": as_tensor(delivery.sample.array)}

    def tick(self) -> None:
        """Do nothing: callbacks buffer nothing."""

    def close(self) -> None:
        """Call the closing callback."""
        if self._on_close is not None:
            self._on_close()


def _is_ours(callback: Any) -> bool:
    """Whether a callback is a method of `DataRecorder`, which needs no torch."""
    while isinstance(callback, partial):
        callback = callback.func
    function = getattr(callback, "__func__", callback)
    return str(getattr(function, "__module__", "")).startswith("torcheer.")


def as_tensor(array: NDArray[Any]) -> Any:
    """Convert an array to a tensor that shares its memory, including types that numpy lacks."""
    import torch

    try:
        return torch.from_numpy(array)
    except TypeError:
        bits = {1: np.uint8, 2: np.uint16}[array.dtype.itemsize]
        return torch.from_numpy(array.view(bits)).view(getattr(torch, array.dtype.name))
