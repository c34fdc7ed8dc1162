"""The network that a viewer draws, as plain frozen records: layers, projections, variables."""

from __future__ import annotations

from dataclasses import dataclass

GAP_BITS = 0x7FC07CE5  # float32 NaN payload that no computation produces: marks a missing value


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer of a network; its units are the numbers of one batch item, in C order."""

    name: str  # "features.0", "Hidden1": unique
    shape: tuple[int, ...]  # of one batch item: (units,), (rows, columns), (channels, rows, columns), (tokens, width)
    kind: str = ""  # the module's type: "Conv2d", "Linear", "MultiheadAttention", "Input"
    # How the shape is displayed: "units", "plane", "maps" (tiles), "heads" (tiles), "pools" (eTorch's 4-D), "picture"
    # (RGB, channels first or last: where the values are those of a picture, else its channels as tiles).
    view: str = "auto"
    place: tuple[float, float, float] | None = None  # its centre, in scene units; None: computed by `placement`
    relation: str = (
        ""  # its position relative to `other`: "above", "below", "right", "left", "behind", "front"; "" stacks it
    )
    other: str = ""
    align: tuple[str, str] = ("", "")  # with `other`: "left", "right"; "front", "back"; "": its middle
    space: float | None = None  # columns of `other` left free between the two; None: as much as looks well
    also: tuple[str, ...] = ()  # its further parts: activations after it, parameters
    holds: bool = False  # whether it is what a module returned that holds other layers
    range: tuple[float, float] | None = None  # of its Act, where every value lies in it by its nature


@dataclass(frozen=True, slots=True)
class Projection:
    """Weights between two layers."""

    name: str  # "features.3.weight", "Hidden1ToOutput": unique
    sender: str  # a layer
    receiver: str
    kind: str = "linear"  # "linear" (receiver, sender), "conv" (out, in, rows, columns), "" where weights are unknown
    shape: tuple[int, ...] = ()  # of the weights
    stride: tuple[int, ...] = ()  # of a convolution, like the following fields
    padding: tuple[int, ...] = ()
    dilation: tuple[int, ...] = ()
    groups: int = 1
    type: str = "forward"  # or "recurrent", "skip", "lateral", "back": selects the arrow's style


def weight_name(projection: Projection) -> str:
    """The name of a projection's parameter: "rnn.weight:2" is the second use of "rnn.weight"."""
    name, colon, number = projection.name.rpartition(":")
    return name if colon and number.isdecimal() else projection.name


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable that units, or weights, have a value of."""

    name: str  # "Act", "Grad", "Net"; of weights "Wt", "DWt"
    of: str = "unit"  # or "weight"
    doc: str = ""
    range: tuple[float, float] | None = None  # fixed; None: automatic
    zero_centred: bool = True


@dataclass(frozen=True, slots=True)
class ModuleNode:
    """A module that ran, in the tree of modules."""

    path: str  # "layers.0.self_attn"
    kind: str  # its type
    parent: str = ""  # the path of the module that called it; "" for the model itself
    calls: int = 1
    repeats: int = 1  # ×N: how many equal siblings begin with it; 0 for the others among them
    output: str = ""  # the layer that has what it returned; "" where none has


@dataclass(frozen=True, slots=True)
class Network:
    """Everything a picture needs before the first values arrive."""

    name: str
    layers: tuple[Layer, ...] = ()
    projections: tuple[Projection, ...] = ()
    variables: tuple[Variable, ...] = ()
    modules: tuple[ModuleNode, ...] = ()  # the tree, each after its parent
    notes: tuple[str, ...] = ()  # sentences: what is not shown, and how the network was found
    token_names: tuple[tuple[str, ...], ...] = ()  # for each item of the batch; a single list holds for all of them


def full_name(module: str, network: Network | None) -> str:
    """The network's name for a module or part of a layer: "conv1" may be "net.conv1" among several models."""
    names = [name for layer in network.layers for name in (layer.name, *layer.also)] if network is not None else []
    if not module or module in names:
        return module
    matches = [name for name in names if name.endswith(f".{module}") or module.endswith(f".{name}")]
    return matches[0] if len(matches) == 1 else module


@dataclass(frozen=True, slots=True)
class PlacedLayer:
    """A layer with its grid, size and place. Unit u lies in tile u // (rows*columns), in row-major order."""

    layer: Layer
    units: int
    grid: tuple[int, int, int, int]  # tile rows, tile columns, rows, columns of a tile; the last cells may be empty
    size: tuple[float, float]  # width (x) and depth (z) of its plane, in the scene's units
    place: tuple[float, float, float]  # of its centre; y is up


@dataclass(frozen=True, slots=True)
class Net:
    """The placed network; sent first and whenever it changes."""

    name: str
    layers: tuple[PlacedLayer, ...]
    projections: tuple[Projection, ...]
    variables: tuple[
        Variable, ...
    ]  # also those the server derives: "r.Wt", "s.Wt", "r.DWt", "s.DWt" (of a clicked unit)
    modules: tuple[ModuleNode, ...] = ()  # the tree, each after its parent
    token_names: tuple[tuple[str, ...], ...] = ()  # as in `Network`
