"""Sits in the place of a compiled part's call, so that sinks can listen to the modules inside it.

Hooks inside compiled code are not called, and taps in its graph would change what is fused, so its last bits. So the
graph stays as it is: in a pass that somebody listens to, the eager program runs beside it (decision 0016).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torch import nn
from torch.compiler import is_dynamo_compiling

from torcheer.tap.compiled.compiled_parts import CompiledPart, compiled_parts
from torcheer.tap.compiled.eager_pass import EagerPass, Share
from torcheer.tap.compiled.eager_stance import EAGER_STANCE
from torcheer.tap.probe_hooks import Failed, Listener, in_backward
from torcheer.terminal import first_names

Begin = Callable[[nn.Module, Any, Any], None]


class CompiledCall:
    """Replaces the call of a compiled part while anybody holds it; `shares` are those who listen to this pass.

    - `begin` is called before each call, with its arguments; `end` after it
    """

    __slots__ = ("__weakref__", "__wrapped__", "_holders", "begin", "end", "is_broken", "part", "shares")

    def __init__(self, part: CompiledPart) -> None:
        self.part, self.__wrapped__ = part, part.compiled
        self.begin: Begin | None = None
        self.end: Callable[[], None] | None = None
        self.shares: list[Share] = []
        self.is_broken = False  # its program could not be run beside it
        self._holders: list[object] = []

    @classmethod
    def at(cls, part: CompiledPart, holder: object) -> CompiledCall:
        """The one at a part, until each holder has left."""
        call = part.compiled
        if not isinstance(call, cls):
            call = cls(part)
            vars(part.entry)[part.slot] = call
        call._holders.append(holder)
        return call

    def leave(self, holder: object) -> None:
        """Hold it no longer; with the last holder the compiled code is back in its place."""
        if holder in self._holders:
            self._holders.remove(holder)
        if not self._holders and vars(self.part.entry).get(self.part.slot) is self:
            vars(self.part.entry)[self.part.slot] = self.__wrapped__

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        if is_dynamo_compiling() or in_backward() >= 0:
            return self.__wrapped__(*arguments, **keywords)
        if self.begin is not None:
            self.begin(self.part.entry, arguments, keywords)
        try:
            if self.shares and not self.is_broken and not EAGER_STANCE.is_on:
                return self._run_both(arguments, keywords)
            return self.__wrapped__(*arguments, **keywords)
        finally:
            if self.end is not None:
                self.end()

    def _run_both(self, arguments: Any, keywords: Any) -> Any:
        beside, shares = EagerPass(self.part, self.shares), tuple(self.shares)
        try:
            beside.run(self.__wrapped__, arguments, keywords)
        except Exception as error:  # must not reach the user's step
            self._break(shares, error)
        output = self.__wrapped__(*arguments, **keywords)
        try:
            beside.follow(output)
        except Exception as error:  # a container of the user's own
            self._break(shares, error)
        return output

    def _break(self, shares: tuple[Share, ...], error: Exception) -> None:
        """Do not try again; say why."""
        self.is_broken = True
        for share in shares:
            share.fail(error)

    def __deepcopy__(self, memo: Any) -> Any:
        return self.__wrapped__


class ListenerShare:
    """A sink's listeners inside a compiled part, in one pass."""

    def __init__(self, call: CompiledCall, failed: Failed) -> None:
        self._call, self._failed = call, failed
        self._listeners: list[Listener] = []
        self._modules: list[nn.Module] = []
        call.shares.append(self)

    def add(self, listener: Listener, module: nn.Module) -> None:
        """Listen to one more module."""
        listener.calls = 0
        self._listeners.append(listener)
        self._modules.append(module)

    def attach(self) -> Iterator[Listener]:
        """Attach the listeners; a part that is called again goes on with the numbers of its modules' calls."""
        for listener, module in zip(self._listeners, self._modules, strict=True):
            listener.attach(module, listener.calls)
            yield listener

    def fail(self, error: Exception) -> None:
        """Report why nothing comes, once for all modules."""
        self._failed(first_names([listener.name for listener in self._listeners], 3), error)

    def remove(self) -> None:
        """End the pass."""
        self._call.shares.remove(self)


class PartsInside:
    """The modules inside a model's compiled parts; their calls are held until `close`."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._calls: dict[int, CompiledCall] = {}  # by the id of the entry
        self.find()

    def find(self) -> dict[int, CompiledCall]:
        """Map the ids of modules that run inside compiled code now to the calls around them."""
        inside: dict[int, CompiledCall] = {}
        calls, self._calls = self._calls, {}
        for part in compiled_parts(self._model):
            call = calls.pop(id(part.entry), None)
            if call is None or part.compiled is not call:  # it was compiled again
                call = CompiledCall.at(part, self)
            self._calls[id(part.entry)] = call
            if not part.refusal():
                inside |= {id(module): call for module in part.modules_inside()}
        for call in calls.values():
            call.leave(self)
        return inside

    def close(self) -> None:
        """Leave the model as it was."""
        calls, self._calls = self._calls, {}
        for call in calls.values():
            call.leave(self)
