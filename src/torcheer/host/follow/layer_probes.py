"""Hooks on a model's modules that copy one pass's values into the host's ring.

They are attached only while a viewer is subscribed.
"""

from __future__ import annotations

import os
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor, nn

from torcheer.capture.torch_state import DisableTorchFunction
from torcheer.host.follow.attention_heads import attention_weights
from torcheer.host.follow.model_description import WEIGHTS, describe, network_of, run_once
from torcheer.host.follow.pass_observer import PassObserver
from torcheer.host.follow.record_rate import cost, stamp
from torcheer.host.follow.unit_weights import unit_weights, weights_of
from torcheer.host.host import Host
from torcheer.host.missing_values import BESIDE, FROZEN, INPUT, NO_BACKWARD, NO_GRAD, WHOLE_NUMBERS, Absences
from torcheer.models import modules_of
from torcheer.network.layer_choice import LayerSelection, ObservedPass
from torcheer.network.network_records import GAP_BITS, Network
from torcheer.tap.module_selection import choose
from torcheer.tap.probe_hooks import ProbeHook, in_backward
from torcheer.tap.tensor_copies import tensors_in

WHOLE_BYTES: Final = 4 << 20  # of a weight that is sent whole; of larger ones, the slices of single units
_ALL_WHOLE_BYTES: Final = 32 << 20  # of all that are sent whole
_HIDDEN_SHARE: Final = 1.5  # unmeasured cost of a state: hooks slow calls down, caches are evicted
_HIDDEN_SECS: Final = 0.0005  # and the host's thread has to send it
_REDESCRIBE_SECS: Final = 5.0  # between two descriptions of a model whose shapes change


class _Place(NamedTuple):
    """The layer and variable that a module call's output belongs to."""

    layer: str
    variable: str
    shape: tuple[int, ...]  # of one item
    batch_axis: int  # -1: no batch axis


class LayerProbes:
    """Records single passes, chosen by the caller, of a model or of several models by name.

    probes = LayerProbes(model, host)
    probes.begin(step, {"Epoch": 1}); model(x).sum().backward(); probes.finish()

    The first recorded pass also describes the network and sets `host.network`. No method raises.

    - `layers`: whose values are recorded, in the forms of `torcheer.selection`; None for all. Others are only drawn.
    """

    def __init__(self, model: nn.Module | Mapping[str, nn.Module], host: Host, layers: Any = None) -> None:
        self.model = model if isinstance(model, nn.Module) else nn.ModuleDict(_named(model))
        self.host, self.notes = host, list[str]()  # sentences about what cannot be shown
        self.batch = 0  # items in a batch; 0 where unknown
        self._hidden = choose(self.model).hidden_modules if any(True for _ in self.model.parameters()) else ()
        self._selected = None if layers is None else frozenset(choose(self.model, layers, "live").modules)
        self._unselected: frozenset[str] = frozenset()  # layers of the network that `layers` leaves out
        self._roots = [self.model] if isinstance(model, nn.Module) else list(self.model.children())
        self._observation: PassObserver | None = None
        self._places: dict[tuple[str, int], list[_Place]] = defaultdict(list)
        self._modules: dict[str, nn.Module] = {}
        self._inputs: list[_Place] = []
        self._heads: set[str] = set()
        self._handles: list[Any] = []
        self._leaves: list[Any] = []  # hooks on tensors that outlive their pass
        self._calls: Counter[str] = Counter()
        self._id, self._secs, self._made_secs, self._described_at = -1, 0.0, 0.0, -1e9
        self._absences = Absences()
        self._stale = self._has_gradient_hooks = False  # shapes have changed; gradient hooks were registered
        self._process = os.getpid()
        if self._hidden:
            self._note(f"{len(self._hidden)} layers ({', '.join(self._hidden[:3])}, …) run inside compiled code, where "
                       "no hook is called: their values are not shown, weights are")  # fmt: skip

    # -- describing the network --------------------------------------------------------------------------------------

    @property
    def is_described(self) -> bool:
        """True once the network has been described."""
        return bool(self._modules or self._inputs)

    def describe(self, inputs: Any, keywords: Any = None) -> Network | None:
        """Describe the network by running an extra pass, which leaves no trace in the model."""
        try:
            observed = run_once(self.model, inputs, keywords)
            network, selection = network_of(self.model, observed)
            self._use_network(network, selection, observed)
        except Exception as error:
            self._note(f"the model could not be run with the inputs that were given: {type(error).__name__}: {error}")
            return None
        return network

    def observe(self, arguments: Any = None, keywords: Any = None) -> None:
        """Describe the network from the next pass, or from the one that begins with these arguments."""
        if self._handles or self._observation is not None or self._process != os.getpid():
            return
        try:
            self._observation = PassObserver(self.model, self._hidden, self._roots if arguments is None else ())
            self._observation.begin(arguments, keywords)
        except Exception as error:
            self._note(f"the model cannot be looked at: {type(error).__name__}: {error}")

    def end_observation(self) -> None:
        """Describe the network at the end of the observed pass."""
        observer, self._observation = self._observation, None
        if observer is None:
            return
        observer.end()
        self._described_at, self._stale = time.monotonic(), False
        try:
            if self._hidden and all(not call.module for call in observer.observed.calls):
                self._describe_compiled(observer)
            elif any(0 in shape for shape in observer.observed.input_shapes.values()):
                return  # an empty batch: wait for the next one
            elif observer.observed.calls:
                network, selection = network_of(self.model, observer.observed)
                self._use_network(network, selection, observer.observed)
            elif self.host.network is None:
                self.host.network = describe(self.model)
        except Exception as error:
            self._note(f"the network cannot be described: {type(error).__name__}: {error}")
        finally:
            observer.forget()

    def _describe_compiled(self, observer: PassObserver) -> None:
        """Describe a compiled model, whose inner hooks are not called, by an extra pass.

        Only the whole model's input and output values can be recorded.
        """
        observed = run_once(self.model, *observer.inputs)
        network, selection = network_of(self.model, observed)
        self._use_network(network, selection, observed)
        last, model_call = selection.layers[-1], observer.observed.calls[-1]
        self._places.clear()
        if model_call.shape == last.ends.shape:
            self._places["", model_call.number].append(_Place(last.name, "Act", last.shape, last.batch_axis))
        self._modules = {"": self.model}

    def _use_network(self, network: Network, selection: LayerSelection, observed: ObservedPass) -> None:
        """Use a description: map module calls to the layers that they deliver values for."""
        modules = {**modules_of(self.model), "": self.model}
        self._places.clear()
        if self._selected is not None:
            chosen = {
                layer.name for layer in selection.layers if {layer.call.module, layer.ends.module} & self._selected
            }
            self._unselected = frozenset(layer.name for layer in selection.layers) - chosen
        for layer in selection.layers:
            if layer.name in self._unselected:
                continue
            call, ends = layer.call, layer.ends
            self._places[ends.module, ends.number].append(_Place(layer.name, "Act", layer.shape, layer.batch_axis))
            if ends is not call:
                self._places[call.module, call.number].append(_Place(layer.name, "Net", layer.shape, layer.batch_axis))
        self._modules = {name: modules[name] for name, _ in self._places}
        axis = observed.batch_axis
        self._inputs = [_Place(name, "Act", shape, axis) for name, shape in observed.inputs.items()]
        self.batch = observed.batch
        self._heads = {layer.name.removesuffix(WEIGHTS) for layer in network.layers if layer.kind == "Attention"}
        for note in selection.notes:
            self._note(note)
        self.host.network = network

    # -- a pass ------------------------------------------------------------------------------------------------------

    @property
    def in_pass(self) -> bool:
        """True while hooks are attached to the modules."""
        return bool(self._handles) or self._observation is not None

    @property
    def busy(self) -> bool:
        """True while a state or a description is unfinished."""
        return self._id >= 0 or self.in_pass

    @property
    def waits_for_gradients(self) -> bool:
        """True while gradients of the state may still arrive."""
        return self._id >= 0 and self._has_gradient_hooks

    def add_handle(self, handle: Any) -> None:
        """Remove a further hook's handle together with ours."""
        self._handles.append(handle)

    def begin(self, step: int, counters: Mapping[str, Any] | None = None, test: bool = False, *,
              arguments: Any = None, keywords: Any = None) -> bool:  # fmt: skip
        """Record what runs until `finish`; False without a subscription or room.

        A caller inside the model's own call passes that call's arguments.
        """
        if self._process != os.getpid():
            return False
        self.finish()
        began, self._made_secs = stamp(), self.host.making_secs
        if not self.is_described or (self._stale and time.monotonic() - self._described_at > _REDESCRIBE_SECS):
            self.observe(arguments, keywords)
            return False
        self._id = self.host.begin(step, counters or {}, test)
        if self._id < 0:
            return False
        try:
            with DisableTorchFunction():
                self._attach(arguments, keywords)
                self._send_weights()
        except Exception as error:
            self._note(f"step {step} cannot be looked at: {type(error).__name__}: {error}")
        self._secs += cost(began)
        return True

    def _attach(self, arguments: Any, keywords: Any) -> None:
        self._calls.clear()
        self._absences.begin()
        if not self.host.wants.variables:
            return
        for name, module in self._modules.items():
            hook = _OutputHook(self, name)
            self._handles.append(module.register_forward_hook(hook, with_kwargs=True))
        if arguments is not None:
            self.record_inputs(arguments, keywords)
        else:
            for root in self._roots:
                self._handles.append(root.register_forward_pre_hook(_InputHook(self), with_kwargs=True))

    def record_inputs(self, arguments: Any, keywords: Any) -> None:
        """Record the arguments of the model's first call in the pass."""
        if self._calls["(input)"] or not self.host.wants.variables:
            return
        self._calls["(input)"] += 1
        arrays = (tensor for _, tensor in tensors_in((arguments, keywords or {}), ""))
        tensors = [tensor for tensor in arrays if tensor.dim() and not tensor.is_complex()]
        for place, tensor in zip(self._inputs, tensors):
            self._absences.ran(place.layer)
            self._offer(self._arrange(tensor, place), place.layer, "Act")
            if tensor.requires_grad and "Grad" in self.host.wants.variables:
                self._hook_gradient(tensor, place)
            else:
                self._absences.note(place.layer, "Grad", INPUT if tensor.is_floating_point() else WHOLE_NUMBERS)

    def record_output(self, name: str, module: nn.Module, arguments: Any, keywords: Any, output: Any) -> None:
        """Record a module's output."""
        began = stamp()
        self._calls[name] += 1
        places = self._places.get((name, self._calls[name]), ())
        tensors = tensors_in(output, name) if places else []
        wanted = self.host.wants.variables
        for place, (_, tensor) in ((place, tensors[0]) for place in places if tensors):
            self._absences.ran(place.layer)
            if place.variable in wanted:
                self._offer(self._arrange(tensor, place), place.layer, place.variable)
            if place.variable == "Act" and "Grad" in wanted:
                if tensor.requires_grad:
                    self._hook_gradient(tensor, place)
                else:
                    self._absences.note(place.layer, "Grad", _without_gradient(tensor))
            if place.layer in self._heads and "Act" in wanted:
                heads = attention_weights(module, arguments, keywords, output)
                if heads is not None:
                    self._offer(heads, place.layer + WEIGHTS, "Act")
                    self._absences.note(place.layer + WEIGHTS, "Grad", BESIDE)
        self._secs += cost(began)

    def _offer(self, value: Any, layer: str, variable: str) -> None:
        self._absences.record(layer, variable, self.host.offer(self._id, value, layer, variable))

    def _arrange(self, tensor: Tensor, place: _Place) -> Tensor:
        """Move the batch axis first and give each item the layer's shape."""
        tensor = tensor.detach()
        if place.batch_axis == -1:
            tensor = tensor[None]
        elif place.batch_axis:
            tensor = tensor.movedim(place.batch_axis, 0)
        tensor = tensor[:, None] if tensor.dim() == 1 else tensor
        if tuple(tensor.shape[1:]) == place.shape:
            return tensor
        if not tensor.numel():
            return tensor.new_empty((0, *place.shape))
        units = torch.Size(place.shape).numel()
        flat = tensor.dim() <= len(place.shape)  # otherwise it has a batch axis, and items of another length
        if flat and units and tensor.numel() % units == 0 and tensor.shape[0] * units != tensor.numel():
            return tensor.reshape(-1, *place.shape)  # concatenated sequences
        self._stale = True
        if (
            tensor.dim() == len(place.shape) + 1 and tensor.is_floating_point()
        ):  # another length than in the description
            gaps = torch.full((tensor.shape[0], *place.shape), GAP_BITS, dtype=torch.int32, device=tensor.device)
            fitted = gaps.view(torch.float32)
            common = tuple(slice(0, min(a, b)) for a, b in zip(tensor.shape[1:], place.shape))
            fitted[(slice(None), *common)] = tensor[(slice(None), *common)].float()
            return fitted
        return tensor.reshape(tensor.shape[0], -1) if tensor.shape[0] * units == tensor.numel() else tensor

    def _hook_gradient(self, tensor: Tensor, place: _Place) -> None:
        """Register a hook for the gradient of a tensor in its current version."""
        register: Any = tensor.register_hook
        handle = register(_GradientHook(self, place, self._id))
        self._has_gradient_hooks = True
        self._absences.note(place.layer, "Grad", NO_BACKWARD)  # unless it arrives
        if tensor.is_leaf:  # a leaf would keep the hook for ever
            self._leaves.append(handle)

    def record_gradient(self, place: _Place, number: int, gradient: Tensor) -> None:
        """Record a gradient; may run in one of autograd's threads."""
        if number == self._id:
            began = stamp()
            self._offer(self._arrange(gradient, place), place.layer, "Grad")
            self._secs += cost(began)

    def end_pass(self) -> None:
        """Remove the modules' hooks; gradients may still arrive."""
        self.end_observation()
        handles, self._handles = self._handles, []
        for handle in handles:
            handle.remove()

    def finish(self) -> float:
        """Complete the state and return the seconds that recording it cost, for `Budget.spent`."""
        self.end_pass()
        leaves, self._leaves = self._leaves, []
        for handle in leaves:
            handle.remove()
        number, self._id, self._has_gradient_hooks = self._id, -1, False
        secs, self._secs = self._secs, 0.0
        if number < 0:
            return secs
        if self.host.network is not None:
            self.host.absent(
                number, self._absences.of(self.host.network, self.host.wants.variables, self._hidden, self._unselected)
            )
        self.host.end(number)
        secs -= self.host.making_secs - self._made_secs
        return _HIDDEN_SHARE * max(secs, 0.0) + _HIDDEN_SECS

    # -- weights -----------------------------------------------------------------------------------------------------

    def _send_weights(self) -> None:
        wants, network = self.host.wants, self.host.network
        if network is None or not (wants.weights or wants.units):
            return
        spent = 0
        for projection, weight in weights_of(self.model, network):
            if projection.receiver in self._unselected:
                continue
            if weight.nbytes <= WHOLE_BYTES and spent + weight.nbytes <= _ALL_WHOLE_BYTES:
                spent += weight.nbytes
                self.host.offer(self._id, weight, projection.name, "Wt")
            else:
                for variable, part in unit_weights(network, projection, weight, wants.units):
                    self.host.offer(self._id, part, projection.name, variable)

    def drop_layer(self, name: str, error: Exception) -> None:
        """Stop recording a layer whose hook failed; the others stay."""
        self._modules.pop(name, None)
        self._note(f"{name} is no longer shown: {type(error).__name__}: {error}")

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)
            self.host.alert(text, "info", rule="studio")

    def close(self) -> None:
        """Remove every hook."""
        self.finish()


def _without_gradient(tensor: Tensor) -> str:
    if not tensor.is_floating_point():
        return WHOLE_NUMBERS
    return FROZEN if torch.is_grad_enabled() and not tensor.is_inference() else NO_GRAD


def _named(models: Mapping[str, nn.Module]) -> dict[str, nn.Module]:
    return {name.replace(".", "_"): model for name, model in models.items()}


class _OutputHook(ProbeHook):
    """Forward hook on a module, while a pass is recorded."""

    __slots__ = ("_name", "_probes")

    def __init__(self, probes: LayerProbes, name: str) -> None:
        self._probes, self._name = probes, name

    def __call__(self, module: nn.Module, arguments: Any, keywords: Any, output: Any) -> None:
        if torch.compiler.is_compiling() or in_backward() >= 0:
            return
        try:
            with DisableTorchFunction():  # keep out of a capture in progress
                self._probes.record_output(self._name, module, arguments, keywords, output)
        except Exception as error:
            self._probes.drop_layer(self._name, error)


class _InputHook(ProbeHook):
    """Forward pre-hook on a model, while a pass is recorded: its arguments."""

    __slots__ = ("_probes",)

    def __init__(self, probes: LayerProbes) -> None:
        self._probes = probes

    def __call__(self, module: nn.Module, arguments: Any, keywords: Any) -> None:
        if torch.compiler.is_compiling() or in_backward() >= 0:
            return
        try:
            with DisableTorchFunction():
                self._probes.record_inputs(arguments, keywords)
        except Exception as error:
            self._probes.drop_layer("(input)", error)


class _GradientHook(ProbeHook):
    """Gradient hook on a tensor that a module returned."""

    __slots__ = ("_id", "_place", "_record")

    def __init__(self, probes: LayerProbes, place: _Place, number: int) -> None:
        self._record: Callable[[_Place, int, Tensor], None] = probes.record_gradient
        self._place, self._id = place, number

    def __call__(self, gradient: Tensor | None) -> None:
        if gradient is None:
            return
        try:
            with DisableTorchFunction():
                self._record(self._place, self._id, gradient)
        except Exception:  # one value fewer; autograd must not fail
            return
