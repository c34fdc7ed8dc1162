"""One pass of a compiled part's eager program beside the compiled one: hooks see in it what they cannot see there."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, Final, Protocol

import torch
from torch import Tensor
from torch.autograd.graph import register_multi_grad_hook
from torch.nn.parameter import is_lazy
from torch.utils._python_dispatch import TorchDispatchMode

from torcheer.ranks import rank_of
from torcheer.tap.compiled.compiled_parts import CompiledPart
from torcheer.tap.compiled.eager_stance import EAGER_STANCE
from torcheer.tap.compiled.gradient_edges import CollectedEdges
from torcheer.tap.compiled.preserved_state import PreservedState
from torcheer.tap.tensor_copies import tensors_in

_USABLE_SHARE: Final = 0.95  # of a GPU's memory


class Share(Protocol):
    """What one sink wants of the modules inside a compiled part."""

    def attach(self) -> Iterable[Any]:
        """Register hooks on its modules for one pass; returns their handles."""

    def fail(self, error: Exception) -> None:
        """Hear why nothing comes."""


class EagerPass:
    """Runs before the compiled code, with copies of its arguments; then follows the gradient of what that returns.

    The gradient that arrives at the compiled output is sent back through this pass, to the tensors that a sink has
    hooked, without the loss being known. No weight gets a gradient from it.
    """

    def __init__(self, part: CompiledPart, shares: Sequence[Share]) -> None:
        self._part, self._shares = part, tuple(shares)
        self._edges: list[Any] = []  # where a hook waits for a gradient
        self._output: Any = None
        self._state: PreservedState | None = None

    def run(self, compiled: Callable[..., Any], arguments: Any, keywords: Any) -> None:
        """Run the program that was compiled; its outputs go to those who share it."""
        state = PreservedState(self._part.inner)
        if any(map(is_lazy, state.parameters)):
            return  # they are made, and random numbers drawn, by the first pass
        room = _Room(state.parameters)
        arguments, keywords = copied((arguments, keywords), {})
        try:
            with _alone(state), self._hooked(), CollectedEdges(self._edges):
                output = self._part.run_eagerly(compiled, arguments, keywords)
        except Exception:
            self._edges.clear()
            raise
        if self._edges and not room.suffices():
            self._edges.clear()
            self._fail(MemoryError("gradients need the memory of a second pass until backward, which may not be free"))
        if self._edges:  # else its graph is free before the compiled pass needs memory
            self._output, self._state = output, state

    @contextmanager
    def _hooked(self) -> Iterator[None]:
        handles = list[Any]()
        try:
            for share in self._shares:
                handles += share.attach()
            yield
        finally:
            for handle in reversed(handles):
                handle.remove()

    def follow(self, output: Any) -> None:
        """Send the gradient of the compiled output through this pass when it comes."""
        returned, self._output = tensors_in(self._output, ""), None
        if not self._edges:
            return
        compiled = dict(tensors_in(output, ""))
        pairs = [(tensor, compiled[place]) for place, tensor in returned if place in compiled]
        pairs = [(mine, theirs) for mine, theirs in pairs if mine.grad_fn is not None and theirs.grad_fn is not None]
        mine, theirs = [own for own, _ in pairs], [tensor for _, tensor in pairs]
        if len(pairs) == 1:  # the other way makes a cycle, which the garbage collector must find
            theirs[0].register_hook(lambda gradient: self._send_back(mine, [gradient]))  # type: ignore[no-untyped-call]
        elif pairs:
            register_multi_grad_hook(theirs, lambda gradients: self._send_back(mine, gradients))

    def _send_back(self, outputs: list[Tensor], gradients: Sequence[Tensor | None]) -> None:
        """Run the pass backward, once; its graph is freed."""
        edges, state, self._edges, self._state = self._edges, self._state, [], None
        given = [(out, gradient) for out, gradient in zip(outputs, gradients, strict=True) if gradient is not None]
        outputs.clear()
        if not edges or not given or state is None:
            return
        try:
            with _alone(state):  # checkpointing computes parts of it again
                torch.autograd.grad(
                    [out for out, _ in given], edges, [gradient.detach() for _, gradient in given], allow_unused=True
                )
        except Exception as error:  # gradients fewer; the user's own backward goes on
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        for share in self._shares:
            share.fail(error)


@contextmanager
def _alone(state: PreservedState) -> Iterator[None]:
    """Leave no trace: neither in the model nor in torch."""
    caches = torch.is_autocast_cache_enabled()
    with state.restored(), EAGER_STANCE, _alone_in_world():
        torch.set_autocast_cache_enabled(False)  # else casts of weights would go from here into the user's graph
        try:
            yield
        finally:
            torch.set_autocast_cache_enabled(caches)


class _Alone(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Refuses to wait for other processes: they may not run this pass."""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if "c10d" in function.namespace:
            raise RuntimeError(f"the program waits for other processes ({function.name()}), which do not run it twice")
        return function(*args, **(kwargs or {}))


def _alone_in_world() -> Any:
    return _Alone() if rank_of()[1] > 1 else nullcontext()  # type: ignore[no-untyped-call]


class _Room:
    """Whether the graph of a pass may stay in a GPU's memory until the step's backward."""

    def __init__(self, parameters: Sequence[Tensor]) -> None:
        self._device = parameters[0].device if parameters and parameters[0].is_cuda else None
        self._before = self._allocated()["current"] if self._device is not None else 0

    def suffices(self) -> bool:
        """True if the step that follows finds the memory that its steps have needed so far, or as much again."""
        if self._device is None:
            return True
        now = self._allocated()
        held = now["current"] - self._before
        needed = max(now["peak"], self._before + 2 * held)
        total = torch.cuda.get_device_properties(self._device).total_memory
        return needed + held <= _USABLE_SHARE * total

    def _allocated(self) -> dict[str, int]:
        """Bytes of the device, now and at most; a third of the cost of asking for each."""
        numbers: dict[str, int] = torch.cuda.memory_stats_as_nested_dict(self._device)["allocated_bytes"]["all"]
        return numbers


def copied(value: Any, memo: dict[int, Any]) -> Any:
    """Copy arguments, so that a pass which writes into them does not change what the next one is given."""
    if id(value) in memo:
        return memo[id(value)]
    copy_of: Any
    if isinstance(value, Tensor):
        copy_of = value.detach().requires_grad_().clone() if value.requires_grad else value.clone()
    elif type(value) in (list, tuple):
        copy_of = type(value)([copied(item, memo) for item in value])
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        copy_of = type(value)(*[copied(item, memo) for item in value])
    elif type(value) is dict:
        copy_of = {key: copied(item, memo) for key, item in value.items()}
    else:
        copy_of = copy.deepcopy(value, memo)  # raises for what cannot be copied: then nothing is run
    memo[id(value)] = copy_of
    return copy_of
