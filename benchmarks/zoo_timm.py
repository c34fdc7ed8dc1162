"""One small model of every family in timm, on the smallest image it takes."""

from __future__ import annotations

from typing import Any

import torch
import zoo_torchvision

Built = tuple[torch.nn.Module, tuple[Any, ...], dict[str, Any]]

# What names say of a model's size, smallest first.
SIZES = "test atto xxtiny femto xtiny nano xx_small xxs pico tiny _t0 _t8 _s0 _ti mini lite small".split()
SIZES += "_s _m0 167m 88m _b0 _0 _t".split()


# Where a smaller image would leave one token to attend to, or one number to normalise.
AT_LEAST = {"csatv2": 256, "mobilevit_xxs": 128}


def names() -> list[str]:
    """The smallest of each module, by name."""
    timm = _timm()
    return [min(timm.list_models(module=module), key=_size) for module in timm.list_modules()]


def _size(name: str) -> tuple[int, int, str]:
    rank = next((rank for rank, word in enumerate(SIZES) if word in name), len(SIZES))
    return rank, len(name), name


def build(name: str, train: bool) -> Built:
    """A model with random weights and the smallest image that goes through."""
    timm = _timm()
    error: Exception | None = None
    for size in (64, 112, 128, 224, 256, 0):
        if 0 < size < AT_LEAST.get(name, 0):
            continue
        try:
            model = _create(timm, name, size)
            image = torch.rand(2, 3, *(2 * [size] if size else model.pretrained_cfg["input_size"][1:]))
            with torch.no_grad():
                model.eval()(image)
            return model, (image,), {}
        except (RuntimeError, ValueError, AssertionError, TypeError, ZeroDivisionError, IndexError) as reason:
            error = reason
    assert error is not None
    raise error


def _create(timm: Any, name: str, size: int) -> Any:
    if size:
        try:
            return timm.create_model(name, pretrained=False, img_size=size)
        except TypeError:  # takes images of any size
            pass
    return timm.create_model(name, pretrained=False)


def _timm() -> Any:
    zoo_torchvision.load()  # timm imports it
    import timm

    return timm
