"""Hooks on a model's modules that copy one pass's values into the host's ring.

They are attached only while a viewer is subscribed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor, nn

from torcheer.capture.torch_state import DisableTorchFunction
from torcheer.host.follow.attention_heads import attention_weights
from torcheer.host.follow.batch_arrangement import arrange
from torcheer.host.follow.described_model import DescribedModel
from torcheer.host.follow.layer_parameters import parameters_of
from torcheer.host.follow.layer_places import Place
from torcheer.host.follow.network_finder import NetworkFinder
from torcheer.host.follow.record_rate import stamp
from torcheer.host.follow.recorded_state import RecordedState
from torcheer.host.follow.unit_weights import unit_weights, weights_of
from torcheer.host.host import Host
from torcheer.host.missing_values import BESIDE, FOLDED, FROZEN, INPUT, NO_BACKWARD, NO_GRAD, NO_HOOK, WHOLE_NUMBERS
from torcheer.network.heads.recorded_heads import SUFFIX
from torcheer.network.network_records import Network
from torcheer.tap.module_selection import place_of
from torcheer.tap.pass_tap import PassTap
from torcheer.tap.probe_hooks import InputHook, ModuleOutput
from torcheer.tap.tensor_copies import tensors_in
from torcheer.terminal import human_bytes

WHOLE_BYTES: Final = 4 << 20  # of a weight that is sent whole; of larger ones, the slices of single units
_WHOLE: Final = "a checkpoint, or tl.show(model, inputs), has all of it"
_ALL_WHOLE_BYTES: Final = 32 << 20  # of all that are sent whole


class LayerProbes:
    """Records single passes, chosen by the caller, of a model or of several models by name.

    probes = LayerProbes(model, host)
    probes.begin(step, {"Epoch": 1}); model(x).sum().backward(); probes.finish()

    The first recorded pass also describes the network and sets `host.network`. No method raises.

    - `layers`: whose values are recorded, in the forms of `torcheer.selection`; None for all. Others are only drawn.
    """

    def __init__(self, model: nn.Module | Mapping[str, nn.Module], host: Host, layers: Any = None) -> None:
        self.host, self.notes = host, list[str]()  # sentences about what cannot be shown
        self._described, self._state = DescribedModel(model, host, layers, self._note), RecordedState(host)
        self._tap = PassTap(self.record_output, self.drop_layer, self._described.model)
        self._process = os.getpid()

    # -- describing the network --------------------------------------------------------------------------------------

    @property
    def model(self) -> nn.Module:
        """The model, or a module that holds the models."""
        return self._described.model

    @property
    def batch(self) -> int:
        """Items in a batch; 0 where unknown."""
        return self._described.batch

    @property
    def finder(self) -> NetworkFinder:
        """What finds the network in a pass."""
        return self._described.finder

    @property
    def is_described(self) -> bool:
        """True once the network has been described."""
        return self._described.is_described

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
            self._described.observe(arguments, keywords)

    # -- a pass ------------------------------------------------------------------------------------------------------

    @property
    def in_pass(self) -> bool:
        """True while hooks are attached to the modules."""
        return self._tap.is_open or self.finder.is_observing

    @property
    def busy(self) -> bool:
        """True while a state or a description is unfinished."""
        return self._state.number >= 0 or self.in_pass

    @property
    def waits_for_gradients(self) -> bool:
        """True while gradients of the state may still arrive."""
        return self._state.number >= 0 and self._state.has_gradient_hooks

    def begin(self, step: int, counters: Mapping[str, Any] | None = None, test: bool = False, *,
              arguments: Any = None, keywords: Any = None) -> bool:  # fmt: skip
        """Record what runs until `finish`; False without a subscription or room.

        A caller inside the model's own call passes that call's arguments.
        """
        if self._process != os.getpid():
            return False
        self.finish()
        began = stamp()
        self._state.start_clock()
        if self._described.needs_description:
            self.observe(arguments, keywords)
            return False
        if not self._state.begin(step, counters or {}, test):
            return False
        try:
            with DisableTorchFunction():
                self._attach(arguments, keywords)
                self._send_weights()
                self._send_parameters()
        except Exception as error:
            self._note(f"step {step} cannot be looked at: {type(error).__name__}: {error}")
        self._state.spend(began)
        return True

    def _attach(self, arguments: Any, keywords: Any) -> None:
        absences, described = self._state.absences, self._described
        absences.begin()
        if not self.host.wants.variables:
            return
        for layer in described.places.unreachable:
            if layer.partition(":")[0] not in described.hidden:
                for variable in self.host.wants.variables:
                    absences.note(layer, variable, NO_HOOK)
        self._tap.attach(described.modules)
        if arguments is not None:
            self.record_inputs(arguments, keywords)
        else:
            for root in described.roots:
                hook = InputHook(self.record_inputs, self.drop_layer)
                self._tap.add(root.register_forward_pre_hook(hook, with_kwargs=True))

    def record_inputs(self, arguments: Any, keywords: Any) -> None:
        """Record the arguments of the model's first call in the pass."""
        state = self._state
        if state.has_inputs or not self.host.wants.variables:
            return
        state.has_inputs = True
        tensors = list({id(tensor): tensor for _, tensor in tensors_in((arguments, keywords or {}), "")}.values())
        for place in self._described.places.inputs:
            if place.position >= len(tensors):
                continue
            tensor = tensors[place.position]
            state.absences.ran(place.layer)
            self._record(tensor, place, "Act")
            if tensor.requires_grad and "Grad" in self.host.wants.variables:
                self._hook_gradient(tensor, place)
            else:
                state.absences.note(place.layer, "Grad", INPUT if tensor.is_floating_point() else WHOLE_NUMBERS)

    def record_output(self, name: str, call: int, output: ModuleOutput) -> None:
        """Record a module's output."""
        began, tensors, state, places = stamp(), output.tensors, self._state, self._described.places
        wants = self.host.wants
        wanted = wants.variables
        judge = self.host.values.judge
        for place in places.by_call.get((name, call), ()):
            if judge is not None and place.layer not in judge.places:
                judge.places[place.layer] = place_of(output.module)
            if place.position >= len(tensors):
                continue
            _, tensor = tensors[place.position]
            state.absences.ran(place.layer)
            if not wants.has_layer(place.layer):
                state.absences.note(place.layer, place.variable, FOLDED)
                state.absences.note(place.layer, "Grad", FOLDED)
                continue
            if place.variable in wanted:
                self._record(tensor, place, place.variable)
            if place.variable == "Act" and "Grad" in wanted:
                if tensor.requires_grad:
                    self._hook_gradient(tensor, place)
                else:
                    state.absences.note(place.layer, "Grad", _without_gradient(tensor))
            if place.layer in places.heads and "Act" in wanted:
                self._record_heads(place, output)
        state.spend(began)

    def _record(self, tensor: Tensor, place: Place, variable: str) -> None:
        items, has_shape = arrange(tensor, place)
        if not has_shape:
            self._described.is_stale = True
        self._send(items, place.layer, variable)

    def _send(self, value: Tensor, layer: str, variable: str) -> None:
        state = self._state
        state.absences.record(layer, variable, self.host.values.offer(state.number, value, layer, variable))

    def _record_heads(self, place: Place, output: ModuleOutput) -> None:
        heads = attention_weights(output.module, output.arguments, output.keywords, output.value)
        if heads is not None:
            self._send(heads, place.layer + SUFFIX, "Act")
            self._state.absences.note(place.layer + SUFFIX, "Grad", BESIDE)

    def _hook_gradient(self, tensor: Tensor, place: Place) -> None:
        """Register a hook for the gradient of a tensor in its current version."""
        self._tap.follow(tensor, partial(self.record_gradient, place, self._state.number))
        self._state.has_gradient_hooks = True
        self._state.absences.note(place.layer, "Grad", NO_BACKWARD)  # unless it arrives

    def record_gradient(self, place: Place, number: int, gradient: Tensor) -> None:
        """Record a gradient; may run in one of autograd's threads."""
        if number == self._state.number:
            began = stamp()
            self._record(gradient, place, "Grad")
            self._state.spend(began)

    def end_pass(self) -> None:
        """Remove the modules' hooks; gradients may still arrive."""
        self.finder.end_observation()
        self._tap.end()

    def finish(self) -> float:
        """Complete the state and return the seconds that recording it cost, for `Budget.spent`."""
        self.end_pass()
        self._tap.release()
        return self._state.finish(self._described)

    # -- weights -----------------------------------------------------------------------------------------------------

    def _send_weights(self) -> None:
        wants, network = self.host.wants, self.host.network
        if network is None or not (wants.weights or wants.units):
            return
        spent = 0
        for projection, weight in weights_of(self.model, network):
            if projection.receiver in self._described.places.unselected:
                continue
            if weight.nbytes <= WHOLE_BYTES and spent + weight.nbytes <= _ALL_WHOLE_BYTES:
                spent += weight.nbytes
                self.host.values.offer(self._state.number, weight, projection.name, "Wt")
            else:
                for variable, part in unit_weights(network, projection, weight, wants.units):
                    self.host.values.offer(self._state.number, part, projection.name, variable)

    def _send_parameters(self) -> None:
        """Send the parameters of inspected layers, and their gradients as they come."""
        wants, network, number = self.host.wants, self.host.network, self._state.number
        if network is None or not wants.inspected:
            return
        for name, parameter in parameters_of(self.model, network, wants.inspected).items():
            tensor = getattr(parameter, "_local_tensor", parameter).detach()  # of a sharded one, the local shard
            if tensor.nbytes > WHOLE_BYTES:
                why = (
                    f"it has {human_bytes(tensor.nbytes)}; a live page gets up to {human_bytes(WHOLE_BYTES)}: {_WHOLE}"
                )
                self.host.values.absent(number, [(name, "Wt", why), (name, "WtGrad", why)])
                continue
            self.host.values.offer(number, tensor, name, "Wt")
            if parameter.requires_grad:
                self._tap.follow(parameter, partial(self._send_gradient, name, number))
                self._state.has_gradient_hooks = True
            self.host.values.absent(number, [(name, "WtGrad", NO_BACKWARD if parameter.requires_grad else FROZEN)])

    def _send_gradient(self, name: str, number: int, gradient: Tensor) -> None:
        """Send the gradient of a parameter; may run in one of autograd's threads."""
        if number == self._state.number:
            began = stamp()
            self.host.values.offer(number, getattr(gradient, "_local_tensor", gradient), name, "WtGrad")
            self._state.spend(began)

    def drop_layer(self, name: str, error: Exception) -> None:
        """Stop recording a layer whose hook failed; the others stay."""
        self._described.forget(name)
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
