"""Read and change values at places of a model by its own hooks: what sweeps do, many times, without a recording."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from torcheer.capture.head_columns import Columns, columns_before_call
from torcheer.capture.record.tensor_trees import leaves, replace_one
from torcheer.errors import BadArgument, UnknownLayer
from torcheer.models import plain_name
from torcheer.roles import Place, Roles, roles_of
from torcheer.selection import Selector, class_name, keys_of, parse

Handler = Callable[[Tensor], Tensor | None]  # what it returns replaces the value; None leaves it


class Places:
    """The places of a model that a verb was asked for, by name."""

    def __init__(self, model: nn.Module, layers: Any, verb: str) -> None:
        self.model = model
        self.modules = {plain_name(name): module for name, module in model.named_modules() if name}
        self.roles: Roles = roles_of(self.modules)
        self.named: dict[str, Place] = {}
        for key in keys_of(layers, verb):
            selector = parse(key, self.modules, verb)
            places = selector.places or tuple(
                Place(path, path) for path, module in self.modules.items() if _means(selector, path, module)
            )
            if not places:
                raise UnknownLayer(f"{verb}: nothing among {len(self.modules)} modules matches {key!r}")
            self.named |= {place.role: place for place in places}
        if not self.named:
            raise BadArgument(f"{verb}: layers={layers!r} chooses nothing")

    @contextmanager
    def hooked(self, handlers: Mapping[str, Handler]) -> Iterator[None]:
        """Call each handler with the first tensor at the place of that name, in every call inside the block."""
        handles = []
        try:
            for name, handler in handlers.items():
                place = self.named[name]
                module = self.modules[place.path]
                if place.at == "input":
                    handles.append(module.register_forward_pre_hook(_before(handler), with_kwargs=True))
                else:
                    handles.append(module.register_forward_hook(_after(handler)))
            yield
        finally:
            for handle in handles:
                handle.remove()

    @contextmanager
    def finding_heads(self, columns_by_path: dict[str, Columns]) -> Iterator[None]:
        """Find the columns of the heads of each attention that is called inside the block, by its path."""
        wanted = {place.attention: place for place in self.named.values() if place.heads}
        handles = []
        for path, place in wanted.items():
            projections = self.roles.projections(place)
            inside = {letter: inner.removeprefix(f"{path}.") for letter, inner in projections.items()}
            hook = _heads_hook(path, inside, columns_by_path)
            handles.append(self.modules[path].register_forward_pre_hook(hook, with_kwargs=True))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()


def _means(selector: Selector, path: str, module: nn.Module) -> bool:
    return selector.matches_call(path, 0, class_name(module))


def _before(handler: Handler) -> Any:
    def hook(module: nn.Module, args: Any, kwargs: Any) -> Any:
        received = (args, kwargs)
        tensors = leaves(received)
        new = handler(tensors[0]) if tensors else None
        return None if new is None else replace_one(received, tensors[0], new)

    return hook


def _after(handler: Handler) -> Any:
    def hook(module: nn.Module, args: Any, out: Any) -> Any:
        tensors = leaves(out)
        new = handler(tensors[0]) if tensors else None
        return None if new is None else replace_one(out, tensors[0], new)

    return hook


def _heads_hook(path: str, projections: Mapping[str, str], columns_by_path: dict[str, Columns]) -> Any:
    def hook(module: nn.Module, args: Any, kwargs: Any) -> None:
        if path not in columns_by_path:
            columns_by_path[path] = columns_before_call(module, args, kwargs, projections)

    return hook
