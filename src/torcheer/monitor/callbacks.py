"""Users' functions: how they travel to the child, and how they are called there."""

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
    """Both callbacks in one piece, so that they share their object in the child too; b"" where there are none.

    What comes from the user's script, notebook or a module beside it travels by value: nothing there runs again.
    """
    if on_value is None and on_close is None:
        return b""
    try:
        import cloudpickle
    except ImportError:
        raise BadArgument("callbacks need cloudpickle; try pip install 'torcheer[all]'") from None
    whole = (on_value, on_close, as_torch)
    try:
        with _by_value(cloudpickle):
            return bytes(cloudpickle.dumps(whole))
    except Exception:  # a lock or an open file in a module: the child may import that module instead
        try:
            return bytes(cloudpickle.dumps(whole))
        except Exception as error:
            names = " and ".join(_name(callback) for callback in (on_value, on_close) if callback is not None)
            raise BadArgument(
                f"{names} cannot be sent to the watching process: {error}. "
                "Open files, locks and the like inside the callback, when it is first called."
            ) from error


@contextmanager
def _by_value(cloudpickle: Any) -> Iterator[None]:
    """Send what the user's own modules define, not their names."""
    known = cloudpickle.list_registry_pickle_by_value()
    chosen = [module for name, module in list(sys.modules.items()) if name not in known and _local(name, module)]
    try:
        for module in chosen:
            cloudpickle.register_pickle_by_value(module)
        yield
    finally:
        for module in chosen:
            cloudpickle.unregister_pickle_by_value(module)


def _local(name: str, module: ModuleType | None) -> bool:
    """Whether a module is a file of the user's own; packages are imported, and so is all that is installed."""
    file = getattr(module, "__file__", None)
    if name == "__main__" or "." in name or not isinstance(file, str) or not file.endswith(".py"):
        return False
    if getattr(module, "__name__", None) != name or hasattr(module, "__path__"):
        return False
    return not os.path.abspath(file).startswith(_installed())


@cache
def _installed() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    folders = {paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    return tuple(os.path.join(folder, "") for folder in (*folders, *site.getsitepackages()))


def _name(callback: Any) -> str:
    return getattr(callback, "__qualname__", None) or repr(callback)


class Callbacks:
    """The reader that calls them."""

    def __init__(self, blob: bytes, plan: Plan, say: SendMessage) -> None:
        import pickle  # cloudpickle's are plain pickles; this one came through our own pipe

        self._on_value, self._on_close, as_torch = pickle.loads(blob)
        self._plan = plan
        self._call = self._with_keywords if as_torch else self._with_numpy
        self._ours = _is_ours(self._on_value)
        if as_torch and not self._ours and self._on_value is not None:
            import torch  # noqa: F401  # now, not with the first value

    def take(self, sent: Delivery) -> None:
        """Call the callback."""
        if self._on_value is not None:
            self._call(sent)

    def _with_numpy(self, sent: Delivery) -> None:
        sample = sent.sample
        array = sample.array.copy() if self._plan.keep else sample.array  # the log may still have to write it
        self._on_value(sample.layer, sample.variable, sample.step, array)

    def _with_keywords(self, sent: Delivery) -> None:
        self._on_value(
            unique_id=self._plan.unique_id,
            key=sent.sample.layer,
            internal_message=sent.message,
            message=str(sent.count),
            **self._data(sent),
        )

    def _data(self, sent: Delivery) -> dict[str, Any]:
        """A tensor; or, for our own, an array and the device it comes from, which an array does not tell."""
        if self._ours:
            return {"input_data": sent.sample.array, "device": sent.device}
        return {"input_data": as_tensor(sent.sample.array)}

    def tick(self) -> None:
        """Nothing waits here."""

    def close(self) -> None:
        """Call the other one."""
        if self._on_close is not None:
            self._on_close()


def _is_ours(callback: Any) -> bool:
    """Whether it is one of `DataRecorder`'s own methods, which need no torch."""
    while isinstance(callback, partial):
        callback = callback.func
    function = getattr(callback, "__func__", callback)
    return str(getattr(function, "__module__", "")).startswith("torcheer.")


def as_tensor(array: NDArray[Any]) -> Any:
    """An array as torch has it, types that numpy lacks too; of the same memory."""
    import torch

    try:
        return torch.from_numpy(array)
    except TypeError:
        bits = {1: np.uint8, 2: np.uint16}[array.dtype.itemsize]
        return torch.from_numpy(array.view(bits)).view(getattr(torch, array.dtype.name))
