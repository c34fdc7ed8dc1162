"""Saves and loads a `Network`'s weights as plain safetensors or npz files."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torcheer.archive.exchange import npz_format, safetensors_format
from torcheer.disk import explain_write_errors, replacing
from torcheer.errors import BadArgument
from torcheer.etorch.etorch_network import Network, States
from torcheer.terminal import first_names

_KINDS = {".safetensors": safetensors_format, ".npz": npz_format}


def save_weights(network: Network, path: str | PathLike[str]) -> None:
    """Write an array per projection, "InputToHidden.Wt", and per layer's bias, "Hidden.Bias"."""
    arrays = {
        f"{name}.{variable}": states.array(variable)
        for name, variable, states in _places(network)
        if variable in states
    }
    if not arrays:
        raise BadArgument(f"{network.name} has no weights to save: record some with `State.rec_wts = True` first")
    target = Path(path)
    _kind(target)
    with explain_write_errors(target), replacing(target) as part:
        np.savez(part, allow_pickle=False, **arrays) if target.suffix == ".npz" else _write_safetensors(part, arrays)


def load_weights(network: Network, path: str | PathLike[str]) -> None:
    """Load every array of a file; each must belong to the network, and fit its shape."""
    source = Path(path)
    if not source.exists():
        raise BadArgument(f"there is no {source} to load weights from")
    places = {f"{name}.{variable}": (states, variable) for name, variable, states in _places(network)}
    with _kind(source).read(source) as content:
        arrays = {
            sample.layer: np.array(sample.array, np.float32) for _, samples in content.frames for sample in samples
        }
    if unknown := arrays.keys() - places.keys():
        raise BadArgument(
            f"{source} holds {first_names(sorted(unknown), 4)}, which {network.name} has no place for; "
            f"it has {first_names(places)}"
        )
    fitted = {name: places[name][0].owner.fit(array, places[name][1]) for name, array in arrays.items()}
    for name, array in fitted.items():  # only once all of them are known to fit
        states, variable = places[name]
        states.keep(variable, array)


def _places(network: Network) -> list[tuple[str, str, States]]:
    weights = [(projection.name, "Wt", projection.States) for projection in network.projections.values()]
    return weights + [(layer.name, "Bias", layer.States) for layer in network]


def _kind(path: Path) -> Any:
    if path.suffix not in _KINDS:
        raise BadArgument(
            f"weights are kept as {' or '.join(_KINDS)}, not as {path.suffix or 'a file without a suffix'!r}"
        )
    return _KINDS[path.suffix]


def _write_safetensors(path: Path, arrays: dict[str, NDArray[np.float32]]) -> None:
    try:
        from safetensors.numpy import save
    except ImportError:
        raise BadArgument(
            "a .safetensors file needs safetensors: pip install 'torcheer[all]'; a .npz needs it not"
        ) from None
    data = save({name: np.ascontiguousarray(array, "<f4") for name, array in arrays.items()}, {"format": "np"})
    path.write_bytes(data)  # not its save_file: a full disk is no OSError there
