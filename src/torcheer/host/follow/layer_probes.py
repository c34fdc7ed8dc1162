"""Hooks on a model's modules that copy one pass's values into the host's ring.

They are attached only while a viewer is subscribed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor, nn

from torcheer.capture.torch_state import DisableTorchFunction
from torcheer.host.follow.attention_heads import attention_weights
from torcheer.host.follow.layer_places import LayerPlaces, Place, places_of
from torcheer.host.follow.model_pass import ModelPass
from torcheer.host.follow.network_finder import HOW_FOUND, NetworkFinder
from torcheer.host.follow.record_rate import cost, stamp
from torcheer.host.follow.unit_weights import unit_weights, weights_of
from torcheer.host.host import Host
from torcheer.host.missing_values import BESIDE, FROZEN, INPUT, NO_BACKWARD, NO_GRAD, NO_HOOK, WHOLE_NUMBERS, Absences
from torcheer.models import modules_of, unwrapped
from torcheer.network.history_network import PassDescription
from torcheer.network.network_records import GAP_BITS, Network
from torcheer.network.recorded_heads import SUFFIX
from torcheer.tap.module_selection import ModuleSelection, choose, describe_compiled
from torcheer.tap.pass_counter import is_called
from torcheer.tap.pass_tap import PassTap
from torcheer.tap.probe_hooks import InputHook, ModuleOutput
from torcheer.tap.tensor_copies import tensors_in
from torcheer.terminal import first_names

WHOLE_BYTES: Final = 4 << 20  # of a weight that is sent whole; of larger ones, the slices of single units
_ALL_WHOLE_BYTES: Final = 32 << 20  # of all that are sent whole
_HIDDEN_SHARE: Final = 1.5  # unmeasured cost of a state: hooks slow calls down, caches are evicted
_HIDDEN_SECS: Final = 0.0005  # and the host's thread has to send it
_REDESCRIBE_SECS: Final = 5.0  # between two descriptions of a model whose shapes change


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
        every = choose(self.model) if any(True for _ in self.model.parameters()) else ModuleSelection()
        self._hidden = every.hidden_modules
        self._selected = None if layers is None else frozenset(choose(self.model, layers, "live").modules)
        roots = [self.model] if isinstance(model, nn.Module) else list(self.model.children())
        self._roots, self._places, self._modules = roots, LayerPlaces(), dict[str, nn.Module]()
        unseen = (every.hidden_modules, every.compiled_modules)
        self.finder = NetworkFinder(self.model, roots, *unseen, self._use_network, self._note)
        self._tap = PassTap(self.record_output, self.drop_layer, self.model)
        self._id, self._secs, self._made_secs, self._described_at = -1, 0.0, 0.0, -1e9
        self._absences = Absences()
        self._stale = self._has_gradient_hooks = False  # shapes have changed; gradient hooks were registered
        self._has_inputs = False  # the arguments of the pass's first call were recorded
        self._process = os.getpid()
        if self._hidden:
            names = first_names(self._hidden, 3)
            self._note(f"{len(self._hidden)} layers ({names}) run inside code where no hook is called: their values "
                       "are not shown, weights are")  # fmt: skip
        if every.compiled_modules:
            self._note(describe_compiled(every.compiled_modules))
        if isinstance(unwrapped(self.model), torch.jit.ScriptModule):  # accepts no hooks
            host.network = self.finder.guess()

    # -- describing the network --------------------------------------------------------------------------------------

    @property
    def is_described(self) -> bool:
        """True once the network has been described."""
        return bool(self._modules or self._places.inputs)

    def describe(self, inputs: Any, keywords: Any = None) -> Network | None:
        """Describe the network by running an extra pass, which leaves no trace in the model."""
        try:
            self.finder.run_once(inputs, keywords)
        except Exception as error:
            self._note(f"the model could not be run with the inputs that were given: {type(error).__name__}: {error}")
            return None
        return self.host.network

    def observe(self, arguments: Any = None, keywords: Any = None) -> None:
        """Describe the network from the next pass, or from the one that begins with these arguments."""
        if not self._tap.is_open:
            if (arguments is None or self._stale) and is_called(self.model):  # a `training_step` may not call it
                self.finder.record_next_call()
            self.finder.observe(arguments, keywords)

    def _use_network(self, description: PassDescription, model_pass: ModelPass) -> None:
        """Use the network that was found: its layers' values are recorded from now on."""
        self._described_at, self._stale = time.monotonic(), False
        modules = {**modules_of(self.model), "": self.model}
        self._places = places_of(description, model_pass, modules, self._selected)
        self._modules = {name: modules[name] for name, _ in self._places.by_call}
        self.batch = description.batch.size
        for text in description.network.notes:
            if text not in HOW_FOUND:
                self._note(text)
        self.host.network = description.network

    # -- a pass ------------------------------------------------------------------------------------------------------

    @property
    def in_pass(self) -> bool:
        """True while hooks are attached to the modules."""
        return self._tap.is_open or self.finder.is_observing

    @property
    def busy(self) -> bool:
        """True while a state or a description is unfinished."""
        return self._id >= 0 or self.in_pass

    @property
    def waits_for_gradients(self) -> bool:
        """True while gradients of the state may still arrive."""
        return self._id >= 0 and self._has_gradient_hooks

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
        self._has_inputs = False
        self._absences.begin()
        if not self.host.wants.variables:
            return
        for layer in self._places.unreachable:
            if layer.partition(":")[0] not in self._hidden:
                for variable in self.host.wants.variables:
                    self._absences.note(layer, variable, NO_HOOK)
        self._tap.attach(self._modules)
        if arguments is not None:
            self.record_inputs(arguments, keywords)
        else:
            for root in self._roots:
                hook = InputHook(self.record_inputs, self.drop_layer)
                self._tap.add(root.register_forward_pre_hook(hook, with_kwargs=True))

    def record_inputs(self, arguments: Any, keywords: Any) -> None:
        """Record the arguments of the model's first call in the pass."""
        if self._has_inputs or not self.host.wants.variables:
            return
        self._has_inputs = True
        tensors = list({id(tensor): tensor for _, tensor in tensors_in((arguments, keywords or {}), "")}.values())
        for place in self._places.inputs:
            if place.position >= len(tensors):
                continue
            tensor = tensors[place.position]
            self._absences.ran(place.layer)
            self._offer(self._arrange(tensor, place), place.layer, "Act")
            if tensor.requires_grad and "Grad" in self.host.wants.variables:
                self._hook_gradient(tensor, place)
            else:
                self._absences.note(place.layer, "Grad", INPUT if tensor.is_floating_point() else WHOLE_NUMBERS)

    def record_output(self, name: str, call: int, output: ModuleOutput) -> None:
        """Record a module's output."""
        began, tensors = stamp(), output.tensors
        places, wanted = self._places.by_call.get((name, call), ()), self.host.wants.variables
        for place in places:
            if place.position >= len(tensors):
                continue
            _, tensor = tensors[place.position]
            self._absences.ran(place.layer)
            if place.variable in wanted:
                self._offer(self._arrange(tensor, place), place.layer, place.variable)
            if place.variable == "Act" and "Grad" in wanted:
                if tensor.requires_grad:
                    self._hook_gradient(tensor, place)
                else:
                    self._absences.note(place.layer, "Grad", _without_gradient(tensor))
            if place.layer in self._places.heads and "Act" in wanted:
                heads = attention_weights(output.module, output.arguments, output.keywords, output.value)
                if heads is not None:
                    self._offer(heads, place.layer + SUFFIX, "Act")
                    self._absences.note(place.layer + SUFFIX, "Grad", BESIDE)
        self._secs += cost(began)

    def _offer(self, value: Any, layer: str, variable: str) -> None:
        self._absences.record(layer, variable, self.host.offer(self._id, value, layer, variable))

    def _arrange(self, tensor: Tensor, place: Place) -> Tensor:
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

    def _hook_gradient(self, tensor: Tensor, place: Place) -> None:
        """Register a hook for the gradient of a tensor in its current version."""
        self._tap.follow(tensor, partial(self.record_gradient, place, self._id))
        self._has_gradient_hooks = True
        self._absences.note(place.layer, "Grad", NO_BACKWARD)  # unless it arrives

    def record_gradient(self, place: Place, number: int, gradient: Tensor) -> None:
        """Record a gradient; may run in one of autograd's threads."""
        if number == self._id:
            began = stamp()
            self._offer(self._arrange(gradient, place), place.layer, "Grad")
            self._secs += cost(began)

    def end_pass(self) -> None:
        """Remove the modules' hooks; gradients may still arrive."""
        self.finder.end_observation()
        self._tap.end()

    def finish(self) -> float:
        """Complete the state and return the seconds that recording it cost, for `Budget.spent`."""
        self.end_pass()
        self._tap.release()
        number, self._id, self._has_gradient_hooks = self._id, -1, False
        secs, self._secs = self._secs, 0.0
        if number < 0:
            return secs
        if self.host.network is not None:
            self.host.absent(
                number,
                self._absences.of(self.host.network, self.host.wants.variables, self._hidden, self._places.unselected),
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
            if projection.receiver in self._places.unselected:
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
        self._tap.close()
        self.finder.close()


def _without_gradient(tensor: Tensor) -> str:
    if not tensor.is_floating_point():
        return WHOLE_NUMBERS
    return FROZEN if torch.is_grad_enabled() and not tensor.is_inference() else NO_GRAD


def _named(models: Mapping[str, nn.Module]) -> dict[str, nn.Module]:
    return {name.replace(".", "_"): model for name, model in models.items()}
