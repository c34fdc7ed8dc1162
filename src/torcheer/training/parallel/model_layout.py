"""How models lie on ranks: sharded by FSDP2, split by a tensor-parallel plan, with layers that are recomputed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from torcheer.errors import BadArgument, TorcheerError
from torcheer.tap.module_selection import choose, outermost
from torcheer.terminal import did_you_mean
from torcheer.training.parallel.session_ranks import SessionRanks

KEYS = ("shard", "tensor")
TENSOR_KEYS = ("size", "plan")
STYLES = ("colwise", "rowwise")
_VERB = "watch (config)"  # takes the same forms: modules, patterns, classes, roles


@dataclass(frozen=True, slots=True)
class Layout:
    """What `parallel` in the options says."""

    shard: Any = None  # layers that FSDP2 shards one by one, the rest of their model together; None: nothing
    tensor_ranks: int = 1  # that split the layers of `plan`
    plan: Mapping[str, str] = field(default_factory=dict)  # layers -> "colwise" or "rowwise"


def read_layout(settings: Any) -> Layout:
    """Parse the option `parallel`: {"shard": layers, "tensor": {"size": 2, "plan": {layers: "colwise"}}}."""
    if settings is None:
        return Layout()
    _check_keys("parallel", settings, KEYS)
    tensor = settings.get("tensor") or {}
    _check_keys("parallel.tensor", tensor, TENSOR_KEYS)
    plan = dict(tensor.get("plan", {}))
    for layers, style in plan.items():
        if style not in STYLES:
            raise BadArgument(
                f"parallel.tensor.plan: {layers!r} is {style!r}, and may be {' or '.join(STYLES)}."
                f"{did_you_mean(style, STYLES)}"
            )
    if tensor and not plan:
        raise BadArgument("parallel.tensor: there is no plan; such as {'blocks.*.up': 'colwise'}")
    size = tensor.get("size", 0)
    if not isinstance(size, int) or size < 0:
        raise BadArgument(f"parallel.tensor.size: {size!r} is no number of ranks; 0 is all of them")
    return Layout(settings.get("shard"), size if tensor else 1, plan)


def _check_keys(name: str, settings: Any, keys: Sequence[str]) -> None:
    if not isinstance(settings, Mapping):
        raise BadArgument(f"{name}: a table of settings is needed, not {settings!r}")
    for key in settings:
        if key not in keys:
            raise BadArgument(f"{name}: there is no {key!r}; there are {', '.join(keys)}.{did_you_mean(key, keys)}")


def lay_out(
    models: Mapping[str, nn.Module],
    optimizers: Mapping[str, torch.optim.Optimizer],
    layout: Layout,
    ranks: SessionRanks,
    device: torch.device,
) -> None:
    """Split and shard models in place; optimizers get their new parameters."""
    if layout.shard is None and not layout.plan:
        return
    from torch.distributed.device_mesh import init_device_mesh

    splits = layout.tensor_ranks or ranks.count
    if ranks.count % splits:
        raise BadArgument(f"parallel.tensor.size: {splits} ranks cannot split a model evenly among {ranks.count}")
    for name, optimizer in optimizers.items():
        if optimizer.state:
            raise BadArgument(f"optimizer {name!r} has made steps: parallel shards parameters before the first")
    mesh = init_device_mesh(device.type, (ranks.count // splits, splits), mesh_dim_names=("data", "tensor"))
    ranks.split(mesh["data"].get_local_rank(), ranks.count // splits, mesh["data"].get_group(), splits)
    splits_of = {layers: layers_by_model(models, layers, "parallel.tensor.plan") for layers in layout.plan}
    is_whole = layout.shard is None or layout.shard in (True, "all")
    units_of = {} if is_whole else layers_by_model(models, layout.shard, "parallel.shard")
    for name, model in models.items():
        for key, value in model.named_parameters():
            if value._backward_hooks or getattr(value, "_post_accumulate_grad_hooks", None):
                raise BadArgument(
                    f"{key} of model {name!r} has hooks, which its shards would not have: parallel takes none"
                )
        before = dict(model.named_parameters(remove_duplicate=False))
        if layout.plan:
            _split(
                model,
                {layers: (found[name], layout.plan[layers]) for layers, found in splits_of.items()},
                mesh["tensor"],
            )
        if layout.shard is not None:
            _shard(model, units_of.get(name, {}), mesh["data"])
        after = dict(model.named_parameters(remove_duplicate=False))
        replaced = {id(value): after[name] for name, value in before.items()}
        for optimizer in optimizers.values():
            for group in optimizer.param_groups:
                group["params"] = [replaced.get(id(value), value) for value in group["params"]]
                if (
                    len({str(getattr(value, "device_mesh", "")) for value in group["params"]}) > 1
                    and "foreach" in group
                ):
                    group["foreach"] = group["fused"] = False  # they refuse tensors that are sharded differently


def _split(model: nn.Module, plan: Mapping[str, tuple[Mapping[str, nn.Module], str]], mesh: Any) -> None:
    """Split linear and embedding layers over the ranks of a mesh; `plan`: what was named -> its modules, and how."""
    from torch.distributed.tensor import Replicate
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    parts: dict[str, Any] = {}
    for layers, (chosen, style) in plan.items():
        _check_tied(model, chosen, "parallel.tensor.plan")
        for name, module in chosen.items():
            if module is model or not isinstance(module, nn.Linear | nn.Embedding):
                raise BadArgument(
                    f"parallel.tensor.plan: {layers!r} means {name or 'the model itself'}, a {type(module).__name__}: "
                    "only Linear and Embedding layers inside of a model can be split"
                )
            if style == "colwise":
                parts[name] = ColwiseParallel()
            else:  # every rank has all indices of an embedding, but only a part of what a colwise layer returned
                parts[name] = RowwiseParallel(input_layouts=Replicate() if isinstance(module, nn.Embedding) else None)
    if parts:
        parallelize_module(model, mesh, parts, src_data_rank=None)  # all ranks have rank 0's weights already


def _check_tied(model: nn.Module, layers: Mapping[str, nn.Module], setting: str) -> None:
    """Refuse layers that share a parameter with a layer outside of them: each would train its own from then on."""
    for name, module in layers.items():
        inside, shared = set(module.modules()), set(module.parameters())
        for other, owner in model.named_modules():
            key = next((key for key, value in owner.named_parameters(recurse=False) if value in shared), None)
            if owner not in inside and key is not None:
                raise BadArgument(
                    f"{setting}: {name} has the same parameter as {other} ({other}.{key}), and would get one of its "
                    f"own: name neither of them"
                )


def _shard(model: nn.Module, chosen: Mapping[str, nn.Module], mesh: Any) -> None:
    """Shard layers of a model, each gathered when it runs, and the rest of it."""
    from torch.distributed.fsdp import FSDPModule, fully_shard

    units = {name: module for name, module in outermost(chosen).items() if module is not model}
    _check_tied(model, units, "parallel.shard")
    for module in units.values():
        fully_shard(module, mesh=mesh)
    fully_shard(model, mesh=mesh)
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)  # a sum over ranks: losses are weighted by their items
            module.set_force_sum_reduction_for_comms(True)  # gloo has no other


def layers_of(model: nn.Module, layers: Any, setting: str) -> dict[str, nn.Module]:
    """The modules that a setting names."""
    try:
        return choose(model, layers, _VERB).modules
    except TorcheerError as error:
        text = str(error).replace(_VERB, setting)
        raise BadArgument(text if setting in text else f"{setting}: {text}") from None


def layers_by_model(models: Mapping[str, nn.Module], layers: Any, setting: str) -> dict[str, dict[str, nn.Module]]:
    """The modules that a setting names, by model; each layer of its list is in at least one of them."""
    chosen: dict[str, dict[str, nn.Module]] = {name: {} for name in models}
    for layer in layers if isinstance(layers, list | tuple) and layers else [layers]:
        refusals = []
        for name, model in models.items():
            try:
                chosen[name] |= layers_of(model, layer, setting)
            except BadArgument as error:
                refusals.append(error)
        if len(refusals) == len(models):
            raise refusals[0]
    return chosen


def recompute(models: Mapping[str, nn.Module], layers: Any) -> None:
    """Forget the activations inside of layers, and compute them again when gradients need them."""
    for chosen in layers_by_model(models, layers, "activation_checkpointing").values():
        for module in outermost(chosen).values():
            module.forward = _recomputed(module.forward)


def freeze(models: Mapping[str, nn.Module], layers: Any) -> list[nn.Module]:
    """Freeze layers, of the only model or by model; return them.

    Their parameters get no gradients. They stay in evaluation mode: batch norms keep their averages, dropout is off.
    """
    if not isinstance(layers, Mapping):
        if len(models) > 1:
            raise BadArgument(
                f"freeze: there are the models {', '.join(models)}: write it as a mapping of model to layers"
            )
        layers = dict.fromkeys(models, layers)
    frozen: list[nn.Module] = []
    for name, chosen in layers.items():
        if name not in models:
            raise BadArgument(f"freeze: there is no model {name!r}; there is {', '.join(models)}")
        frozen += layers_of(models[name], chosen, "freeze").values()
    for module in frozen:
        module.requires_grad_(False)
    if not any(parameter.requires_grad for model in models.values() for parameter in model.parameters()):
        raise BadArgument("freeze: this freezes every parameter, and nothing would be left to train")
    return frozen


def _recomputed(forward: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(forward)
    def run(*args: Any, **kwargs: Any) -> Any:
        if not torch.is_grad_enabled():
            return forward(*args, **kwargs)
        return checkpoint(forward, *args, use_reentrant=False, **kwargs)

    return run
