"""Which columns of a projection belong to which head of an attention, found from a recorded call of it.

A head's queries depend on some columns of a projection and not on others: the gradient of what is between them says
which. So fused projections, grouped queries and gates need no table of layouts. Where an edit needs the columns before
there is a recorded call, the attention first runs on copies of its arguments, apart from the recording.
"""

from __future__ import annotations

import copy
import math
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from torcheer.capture.ambient_state import preserve_random_state
from torcheer.capture.record import module_stack
from torcheer.capture.record.recorder import Recorder
from torcheer.capture.record.refs import SLOT_BITS
from torcheer.capture.record.released_values import RELEASED
from torcheer.capture.record.tensor_trees import leaves, replace, tensors_in
from torcheer.capture.special_cases.gathered_weights import exact_arguments
from torcheer.capture.torch_state import exact_modes
from torcheer.errors import ValueUnavailable
from torcheer.history.transformer.attention_ops import AttentionOp, attention_ops

Columns = dict[str, list[Tensor]]  # "q", "k", "v", "z" -> the columns of each head

_NOT_KEPT = (
    "which columns are a head's of {} is found from a run that saves everything, or that saves or edits a part of it "
    "('attn[0].q')"
)
_BASE = 16
_known: WeakKeyDictionary[nn.Module, Columns] = WeakKeyDictionary()


def columns_before_call(
    attention: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], projections: Mapping[str, str]
) -> Columns:
    """Return the columns of each head of an attention that is about to be called with these arguments.

    `projections` are the paths, within it, of the modules that return "q", "k" and "v" and that receive "z".
    """
    if attention not in _known:
        from torcheer.capture import recording

        with ExitStack() as stack:
            for context in (exact_modes((), ()), module_stack.set_aside(), preserve_random_state()):
                stack.enter_context(context)
            stack.enter_context(torch.inference_mode(False))
            stack.enter_context(torch.no_grad())
            stack.enter_context(_without_hooks(attention))
            args, kwargs = _copied((args, dict(kwargs)))
            with recording(attention) as history:
                attention(*args, **kwargs)
            _known[attention] = _columns(history, "", projections)
    return _known[attention]


def columns_of_run(history: Any, attention: nn.Module, path: str, projections: Mapping[str, str]) -> Columns:
    """Return the columns of each head of the attention at `path`, from its first call in a history that kept all."""
    if attention not in _known:
        try:
            with exact_modes((), ()), torch.inference_mode(False):
                _known[attention] = _columns(history, path, projections)
        except ValueUnavailable:
            raise ValueUnavailable(_NOT_KEPT.format(path)) from None
    return _known[attention]


@contextmanager
def _without_hooks(model: nn.Module) -> Iterator[None]:
    """Set the hooks of a module and its parts aside: they count calls, or change values, of the real run alone."""
    names = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    before = [(module, name, getattr(module, name)) for module in model.modules() for name in names]
    for module, name, _ in before:
        setattr(module, name, OrderedDict())
    try:
        yield
    finally:
        for module, name, hooks in before:
            setattr(module, name, hooks)


def _copied(value: Any) -> Any:
    """Copy arguments, a cache included, so that running on them leaves the model's own alone."""
    memo = {id(tensor): tensor.detach().clone() for tensor in tensors_in(value)}
    return copy.deepcopy(value, memo)


@torch.enable_grad()
def _columns(history: Any, path: str, projections: Mapping[str, str]) -> Columns:
    ops = attention_ops(history, path)
    if not ops:  # linear attention, and kernels that are not torch's
        return {}
    op, recorder, by_letter = ops[0], history.trace.recorder, Columns()
    runs = history.facts.module_runs
    for letter, module in projections.items():
        run = next(iter(runs.get(module, {}).values()), None)
        side = () if run is None else run.inputs if letter == "z" else run.outputs
        ref = next((item.parent << SLOT_BITS | item.output for item in side if item.parent >= 0), None)
        if ref is None:
            continue
        try:
            columns = _z_columns(recorder, op, ref) if letter == "z" else _letter_columns(recorder, op, letter, ref)
        except RuntimeError:  # another order of axes: samples are not first
            columns = None
        if columns is not None:
            by_letter[letter] = columns
    return by_letter


def _letter_columns(recorder: Recorder, op: AttentionOp, letter: str, ref: int) -> list[Tensor] | None:
    """Return the columns of a projection's output that each head's queries, keys or values depend on."""
    leaf, values = _replayed(recorder, ref, op.op.index)
    node, output = op.source(letter)
    heads = values.get(node << SLOT_BITS | output)
    if heads is None or not heads.requires_grad:
        return None
    heads = heads.swapaxes(-1, -2) if op.is_transposed(letter) else heads
    heads = heads.reshape(leaf.shape[0], -1, *heads.shape[-2:])
    columns = [_dependence(heads, head, leaf) for head in range(heads.shape[1])]
    return _distinct(columns) if all(map(len, columns)) else None


def _replayed(recorder: Recorder, ref: int, last: int) -> tuple[Tensor, dict[int, Tensor]]:
    """Run what depends on a value again, up to a row, with gradients; return the value and all results by ref."""
    recorder.compute_deferred()
    leaf = _constant(recorder.exact_value(ref)).clone().requires_grad_()
    values = {ref: leaf}
    for node in range((ref >> SLOT_BITS) + 1, last):
        row = recorder.row(node)
        if values.keys().isdisjoint(row.refs) or node in recorder.inplace_nodes:
            continue
        if type(row.out) in RELEASED:
            raise ValueUnavailable(_NOT_KEPT)
        parents = exact_arguments(recorder, row, values)
        parents = [value if r in values else _constant(value) for r, value in zip(row.refs, parents, strict=True)]
        if row.call.mark:
            results = [parents[0]]
        else:
            fresh = iter(parents)
            results = leaves(row.call.function(*replace(row.args, fresh), **replace(row.kwargs or {}, fresh)))
        values |= {node << SLOT_BITS | slot: result for slot, result in enumerate(results)}
    return leaf, values


def _constant(value: Tensor) -> Tensor:
    """Return a value without a gradient; a copy of one from inference mode, which autograd refuses."""
    return value.clone() if value.is_inference() else value.detach()


def _dependence(heads: Tensor, head: int, leaf: Tensor) -> Tensor:
    """Return the columns of a projection that a head of (batch, heads, positions, size) depends on."""
    weights = torch.zeros_like(heads)
    weights[:, head] = torch.rand_like(weights[:, head]) + 0.5
    (gradient,) = torch.autograd.grad(heads, leaf, weights, retain_graph=True, allow_unused=True)
    if gradient is None:
        return torch.empty(0, dtype=torch.long)
    return gradient.reshape(-1, leaf.shape[-1]).ne(0).any(0).nonzero()[:, 0].cpu()


def _distinct(columns: Sequence[Tensor]) -> list[Tensor]:
    """Leave out what grouped queries repeat: keys and values have fewer heads than queries."""
    distinct: list[Tensor] = []
    for each in columns:
        if not any(torch.equal(each, other) for other in distinct):
            distinct.append(each)
    return distinct


def _z_columns(recorder: Recorder, op: AttentionOp, ref: int) -> list[Tensor] | None:
    """Return where the numbers of each head go in what the output projection receives.

    They are moved, perhaps times a gate: the gradient of column times number, over that of the column, is the number.
    """
    leaf, values = _replayed(recorder, op.op.index << SLOT_BITS, (ref >> SLOT_BITS) + 1)
    z = values.get(ref)
    if z is None or not z.requires_grad:
        return None
    (plain,) = torch.autograd.grad(z, leaf, torch.ones_like(z), retain_graph=True)
    index, columns = torch.arange(z.shape[-1], device=z.device), torch.zeros(1, dtype=torch.long, device=z.device)
    rest = torch.zeros(1, device=z.device)
    for power in range(math.ceil(math.log(max(z.shape[-1], 2), _BASE))):  # digit by digit: bfloat16 has few
        digit = (index // _BASE**power % _BASE + 1).to(z.dtype).expand_as(z)
        (scaled,) = torch.autograd.grad(z, leaf, digit, retain_graph=True)
        places = (scaled.double() / plain.double()).reshape(z.shape[0], -1, *leaf.shape[-2:])
        places = places.movedim(1, 0).movedim(-1, 1).flatten(2).nanmedian(-1).values  # (heads, size)
        columns = columns + (places.round().long() - 1) * _BASE**power
        rest = torch.maximum(rest, (places - places.round()).abs().max())
    if not rest < 0.3 or sorted(columns.flatten().tolist()) != list(range(z.shape[-1])):
        return None
    return [each.cpu() for each in columns]
