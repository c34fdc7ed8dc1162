"""Observes one pass from outside, through hooks on every module, where it cannot be recorded.

Nothing is run twice and no value changes. What it sees becomes `Op` records, as a recording's: one for each module
call, and one for each node of autograd's graph between two of them.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

import torch
from torch import Tensor, nn

from torcheer.capture.record.tensor_facts import meta_of
from torcheer.encoding import held_bytes
from torcheer.host.follow.model_pass import ModelPass
from torcheer.inputs import argument_places
from torcheer.models import modules_of, unwrapped
from torcheer.network.module_tree import ATTENTION
from torcheer.records import Edge, ModuleCall, Op, Stored, TensorMeta
from torcheer.tap.pass_tap import PassTap
from torcheer.tap.probe_hooks import InputHook, ModuleOutput
from torcheer.tap.tensor_copies import tensors_in

SEEN_BY_HOOKS: Final = "seen from outside, by hooks on the modules: operations between them are not known one by one"
_CONVOLUTIONS: Final = {"Conv1d": "conv1d", "Conv2d": "conv2d", "Conv3d": "conv3d"}
_NAMES: Final = {**_CONVOLUTIONS, "Linear": "linear", "NonDynamicallyQuantizableLinear": "linear"}
_RECURRENT: Final = {"LSTM": "lstm", "GRU": "gru", "RNN": "rnn_tanh", "LSTMCell": "lstm_cell", "GRUCell": "gru_cell",
                     "RNNCell": "rnn_tanh_cell"}  # fmt: skip


class PassObserver:
    """Observes a pass from `begin` until `end`; `model_pass` is what it saw.

    Data flow between modules is read from autograd's graph and from tensors passed on unchanged; where neither tells,
    from the order in which the modules ran.
    """

    def __init__(self, model: nn.Module, hidden: Iterable[str] = (), roots: Iterable[nn.Module] = ()) -> None:
        """`hidden` modules run inside compiled code, where no hook is called.

        Inputs of `roots` are recorded.
        """
        self._model, self._hidden, self._roots = model, set(hidden), list(roots)
        self._modules = modules_of(model)
        self._tap = PassTap(self.record_output, _ignore)
        self._calls: Counter[str] = Counter()
        self._ops: list[Op] = []
        self._returned: dict[int, list[ModuleCall]] = {}  # operation -> module calls that returned it, innermost first
        self._outputs: dict[tuple[str, int], dict[int, int]] = {}
        self._producers: dict[int, tuple[Any, int]] = {}  # id of a tensor -> weak reference, its operation
        self._nodes: dict[Any, int] = {}  # node of autograd's graph -> its operation
        self.inputs: tuple[Any, Any] = ((), {})  # of the model's last call
        self.module_calls = 0  # without those of the model itself

    def begin(self, arguments: Any = None, keywords: Any = None) -> None:
        """Attach the hooks; inside a call of the model that has already begun, pass its arguments."""
        if arguments is not None:
            self.record_inputs(arguments, keywords)
        for root in self._roots:
            hook = InputHook(self.record_inputs, _ignore)
            self._tap.add(root.register_forward_pre_hook(hook, with_kwargs=True))
        inner = unwrapped(self._model)
        self._tap.attach(
            {
                "" if module is self._model or module is inner else name: module
                for name, module in self._modules.items()
                if name not in self._hidden and not isinstance(module, torch.jit.ScriptModule)
            }
        )

    def record_inputs(self, arguments: Any, keywords: Any) -> None:
        """Record the arguments of a model call; tensors that no module produced are inputs."""
        self.inputs = (arguments, keywords)
        given, root = tensors_in((arguments, keywords or {}), ""), (self._roots or [self._model])[0]
        paths = [tuple(int(part) if part.isdecimal() else part for part in name.split(".")[1:]) for name, _ in given]
        for (_, tensor), place in zip(given, argument_places(root, paths) if len(given) > 1 else [()]):
            if tensor.grad_fn is None and self._producer(tensor) is None:
                op = Op(0, "input", "input", outputs=(meta_of(tensor),), given_at=place)
                self._remember(tensor, self._add(op))

    def record_output(self, name: str, number: int, output: ModuleOutput) -> None:
        """Record what a module returned."""
        module, arguments, keywords, *_ = output
        call = ModuleCall(name, number, _type(module))
        stack = self._stack(name)
        self._calls[name] = number
        tensors = [tensor for _, tensor in output.tensors]
        if not tensors:
            return
        self.module_calls += name != ""
        index = self._known(tensors[0])
        is_leaf = call.type == ATTENTION or not any(True for _ in module.children())
        if is_leaf or index is None:
            source = (arguments, keywords) if is_leaf else tensors[0].grad_fn
            index = self._record_call(call, stack, module, self._edges(source), tensors, (arguments, keywords))
        if name:
            self._returned.setdefault(index, []).append(call)
        self._outputs[name, call.call] = {index: 0}
        for tensor in tensors:
            self._remember(tensor, index)

    def _record_call(
        self, call: ModuleCall, stack: tuple[ModuleCall, ...], module: nn.Module, edges: tuple[Edge, ...],
        tensors: list[Tensor], arguments: tuple[Any, Any],
    ) -> int:  # fmt: skip
        inner = unwrapped(module)
        modules = (*stack, *([call] if call.address else []))
        has_parts = any(call in op.modules for op in self._ops) or (not call.address and self.module_calls > 0)
        stored = () if has_parts else _stored(call.address, inner)  # parts have read their own
        if call.type == ATTENTION and (heads := _heads(inner, *arguments)) is not None:
            self._add(Op(0, "softmax", "op", edges, (heads,), modules=modules, note=SEEN_BY_HOOKS))
        name = next((_NAMES[kind.__name__] for kind in type(inner).__mro__ if kind.__name__ in _NAMES), None)
        op = Op(
            0, name or _RECURRENT.get(call.type, call.type.lower()), "op", edges, tuple(map(meta_of, tensors)), stored,
            modules, settings=_settings(inner), note=SEEN_BY_HOOKS,
        )  # fmt: skip
        return self._add(op)

    def _stack(self, name: str) -> tuple[ModuleCall, ...]:
        """The calls in progress around a module, by their names."""
        parts = name.split(".")
        around = (".".join(parts[:length]) for length in range(1, len(parts)))
        kinds = {path: self._modules[path] for path in around if path in self._modules}
        return tuple(ModuleCall(path, self._calls[path] + 1, _type(module)) for path, module in kinds.items()
                     if type(unwrapped(module)).forward is not nn.Module.forward)  # fmt: skip

    def _add(self, op: Op) -> int:
        self._ops.append(replace(op, index=len(self._ops)))
        return len(self._ops) - 1

    def _remember(self, tensor: Tensor, index: int) -> None:
        self._producers[id(tensor)] = (weakref.ref(tensor), index)
        if tensor.grad_fn is not None:
            self._nodes[tensor.grad_fn] = index

    def _producer(self, tensor: Tensor) -> int | None:
        reference, index = self._producers.get(id(tensor), (None, -1))
        return index if reference is not None and reference() is tensor else None

    def _known(self, tensor: Tensor) -> int | None:
        return self._nodes.get(tensor.grad_fn) if tensor.grad_fn is not None else self._producer(tensor)

    def _edges(self, source: Any) -> tuple[Edge, ...]:
        """The operations that a call's arguments, or a node of autograd's graph, come from; else the last one."""
        if isinstance(source, tuple):
            tensors = [tensor for _, tensor in tensors_in(source, "")]
            known = [self._known(tensor) for tensor in tensors]
            found = [index for index in known if index is not None]
            found += [self._between(tensor.grad_fn) for tensor, index in zip(tensors, known)
                      if index is None and tensor.grad_fn is not None]  # fmt: skip
        else:
            found = [self._between(source)] if source is not None else []
        last = [op.index for op in self._ops if op.outputs and op.name != "softmax"]
        return self._connected(found) or self._connected(last[-1:])

    def _connected(self, indices: Iterable[int]) -> tuple[Edge, ...]:
        """Edges from these operations, without those of parameters."""
        known = [index for index in dict.fromkeys(indices) if self._ops[index].parents or self._ops[index].outputs]
        return tuple(Edge(index, 0, (place,)) for place, index in enumerate(known))

    def _between(self, last: Any) -> int:
        """The operation of a node of autograd's graph; those before it that are new become operations too."""
        waiting = [(last, False)]
        while waiting:
            node, is_ready = waiting.pop()
            if node in self._nodes:
                continue
            parents = [function for function, _ in node.next_functions if function is not None]
            if not is_ready:
                waiting.append((node, True))
                waiting += [(parent, False) for parent in parents if parent not in self._nodes]
                continue
            leaf = getattr(node, "variable", None)  # an input that requires a gradient, or a parameter
            index = self._producer(leaf) if leaf is not None else None
            if index is None:
                edges = self._connected(self._nodes[parent] for parent in parents)
                index = self._add(Op(0, node.name(), "op", edges, note=SEEN_BY_HOOKS))
            self._nodes[node] = index
        return self._nodes[last]

    @property
    def model_pass(self) -> ModelPass:
        """What ran so far."""
        ops = [replace(op, output_of=tuple(reversed(self._returned.get(op.index, ())))) for op in self._ops]
        return ModelPass(ops, self._outputs)

    def end(self) -> None:
        """Remove the hooks."""
        self._tap.end()


def _ignore(name: str, error: Exception) -> None:
    """Draw one layer fewer; the model must not fail."""


def pass_of_weights(model: nn.Module) -> ModelPass:
    """A pass guessed before any ran: the modules with weights in order, shapes from these."""
    ops: list[Op] = []
    for name, module in modules_of(model).items():
        inner, address = unwrapped(module), "" if module is model else name
        kind = _NAMES.get(_type(inner), "")
        stored = _stored(address, inner) if kind and not any(True for _ in inner.children()) else ()
        if not stored:
            continue
        out, groups = stored[0].shape[0], getattr(inner, "groups", 1)
        if not ops:
            ops.append(Op(0, "input", "input", outputs=(_meta((1, stored[0].shape[1] * groups)),)))
        calls = (ModuleCall(address, 1, _type(inner)),) if address else ()
        edges = (Edge(len(ops) - 1, 0, (0,)),)
        ops.append(Op(len(ops), kind, "op", edges, (_meta((1, out)),), stored, calls, output_of=calls))
    return ModelPass(ops)


def _type(module: nn.Module) -> str:
    inner = unwrapped(module)
    return str(getattr(inner, "original_name", type(inner).__name__))  # of a scripted module


def _meta(shape: tuple[int, ...]) -> TensorMeta:
    return TensorMeta(shape, "torch.float32", "cpu", 4 * shape[-1])


def _stored(address: str, module: nn.Module) -> tuple[Stored, ...]:
    """The parameters that a call of a leaf module reads."""
    prefix, places = f"{address}." if address else "", {"weight": 1, "bias": 2}
    return tuple(
        Stored(f"{prefix}{name}", "parameter", tuple(value.shape), str(value.dtype), held_bytes(value),
               value.requires_grad, (places.get(name, name),))
        for name, value in module.named_parameters()
        if not isinstance(value, nn.parameter.UninitializedParameter)
    )  # fmt: skip


def _settings(module: Any) -> tuple[tuple[tuple[int | str, ...], Any], ...]:
    """The arguments of a convolution or a recurrent layer that are no tensors, as a recording has them."""
    if isinstance(module, nn.RNNBase):
        return (((8,), module.batch_first),)
    if not isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d):
        return ()
    settings: list[tuple[tuple[int | str, ...], Any]] = [((6,), module.groups)]
    for place, values in ((3, module.stride), (4, module.padding), (5, module.dilation)):
        values = (0,) * len(module.stride) if values == "valid" else values
        settings += [((place,), values)] if isinstance(values, str) else [((place, i), v) for i, v in enumerate(values)]
    return tuple(settings)


def _heads(module: Any, arguments: Any, keywords: Any) -> TensorMeta | None:
    """The shape (batch, heads, tokens, keys) of an attention module's weights."""
    query = keywords.get("query", arguments[0] if arguments else None)
    key = keywords.get("key", arguments[1] if len(arguments) > 1 else None)
    if not isinstance(query, Tensor) or not isinstance(key, Tensor) or query.is_nested or query.dim() not in (2, 3):
        return None
    time = 1 if module.batch_first and query.dim() == 3 else 0
    batch = query.shape[1 - time] if query.dim() == 3 else 1
    shape = (batch, module.num_heads, query.shape[time], key.shape[time])
    return replace(meta_of(query), shape=shape)
