"""The outputs of selected layers, and their gradients, as samples of a watched pass."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from torcheer.tap.module_selection import Places, place_of
from torcheer.tap.pass_tap import PassTap
from torcheer.tap.probe_hooks import ModuleOutput
from torcheer.tap.sample_sender import Sender
from torcheer.tap.tensor_copies import refusal, tensors_in
from torcheer.vocabulary.variables import WATCHED_OF_UNITS


class LayerOutputs:
    """Sends what the modules return, in the passes between `begin` and `end`.

    - `on_gradient()` is called, where it is set, when a gradient arrives: the pass is over
    """

    def __init__(
        self, modules: dict[str, nn.Module], what: Collection[str], sender: Sender, model: nn.Module | None = None
    ) -> None:
        self._modules, self._what, self._sender = dict(modules), set(WATCHED_OF_UNITS) & set(what), sender
        self._names = frozenset(modules)
        self._tap = PassTap(self._take, self.drop, model)
        self._step, self._input_checked, self._differentiates = -1, True, True
        self.on_gradient: Callable[[], None] | None = None
        self.new_places: Places = {}  # of the modules that were called for the first time in this pass
        self._located = set[str]()

    @property
    def is_open(self) -> bool:
        """True in a watched pass."""
        return self._tap.is_open

    def begin(self, step: int) -> None:
        """Watch a pass."""
        self._step, self._differentiates = step, torch.is_grad_enabled()
        self._input_checked = "output" not in self._what
        if self._what:
            self._tap.attach(self._modules)

    def end(self) -> None:
        """End the pass; its gradients may still arrive."""
        self._tap.end()

    def release(self) -> None:
        """End the step: take the hooks off leaf tensors, too."""
        self._tap.release()

    def forget(self, module_ids: Collection[int]) -> list[str]:
        """Stop watching the modules that are none of these; returns their names."""
        removed = [name for name, module in self._modules.items() if id(module) not in module_ids]
        for name in removed:
            del self._modules[name]
        return removed

    def drop(self, name: str, error: Exception) -> None:
        """Stop watching one layer after an error; the others are kept."""
        self._modules.pop(name, None)
        self._sender.report(f"{name} is no longer watched: {type(error).__name__}: {error}")

    def _take(self, name: str, call: int, output: ModuleOutput) -> None:
        """Send the output of a module and follow its gradient."""
        if name not in self._located:
            self._located.add(name)
            self.new_places[name] = place_of(output.module)
        if not self._input_checked:
            self._check_input(name, output.arguments)
        label = name if call == 1 else f"{name}:{call}"
        for place, tensor in output.tensors:
            where = label + place
            if place and where in self._names:  # a submodule of that name has its own values
                where = f"{label}[{place[1:]}]"
            if "output" in self._what:
                self._sender.send(tensor, where, "output", self._step)
            if tensor.requires_grad and ("grad" in self._what or self.on_gradient is not None):
                self._tap.follow(tensor, partial(self._take_gradient, where, self._step))
            elif self._differentiates and "grad" in self._what and not torch.is_grad_enabled():
                self._report_no_gradient(name, output.module)

    def _check_input(self, name: str, arguments: Any) -> None:
        """Send the input of a pass's first module where it is not finite, before its output is sent."""
        self._input_checked = True
        for _, tensor in tensors_in(arguments, name)[:1]:  # further ones may be masks, which hold infinities
            if tensor.is_floating_point() and not refusal(tensor):
                self._sender.send_if_nonfinite(tensor, name, "input", self._step)

    def _report_no_gradient(self, name: str, module: nn.Module) -> None:
        """Report a trained layer whose output carries no gradient."""
        if any(parameter.requires_grad for parameter in module.parameters()):
            self._differentiates = False  # once is enough
            self._sender.report(
                f"{name} runs without gradients inside the model (checkpoint with use_reentrant=True, or no_grad): "
                "its own are not seen; use_reentrant=False shows them"
            )

    def _take_gradient(self, where: str, step: int, gradient: Tensor) -> None:
        """Send a gradient; may be called in one of autograd's threads, or after the watch was closed."""
        if self.on_gradient is not None:
            self.on_gradient()
        if "grad" in self._what:
            self._sender.send(gradient, where, "grad", step)

    def close(self) -> None:
        """Watch nothing any more."""
        self._tap.close()
        self._what.clear()
        self.on_gradient = None
