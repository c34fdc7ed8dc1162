"""Run one training step on meta tensors: what is allocated when, by which layer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import CheckpointError
from torch.utils.checkpoint import checkpoint as run_checkpointed

from torcheer.errors import BadArgument, MissingRule, TorcheerError, WrongInputs, reason_of
from torcheer.inputs import check_arguments
from torcheer.memory.cuda_calls import CudaCalls, PlannedCalls
from torcheer.memory.meta_copies import meta_model, meta_optimizer, on_meta
from torcheer.memory.meta_rules import runs_for_real
from torcheer.memory.storage_log import StorageLog, tensors_in
from torcheer.models import plain_name
from torcheer.tap.module_selection import choose, outermost

BLOCK_BYTES = 512  # CUDA's caching allocator rounds sizes up to a multiple of it


@dataclass(frozen=True, slots=True)
class Step:
    """A step, as the user gave it."""

    model: nn.Module
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    optimizer: Any = None  # as `tl.plan` takes it; a list for several
    loss: Callable[[Any], Tensor] | None = None


DEVICES = ("cuda", "cpu")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSettings:
    """How it is planned."""

    autocast: Any  # a torch.dtype, which may be given by its name; None for none
    dtype: Any
    checkpoint: Any  # layers whose activations are computed again in backward
    accumulate: int  # batches per update
    world_size: int
    device: str

    def __post_init__(self) -> None:
        if self.device not in DEVICES:
            devices = " and ".join(map(repr, DEVICES))
            raise BadArgument(f"plan: device={self.device!r}; it can be planned for {devices}")
        for name in ("world_size", "accumulate"):
            number = getattr(self, name)
            if isinstance(number, bool) or not isinstance(number, int) or number < 1:
                raise BadArgument(f"plan: {name}={number!r}; give a whole number, 1 or more")
        for name in ("autocast", "dtype"):
            object.__setattr__(self, name, _dtype(getattr(self, name), name))
        if self.autocast is not None and self.device != "cuda":
            raise BadArgument("plan: autocast is planned for device='cuda' alone")


def _dtype(value: Any, argument: str) -> torch.dtype | None:
    """The type that a name means."""
    if value is None or isinstance(value, torch.dtype):
        return value
    found = getattr(torch, str(value).removeprefix("torch."), None)
    if not isinstance(found, torch.dtype) or not found.is_floating_point:
        raise BadArgument(f"plan: {argument}={value!r} is no type of floating-point numbers; give 'bfloat16'")
    return found


@dataclass(frozen=True, slots=True)
class Run:
    """A step that ran on meta."""

    log: StorageLog
    model: nn.Module  # on meta
    paths: Mapping[int, str]  # id of a module -> its path
    optimizer: str  # name of its class; "" where there is none


def run_step(step: Step, settings: PlanSettings) -> Run:
    """Run a step on meta."""
    meta = meta_model(step.model, settings.dtype)
    paths = {id(module): plain_name(name) for name, module in meta.named_modules()}
    running = ["(loss)"]
    log = StorageLog(_rounded if settings.device == "cuda" else int, lambda: running[-1])
    _note_model(log, meta, paths)
    args, kwargs = on_meta(step.args, settings.dtype), on_meta(dict(step.kwargs), settings.dtype)
    given = tensors_in([step.args, dict(step.kwargs)])
    for tensor, real in zip(tensors_in([args, kwargs]), given, strict=True):
        log.note(tensor, layer="(inputs)", kind="input")
        log.known.learn(tensor, real)
    optimizers = [meta_optimizer(given, step.model, meta) for given in _listed(step.optimizer)]
    for tensor in tensors_in([list(optimizer.state.values()) for optimizer in optimizers]):
        log.note(tensor, layer="(optimizer)", kind="state")  # of one that has run before
    if settings.accumulate > 1:
        _note_gradients(log, meta, paths)
    calls = CudaCalls() if settings.device == "cuda" else None
    _checkpoint(meta, settings, paths, running, calls)
    try:
        with _layers_followed(meta, paths, running), calls or PlannedCalls(), log:
            _run(step, meta, (args, kwargs), optimizers, log, _autocasting(calls, settings), running)
    except TorcheerError:
        raise
    except Exception as error:  # outside of the modes, where an operation can be tried for real
        raise _explained(error, step, settings, (args, kwargs), log) from error
    for entry in log.allocations:
        entry.kind = entry.kind or "temporary"
    return Run(log, meta, paths, ", ".join(dict.fromkeys(type(optimizer).__name__ for optimizer in optimizers)))


def _listed(optimizer: Any) -> list[Any]:
    if optimizer is None:
        return []
    return list(optimizer) if isinstance(optimizer, list | tuple) else [optimizer]


def _rounded(nbytes: int) -> int:
    return -(-nbytes // BLOCK_BYTES) * BLOCK_BYTES


def _note_model(log: StorageLog, meta: nn.Module, paths: Mapping[int, str]) -> None:
    for module in meta.modules():
        for kind, tensors in (("parameter", module._parameters), ("buffer", module._buffers)):
            for tensor in tensors.values():
                if tensor is not None:
                    log.note(tensor, layer=paths[id(module)], kind=kind)


def _note_gradients(log: StorageLog, meta: nn.Module, paths: Mapping[int, str]) -> None:
    """Give every parameter the gradient of the batches before."""
    for module in meta.modules():
        for parameter in module._parameters.values():
            if parameter is not None and parameter.requires_grad and parameter.grad is None:
                parameter.grad = torch.empty_like(parameter)
                log.note(parameter.grad, layer=paths[id(module)], kind="gradient")


def _checkpoint(
    meta: nn.Module, settings: PlanSettings, paths: Mapping[int, str], running: list[str], calls: CudaCalls | None
) -> None:
    """Wrap the outermost modules that are chosen, so that their activations are computed again in backward."""
    if settings.checkpoint is None:
        return
    for module in outermost(choose(meta, settings.checkpoint, "checkpoint").modules).values():

        def forward(*args: Any, plain: Any = module.forward, path: str = paths[id(module)], **kwargs: Any) -> Any:
            def run(*args: Any, **kwargs: Any) -> Any:
                running.append(path)
                try:
                    with _autocasting(calls, settings):
                        return plain(*args, **kwargs)
                finally:
                    running.pop()

            return run_checkpointed(run, *args, use_reentrant=False, preserve_rng_state=False, **kwargs)

        module.forward = forward


def _autocasting(calls: CudaCalls | None, settings: PlanSettings) -> Any:
    return nullcontext() if calls is None else calls.autocasting(settings.autocast)


@contextmanager
def _layers_followed(meta: nn.Module, paths: Mapping[int, str], running: list[str]) -> Iterator[None]:
    """Keep the path of the module that runs at the end of `running`."""

    def enter(module: nn.Module, _: Any) -> None:
        running.append(paths[id(module)])

    def leave(module: nn.Module, _: Any, __: Any) -> None:
        running.pop()

    handles = []
    for module in meta.modules():
        handles.append(module.register_forward_pre_hook(enter, prepend=True))
        handles.append(module.register_forward_hook(leave, always_call=True))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _run(
    step: Step,
    meta: nn.Module,
    call: tuple[Any, Any],
    optimizers: list[torch.optim.Optimizer],
    log: StorageLog,
    autocasting: Any,
    running: list[str],
) -> None:
    log.begin("forward")
    with torch.set_grad_enabled(bool(optimizers)), autocasting:
        output = _forward(step, meta, call, log)
        if not optimizers:
            log.begin("end")
            return
        loss = _loss(step, output)
    for entry in log.live:
        entry.kind = entry.kind or "activation"
    log.begin("backward")
    running[0] = "(backward)"
    loss.backward()  # type: ignore[no-untyped-call]
    layers = {id(parameter): path.rpartition(".")[0] for path, parameter in meta.named_parameters()}
    for parameter in meta.parameters():
        if parameter.grad is not None:
            log.rename(parameter.grad, "gradient", layers[id(parameter)])
    log.begin("step")
    running[0] = "(optimizer)"
    is_fused = all([_choose_kernels(optimizer) for optimizer in optimizers])
    for optimizer in optimizers:
        optimizer.step()
    for owner, state in chain(*(optimizer.state.items() for optimizer in optimizers)):
        for tensor in tensors_in(state):
            log.rename(tensor, "state", layers.get(id(owner), ""))
    log.begin("end")  # what follows is released when the step's variables go
    for entry in log.allocations:
        if is_fused and entry.phase == "step" and not entry.kind:
            entry.nbytes = 0  # a fused kernel keeps what it computes in registers


def _forward(step: Step, meta: nn.Module, call: tuple[Any, Any], log: StorageLog) -> Any:
    args, kwargs = call
    output = meta(*args, **kwargs)
    log.forward_ended = True
    return output


def _explained(
    error: Exception, step: Step, settings: PlanSettings, call: tuple[Any, Any], log: StorageLog
) -> Exception:
    """Return the error that says whether the inputs are wrong, or the model cannot be planned, or the error itself."""
    phase = log.phase if log.forward_ended else "forward"
    if isinstance(error, CheckpointError):
        return BadArgument(
            f"plan: checkpoint={settings.checkpoint!r}: run again in backward, these layers save another number of "
            "tensors than at first. A cache that they fill does that: use_cache=False"
        )
    if wrong := None if log.forward_ended else check_arguments(step.model, *call):
        return wrong
    failed = log.failed if log.failed is not None and log.failed[0] is error else None
    if "meta" in str(error).lower() if failed is None else runs_for_real(*failed[1:]) is not False:
        where = f"{failed[1]} in {phase}" if failed is not None else f"an operation in {phase}"
        return MissingRule(
            f"plan: {type(step.model).__name__} cannot be planned: {where} has no rule for shapes alone "
            f"({reason_of(error).rstrip('.')}). The inputs are not at fault. Plan the parts around it, or give another "
            "dtype="
        )
    if log.forward_ended:
        return error
    also = ", and so it does on real ones" if failed is not None else ""
    return WrongInputs(f"plan: the forward pass failed on meta tensors of the inputs' shapes{also}: {reason_of(error)}")


def _loss(step: Step, output: Any) -> Tensor:
    if step.loss is None:
        return _own_loss(output)
    loss = step.loss(output)
    if not isinstance(loss, Tensor) or loss.numel() != 1 or not loss.requires_grad:
        what = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else f"a {type(loss).__name__}"
        raise BadArgument(f"plan: loss(output) returned {what}; it has to be one number with a gradient")
    return loss


def _own_loss(output: Any) -> Tensor:
    """The loss that a model returns, or the mean of what it returns."""
    loss = getattr(output, "loss", None)
    if isinstance(loss, Tensor):
        return loss
    opened = list(output.values()) if hasattr(output, "values") and not isinstance(output, Tensor) else output
    tensors = [tensor for tensor in tensors_in(opened) if tensor.is_floating_point() and tensor.requires_grad]
    scalars = [tensor for tensor in tensors if tensor.numel() == 1]
    if not tensors:
        raise BadArgument(
            "plan: the model returns no tensor with a gradient, so there is nothing to train. Give loss=, a function "
            "of its output, or no optimizer for a forward pass"
        )
    return torch.stack([tensor.float().mean() for tensor in scalars or tensors]).sum()


def _choose_kernels(optimizer: torch.optim.Optimizer) -> bool:
    """Choose for each group the way that torch would on a GPU; return whether it is one fused kernel."""
    is_fused = all(group.get("fused") for group in optimizer.param_groups)
    for group in optimizer.param_groups:
        if group.get("fused"):
            group["fused"], group["foreach"] = None, False  # which meta tensors do not have
        elif group.get("foreach", False) is None:
            group["foreach"] = True
    return is_fused
