"""The parts of a model that `torch.compile` runs: where they are entered, and what runs inside them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import torch
from torch import nn

from torcheer.models import unwrapped
from torcheer.ranks import rank_of
from torcheer.tap.compiled.eager_stance import EAGER_STANCE

ORIGINAL: Final = "_torchdynamo_orig_callable"  # of a compiled function: what it was made from
IN_PLACE: Final = "_compiled_call_impl"  # of a module after `module.compile()`: what runs in place of its call
_SHARDED: Final = "FullyShardedDataParallel"


class CompiledPart(NamedTuple):
    """A module whose call, or whose `forward`, is compiled code."""

    entry: nn.Module
    slot: str  # the attribute of `entry` that runs the compiled code
    wrapped: nn.Module  # what was compiled: `entry` itself, unless it is a wrapper

    @property
    def compiled(self) -> Callable[..., Any]:
        """What runs the compiled code."""
        function: Callable[..., Any] = vars(self.entry)[self.slot]
        return function

    @property
    def inner(self) -> nn.Module:
        """The module of the eager program: without DDP, whose call would begin another reduction."""
        return unwrapped(self.wrapped)

    def run_eagerly(self, compiled: Callable[..., Any], arguments: Any, keywords: Any) -> Any:
        """Run the program that was compiled, where the stance is eager."""
        if self.slot == IN_PLACE:
            return self.entry._call_impl(*arguments, **keywords)  # type: ignore[no-untyped-call]
        if self.entry is self.wrapped:
            return compiled(*arguments, **keywords)
        return self.inner(*arguments, **keywords)

    def modules_inside(self) -> Iterator[nn.Module]:
        """The modules of which compiled code calls no hook."""
        own_hooks_run = self.entry is self.wrapped and self.slot != IN_PLACE
        return (module for module in self.wrapped.modules() if not (own_hooks_run and module is self.entry))

    def refusal(self) -> str:
        """Why its program cannot run a second time beside it; "" where it can."""
        for module in self.wrapped.modules():
            for parameter in module._parameters.values():
                if hasattr(parameter, "_local_tensor"):
                    return "its weights are shared out among processes"
            if type(module).__name__ == _SHARDED or (isinstance(module, nn.SyncBatchNorm) and rank_of()[1] > 1):
                return f"{type(module).__name__} waits for other processes"
        return ""


def compiled_parts(model: nn.Module) -> list[CompiledPart]:
    """The outermost compiled parts of a model; none while compiled code runs as its original Python."""
    if "torch._dynamo" not in sys.modules or EAGER_STANCE.is_on:
        return []
    parts, seen, modules = list[CompiledPart](), set[int](), [model]
    while modules:
        module = modules.pop()
        if id(module) in seen or isinstance(module, torch.jit.ScriptModule):
            continue
        seen.add(id(module))
        if (part := part_at(module)) is not None:
            parts.append(part)
        else:
            children = module._modules.values()  # `children()` takes ten times as long
            modules += [child for child in children if child is not None]
    return parts


def part_at(module: nn.Module) -> CompiledPart | None:
    """The compiled part that a module is the entry of."""
    own = vars(module)
    if own.get(IN_PLACE) is not None:
        return CompiledPart(module, IN_PLACE, module)
    if "forward" not in own:
        return None
    if isinstance(wrapped := module._modules.get("_orig_mod"), nn.Module):
        return CompiledPart(module, "forward", wrapped)
    forward = own["forward"]
    is_compiled = hasattr(forward, ORIGINAL) or hasattr(getattr(forward, "__wrapped__", None), ORIGINAL)
    return CompiledPart(module, "forward", module) if is_compiled else None
