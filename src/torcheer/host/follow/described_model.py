"""A model and the description of its network: which module delivers which layer's values."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

import torch
from torch import nn

from torcheer.host.follow.layer_places import LayerPlaces, places_of
from torcheer.host.follow.model_pass import ModelPass
from torcheer.host.follow.network_finder import HOW_FOUND, NetworkFinder
from torcheer.models import modules_of, unwrapped
from torcheer.network.history_network import PassDescription
from torcheer.network.network_records import Network
from torcheer.tap.module_selection import ModuleSelection, choose, describe_compiled
from torcheer.tap.pass_counter import is_called
from torcheer.terminal import first_names

_REDESCRIBE_SECS: Final = 5.0  # between two descriptions of a model whose shapes change


class NetworkSink(Protocol):
    """Where a network goes once it is known: a `Host`, or a run's log."""

    @property
    def network(self) -> Network | None:
        """The network that is shown."""

    @network.setter
    def network(self, network: Network) -> None: ...


class DescribedModel:
    """A model, or several by name; its description comes from a pass that runs, and goes to `host.network`.

    - `layers`: whose values are recorded, in the forms of `torcheer.selection`; None for all. Others are only drawn.
    - `note(text)` receives sentences about what cannot be shown
    """

    def __init__(
        self, model: nn.Module | Mapping[str, nn.Module], host: NetworkSink, layers: Any, note: Callable[[str], None]
    ) -> None:
        self.model = model if isinstance(model, nn.Module) else nn.ModuleDict(_named(model))
        self.roots = [self.model] if isinstance(model, nn.Module) else list(self.model.children())
        every = choose(self.model) if any(True for _ in self.model.parameters()) else ModuleSelection()
        self.hidden = every.hidden_modules
        self._selected = None if layers is None else frozenset(choose(self.model, layers, "live").modules)
        self._host, self._note = host, note
        self.places, self.modules = LayerPlaces(), dict[str, nn.Module]()
        self.batch = 0  # items in a batch; 0 where unknown
        unseen = (every.hidden_modules, every.compiled_modules)
        self.finder = NetworkFinder(self.model, self.roots, *unseen, self._use_network, note)
        self._described_at, self.is_stale = -1e9, False  # stale: shapes have changed
        if self.hidden:
            names = first_names(self.hidden, 3)
            note(f"{len(self.hidden)} layers ({names}) run inside code where no hook is called: their values "
                 "are not shown, weights are")  # fmt: skip
        if every.compiled_modules:
            note(describe_compiled(every.compiled_modules))
        if isinstance(unwrapped(self.model), torch.jit.ScriptModule):  # accepts no hooks
            host.network = self.finder.guess()

    @property
    def is_described(self) -> bool:
        """True once the network has been described."""
        return bool(self.modules or self.places.inputs)

    @property
    def needs_description(self) -> bool:
        """True where the next pass should describe the network, for the first time or again."""
        is_old = self.is_stale and time.monotonic() - self._described_at > _REDESCRIBE_SECS
        return not self.is_described or is_old

    def observe(self, arguments: Any, keywords: Any) -> None:
        """Describe the network from the next pass, or from the one that begins with these arguments."""
        if (arguments is None or self.is_stale) and is_called(self.model):  # a `training_step` may not call it
            self.finder.record_next_call()
        self.finder.observe(arguments, keywords)

    def _use_network(self, description: PassDescription, model_pass: ModelPass) -> None:
        """Use the network that was found: its layers' values are recorded from now on."""
        self._described_at, self.is_stale = time.monotonic(), False
        modules = {**modules_of(self.model), "": self.model}
        self.places = places_of(description, model_pass, modules, self._selected)
        self.modules = {name: modules[name] for name, _ in self.places.by_call}
        self.batch = description.batch.size
        for text in description.network.notes:
            if text not in HOW_FOUND:
                self._note(text)
        self._host.network = description.network

    def forget(self, name: str) -> None:
        """Record no further values of a module."""
        self.modules.pop(name, None)


def _named(models: Mapping[str, nn.Module]) -> dict[str, nn.Module]:
    return {name.replace(".", "_"): model for name, model in models.items()}
