"""Every model of torchvision, on inputs as small as each one takes."""

from __future__ import annotations

import importlib.util
import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

Built = tuple[torch.nn.Module, tuple[Any, ...], dict[str, Any]]

BARE = {"weights_backbone": None}
FEW = BARE | {"detections_per_img": 5, "topk_candidates": 10}
REGIONS = BARE | {"min_size": 96, "max_size": 128, "box_detections_per_img": 5, "box_batch_size_per_image": 16}
REGIONS |= {f"rpn_{when}_nms_top_n_{mode}": 16 for when in ("pre", "post") for mode in ("train", "test")}

# The first pattern that fits: shape of the input, settings of the model.
SMALL: list[tuple[str, tuple[int, ...], dict[str, Any]]] = [
    ("quantized_inception", (1, 3, 96, 96), {"quantize": True}),
    ("quantized", (2, 3, 64, 64), {"quantize": True}),
    ("raft", (1, 3, 128, 128), {}),
    ("mvit", (1, 3, 16, 224, 224), {}),
    ("swin3d", (1, 3, 4, 64, 64), {}),
    ("r3d|mc3|r2plus1d", (2, 3, 4, 32, 32), {}),
    ("s3d", (1, 3, 14, 224, 224), {}),
    ("vit_h_14", (1, 3, 56, 56), {"image_size": 56}),
    ("maxvit", (1, 3, 224, 224), {}),
    ("vit", (2, 3, 64, 64), {"image_size": 64}),
    ("inception", (2, 3, 299, 299), {}),
    ("deeplab|fcn|lraspp", (2, 3, 64, 64), BARE),
    ("ssd", (3, 96, 96), FEW),
    ("retinanet|fcos", (3, 96, 96), FEW | {"min_size": 96, "max_size": 128}),
    ("rcnn", (3, 96, 96), REGIONS),
    ("", (2, 3, 64, 64), {}),
]


def names() -> list[str]:
    """What torchvision can build."""
    return list(load().models.list_models())


def build(name: str, train: bool) -> Built:
    """A model with random weights and an input for it."""
    models = load().models
    shape, settings = next((shape, settings) for pattern, shape, settings in SMALL if re.search(pattern, name))
    if "quantize" in settings and train:
        raise NotImplementedError("converted to integers, nothing left to train")
    model = models.get_model(name, weights=None, **settings)
    if len(shape) == 3:
        return model, ([torch.rand(shape), torch.rand(shape)],), {"targets": _targets(name)} if train else {}
    return model, tuple(torch.rand(shape) for _ in range(2 if "raft" in name else 1)), {}


def _targets(name: str) -> list[dict[str, torch.Tensor]]:
    """Two boxes in each of two images, with what each kind of detector also wants to know."""
    target = {"boxes": torch.tensor([[8.0, 8, 60, 60], [20, 30, 90, 80]]), "labels": torch.tensor([1, 1])}
    if "mask" in name:
        target["masks"] = torch.ones(2, 96, 96, dtype=torch.uint8)
    if "keypoint" in name:
        target["keypoints"] = torch.rand(2, 17, 3) * 40 + 20
    return [target, dict(target)]


_library: Any = None


def load() -> Any:
    """torchvision; where its compiled part, which has no build for every torch, cannot be loaded, nms is in Python."""
    global _library
    if _library is None:
        _load_compiled_part()
        _library = torch.library.Library("torchvision", "FRAGMENT")
        for name in ("nms", "qnms"):
            if not hasattr(torch.ops.torchvision, name):
                _library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
            if not torch._C._dispatch_has_kernel_for_dispatch_key(f"torchvision::{name}", "CPU"):
                _library.impl(name, _nms, "CPU")
    import torchvision
    import torchvision.ops.boxes

    torchvision.ops.boxes._assert_has_ops = lambda: None
    roi_align = sys.modules["torchvision.ops.roi_align"]  # written in Python and compiled: run what is written
    roi_align._roi_align = getattr(roi_align._roi_align, "__wrapped__", roi_align._roi_align)
    return torchvision


def _load_compiled_part() -> None:
    package = importlib.util.find_spec("torchvision")
    for folder in package.submodule_search_locations or () if package is not None else ():
        for file in Path(folder).glob("_C*.so"):
            with suppress(OSError):
                torch.ops.load_library(str(file))


def _nms(boxes: torch.Tensor, scores: torch.Tensor, threshold: float) -> torch.Tensor:
    """Best first; each box silences those that overlap it."""
    from torchvision.ops import box_iou

    order = scores.argsort(descending=True, stable=True)
    kept: list[int] = []
    while order.numel():
        kept.append(int(order[0]))
        overlap = box_iou(boxes[order[:1]], boxes[order[1:]])[0]
        order = order[1:][overlap <= threshold]
    return torch.tensor(kept, dtype=torch.int64)
