"""Weights as emergent's JSON: for each layer its biases and, for each unit, the weights of a projection into it."""

from __future__ import annotations

import json
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from torcheer.disk import explain_write_errors, replacing
from torcheer.errors import BadArgument
from torcheer.etorch.etorch_network import Network, Projection


def save_weights_json(network: Network, path: str | PathLike[str]) -> None:
    """Write the weights of full projections, and the biases of their receivers."""
    record = {"Network": network.name, "Layers": [_layer(network, name) for name in network.layers]}
    with explain_write_errors(Path(path)), replacing(Path(path)) as part:
        part.write_text(json.dumps(record), encoding="utf-8")


def open_weights_json(network: Network, path: str | PathLike[str]) -> None:
    """Read such a file; raises BadArgument where it does not fit the network."""
    try:
        layers = json.loads(Path(path).read_text(encoding="utf-8"))["Layers"]
        fitted = [pair for layer in layers for pair in _fitted(network, layer)]
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        raise BadArgument(f"{path} holds no weights of {network.name}: {type(error).__name__}: {error}") from None
    for states, variable, values in fitted:  # only once all of them are known to fit
        states[variable] = values


def _layer(network: Network, name: str) -> dict[str, Any]:
    layer = network[name]
    record: dict[str, Any] = {"Layer": name}
    if "Bias" in layer.States:
        record["Units"] = {"Bias": layer.States.array("Bias")[0].reshape(-1).tolist()}
    projections = [each for each in layer.receiving if "Wt" in each.States]
    record["Prjns"] = [{"From": each.sender.name, "Rs": _rows(each)} for each in projections]
    return record


def _rows(projection: Projection) -> list[dict[str, Any]]:
    weights = projection.States.array("Wt")
    if weights.ndim != 2:
        raise BadArgument(
            f"{projection.name} is a convolution, whose weights this format has no place for: `save_weights` writes all"
        )
    senders = list(range(weights.shape[1]))
    return [
        {"Ri": receiver, "N": len(senders), "Si": senders, "Wt": row.tolist()} for receiver, row in enumerate(weights)
    ]


def _fitted(network: Network, record: dict[str, Any]) -> list[tuple[Any, str, Any]]:
    layer = network[record["Layer"]]
    fitted: list[tuple[Any, str, Any]] = []
    if record.get("Units"):
        fitted.append((layer.States, "Bias", layer.fit(np.array(record["Units"]["Bias"]), "Bias")))
    for part in record.get("Prjns") or ():
        projection = network.projections[f"{part['From']}To{layer.name}"]
        weights = np.zeros((layer.units, projection.sender.units), np.float32)
        for row in part["Rs"]:
            weights[row["Ri"], row["Si"]] = row["Wt"]
        fitted.append((projection.States, "Wt", weights))
    return fitted
