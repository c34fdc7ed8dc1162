"""Hooks while somebody looks: the values of one pass, from its modules into the host's ring."""

from __future__ import annotations

import os
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor, nn

from torcheer.host.follow.attention_heads import attention_weights
from torcheer.host.follow.model_description import WEIGHTS, describe, network_of, run_once
from torcheer.host.follow.pass_observer import Observation
from torcheer.host.follow.record_rate import cost, stamp
from torcheer.host.follow.unit_weights import unit_weights, weights_of
from torcheer.host.host import Host
from torcheer.host.missing_values import BESIDE, FROZEN, INPUT, NO_BACKWARD, NO_GRAD, WHOLE_NUMBERS, Absences
from torcheer.network.layer_choice import Choice, Pass
from torcheer.network.network_records import GAP_BITS, Network
from torcheer.tap.module_selection import choose, modules_of
from torcheer.tap.probe_hooks import ProbeHook, in_backward
from torcheer.tap.tensor_copies import tensors_in

WHOLE_BYTES: Final = 4 << 20  # of weights that are sent whole; of larger ones, what leads to or from one unit
_ALL_WHOLE_BYTES: Final = 32 << 20  # of all that are sent whole
_HIDDEN_SHARE: Final = 1.5  # what a state costs beside what is measured: hooks make calls slower, caches are spoiled
_HIDDEN_SECS: Final = 0.0005  # and the host's own thread has to tell of it
_AGAIN_SECS: Final = 5.0  # between two descriptions of a model whose shapes change


class _Place(NamedTuple):
    """Where a value goes that a module call returned."""

    layer: str
    variable: str
    shape: tuple[int, ...]  # of one item
    batch_axis: int  # -1: there is none


class Probing:
    """Looks at single passes of a model, or of several by name, that the caller chooses.

    probing = Probing(model, host)
    probing.begin(step, {"Epoch": 1}); model(x).sum().backward(); probing.finish()

    The first pass that is looked at also tells what the network is; `host.network` is set then. Nothing raises.
    """

    def __init__(self, model: nn.Module | Mapping[str, nn.Module], host: Host) -> None:
        self.model = model if isinstance(model, nn.Module) else nn.ModuleDict(_named(model))
        self.host, self.notes = host, list[str]()  # what cannot be shown, in words
        self.batch = 0  # items in a batch; 0 where unknown
        self._hidden = choose(self.model).hidden if any(True for _ in self.model.parameters()) else ()
        self._roots = [self.model] if isinstance(model, nn.Module) else list(self.model.children())
        self._observation: Observation | None = None
        self._places: dict[tuple[str, int], list[_Place]] = defaultdict(list)
        self._modules: dict[str, nn.Module] = {}
        self._inputs: list[_Place] = []
        self._heads: set[str] = set()
        self._handles: list[Any] = []
        self._leaves: list[Any] = []  # hooks on tensors that outlive their pass
        self._calls: Counter[str] = Counter()
        self._id, self._secs, self._made_secs, self._described_at = -1, 0.0, 0.0, -1e9
        self._absences = Absences()
        self._stale = self._follows = False  # shapes have changed; gradients were asked for
        self._process = os.getpid()
        if self._hidden:
            self._note(f"{len(self._hidden)} layers ({', '.join(self._hidden[:3])}, …) run inside compiled code, where "
                       "no hook is called: their values are not shown, weights are")  # fmt: skip

    # -- what the network is -----------------------------------------------------------------------------------------

    @property
    def known(self) -> bool:
        """Whether the network has been described."""
        return bool(self._modules or self._inputs)

    def describe(self, inputs: Any) -> Network | None:
        """Describe the network from a pass of our own, which leaves no trace in the model."""
        try:
            seen = run_once(self.model, inputs)
            network, choice = network_of(self.model, seen)
            self._take(network, choice, seen)
        except Exception as error:
            self._note(f"the model could not be run with the inputs that were given: {type(error).__name__}: {error}")
            return None
        return network

    def observe(self, arguments: Any = None, keywords: Any = None) -> None:
        """Let the next pass, or the one that is about to begin with these, tell what the network is."""
        if self._handles or self._observation is not None or self._process != os.getpid():
            return
        try:
            self._observation = Observation(self.model, self._hidden, self._roots if arguments is None else ())
            self._observation.begin(arguments, keywords)
        except Exception as error:
            self._note(f"the model cannot be looked at: {type(error).__name__}: {error}")

    def observed(self) -> None:
        """That pass is over."""
        observation, self._observation = self._observation, None
        if observation is None:
            return
        observation.end()
        self._described_at, self._stale = time.monotonic(), False
        try:
            if self._hidden and all(not call.module for call in observation.seen.calls):
                self._take_compiled(observation)
            elif any(0 in shape for shape in observation.seen.given.values()):
                return  # an empty batch: the next one tells more
            elif observation.seen.calls:
                network, choice = network_of(self.model, observation.seen)
                self._take(network, choice, observation.seen)
            elif self.host.network is None:
                self.host.network = describe(self.model)
        except Exception as error:
            self._note(f"the network cannot be described: {type(error).__name__}: {error}")
        finally:
            observation.forget()

    def _take_compiled(self, observation: Observation) -> None:
        """Where no hook is called, a pass of our own tells what there is; the whole's input and output can be had."""
        seen = run_once(self.model, *observation.inputs)
        network, choice = network_of(self.model, seen)
        self._take(network, choice, seen)
        last, whole = choice.layers[-1], observation.seen.calls[-1]
        self._places.clear()
        if whole.shape == last.ends.shape:
            self._places["", whole.number].append(_Place(last.name, "Act", last.shape, last.batch_axis))
        self._modules = {"": self.model}

    def _take(self, network: Network, choice: Choice, seen: Pass) -> None:
        """Learn where each value comes from."""
        modules = {**modules_of(self.model), "": self.model}
        self._places.clear()
        for one in choice.layers:
            self._places[one.ends.module, one.ends.number].append(_Place(one.name, "Act", one.shape, one.batch_axis))
            if one.ends is not one.call:
                self._places[one.call.module, one.call.number].append(
                    _Place(one.name, "Net", one.shape, one.batch_axis)
                )
        self._modules = {name: modules[name] for name, _ in self._places}
        axis = seen.batch_axis
        self._inputs = [_Place(name, "Act", shape, axis) for name, shape in seen.inputs.items()]
        self.batch = seen.batch
        self._heads = {layer.name.removesuffix(WEIGHTS) for layer in network.layers if layer.kind == "Attention"}
        for note in choice.notes:
            self._note(note)
        self.host.network = network

    # -- a pass ------------------------------------------------------------------------------------------------------

    @property
    def in_pass(self) -> bool:
        """Whether hooks hang on the modules."""
        return bool(self._handles) or self._observation is not None

    @property
    def busy(self) -> bool:
        """Whether a state, or a description, was begun and not finished."""
        return self._id >= 0 or self.in_pass

    @property
    def waits_for_gradients(self) -> bool:
        """Whether some may be yet to come."""
        return self._id >= 0 and self._follows

    def until(self, handle: Any) -> None:
        """Have a handle removed together with our own."""
        self._handles.append(handle)

    def begin(self, step: int, counters: Mapping[str, Any] | None = None, test: bool = False, *,
              arguments: Any = None, keywords: Any = None) -> bool:  # fmt: skip
        """Look at what runs until `finish`; False where nobody looks or has room.

        Who calls this when the model's own call has begun gives its arguments along.
        """
        if self._process != os.getpid():
            return False
        self.finish()
        began, self._made_secs = stamp(), self.host.making_secs
        if not self.known or (self._stale and time.monotonic() - self._described_at > _AGAIN_SECS):
            self.observe(arguments, keywords)
            return False
        self._id = self.host.begin(step, counters or {}, test)
        if self._id < 0:
            return False
        try:
            with torch._C.DisableTorchFunction():
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
            hook = _Returned(self, name)
            self._handles.append(module.register_forward_hook(hook, with_kwargs=True))
        if arguments is not None:
            self.given(arguments, keywords)
        else:
            for root in self._roots:
                self._handles.append(root.register_forward_pre_hook(_Given(self), with_kwargs=True))

    def given(self, arguments: Any, keywords: Any) -> None:
        """The model was called with these."""
        if self._calls["(input)"] or not self.host.wants.variables:
            return
        self._calls["(input)"] += 1
        tensors = [one for _, one in tensors_in((arguments, keywords or {}), "") if one.dim() and not one.is_complex()]
        for place, tensor in zip(self._inputs, tensors):
            self._absences.ran(place.layer)
            self._offer(self._arranged(tensor, place), place.layer, "Act")
            if tensor.requires_grad and "Grad" in self.host.wants.variables:
                self._follow(tensor, place)
            else:
                self._absences.note(place.layer, "Grad", INPUT if tensor.is_floating_point() else WHOLE_NUMBERS)

    def returned(self, name: str, module: nn.Module, arguments: Any, keywords: Any, output: Any) -> None:
        """A module returned something."""
        began = stamp()
        self._calls[name] += 1
        places = self._places.get((name, self._calls[name]), ())
        tensors = tensors_in(output, name) if places else []
        wanted = self.host.wants.variables
        for place, (_, tensor) in ((place, tensors[0]) for place in places if tensors):
            self._absences.ran(place.layer)
            if place.variable in wanted:
                self._offer(self._arranged(tensor, place), place.layer, place.variable)
            if place.variable == "Act" and "Grad" in wanted:
                if tensor.requires_grad:
                    self._follow(tensor, place)
                else:
                    self._absences.note(place.layer, "Grad", _without_gradient(tensor))
            if place.layer in self._heads and "Act" in wanted:
                heads = attention_weights(module, arguments, keywords, output)
                if heads is not None:
                    self._offer(heads, place.layer + WEIGHTS, "Act")
                    self._absences.note(place.layer + WEIGHTS, "Grad", BESIDE)
        self._secs += cost(began)

    def _offer(self, value: Any, layer: str, variable: str) -> None:
        self._absences.came(layer, variable, self.host.offer(self._id, value, layer, variable))

    def _arranged(self, tensor: Tensor, place: _Place) -> Tensor:
        """The batch first, each item as the layer's shape says."""
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
        flat = tensor.dim() <= len(place.shape)  # else its items are there, and of another length
        if flat and units and tensor.numel() % units == 0 and tensor.shape[0] * units != tensor.numel():
            return tensor.reshape(-1, *place.shape)  # sequences that were laid end to end
        self._stale = True
        if tensor.dim() == len(place.shape) + 1 and tensor.is_floating_point():  # another length than in the picture
            gaps = torch.full((tensor.shape[0], *place.shape), GAP_BITS, dtype=torch.int32, device=tensor.device)
            fitted = gaps.view(torch.float32)
            common = tuple(slice(0, min(a, b)) for a, b in zip(tensor.shape[1:], place.shape))
            fitted[(slice(None), *common)] = tensor[(slice(None), *common)].float()
            return fitted
        return tensor.reshape(tensor.shape[0], -1) if tensor.shape[0] * units == tensor.numel() else tensor

    def _follow(self, tensor: Tensor, place: _Place) -> None:
        """Be told the gradient, of the tensor as it is now."""
        follow: Any = tensor.register_hook
        handle = follow(_Gradient(self, place, self._id))
        self._follows = True
        self._absences.note(place.layer, "Grad", NO_BACKWARD)  # unless it comes
        if tensor.is_leaf:  # it would keep the hook for ever
            self._leaves.append(handle)

    def gradient(self, place: _Place, number: int, gradient: Tensor) -> None:
        """A gradient arrived, maybe in one of autograd's threads."""
        if number == self._id:
            began = stamp()
            self._offer(self._arranged(gradient, place), place.layer, "Grad")
            self._secs += cost(began)

    def end_pass(self) -> None:
        """The modules go back to how they were; gradients may still come."""
        self.observed()
        handles, self._handles = self._handles, []
        for handle in handles:
            handle.remove()

    def finish(self) -> float:
        """The state is complete; how many seconds it took us, as `Budget.spent` wants to know."""
        self.end_pass()
        leaves, self._leaves = self._leaves, []
        for handle in leaves:
            handle.remove()
        number, self._id, self._follows = self._id, -1, False
        secs, self._secs = self._secs, 0.0
        if number < 0:
            return secs
        if self.host.network is not None:
            self.host.absent(number, self._absences.of(self.host.network, self.host.wants.variables, self._hidden))
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
            if weight.nbytes <= WHOLE_BYTES and spent + weight.nbytes <= _ALL_WHOLE_BYTES:
                spent += weight.nbytes
                self.host.offer(self._id, weight, projection.name, "Wt")
            else:
                for variable, some in unit_weights(network, projection, weight, wants.units):
                    self.host.offer(self._id, some, projection.name, variable)

    def failed(self, name: str, error: Exception) -> None:
        """A layer goes, the others stay."""
        self._modules.pop(name, None)
        self._note(f"{name} is no longer shown: {type(error).__name__}: {error}")

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)
            self.host.alert(text, "info", rule="studio")

    def close(self) -> None:
        """Take every hook off."""
        self.finish()


def _without_gradient(tensor: Tensor) -> str:
    if not tensor.is_floating_point():
        return WHOLE_NUMBERS
    return FROZEN if torch.is_grad_enabled() and not tensor.is_inference() else NO_GRAD


def _named(models: Mapping[str, nn.Module]) -> dict[str, nn.Module]:
    return {name.replace(".", "_"): model for name, model in models.items()}


class _Returned(ProbeHook):
    """On a module, while a pass is looked at."""

    __slots__ = ("_name", "_probing")

    def __init__(self, probing: Probing, name: str) -> None:
        self._probing, self._name = probing, name

    def __call__(self, module: nn.Module, arguments: Any, keywords: Any, output: Any) -> None:
        if torch.compiler.is_compiling() or in_backward() >= 0:
            return
        try:
            with torch._C.DisableTorchFunction():  # a capture in progress is none of ours
                self._probing.returned(self._name, module, arguments, keywords, output)
        except Exception as error:
            self._probing.failed(self._name, error)


class _Given(ProbeHook):
    """On a model, while a pass is looked at: what it is called with."""

    __slots__ = ("_probing",)

    def __init__(self, probing: Probing) -> None:
        self._probing = probing

    def __call__(self, module: nn.Module, arguments: Any, keywords: Any) -> None:
        if torch.compiler.is_compiling() or in_backward() >= 0:
            return
        try:
            with torch._C.DisableTorchFunction():
                self._probing.given(arguments, keywords)
        except Exception as error:
            self._probing.failed("(input)", error)


class _Gradient(ProbeHook):
    """On a tensor that a module returned."""

    __slots__ = ("_id", "_place", "_tell")

    def __init__(self, probing: Probing, place: _Place, number: int) -> None:
        self._tell: Callable[[_Place, int, Tensor], None] = probing.gradient
        self._place, self._id = place, number

    def __call__(self, gradient: Tensor | None) -> None:
        if gradient is None:
            return
        try:
            with torch._C.DisableTorchFunction():
                self._tell(self._place, self._id, gradient)
        except Exception:  # one value less; autograd has nothing to do with it
            return
