"""Observes one pass through hooks on every module.

Nothing is run twice and no value changes.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from torcheer.capture.torch_state import DisableTorchFunction
from torcheer.host.follow.model_description import facts_of
from torcheer.models import modules_of, unwrapped
from torcheer.network.layer_choice import ModuleFacts, ObservedPass
from torcheer.tap.probe_hooks import ProbeHook, in_backward
from torcheer.tap.tensor_copies import tensors_in


class PassObserver:
    """Records an `ObservedPass` from `begin` until `end`.

    Data flow between modules is read from autograd's graph and from tensors passed on unchanged; where neither tells,
    from the order in which the modules ran.
    """

    def __init__(self, model: nn.Module, hidden: Iterable[str] = (), roots: Iterable[nn.Module] = ()) -> None:
        """`hidden` modules run inside compiled code, where no hook is called.

        Inputs of `roots` are recorded.
        """
        self._model, self._hidden, self._roots = model, set(hidden), list(roots)
        self._handles: list[Any] = []
        self._calls: Counter[str] = Counter()
        self._facts: dict[str, ModuleFacts] = {}
        self._producers: dict[int, tuple[Any, Any]] = {}  # id of a tensor -> weak reference, producing node
        self._argument_nodes: dict[Any, list[Any]] = {}  # node of a call -> nodes of its argument tensors
        self.observed = ObservedPass(parents=self._parents)
        self.inputs: tuple[Any, Any] = ((), {})  # of the model's last call

    def begin(self, arguments: Any = None, keywords: Any = None) -> None:
        """Attach the hooks; inside a call of the model that has already begun, pass its arguments."""
        if arguments is not None:
            self.record_inputs(arguments, keywords)
        for root in self._roots:
            self._handles.append(root.register_forward_pre_hook(_InputHook(self), with_kwargs=True))
        self._attach()

    def record_inputs(self, arguments: Any, keywords: Any) -> None:
        """Record the arguments of a model call; tensors that no module produced are inputs."""
        self.inputs = (arguments, keywords)
        for _, tensor in tensors_in((arguments, keywords or {}), "input"):
            if tensor.dim() and not tensor.is_complex() and tensor.grad_fn is None and self._node_of(tensor) is None:
                node = ("input", len(self.observed.input_shapes) + 1)
                self._remember(tensor, node)
                self.observed.add_input(tuple(tensor.shape), node)

    def _attach(self) -> None:
        for name, module in modules_of(self._model).items():
            if name not in self._hidden and not isinstance(module, torch.jit.ScriptModule):
                inner = unwrapped(self._model)
                address = "" if module is self._model or module is inner else name
                self._handles.append(module.register_forward_hook(_OutputHook(self, address), with_kwargs=True))

    def record_output(self, name: str, module: nn.Module, arguments: Any, keywords: Any, output: Any) -> None:
        """Record a module's output."""
        self._calls[name] += 1
        tensors = [tensor for _, tensor in tensors_in(output, name) if tensor.dim() and not tensor.is_complex()]
        if not tensors:
            return
        facts = self._facts.get(name) or self._facts.setdefault(name, facts_of(name, module))
        if facts.heads:
            facts.keys = _keys(module, arguments, keywords)
        order = len(self.observed.calls)
        node = tensors[0].grad_fn if tensors[0].grad_fn is not None else self._node_of(tensors[0]) or ("call", order)
        if facts.leaf or node == ("call", order):  # a container's arguments were recorded by its children
            sources = [self._node_of(tensor) for _, tensor in tensors_in((arguments, keywords), "")]
            self._argument_nodes.setdefault(node, []).extend(
                source for source in sources if source is not None and source != node
            )
        for tensor in tensors:
            self._remember(tensor, node)
        self.observed.add_call(name, self._calls[name], facts, tuple(tensors[0].shape), node)

    def _remember(self, tensor: Tensor, node: Any) -> None:
        self._producers[id(tensor)] = (weakref.ref(tensor), node)

    def _node_of(self, tensor: Tensor) -> Any:
        reference, node = self._producers.get(id(tensor), (None, None))
        return node if reference is not None and reference() is tensor else None

    def _parents(self, node: Any) -> list[Any]:
        parents = list(self._argument_nodes.get(node, []))
        for function, _ in getattr(node, "next_functions", ()):
            leaf = getattr(function, "variable", None)  # an input that requires a gradient, or a parameter
            parents.append(function if leaf is None else self._node_of(leaf))
        return [parent for parent in parents if parent is not None]

    def end(self) -> None:
        """Remove the hooks."""
        handles, self._handles = self._handles, []
        for handle in handles:
            handle.remove()

    def forget(self) -> None:
        """Release the autograd graph, once the network has been described."""
        self.observed, self.inputs = ObservedPass(), ((), {})
        self._producers.clear()
        self._argument_nodes.clear()


def _keys(module: nn.Module, arguments: Any, keywords: Any) -> int:
    """The number of tokens that an attention module attends to."""
    key = keywords.get("key", arguments[1] if len(arguments) > 1 else None)
    if not isinstance(key, Tensor):
        return 0
    return int(key.shape[1 if getattr(module, "batch_first", False) and key.dim() == 3 else 0])


class _OutputHook(ProbeHook):
    """Forward hook on every module, for one pass."""

    __slots__ = ("_name", "_observer")

    def __init__(self, observer: PassObserver, name: str) -> None:
        self._observer, self._name = observer, name

    def __call__(self, module: nn.Module, arguments: Any, keywords: Any, output: Any) -> None:
        if torch.compiler.is_compiling() or in_backward() >= 0:
            return
        try:
            with DisableTorchFunction():
                self._observer.record_output(self._name, module, arguments, keywords, output)
        except Exception:  # one layer fewer in the picture; the model must not fail
            return


class _InputHook(ProbeHook):
    """Forward pre-hook on a root model, for one pass."""

    __slots__ = ("_observer",)

    def __init__(self, observer: PassObserver) -> None:
        self._observer = observer

    def __call__(self, module: nn.Module, arguments: Any, keywords: Any) -> None:
        if torch.compiler.is_compiling() or in_backward() >= 0:
            return
        try:
            with DisableTorchFunction():
                self._observer.record_inputs(arguments, keywords)
        except Exception:  # one input fewer in the picture
            return
