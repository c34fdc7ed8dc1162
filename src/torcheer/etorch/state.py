"""eTorch's `State`: records values into a `Network`, from inside a model's `forward`."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from torcheer.errors import BadArgument
from torcheer.etorch.etorch_network import Layer, Network, Projection
from torcheer.public_names import PublicClass
from torcheer.tap.probe_hooks import GradientHook
from torcheer.tap.tensor_copies import refusal
from torcheer.terminal import warn

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


class State(metaclass=PublicClass):
    """Records the tensors passed to `rec` into a network; changes no value.

    - `module`: the module that records; its name is that of the network.

    >>> class Net(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.layer = nn.Linear(4, 3)
    ...         self.est = State(self)
    ...     def forward(self, x):
    ...         self.est.rec(x, "Input.Act")
    ...         x = self.layer(x)
    ...         self.est.rec(x, "Output.Act")
    ...         return x
    >>> model = Net()
    >>> out = model(torch.ones(2, 4))
    >>> model.est.net["Output"].States["Act"].shape
    (2, 3)
    """

    def __init__(self, module: nn.Module | None = None) -> None:
        self.nn = module
        self.record = True  # False: `rec` returns at once
        self.rec_wts = False  # also weights and biases of the projections in `wtmap`
        self.rec_grads = False  # also the gradients of recorded values, as they arrive: "Layer.Grad"
        self.trace = False  # print the name and size of each recorded value
        self.wtmap: dict[
            str, str
        ] = {}  # name of a projection -> name of the module, or of the weight in its state_dict
        self.limit_bytes = 8 << 20  # of one value: as many batch items are kept as fit, at least one
        self.net = Network(type(module).__name__ if module is not None else "Network")
        self._last_layer = ""  # the layer recorded last

    def set_net(self, net: Network) -> None:
        """Record into this network from now on."""
        self.net = net

    def open_viewer(self, address: Any = None, *, browser: bool | None = None, title: str = "") -> Any:
        """Open the studio on the network that this state records into; `tl.show(state)` calls this."""
        return self.net.open_viewer(address, browser=browser, title=title)

    def rec(self, x: Any, var: str) -> None:
        """Record `x` as a variable of a layer, "Hidden1.Act"; a missing layer is created."""
        if not self.record:
            return
        _record(self, x, var)

    def set_weights(self) -> None:
        """Copy the network's weights and biases into the module, as after `net.load_weights(path)`."""
        with torch.no_grad():
            for name, parameter, layer in self._weights():
                projection = self.net.projections[name]
                if "Wt" in projection.States:
                    parameter.copy_(torch.from_numpy(projection.States.array("Wt")).view_as(parameter))
                bias = self._parameter(self.wtmap[name], "bias")
                if bias is not None and "Bias" in layer.States:
                    values = torch.from_numpy(layer.States.array("Bias"))[0]
                    bias.copy_(values.reshape(bias.numel(), -1)[:, 0])

    def _weights(self, into: Layer | None = None) -> list[tuple[str, Tensor, Layer]]:
        """The projections in `wtmap` (into one layer, or all): name, weight, receiving layer."""
        weights = []
        for name in self.wtmap:
            projection = self._projection(name)
            if projection is not None and into in (None, projection.receiver):
                parameter = self._parameter(self.wtmap[name], "weight")
                if parameter is None:
                    raise BadArgument(
                        f"wtmap says that the weights of {name} are {self.wtmap[name]!r}, and "
                        f"{type(self.nn).__name__} has no such weight; it has {', '.join(self._names()[:12])}"
                    )
                weights.append((name, parameter, projection.receiver))
        return weights

    def _parameter(self, name: str, suffix: str) -> Tensor | None:
        """A weight or bias by its name or its module's.

        Without `state_dict()`, which builds a new dict each time.
        """
        path, _, last = name.rpartition(".")
        if self.nn is None:
            return None
        for module, leaf in ((name, suffix), (path, suffix if last == "weight" else "")):
            try:
                parameter = getattr(self.nn.get_submodule(module), leaf, None)
            except AttributeError:
                continue
            if isinstance(parameter, Tensor):
                return parameter
        return None

    def _names(self) -> list[str]:
        return [name.removesuffix(".weight") for name, _ in self.nn.named_parameters()] if self.nn is not None else []

    def _projection(self, name: str) -> Projection | None:
        """The projection of this name; "InputToHidden" is created once both layers exist."""
        if name not in self.net.projections:
            for sender in self.net.layers:
                if name.startswith(f"{sender}To") and name.removeprefix(f"{sender}To") in self.net:
                    return self.net.connect(sender, name.removeprefix(f"{sender}To"))
            return None
        return self.net.projections[name]


def _record_value(state: State, x: Any, var: str) -> None:
    name, _, variable = var.rpartition(".")
    if not name or not variable:
        raise BadArgument(f"rec(x, {var!r}): say which layer and which of its variables, such as 'Hidden1.Act'")
    if not isinstance(x, Tensor):
        raise BadArgument(f"rec(x, {var!r}): x is a {type(x).__name__}; record its tensors one by one")
    if state.trace:
        print(var, x.size())
    with torch._C.DisableTorchFunction():  # or an active capture would record our copies
        if reason := refusal(x):
            warn(f"{var} is not recorded: {reason}")
            return
        layer = state.net.infer_layer(name, tuple(x.shape), state._last_layer)
        _keep(state, layer, variable, x)
        if state.rec_grads:
            _hook_gradient(state, layer, variable, x)
        if state.rec_wts:
            _record_weights(state, layer)
    state._last_layer = name


def _record(state: State, x: Any, var: str) -> None:
    """Record outside of `torch.compile`'s graph, which breaks here and continues afterwards."""
    if "torch._dynamo" not in sys.modules:  # nothing is compiled
        _record_value(state, x, var)
    else:
        if not _UNCOMPILED:
            _UNCOMPILED.append(torch.compiler.disable(_record_value))  # type: ignore[no-untyped-call]
        _UNCOMPILED[0](state, x, var)


_UNCOMPILED: list[Any] = []  # `_record_value` with the compiler disabled
_WHY = "State.rec records outside of compiled graphs; set record = False to compile the model as one graph"
# The effect of `torch.compiler.disable`, without importing the compiler where it is not used.
_record._torchdynamo_disable = True  # type: ignore[attr-defined]
_record._torchdynamo_disable_msg = _WHY  # type: ignore[attr-defined]


def _keep(state: State, layer: Layer, variable: str, x: Tensor) -> None:
    """Copy a value, or as many batch items as the limit allows, including the one that is shown."""
    values = layer.fit(x.detach(), variable)
    first, count = 0, len(values)
    most = max(1, state.limit_bytes // max(1, layer.units * 4))
    if count > most:
        first = min(max(0, state.net.item - most + 1), count - most)
        values = values[first : first + most]
    # A clone, as later operations may work in place; on the same device, so without a synchronization.
    layer.States.keep(variable, values.to(torch.float32, copy=True), first)


_HOOKS: WeakKeyDictionary[Layer, dict[str, Any]] = WeakKeyDictionary()  # not in the layers, which are copied and saved


def _hook_gradient(state: State, layer: Layer, variable: str, x: Tensor) -> None:
    name = "Grad" if variable == "Act" else f"{variable}Grad"
    layer.States.kept.pop(name, None)  # of the previous pass
    hooks = _HOOKS.setdefault(layer, {})
    if name in hooks:
        hook, action = hooks.pop(name)
        hook.remove(action)  # of the previous pass or call: the gradient must belong to the kept value
    if x.requires_grad:
        action = partial(_keep, state, layer, name)
        hooks[name] = (GradientHook.follow(x, action), action)


def _record_weights(state: State, layer: Layer) -> None:
    for name, parameter, _ in state._weights(layer):
        _record_weight(state, state.net.projections[name], parameter)


def _record_weight(state: State, projection: Projection, parameter: Tensor) -> None:
    states, layer = projection.States, projection.receiver
    version = (parameter.data_ptr(), parameter._version)
    if projection.version == version and "Wt" in states:
        return  # unchanged since the last recording
    weights = parameter.detach().to(torch.float32, copy=True)
    before = states.kept.get("Wt")
    if isinstance(before, Tensor) and before.shape == weights.shape and before.device == weights.device:
        states.keep("DWt", weights - before)
    if not projection.shape:
        projection.settings = _convolution_settings(state, projection.name)
        state.net.changes += 1
    states.keep("Wt", weights)
    projection.version = version
    bias = state._parameter(state.wtmap[projection.name], "bias")
    if bias is not None and layer.units % max(1, bias.numel()) == 0:
        units = (
            bias.detach().float().view(-1, 1).expand(-1, layer.units // bias.numel())
        )  # one for each channel's units
        layer.States.keep("Bias", units.reshape(1, *layer.shape).clone())


def _convolution_settings(state: State, name: str) -> dict[str, Any]:
    """A convolution's settings, to show the weights of a unit; empty for other modules."""
    assert state.nn is not None
    path = state.wtmap[name].removesuffix(".weight")
    module = state.nn.get_submodule(path)
    if not isinstance(module, _CONVOLUTIONS):
        return {}
    padding = module.padding if isinstance(module.padding, tuple) else ()
    return {
        "kind": "conv", "stride": tuple(module.stride), "padding": tuple(padding), "dilation": tuple(module.dilation),
        "groups": module.groups,
    }  # fmt: skip
