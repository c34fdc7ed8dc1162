"""A network as a viewer draws it, as plain frozen data: layers, projections, variables."""

from __future__ import annotations

from dataclasses import dataclass

GAP_BITS = 0x7FC07CE5  # of a float32, a NaN that no computation makes: nothing is there


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer of a network; its units are the numbers of one batch item, in C order."""

    name: str  # "features.0", "Hidden1": unique
    shape: tuple[int, ...]  # of one batch item: (units,), (rows, columns), (channels, rows, columns), (tokens, width)
    kind: str = ""  # what made it: "Conv2d", "Linear", "MultiheadAttention", "Input"
    view: str = "auto"  # how the shape reads: "units", "plane", "maps" (tiles), "heads" (tiles), "pools" (eTorch's 4-D)
    place: tuple[float, float, float] | None = None  # where its middle is, in units; None: found by `placing`
    relation: str = ""  # how it lies to `other`: "above", "below", "right", "left", "behind", "front"; "" stacks it
    other: str = ""
    also: tuple[str, ...] = ()  # what else is a part of it: activations behind it, parameters


@dataclass(frozen=True, slots=True)
class Projection:
    """Weights between two layers."""

    name: str  # "features.3.weight", "Hidden1ToOutput": unique
    sender: str  # a layer
    receiver: str
    kind: str = "linear"  # "linear" (receiver, sender), "conv" (out, in, rows, columns), "" where weights are not known
    shape: tuple[int, ...] = ()  # of the weights
    stride: tuple[int, ...] = ()  # of a convolution, as are the others
    padding: tuple[int, ...] = ()
    dilation: tuple[int, ...] = ()
    groups: int = 1
    type: str = "forward"  # or "recurrent", "skip", "lateral", "back": decides the arrow's looks


@dataclass(frozen=True, slots=True)
class Variable:
    """A thing that units, or weights, have a value of."""

    name: str  # "Act", "Grad", "Net"; of weights "Wt", "DWt"
    of: str = "unit"  # or "weight"
    doc: str = ""
    range: tuple[float, float] | None = None  # fixed; None: automatic
    zero_centred: bool = True


@dataclass(frozen=True, slots=True)
class Network:
    """All that a picture needs to know before there are values."""

    name: str
    layers: tuple[Layer, ...] = ()
    projections: tuple[Projection, ...] = ()
    variables: tuple[Variable, ...] = ()


def full_name(module: str, network: Network | None) -> str:
    """What a network calls a module, or a part of a layer: one model's "conv1" may be "net.conv1" among several."""
    known = [name for layer in network.layers for name in (layer.name, *layer.also)] if network is not None else []
    if not module or module in known:
        return module
    found = [name for name in known if name.endswith(f".{module}") or module.endswith(f".{name}")]
    return found[0] if len(found) == 1 else module


@dataclass(frozen=True, slots=True)
class PlacedLayer:
    """A layer with all that drawing it takes. Unit u lies in tile u // (rows*columns), there at row and column."""

    layer: Layer
    units: int
    grid: tuple[int, int, int, int]  # tile rows, tile columns, rows, columns of a tile; the last cells may be empty
    size: tuple[float, float]  # width (x) and depth (z) of its plane, in the scene's units
    place: tuple[float, float, float]  # of its middle; y is up


@dataclass(frozen=True, slots=True)
class Net:
    """The network, at first and when it changes."""

    name: str
    layers: tuple[PlacedLayer, ...]
    projections: tuple[Projection, ...]
    variables: tuple[Variable, ...]  # also those the server makes: "r.Wt", "s.Wt", "r.DWt", "s.DWt" (of a clicked unit)
