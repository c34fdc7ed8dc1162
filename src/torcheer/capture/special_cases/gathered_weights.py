"""Weights that FSDP2 gathers for a pass: each is known as the shard that it is made of.

FSDP's own work (gathering, freeing, the reduction of gradients) is no part of the model: recorders are paused in it, so
that a sharded model has the operations of the same model unsharded. A gathered weight has the ref of its shard, which
is the parameter that optimizers write and that is saved; the whole is freed by FSDP and not kept. Values that are views
of a whole are copied before it is freed. Where torch lacks the class or a method of it, FSDP's work is recorded as any.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, wraps
from operator import is_
from typing import Any, NamedTuple

from torch import Tensor
from torch.nn import Parameter

from torcheer.capture.process_groups import active_recorders
from torcheer.capture.record.recorder import OpRow, Recorder
from torcheer.capture.record.released_values import RELEASED
from torcheer.capture.record.tensor_trees import argument_tensors, tensors_in
from torcheer.capture.torch_state import Swaps, exact_modes, fsdp_group, function_modes, gathered_weights, originals
from torcheer.capture.values.value_copies import copy_of
from torcheer.errors import ValueUnavailable
from torcheer.ranks import shard_of


class OpenGroup(NamedTuple):
    """Weights that FSDP has gathered and not freed yet."""

    group: Any  # FSDP's own
    weights: list[Tensor]  # the wholes
    begin: int  # the first row after that


_GATHERING = Swaps("leave the gathering of FSDP out of recordings")

SHARDED = (
    "FSDP gathered a weight of it from the ranks and freed it since: here is one shard, and replay sends no messages; "
    "tl.validate(model, inputs) keeps the whole for its proof"
)


def start(recorder: Recorder) -> None:
    """Leave FSDP's own work out of a recorder."""
    _GATHERING.start(recorder)
    group = fsdp_group()
    methods = vars(group) if group is not None else {}
    if METHODS.keys() <= methods.keys() and methods["unshard"] not in originals:
        for name, wrap in METHODS.items():
            _GATHERING.swap(group, name, wrap)


def stop(recorder: Recorder) -> None:
    """Undo `start`."""
    try:
        for gathered in list(recorder.open_groups.values()):
            _before_freeing(recorder, gathered.group)
    finally:
        _GATHERING.stop(recorder)


# -- FSDP's methods --------------------------------------------------------------------------------------------------


@contextmanager
def _paused(recorders: Sequence[Recorder]) -> Iterator[None]:
    """Deactivate these recorders, and no other mode."""
    before = [recorder.dispatch_paused for recorder in recorders]
    for recorder in recorders:
        recorder.dispatch_paused = True
    try:
        with exact_modes([mode for mode in function_modes() if not isinstance(mode, Recorder)]):
            yield
    finally:
        for recorder, paused in zip(recorders, before, strict=True):
            recorder.dispatch_paused = paused


@cache
def _unrecorded(original: Any) -> Callable[..., Any]:
    @wraps(original)
    def method(group: Any, *args: Any, **kwargs: Any) -> Any:
        if not (recorders := active_recorders()):
            return original(group, *args, **kwargs)
        with _paused(recorders):
            return original(group, *args, **kwargs)

    return method


@cache
def _gathering(original: Any) -> Callable[..., Any]:
    run = _unrecorded(original)

    @wraps(original)
    def wait_for_unshard(group: Any, *args: Any, **kwargs: Any) -> Any:
        out = run(group, *args, **kwargs)
        for recorder in active_recorders():
            with recorder.paused():
                _after_gathering(recorder, group)
        return out

    return wait_for_unshard


@cache
def _freeing(original: Any) -> Callable[..., Any]:
    run = _unrecorded(original)

    @wraps(original)
    def method(group: Any, *args: Any, **kwargs: Any) -> Any:
        for recorder in active_recorders():
            _before_freeing(recorder, group)
        return run(group, *args, **kwargs)

    return method


@cache
def _renaming(original: Any) -> Callable[..., Any]:
    """Wrap the method that puts an autograd node before a module's inputs: new tensors, the same values."""
    run = _unrecorded(original)

    @wraps(original)
    def register(group: Any, *args: Any) -> Any:
        out = run(group, *args)
        if all(map(is_, out, args)):  # no gradients are wanted
            return out
        for recorder in active_recorders():
            with recorder.paused():
                for old, new in zip(tensors_in(args), tensors_in(out), strict=True):
                    if old is not new:
                        recorder.set_ref(new, recorder.ref_of(old))
                        if recorder.alive is None:
                            recorder.kept_alive.append(new)
        return out

    return register


METHODS: dict[str, Callable[[Any], Callable[..., Any]]] = {  # of FSDP's groups
    "lazy_init": _unrecorded,
    "unshard": _unrecorded,
    "wait_for_unshard": _gathering,
    "_register_post_backward_hook": _renaming,
    "reshard": _freeing,
    "post_backward": _freeing,
    "_to_sharded": _freeing,  # before a state_dict is taken or loaded
    "finalize_backward": _unrecorded,
}


def _after_gathering(recorder: Recorder, group: Any) -> None:
    weights = gathered_weights(group)
    recorder.open_groups.setdefault(id(group), OpenGroup(group, [whole for *_, whole in weights], recorder.count))
    for module, name, shard, whole in weights:
        recorder.owners.setdefault(id(shard), (module, name))
        recorder.gathered[id(whole)] = (whole, shard)
        ref = recorder.ref_of(shard)
        recorder.set_ref(whole, ref)
        if recorder.gathered_copies is not None and ref not in recorder.gathered_copies:
            recorder.gathered_copies[ref] = copy_of(whole)


def _before_freeing(recorder: Recorder, group: Any) -> None:
    gathered = recorder.open_groups.pop(id(group), None)
    if gathered is not None:
        recorder.memory.preserve_views(gathered.weights, gathered.begin)


# -- values ----------------------------------------------------------------------------------------------------------


def exact_arguments(recorder: Recorder, row: OpRow, known: dict[int, Tensor] | None = None) -> list[Tensor]:
    """Return the values of a row's arguments as it got them, or those `known` by ref; raises ValueUnavailable."""
    known = known or {}
    by_ref = {ref: known[ref] if ref in known else recorder.exact_value(ref) for ref in dict.fromkeys(row.refs)}
    values = [by_ref[ref] for ref in row.refs]
    if not recorder.gathered or row.call.mark:
        return values
    if type(row.out) in RELEASED:  # it is not known any more which of them were whole
        shards = {id(shard) for _, shard in recorder.gathered.values()}
        if any(ref < 0 and id(recorder.stored[~ref]) in shards for ref in row.refs):
            raise ValueUnavailable(SHARDED)
        return values
    tensors = argument_tensors(row.args, row.kwargs or {})
    return [
        _whole(recorder, ref, value, tensor) if id(tensor) in recorder.gathered and ref not in known else value
        for ref, value, tensor in zip(row.refs, values, tensors, strict=True)
    ]


def _whole(recorder: Recorder, ref: int, shard: Tensor, gathered: Tensor) -> Tensor:
    """Return a gathered weight, from a copy or from its shard where that is all of it; raises ValueUnavailable."""
    if recorder.gathered_copies is not None and ref in recorder.gathered_copies:
        return recorder.gathered_copies[ref]
    part = shard_of(shard)
    if part is None or part.shape != part.whole or part.is_partial or type(gathered) is not Parameter:
        raise ValueUnavailable(SHARDED)
    local: Tensor = shard.detach().to_local()  # type: ignore[attr-defined]
    return local.to(gathered.dtype)
