"""Ways to keep some layers of a model, or none: the rows of the table on partial captures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

Run = Callable[[], Any]

# What is kept of each case: its modules (a pattern over their paths), one operation, and a function's name.
KEPT = {
    "gpt2-tiny": ("transformer.h.*.mlp", "addmm_5", "tanh"),
    "mlp": ("?*", "linear_5", "relu"),
    "resnet18": ("layer?.?", "conv2d_5", "relu_"),
    "recurrent": ("from_state", "tanh_1", "tanh"),
}


def _blocks(model: nn.Module, name: str) -> list[str]:
    """The modules that are kept: blocks, not what is inside them."""
    depth = {"gpt2-tiny": 3, "resnet18": 2}.get(name, 1)
    begin = {"gpt2-tiny": "transformer.h.", "resnet18": "layer", "recurrent": "from_state"}.get(name, "")
    paths = [path for path, _ in model.named_modules() if path and path.startswith(begin)]
    return [path for path in paths if path.count(".") == depth - 1]


def partial_ways(model: nn.Module, inputs: tuple[Any, ...], name: str) -> dict[str, Run]:
    """Each way by its title, "hooks" first: registered and removed at every pass, as one would by hand."""
    import torcheer as tl

    pattern, label, function = KEPT[name]
    paths = _blocks(model, name)
    modules = [model.get_submodule(path) for path in paths]

    def hooks() -> Any:
        kept: list[Any] = []
        handles = [module.register_forward_hook(lambda m, a, out: kept.append(out)) for module in modules]
        model(*inputs)
        for handle in handles:
            handle.remove()
        return kept

    def save(layers: Any, **options: Any) -> Run:
        return lambda: tl.log_forward_pass(model, inputs, layers_to_save=layers, **options)

    return {
        "hooks on the modules": hooks,
        "all": save("all"),
        "none": save("none"),
        f"{len(paths)} modules": save(paths),
        "one module": save(paths[-1]),
        "one operation": save(label),
        "pattern": save(pattern),
        "predicate": save(lambda layer: layer.name == function),
        "positions": save([3, 7, -1, -2]),
        "mixed list": save([paths[0], label, -1, pattern]),
        "modules, Save(device='cpu')": save(tl.Save(paths, device="cpu")),
        "modules, Save(dtype=float16)": save(tl.Save(paths, dtype=torch.float16)),
        "modules, save_gradients": save(paths, save_gradients=True),
        "all, save_gradients": save("all", save_gradients=True),
        "modules, structure=False": save(paths, structure=False),
        "pattern, structure=False": save(pattern, structure=False),
    }


def nnsight_ways(model: nn.Module, inputs: tuple[Any, ...], name: str) -> dict[str, Run]:
    """The same modules saved by nnsight, of a module that is called several times the first call; and its cache."""
    import nnsight

    wrapped = nnsight.NNsight(model)
    modules = [wrapped.get(path) for path in _blocks(model, name)]

    def save() -> Any:
        kept: list[Any] = []
        with wrapped.trace(*inputs):
            kept = nnsight.save([module.output for module in modules])
        return kept

    def cache() -> Any:
        with wrapped.trace(*inputs) as tracer:
            kept = tracer.cache(device=None)
        return kept

    return {"nnsight, the modules saved": save, "nnsight, every module cached": cache}
