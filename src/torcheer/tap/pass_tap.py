"""The hooks of one sink during a pass: on modules until it ends, on leaf tensors until its step has settled."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from torcheer.tap.compiled.compiled_calls import CompiledCall, ListenerShare, PartsInside
from torcheer.tap.probe_hooks import Action, Failed, GradientHook, Listener, Take

_CHANGES = threading.RLock()  # of hooks that sinks share: threads may begin and end passes of one model at once


class PassTap:
    """Attaches a sink to the modules of a pass, through the hooks that all sinks share.

    - `take(name, call, output)` is called for each call of a module, `failed(name, error)` where it raised
    - `model`: whose compiled parts are looked into, until `close`
    """

    def __init__(self, take: Take, failed: Failed, model: nn.Module | None = None) -> None:
        self._take, self._failed = take, failed
        self._parts = PartsInside(model) if model is not None else None
        self._listeners: dict[str, Listener] = {}  # of all passes, by the names of the modules
        self._handles: list[Any] = []  # of this pass
        self._leaves: list[tuple[GradientHook, Action]] = []  # on tensors that outlive it

    @property
    def is_open(self) -> bool:
        """True while hooks are attached to the modules."""
        return bool(self._handles)

    def attach(self, modules: Mapping[str, nn.Module]) -> None:
        """Listen to these modules."""
        with _CHANGES:
            inside = self._parts.find() if self._parts is not None else {}
            shares: dict[CompiledCall, ListenerShare] = {}
            for name, module in list(modules.items()):
                if (listener := self._listeners.get(name)) is None:
                    listener = self._listeners[name] = Listener(name, self._take, self._failed)
                try:
                    if (call := inside.get(id(module))) is None:
                        listener.attach(module)
                        self._handles.append(listener)
                        continue
                    if call not in shares:
                        self._handles.append(shares.setdefault(call, ListenerShare(call, self._failed)))
                    shares[call].add(listener, module)
                except Exception as error:  # a module that accepts no hooks; the others are watched
                    self._failed(name, error)

    def add(self, handle: Any) -> None:
        """Remove a further hook at the end of the pass."""
        self._handles.append(handle)

    def follow(self, tensor: Tensor, action: Action) -> None:
        """Call `action` with the gradient of a tensor."""
        hook = GradientHook.follow(tensor, action) if tensor._backward_hooks else GradientHook(tensor, action)
        if tensor.is_leaf:  # a leaf would keep the hook for ever
            self._leaves.append((hook, action))

    def end(self) -> None:
        """End the pass; gradients may still arrive."""
        with _CHANGES:
            handles, self._handles = self._handles, []
            for handle in handles:
                handle.remove()

    def release(self) -> None:
        """Take the hooks off leaf tensors, too."""
        self.end()
        leaves, self._leaves = self._leaves, []
        for hook, action in leaves:
            hook.remove(action)

    def close(self) -> None:
        """Listen to nothing any more."""
        self.release()
        if self._parts is not None:
            self._parts.close()
