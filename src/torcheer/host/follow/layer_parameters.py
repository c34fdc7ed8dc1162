"""The parameters of the layers that a page inspects."""

from __future__ import annotations

from collections.abc import Collection

from torch import nn

from torcheer.models import plain_name, unwrapped
from torcheer.network.network_records import Network, weight_name


def parameters_of(model: nn.Module, network: Network, layers: Collection[str]) -> dict[str, nn.Parameter]:
    """The parameters of these layers, by name."""
    names = {name for layer in network.layers if layer.name in layers for name in layer.also}
    names |= {weight_name(projection) for projection in network.projections if projection.receiver in layers}
    return {
        plain_name(name): parameter
        for name, parameter in unwrapped(model).named_parameters()
        if plain_name(name) in names and not isinstance(parameter, nn.parameter.UninitializedParameter)
    }
