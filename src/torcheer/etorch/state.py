"""eTorch's `State`: records what a model computes into a `Network`, from inside its `forward`."""

from __future__ import annotations

import sys
import warnings
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from torcheer.errors import BadArgument
from torcheer.etorch.etorch_network import Layer, Network, Projection
from torcheer.tap.tensor_copies import refusal

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


class State:
    """Records into a network what `rec` is shown; changes no value.

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
        self.rec_grads = False  # also the gradients of what is recorded, as they come: "Layer.Grad"
        self.trace = False  # print the name and size of all that is recorded
        self.wtmap: dict[
            str, str
        ] = {}  # name of a projection -> name of the module, or of the weight in its state_dict
        self.limit_bytes = 8 << 20  # of one value: so many items of a batch are kept, at least one
        self.net = Network(type(module).__name__ if module is not None else "Network")
        self._before = ""  # the layer recorded last

    def set_net(self, net: Network) -> None:
        """Record into this network from now on."""
        self.net = net

    def open_viewer(self, **options: Any) -> Any:
        """Open the studio on the network that this state records into; `tl.show(state)` calls this."""
        return self.net.open_viewer(**options)

    def rec(self, x: Any, var: str) -> None:
        """Record `x` as a variable of a layer, "Hidden1.Act"; a layer that is not there is made."""
        if not self.record:
            return
        _record(self, x, var)

    def set_weights(self) -> None:
        """Put the network's weights and biases into the module, as after `net.load_weights(path)`."""
        with torch.no_grad():
            for name, parameter, layer in self._weights():
                projection = self.net.projections[name]
                if "Wt" in projection.States:
                    parameter.copy_(torch.from_numpy(projection.States["Wt"]).view_as(parameter))
                bias = self._parameter(self.wtmap[name], "bias")
                if bias is not None and "Bias" in layer.States:
                    values = torch.from_numpy(layer.States["Bias"])[0]
                    bias.copy_(values.reshape(bias.numel(), -1)[:, 0])

    def _weights(self, into: Layer | None = None) -> list[tuple[str, Tensor, Layer]]:
        """Projections that have weights, into a layer or any, these, and the layer they lead into."""
        found = []
        for name in self.wtmap:
            projection = self._projection(name)
            if projection is not None and into in (None, projection.receiver):
                parameter = self._parameter(self.wtmap[name], "weight")
                if parameter is None:
                    raise BadArgument(
                        f"wtmap says that the weights of {name} are {self.wtmap[name]!r}, and "
                        f"{type(self.nn).__name__} has no such weight; it has {', '.join(self._names()[:12])}"
                    )
                found.append((name, parameter, projection.receiver))
        return found

    def _parameter(self, name: str, suffix: str) -> Tensor | None:
        """A weight or bias by its name, or by that of its module; `state_dict()` would make a new dict each time."""
        path, _, last = name.rpartition(".")
        if self.nn is None:
            return None
        for module, leaf in ((name, suffix), (path, suffix if last == "weight" else "")):
            try:
                found = getattr(self.nn.get_submodule(module), leaf, None)
            except AttributeError:
                continue
            if isinstance(found, Tensor):
                return found
        return None

    def _names(self) -> list[str]:
        return [name.removesuffix(".weight") for name, _ in self.nn.named_parameters()] if self.nn is not None else []

    def _projection(self, name: str) -> Projection | None:
        """The projection of this name; "InputToHidden" is made once both layers are there."""
        if name not in self.net.projections:
            for sender in self.net.layers:
                if name.startswith(f"{sender}To") and name.removeprefix(f"{sender}To") in self.net:
                    return self.net.connect(sender, name.removeprefix(f"{sender}To"))
            return None
        return self.net.projections[name]


def _recorded(state: State, x: Any, var: str) -> None:
    name, _, variable = var.rpartition(".")
    if not name or not variable:
        raise BadArgument(f"rec(x, {var!r}): say which layer and which of its variables, such as 'Hidden1.Act'")
    if not isinstance(x, Tensor):
        raise BadArgument(f"rec(x, {var!r}): x is a {type(x).__name__}; record its tensors one by one")
    if state.trace:
        print(var, x.size())
    with torch._C.DisableTorchFunction():  # or a capture that is on would see our copies
        if reason := refusal(x):
            warnings.warn(f"{var} is not recorded: {reason}", stacklevel=3)
            return
        layer = state.net.inferred(name, tuple(x.shape), state._before)
        _keep(state, layer, variable, x)
        if state.rec_grads:
            _follow_gradient(state, layer, variable, x)
        if state.rec_wts:
            _record_weights(state, layer)
    state._before = name


def _record(state: State, x: Any, var: str) -> None:
    """The graph of `torch.compile` cannot hold a recording: it ends here, and goes on behind it."""
    if "torch._dynamo" not in sys.modules:  # nobody compiles
        _recorded(state, x, var)
    else:
        if not _OUTSIDE:
            _OUTSIDE.append(torch.compiler.disable(_recorded))  # type: ignore[no-untyped-call]
        _OUTSIDE[0](state, x, var)


_OUTSIDE: list[Any] = []  # `_recorded`, as the compiler leaves it alone
_WHY = "State.rec records outside of compiled graphs; set record = False to compile the model as one graph"
# What `torch.compiler.disable` does, without loading the compiler for those who do not compile.
_record._torchdynamo_disable = True  # type: ignore[attr-defined]
_record._torchdynamo_disable_msg = _WHY  # type: ignore[attr-defined]


def _keep(state: State, layer: Layer, variable: str, x: Tensor) -> None:
    """Copy a value, or as many items of its batch as the limit allows, the one that is looked at among them."""
    whole = layer.fit(x.detach(), variable)
    first, count = 0, len(whole)
    most = max(1, state.limit_bytes // max(1, layer.units * 4))
    if count > most:
        first = min(max(0, state.net.item - most + 1), count - most)
        whole = whole[first : first + most]
    # A clone, as what follows may work in place; on its device, so that nobody waits for it.
    layer.States.keep(variable, whole.to(torch.float32, copy=True), first)


_HOOKS: WeakKeyDictionary[Layer, dict[str, Any]] = WeakKeyDictionary()  # beside the layers, which are copied and saved


def _follow_gradient(state: State, layer: Layer, variable: str, x: Tensor) -> None:
    name = "Grad" if variable == "Act" else f"{variable}Grad"
    layer.States.kept.pop(name, None)  # it belongs to the pass before
    hooks = _HOOKS.setdefault(layer, {})
    if name in hooks:
        hooks.pop(name).remove()  # of the pass, or the call, before: the gradient is that of the value that is kept
    if x.requires_grad:
        keep = partial(_keep, state, layer, name)
        hooks[name] = x.register_hook(lambda gradient: keep(gradient))  # type: ignore[no-untyped-call]


def _record_weights(state: State, layer: Layer) -> None:
    for name, parameter, _ in state._weights(layer):
        _record_weight(state, state.net.projections[name], parameter)


def _record_weight(state: State, projection: Projection, parameter: Tensor) -> None:
    states, layer = projection.States, projection.receiver
    mark = (parameter.data_ptr(), parameter._version)
    if projection.mark == mark and "Wt" in states:
        return  # nobody has written to it since
    kept = parameter.detach().to(torch.float32, copy=True)
    before = states.kept.get("Wt")
    if isinstance(before, Tensor) and before.shape == kept.shape and before.device == kept.device:
        states.keep("DWt", kept - before)
    if not projection.shape:
        projection.about = _about(state, projection.name)
        state.net.changes += 1
    states.keep("Wt", kept)
    projection.mark = mark
    bias = state._parameter(state.wtmap[projection.name], "bias")
    if bias is not None and layer.units % max(1, bias.numel()) == 0:
        units = bias.detach().float().view(-1, 1).expand(-1, layer.units // bias.numel())  # one for each map's units
        layer.States.keep("Bias", units.reshape(1, *layer.shape).clone())


def _about(state: State, name: str) -> dict[str, Any]:
    """How a convolution moves, for the weights of a unit."""
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
