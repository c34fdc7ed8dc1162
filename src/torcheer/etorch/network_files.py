"""Weights of a `Network` in a file: safetensors or npz, plain arrays that other programs read, too."""

from __future__ import annotations

import json
import os
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torcheer.archive.exchange import npz_format, safetensors_format
from torcheer.errors import BadArgument, CannotWrite
from torcheer.etorch.etorch_network import Network, States

_KINDS = {".safetensors": safetensors_format, ".npz": npz_format}
KEPT = ("Wt", "Bias")


def save_weights(network: Network, path: str | PathLike[str]) -> None:
    """One array per projection, "InputToHidden.Wt", and one per layer that has a bias, "Hidden.Bias"."""
    arrays = {
        f"{name}.{variable}": states[variable] for name, variable, states in _places(network) if variable in states
    }
    if not arrays:
        raise BadArgument(f"{network.name} has no weights to save: record some with `State.rec_wts = True` first")
    target = Path(path)
    _kind(target)
    part = target.with_name(f".{target.name}.part")
    try:
        (_write_npz if target.suffix == ".npz" else _write_safetensors)(part, arrays)
        os.replace(part, target)
    except OSError as error:
        raise CannotWrite(error.errno, f"{target}: {error.strerror or error}") from error
    finally:
        part.unlink(missing_ok=True)


def load_weights(network: Network, path: str | PathLike[str]) -> None:
    """Take over every array of a file; all of them must have a place here, and fit it."""
    source = Path(path)
    if not source.exists():
        raise BadArgument(f"there is no {source} to load weights from")
    places = {f"{name}.{variable}": (states, variable) for name, variable, states in _places(network)}
    with _kind(source).read(source) as content:
        found = {one.layer: np.array(one.array, np.float32) for _, samples in content.frames for one in samples}
    if strange := found.keys() - places.keys():
        raise BadArgument(
            f"{source} holds {', '.join(sorted(strange)[:4])}, which {network.name} has no place for; "
            f"it has {', '.join(list(places)[:8])}"
        )
    fitting = {name: places[name][0].owner.fit(array, places[name][1]) for name, array in found.items()}
    for name, array in fitting.items():  # only once all of them fit
        states, variable = places[name]
        states.keep(variable, array)


def _places(network: Network) -> list[tuple[str, str, States]]:
    found = [(one.name, "Wt", one.States) for one in network.projections.values()]
    return found + [(one.name, "Bias", one.States) for one in network]


def _kind(path: Path) -> Any:
    if path.suffix not in _KINDS:
        raise BadArgument(
            f"weights are kept as {' or '.join(_KINDS)}, not as {path.suffix or 'a file without a suffix'!r}"
        )
    return _KINDS[path.suffix]


def _write_npz(path: Path, arrays: dict[str, NDArray[np.float32]]) -> None:
    with open(path, "wb") as file:
        np.savez(file, allow_pickle=False, **arrays)


def _write_safetensors(path: Path, arrays: dict[str, NDArray[np.float32]]) -> None:
    header: dict[str, Any] = {"__metadata__": {"format": "np"}}
    end = 0
    for name, array in arrays.items():
        begin, end = end, end + array.nbytes
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for array in arrays.values():
            file.write(np.ascontiguousarray(array, "<f4").tobytes())
