"""The weights between layers: whole parameters, or, of large ones, one unit's slices."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator

from torch import Tensor, nn

from torcheer.models import plain_name, unwrapped
from torcheer.network.network_records import Network, Projection, weight_name


def weights_of(model: nn.Module, network: Network) -> list[tuple[Projection, Tensor]]:
    """The projections with a visible weight, smallest first.

    Of a sharded weight, the local shard.
    """
    parameters = {
        plain_name(name): getattr(parameter, "_local_tensor", parameter).detach()
        for name, parameter in unwrapped(model).named_parameters()
        if not isinstance(parameter, nn.parameter.UninitializedParameter)
    }
    pairs = [
        (projection, parameters[weight_name(projection)])
        for projection in network.projections
        if projection.kind and weight_name(projection) in parameters
    ]
    return sorted(pairs, key=lambda pair: pair[1].nbytes)


def unit_weights(
    network: Network, projection: Projection, weight: Tensor, units: Collection[tuple[str, int]]
) -> Iterator[tuple[str, Tensor]]:
    """Yield the variables ("Wt[in:5]", "Wt[out:5]") and weight slices of the subscribed `units`."""
    sizes = {layer.name: math.prod(layer.shape) for layer in network.layers}
    for layer, unit in units:
        if not 0 <= unit < sizes.get(layer, 0):
            continue
        if layer == projection.receiver:
            yield f"Wt[in:{unit}]", _into(projection, weight, unit, sizes[layer])
        if layer == projection.sender:
            yield f"Wt[out:{unit}]", _out_of(projection, weight, unit, sizes[layer])


def _into(projection: Projection, weight: Tensor, unit: int, units: int) -> Tensor:
    if projection.kind == "linear":
        return weight[unit % weight.shape[0]]
    return weight[min(unit // max(units // weight.shape[0], 1), weight.shape[0] - 1)]


def _out_of(projection: Projection, weight: Tensor, unit: int, units: int) -> Tensor:
    """A column; of a convolution, the kernels of the unit's group that read its channel."""
    if projection.kind == "linear":
        return weight[:, unit % weight.shape[1]]
    channels = weight.shape[1] * projection.groups
    channel = min(unit // max(units // channels, 1), channels - 1)
    outer, group = weight.shape[0] // projection.groups, channel // weight.shape[1]
    return weight[group * outer : (group + 1) * outer, channel % weight.shape[1]]
