"""`etorch`, `etor`, `netview`: torcheer's network, state and view with Go's names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torcheer.etorch import etorch_network, netview
from torcheer.studio import State
from torcheer_originals.etorch.go_values import Handle
from torcheer_originals.etorch.ignored_calls import Ignored, note, remark
from torcheer_originals.etorch.met_differences import meet
from torcheer_originals.etorch.param_sheets import Sel, apply_param
from torcheer_originals.etorch.relative_places import Rel
from torcheer_originals.etorch.tables.etensors import FLOAT32, Float32, Shape, Slice, Tensor

__all__ = ["Layer", "NetView", "Network", "Prjn", "State"]

_TYPES = {"inhib": "lateral"}  # arrows that look alike
_UNIT_VARIABLES = ["Act", "Net", "Bias"]


class StateValues(Slice):
    """The values of a variable in a row; writing makes new ones, as a page may still hold those before."""

    def __init__(self, states: States, variable: str) -> None:
        super().__init__(states.item(variable).reshape(-1))
        self.states, self.variable = states, variable

    def copy(self, source: Any) -> None:
        """Copy values into these."""
        super().copy(source)
        self.states[self.variable] = self.values

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key, value)
        self.states[self.variable] = self.values


class StateTensor(Float32):  # type: ignore[misc]
    """A variable of a layer or projection: `Values` reads and writes it."""

    type, kind = FLOAT32, np.dtype(np.float32)

    def __init__(self, states: States, variable: str) -> None:
        super().__init__(states.item(variable))
        self.states, self.variable = states, variable

    @property
    def Values(self) -> StateValues:
        """The values, to read and to write."""
        return StateValues(self.states, self.variable)


class States(etorch_network.States):
    """Tensors by variable name; those never recorded are zero."""

    def __getitem__(self, variable: str) -> StateTensor:
        return StateTensor(self, variable)

    def item(self, variable: str) -> NDArray[np.float32]:
        """A copy of the first batch item's values."""
        is_layer = isinstance(self.owner, etorch_network.Layer)
        if variable not in self.kept:
            return np.zeros(_shape_of(self.owner), np.float32)
        return np.array(self.array(variable)[0] if is_layer else self.array(variable))


def _shape_of(owner: Any) -> tuple[int, ...]:
    return owner.shape if isinstance(owner, etorch_network.Layer) else (owner.receiver.units, owner.sender.units)


class Styled:
    """A part of a network that parameters are set on: it has a type, classes and a name."""

    name: str
    Cls, Off = "", False

    @property
    def Nm(self) -> str:
        """The name."""
        return self.name

    def Name(self) -> str:
        """The name."""
        return self.name

    Label = Name

    def SetClass(self, classes: str) -> Any:
        """Set the classes, which ".Class" selects."""
        self.Cls = classes
        return self

    def IsOff(self) -> bool:
        """Whether it takes part; nothing here computes, so that it is only remembered."""
        return self.Off

    def SetOff(self, off: bool) -> None:
        """Remember that it takes no part."""
        self.Off = off


class Layer(Styled, etorch_network.Layer, metaclass=Handle):
    """A layer with Go's names."""

    states_type = States

    @property
    def Shp(self) -> Shape:
        """The shape; `Shp.Shp` are its sizes."""
        return Shape(self.shape)

    def Shape(self) -> Shape:
        """The shape."""
        return self.Shp

    @property
    def RcvPrjns(self) -> list[Any]:
        """The projections into this layer."""
        return list(self.receiving)

    @property
    def SndPrjns(self) -> list[Any]:
        """The projections out of this layer."""
        return [each for each in self.network.projections.values() if each.sender is self]

    def Class(self) -> str:
        """Its type and classes."""
        return f"{self.kind} {self.Cls}"

    def Type(self) -> str:
        """Its type."""
        return self.kind

    def SetRelPos(self, place: Rel) -> None:
        """Place it relative to another layer."""
        self.put(**place.settings())

    def SetPos(self, place: Any) -> None:
        """Place its centre."""
        note("Layer.SetPos()")

    def UnitVals(self, values: list[float], variable: str) -> None:
        """Write a variable's values into a list."""
        values[:] = self.States.item(variable).reshape(-1).tolist()  # type: ignore[attr-defined]

    def UnitValsTensor(self, tensor: Tensor, variable: str) -> None:
        """Write a variable's values into a tensor, which gets the layer's shape."""
        tensor.SetShape(self.shape)
        tensor.Values.copy(self.States.item(variable))  # type: ignore[attr-defined]

    def UnitVal(self, variable: str, index: Sequence[int]) -> float:
        """A variable of one unit."""
        return float(self.States.item(variable)[tuple(index)])  # type: ignore[attr-defined]

    def AddVar(self, variable: str) -> None:
        """Do nothing: a variable is there once it has values."""


class Prjn(Styled, etorch_network.Projection, metaclass=Handle):
    """A projection with Go's names."""

    states_type = States

    @property
    def Send(self) -> Any:
        """The layer it comes from."""
        return self.sender

    @property
    def Recv(self) -> Any:
        """The layer it goes to."""
        return self.receiver

    def SendLay(self) -> Any:
        """The layer it comes from."""
        return self.sender

    def RecvLay(self) -> Any:
        """The layer it goes to."""
        return self.receiver

    def Class(self) -> str:
        """Its type and classes."""
        return f"{self.type.capitalize()} {self.Cls}"


class Network(etorch_network.Network, metaclass=Handle):
    """A network with Go's names."""

    layer_type, projection_type = Layer, Prjn

    @property
    def Nm(self) -> str:
        """The name."""
        return self.name

    def Name(self) -> str:
        """The name."""
        return self.name

    @property
    def Layers(self) -> list[Any]:
        """All layers."""
        return list(self)

    def NLayers(self) -> int:
        """The number of layers."""
        return len(self)

    def Layer(self, number: int) -> Any:
        """A layer by its number."""
        return self.Layers[number]

    def LayerByNameTry(self, name: str) -> Any:
        """A layer by its name; raises where there is none."""
        return self.find(name)

    def AddLayer(self, name: str, shape: Sequence[int], kind: Any = "") -> Any:
        """Add a layer of any shape."""
        return self.add_layer(name, tuple(shape), str(kind))

    def ConnectLayers(self, sender: Any, receiver: Any, pattern: Any = None, type: str = "forward") -> Any:
        """Connect two layers. Every pattern is drawn as a full one."""
        return self.connect(sender, receiver, type=_TYPES.get(type.lower(), type.lower()))

    ConnectLayerNames = ConnectLayers

    def BidirConnectLayers(self, low: Any, high: Any, pattern: Any = None) -> tuple[Any, Any]:
        """Connect two layers forward and back."""
        return self.ConnectLayers(low, high, pattern), self.ConnectLayers(high, low, pattern, "Back")

    BidirConnectLayersPy = BidirConnectLayers

    def LateralConnectLayer(self, layer: Any, pattern: Any = None) -> Any:
        """Connect a layer with itself."""
        return self.ConnectLayers(layer, layer, pattern, "Lateral")

    def ApplyParams(self, sheet: Iterable[Sel], setMsg: bool = False) -> bool:
        """Set the fields of selected layers and projections; True if any was."""
        was_set = False
        for selector in sheet:
            for part in (*self.Layers, *self.projections.values()):
                kind = "Layer" if isinstance(part, Layer) else "Prjn"
                if selector.matches((kind,), part.Class(), part.name):
                    selector.NMatch += 1
                    paths = [path for path in selector.Params.items() if path[0].split(".")[0] == kind]
                    was_set |= any([apply_param(part, path, value, setMsg) for path, value in paths])
        return was_set

    def UnitVarNames(self) -> list[str]:
        """The variables of units."""
        return list(dict.fromkeys([*_UNIT_VARIABLES, *(name for layer in self for name in layer.States)]))

    def SaveWtsJSON(self, path: str) -> None:
        """Write all weights and biases as emergent's JSON."""
        from torcheer_originals.etorch.weights_json import save_weights_json

        save_weights_json(self, path)

    def OpenWtsJSON(self, path: str) -> None:
        """Read weights and biases of emergent's JSON; `State.set_weights()` copies them into the model."""
        from torcheer_originals.etorch.weights_json import open_weights_json

        open_weights_json(self, path)


class NetView(netview.NetView):
    """The view of a network: a tab of the window's page, or with `open` a page of its own."""

    def __init__(self, net: Any = None, **settings: Any) -> None:
        super().__init__(net if net is not None else Network(), **settings)
        self.window: Any = None  # whose page shows it
        self.Params = SimpleNamespace(MaxRecs=0)
        self._usual = dict(vars(self.Params))
        self._variable = "Act"

    def SetNet(self, net: Any) -> None:
        """Show another network."""
        self.net, self._described = net, -1
        self.title = net.name

    @property
    def Net(self) -> Any:
        """The network."""
        return self.net

    @property
    def NetView(self) -> Any:
        """The view itself, as eTorch's `etor.NetView` holds one."""
        return self

    @property
    def Var(self) -> str:
        """The variable that a page shows at first."""
        return self._variable

    @Var.setter
    def Var(self, name: str) -> None:
        self._variable = name
        if name != "Act":
            note("NetView.Var =")  # a page begins with Act

    def SetVar(self, name: str) -> None:
        """Show a variable at first."""
        self.Var = name

    def SetMaxRecs(self, count: int) -> None:
        """Ask for so many past states: pages keep as many as fit their memory."""
        self.Params.MaxRecs = count

    def IsVisible(self) -> bool:
        """True once the view has a page: its newest state is shown to whoever opens that."""
        return self.host is not None and not self.host.closed

    def Scene(self) -> Any:
        """The camera and all: a page has its own."""
        return Ignored("NetView.Scene")

    def open(self, **settings: Any) -> Any:
        """Open the page of this view alone."""
        self.note_settings()
        remark()
        super().open(**settings)
        return self

    def record(self, counters: Any = "", raster: int = -1) -> None:
        """Show the newest state, with counters such as "Run:\\t0\\tEpoch:\\t58"."""
        if self.window is not None:
            self.window.recorded(netview.counters_of(counters))
            self.update(counters, test=self.window.is_testing)
        else:
            self.update(counters)
        if self.batch > 1:
            meet("batch")

    Record = record

    def note_settings(self) -> None:
        """Remember the settings that a page has no use for."""
        for name, value in vars(self.Params).items():
            if self._usual.get(name) != value:
                note(f"NetView.Params.{name} =")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.net,)
