"""One pass, looked at by hooks on every module: nothing is run a second time, no number changes."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from torcheer.host.follow.model_description import facts_of
from torcheer.network.layer_choice import Facts, Pass
from torcheer.tap.module_selection import modules_of, unwrapped
from torcheer.tap.probe_hooks import ProbeHook, in_backward
from torcheer.tap.tensor_copies import tensors_in


class Observation:
    """Gathers a `Pass` from `begin` until `end`.

    What led from one module to the next is read from autograd's graph, and from tensors that were handed on as they
    were; where neither knows, from the order in which the modules ran.
    """

    def __init__(self, model: nn.Module, hidden: Iterable[str] = (), roots: Iterable[nn.Module] = ()) -> None:
        """`hidden` modules run inside compiled code, where no hook is called; `roots` are asked for their inputs."""
        self._model, self._hidden, self._roots = model, set(hidden), list(roots)
        self._handles: list[Any] = []
        self._calls: Counter[str] = Counter()
        self._facts: dict[str, Facts] = {}
        self._made: dict[int, tuple[Any, Any]] = {}  # id of a tensor -> it, weakly, and the node that made it
        self._handed: dict[Any, list[Any]] = {}  # node of a call -> the nodes of the tensors that it was given
        self.seen = Pass(parents=self._parents)
        self.inputs: tuple[Any, Any] = ((), {})  # what the model was called with last

    def begin(self, arguments: Any = None, keywords: Any = None) -> None:
        """Look at what runs from now on; at a call of the model that has begun with these."""
        if arguments is not None:
            self.given(arguments, keywords)
        for root in self._roots:
            self._handles.append(root.register_forward_pre_hook(_Given(self), with_kwargs=True))
        self._attach()

    def given(self, arguments: Any, keywords: Any) -> None:
        """A model is called with these: what no other made is an input."""
        self.inputs = (arguments, keywords)
        for _, tensor in tensors_in((arguments, keywords or {}), "input"):
            if tensor.dim() and not tensor.is_complex() and tensor.grad_fn is None and self._known(tensor) is None:
                node = ("input", len(self.seen.given) + 1)
                self._remember(tensor, node)
                self.seen.give(tuple(tensor.shape), node)

    def _attach(self) -> None:
        for name, module in modules_of(self._model).items():
            if name not in self._hidden and not isinstance(module, torch.jit.ScriptModule):
                inner = unwrapped(self._model)
                plain = "" if module is self._model or module is inner else name
                self._handles.append(module.register_forward_hook(_Returned(self, plain), with_kwargs=True))

    def returned(self, name: str, module: nn.Module, arguments: Any, keywords: Any, output: Any) -> None:
        """A module returned something."""
        self._calls[name] += 1
        tensors = [tensor for _, tensor in tensors_in(output, name) if tensor.dim() and not tensor.is_complex()]
        if not tensors:
            return
        facts = self._facts.get(name) or self._facts.setdefault(name, facts_of(name, module))
        if facts.heads:
            facts.keys = _keys(module, arguments, keywords)
        order = len(self.seen.calls)
        node = tensors[0].grad_fn if tensors[0].grad_fn is not None else self._known(tensors[0]) or ("call", order)
        if facts.leaf or node == ("call", order):  # what a module of several parts was given, its parts have dealt with
            given = [self._known(tensor) for _, tensor in tensors_in((arguments, keywords), "")]
            self._handed.setdefault(node, []).extend(one for one in given if one is not None and one != node)
        for tensor in tensors:
            self._remember(tensor, node)
        self.seen.add(name, self._calls[name], facts, tuple(tensors[0].shape), node)

    def _remember(self, tensor: Tensor, node: Any) -> None:
        self._made[id(tensor)] = (weakref.ref(tensor), node)

    def _known(self, tensor: Tensor) -> Any:
        reference, node = self._made.get(id(tensor), (None, None))
        return node if reference is not None and reference() is tensor else None

    def _parents(self, node: Any) -> list[Any]:
        found = list(self._handed.get(node, []))
        for one, _ in getattr(node, "next_functions", ()):
            leaf = getattr(one, "variable", None)  # an input that asks for a gradient, or a parameter
            found.append(one if leaf is None else self._known(leaf))
        return [one for one in found if one is not None]

    def end(self) -> None:
        """Take the hooks off."""
        handles, self._handles = self._handles, []
        for handle in handles:
            handle.remove()

    def forget(self) -> None:
        """Let go of the graph, once the network is known."""
        self.seen, self.inputs = Pass(), ((), {})
        self._made.clear()
        self._handed.clear()


def _keys(module: nn.Module, arguments: Any, keywords: Any) -> int:
    """How many tokens attention looks at."""
    key = keywords.get("key", arguments[1] if len(arguments) > 1 else None)
    if not isinstance(key, Tensor):
        return 0
    return int(key.shape[1 if getattr(module, "batch_first", False) and key.dim() == 3 else 0])


class _Returned(ProbeHook):
    """On every module, for one pass."""

    __slots__ = ("_name", "_observation")

    def __init__(self, observation: Observation, name: str) -> None:
        self._observation, self._name = observation, name

    def __call__(self, module: nn.Module, arguments: Any, keywords: Any, output: Any) -> None:
        if torch.compiler.is_compiling() or in_backward() >= 0:
            return
        try:
            with torch._C.DisableTorchFunction():
                self._observation.returned(self._name, module, arguments, keywords, output)
        except Exception:  # a layer less in the picture; the model has nothing to do with it
            return


class _Given(ProbeHook):
    """On a model, for one pass."""

    __slots__ = ("_observation",)

    def __init__(self, observation: Observation) -> None:
        self._observation = observation

    def __call__(self, module: nn.Module, arguments: Any, keywords: Any) -> None:
        if torch.compiler.is_compiling() or in_backward() >= 0:
            return
        try:
            with torch._C.DisableTorchFunction():
                self._observation.given(arguments, keywords)
        except Exception:  # an input less in the picture
            return
