"""eTorch's network: named layers and projections, each with named, recorded values.

It stores what `State.rec` or other code records; nothing here runs a model.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, MutableMapping
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torcheer.errors import BadArgument, UnknownLayer
from torcheer.network import network_records
from torcheer.public_names import PublicClass
from torcheer.terminal import did_you_mean, human_shape
from torcheer.vocabulary.variables import ON_PAGE

Shape = tuple[int, ...]
RELATIONS = {
    "above": "above", "below": "below", "right_of": "right", "left_of": "left", "behind": "behind",
    "in_front_of": "front",
}  # fmt: skip
TYPES = ("forward", "recurrent", "skip", "lateral", "back")
_VIEWS = {1: "units", 2: "plane", 3: "maps", 4: "pools"}


class States(MutableMapping[str, NDArray[np.float32]]):
    """Values by variable name, as float32 arrays; recorded tensors are converted on access."""

    def __init__(self, owner: Layer | Projection) -> None:
        self.owner = owner
        self.kept: dict[str, Any] = {}  # tensors or arrays, never written to again
        self.first: dict[str, int] = {}  # the number of the first batch item kept, if not 0

    def __getitem__(self, variable: str) -> Any:
        return self.array(variable)

    def array(self, variable: str) -> NDArray[np.float32]:
        """A variable's values; UnknownLayer where it was never recorded."""
        if variable not in self.kept:
            names = ", ".join(self.kept) or "none yet"
            raise UnknownLayer(f"{self.owner.name} has no values of {variable!r}; recorded are: {names}")
        return as_array(self.kept[variable])

    def __setitem__(self, variable: str, value: Any) -> None:
        self.keep(variable, self.owner.fit(np.array(as_array(value)), variable))

    def keep(self, variable: str, value: Any, first: int = 0) -> None:
        """Store a value of the right shape, with batch items from `first` on.

        It must not be changed afterwards.
        """
        if variable not in self.kept:
            self.owner.network.changes += 1
        self.kept[variable] = value
        if first or self.first:
            self.first[variable] = first

    def __delitem__(self, variable: str) -> None:
        del self.kept[variable]
        self.first.pop(variable, None)

    def __contains__(self, variable: object) -> bool:
        return variable in self.kept

    def __iter__(self) -> Iterator[str]:
        return iter(self.kept)

    def __len__(self) -> int:
        return len(self.kept)

    def __repr__(self) -> str:
        return f"States({', '.join(f'{name} {tuple(value.shape)}' for name, value in self.kept.items())})"


class Layer(metaclass=PublicClass):
    """A named layer; `States[variable]` is a float32 array of shape (batch, *shape)."""

    states_type = States

    def __init__(self, network: Network, name: str, shape: Shape, kind: str = "", *, declared: bool = True) -> None:
        self.network, self.name, self.shape, self.kind, self.declared = network, name, shape, kind, declared
        self.relation, self.other = "", ""
        self.align: tuple[str, str] = ("", "")
        self.space: float | None = None
        self.place: tuple[float, float, float] | None = None
        self.States = self.states_type(self)

    @property
    def units(self) -> int:
        """The number of units."""
        return math.prod(self.shape)

    @property
    def receiving(self) -> list[Projection]:
        """The projections into this layer."""
        return [projection for projection in self.network.projections.values() if projection.receiver is self]

    def put(
        self,
        place: tuple[float, float, float] | None = None,
        *,
        align: tuple[str, str] = ("", ""),
        space: float | None = None,
        **relation: Any,
    ) -> Layer:
        """Place the layer's centre, or place it relative to another layer: `put(right_of="C1")`.

        Also above, below, left_of, behind, in_front_of. `align` puts edges in line: "left" or "right", then "front" or
        "back", "" for the middle. `space` is the gap, in columns of the other layer.
        """
        across, along = align
        if across not in ("", "left", "right") or along not in ("", "front", "back"):
            raise BadArgument(f"{self.name}: align={align} is none: 'left', 'right' or '', then 'front', 'back' or ''")
        for word, other in relation.items():
            if word not in RELATIONS or len(relation) > 1:
                raise BadArgument(
                    f"{self.name}: {', '.join(relation)} does not place it; use one of: {_relation_names()}"
                )
            self.relation, self.other = RELATIONS[word], self.network.find(other).name
            if self.other == self.name:
                raise BadArgument(f"{self.name} cannot lie {word.replace('_', ' ')} itself")
        self.place, self.align, self.space = place, align, space
        self.network.changes += 1
        return self

    def fit(self, value: Any, variable: str) -> Any:
        """Reshape a value to a batch of this layer's shape; BadArgument if its size does not fit."""
        items = _items(tuple(value.shape), self.units)
        if items is None:
            raise BadArgument(
                f"{self.name}.{variable} of shape {tuple(value.shape)} does not fit {self.name}, which has "
                f"{human_shape(self.shape)} = {self.units} units, with or without a batch in front"
            )
        return value.reshape(items, *self.shape)

    def __repr__(self) -> str:
        return f"Layer({self.name!r}, {self.shape}, {self.States!r})"


class Projection(metaclass=PublicClass):
    """Weights between two layers: `States["Wt"]`, and `States["DWt"]`, their last change."""

    states_type = States

    def __init__(self, network: Network, name: str, sender: Layer, receiver: Layer, type: str = "forward") -> None:
        self.network, self.name, self.sender, self.receiver, self.type = network, name, sender, receiver, type
        self.settings: dict[str, Any] = {}  # kind, stride, padding, … as in `network_records.Projection`
        self.declared = True
        self.version: Any = None  # of the recorded weights: differs once the parameter is written to
        self.States = self.states_type(self)

    def fit(self, value: Any, variable: str) -> Any:
        """Return weights unchanged, flat ones reshaped to a full projection.

        BadArgument if they do not fit.
        """
        shape, full = tuple(value.shape), (self.receiver.units, self.sender.units)
        if len(shape) == 1 and shape[0] == math.prod(full):
            return value.reshape(full)
        if len(shape) < 2 or (len(shape) == 2 and shape != full):
            raise BadArgument(
                f"{self.name}.{variable} of shape {shape} does not fit: {self.receiver.name} has {full[0]} units and "
                f"{self.sender.name} {full[1]}, so weights are {full}, or those of a convolution"
            )
        return value

    @property
    def shape(self) -> Shape:
        """The weights' shape; () while they are unknown."""
        weights = self.States.kept.get("Wt")
        return tuple(weights.shape) if weights is not None else ()

    def describe(self) -> network_records.Projection:
        """The projection as hosts send it."""
        kind = {0: "", 2: "linear"}.get(len(self.shape), "conv")
        fields = {"kind": kind, "shape": self.shape, "type": self.type, **(self.settings if self.shape else {})}
        return network_records.Projection(self.name, self.sender.name, self.receiver.name, **fields)

    def __repr__(self) -> str:
        return f"Projection({self.name!r}, {self.sender.name} → {self.receiver.name}, {self.States!r})"


class Network(metaclass=PublicClass):
    """A named network of layers and projections.

    - `name`: shown above the page.

    >>> net = Network("RA25")
    >>> hidden = net.add_layer("Hidden", (5, 7), above=net.add_layer("Input", (5, 5)))
    >>> net.connect("Input", "Hidden").name
    'InputToHidden'
    """

    layer_type: type[Layer] = Layer
    projection_type: type[Projection] = Projection

    def __init__(self, name: str = "Network") -> None:
        self.name = name
        self.layers: dict[str, Layer] = {}
        self.projections: dict[str, Projection] = {}
        self.changes = 0  # increases with each new layer, shape, projection or variable
        self.item = 0  # the batch item that is shown: it must be among those kept

    def add_layer(
        self,
        name: str,
        shape: tuple[int, ...] | list[int],
        kind: str = "",
        *,
        place: tuple[float, float, float] | None = None,
        **relation: Any,
    ) -> Layer:
        """Add a layer: (units,), (rows, columns), (maps, rows, columns), or eTorch's 4-D shape.

        That is (pool rows, pool columns, rows, columns). `kind` is shown as its type. `place` is its centre; or
        `above=`, `right_of=`, `behind=` and the like place it relative to another layer, with `put`'s `align=` and
        `space=`; by default layers are stacked.
        """
        sizes = tuple(int(size) for size in shape)
        if name in self.layers:
            raise BadArgument(f"{self.name} has a layer {name!r} already; names are unique")
        if not name or not sizes or len(sizes) > 4 or min(sizes) < 1:
            raise BadArgument(f"add_layer({name!r}, {shape}): a layer has a name and 1 to 4 dimensions, none of them 0")
        layer = self.layers[name] = self.layer_type(self, name, sizes, kind)
        try:
            return layer.put(place, **relation)
        except (BadArgument, UnknownLayer):
            del self.layers[name]
            raise

    def connect(
        self, sender: str | Layer, receiver: str | Layer, *, type: str = "forward", name: str = ""
    ) -> Projection:
        """Add a projection between two layers, "InputToHidden" unless named.

        Its type selects the arrow's style.
        """
        low, high = self.find(sender), self.find(receiver)
        if type not in TYPES:
            raise BadArgument(f"a projection's type is one of {', '.join(TYPES)}, not {type!r}")
        name = name or f"{low.name}To{high.name}"
        if name in self.projections and self.projections[name].declared:
            raise BadArgument(f"{self.name} has a projection {name!r} already; give this one a name of its own")
        projection = self.projections[name] = self.projection_type(self, name, low, high, type)
        self.changes += 1
        return projection

    connect_layers = connect

    def find(self, layer: str | Layer) -> Layer:
        """A layer by its name; raises UnknownLayer with the nearest name."""
        name = layer.name if isinstance(layer, Layer) else layer
        if name not in self.layers:
            hint = did_you_mean(name, self.layers) or f" There are: {', '.join(self.layers) or 'none yet'}"
            raise UnknownLayer(f"{self.name} has no layer {name!r}.{hint}")
        return self.layers[name]

    __getitem__ = find

    def __contains__(self, name: object) -> bool:
        return name in self.layers

    def __iter__(self) -> Iterator[Layer]:
        return iter(self.layers.values())

    def __len__(self) -> int:
        return len(self.layers)

    @property
    def variables(self) -> tuple[network_records.Variable, ...]:
        """The variables of units, then of weights."""
        of_units = dict.fromkeys(name for layer in self for name in layer.States)
        of_weights = dict.fromkeys(name for projection in self.projections.values() for name in projection.States)
        first = [name for name in ("Act", "Net", "Grad") if name in of_units]
        names = [(name, "unit") for name in dict.fromkeys([*first, *of_units])]
        names += [(name, "weight") for name in of_weights]
        docs = {name: row.doc for name, row in ON_PAGE.items()}
        return tuple(network_records.Variable(name, of, docs.get(name, "")) for name, of in names)

    def open_viewer(self, address: Any = None, *, browser: bool | None = None, title: str = "") -> Any:
        """Open the studio on this network; `tl.show(network)` calls this."""
        from torcheer.etorch.netview import open_network  # imported late: it imports this module

        return open_network(self, address, browser=browser, title=title)

    def describe(self) -> network_records.Network:
        """The network as hosts send it."""
        layers = tuple(
            network_records.Layer(
                layer.name,
                layer.shape,
                layer.kind,
                _VIEWS[len(layer.shape)],
                layer.place,
                layer.relation,
                layer.other,
                layer.align,
                layer.space,
            )
            for layer in self
        )
        projections = tuple(projection.describe() for projection in self.projections.values())
        return network_records.Network(self.name, layers, projections, self.variables)

    def clear(self) -> None:
        """Delete all values."""
        for owner in (*self, *self.projections.values()):
            owner.States.kept.clear()
            owner.States.first.clear()
        self.changes += 1

    def save_weights(self, path: str | PathLike[str]) -> None:
        """Write all weights and biases to a .safetensors or .npz file."""
        from torcheer.etorch.network_files import save_weights

        save_weights(self, path)

    def load_weights(self, path: str | PathLike[str]) -> None:
        """Read weights that `save_weights` wrote.

        `State.set_weights()` then copies them into the model.
        """
        from torcheer.etorch.network_files import load_weights

        load_weights(self, path)

    def __repr__(self) -> str:
        return f"Network({self.name!r}, {len(self.layers)} layers, {len(self.projections)} projections)"

    # -- inferred by `State` -----------------------------------------------------------------------------------------

    def infer_layer(self, name: str, shape: Shape, after: str = "") -> Layer:
        """The layer of a recorded value with this shape (with batch).

        Created, or reshaped if it was not declared.

        `after` is the layer recorded before: a new layer is connected to it.
        """
        layer = self.layers.get(name)
        if layer is None:
            layer = self.layers[name] = self.layer_type(self, name, inferred_shape(shape), declared=False)
            self.changes += 1
            if after in self.layers and after != name and not layer.receiving:
                self.connect(after, name).declared = False
        elif not layer.declared and _items(shape, layer.units) is None:
            layer.shape = inferred_shape(shape)
            layer.States.kept.clear()  # of another shape
            self.changes += 1
        return layer

    # -- eTorch's own names ------------------------------------------------------------------------------------------

    def AddLayer2D(self, name: str, rows: int, columns: int, kind: Any = "") -> Layer:
        """Call `add_layer`; eTorch's name for it."""
        return self.add_layer(name, (rows, columns), str(kind))

    def AddLayer4D(
        self, name: str, pool_rows: int, pool_columns: int, rows: int, columns: int, kind: Any = ""
    ) -> Layer:
        """Call `add_layer` with pools of units; eTorch's name for it."""
        return self.add_layer(name, (pool_rows, pool_columns, rows, columns), str(kind))

    def ConnectLayers(self, sender: Layer, receiver: Layer, pattern: Any = None, type: str = "forward") -> Projection:
        """Call `connect`; eTorch's name for it. Every pattern is a full one."""
        return self.connect(sender, receiver, type=type.lower())

    def LayerByName(self, name: str) -> Layer:
        """Return `net[name]`; eTorch's name for it."""
        return self.find(name)

    def InitName(self, net: Any, name: str) -> None:
        """Set the name; eTorch's name for it."""
        self.name = name
        self.changes += 1

    def Build(self) -> None:
        """Do nothing: a network is always ready."""

    Defaults = StdVertLayout = Build


def inferred_shape(shape: Shape) -> Shape:
    """The shape of one batch item: vectors are units, 3-D maps, more axes are merged into maps."""
    item_shape = shape[1:] if len(shape) > 1 else shape
    if not item_shape:
        return (1,)
    sizes = tuple(max(size, 1) for size in item_shape)
    return sizes if len(sizes) < 4 else (math.prod(sizes[:-2]), *sizes[-2:])


def _items(shape: Shape, units: int) -> int | None:
    """The batch size of a value; None if it does not fit."""
    if len(shape) > 1 and math.prod(shape[1:]) == units:
        return shape[0]
    return 1 if math.prod(shape) == units else None


def as_array(value: Any) -> NDArray[np.float32]:
    """Convert a tensor or an array to a float32 array."""
    if hasattr(value, "detach"):
        value = value.detach().cpu().float().numpy()
    return np.asarray(value, np.float32)


def _relation_names() -> str:
    return ", ".join(f"{word}=" for word in RELATIONS)
