"""The network of a run directory: its description."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from torcheer.errors import BadArgument
from torcheer.network.network_records import Layer, Network, Variable
from torcheer.network.placement import net_of
from torcheer.wire.json_codec import from_json

_MOST_BYTES: Final = 64 << 20  # of a description


def network_in(run: Path) -> Network | None:
    """Read `network.json`; None if it is missing or invalid."""
    path = run / "network.json"
    try:
        if path.stat().st_size > _MOST_BYTES:
            return None
        return parsed_network(json.loads(path.read_bytes()))
    except (OSError, ValueError, RecursionError):
        return None


def parsed_network(record: Any) -> Network | None:
    """Parse a network's JSON; None if it is invalid."""
    try:
        network = from_json(Network, record)
        net_of(network)  # raises if it cannot be drawn
        return network
    except (ValueError, RecursionError, BadArgument):
        return None


def merge_captured(
    description: Network | None, title: str, captured: dict[str, Layer], variables: list[str]
) -> Network:
    """The described network, with captured layers that the description lacks appended."""
    recorded = tuple(Variable(name) for name in variables)
    if description is None:
        return Network(title, tuple(captured.values()), (), recorded)
    names = {layer.name for layer in description.layers}
    more = tuple(layer for name, layer in captured.items() if name not in names)
    documented = {variable.name: variable for variable in description.variables if variable.of != "weight"}
    return replace(
        description,
        layers=(*description.layers, *more),
        variables=tuple(documented.get(shown.name, shown) for shown in recorded),
    )
