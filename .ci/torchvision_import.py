"""Let `import torchvision` succeed where its compiled part is built for another build of torch.

`.ci/environment` puts this into our own environments, never into a wheel: there is no torchvision for the CPU build
of torch. Its models need none of the compiled operators, but the import asks for two of them. They are declared, and
raise where they are called.
"""

from __future__ import annotations

import sys
from typing import Any


class _Finder:
    """Declares the two operators when torchvision is first imported, then steps aside."""

    libraries: list[Any] = []  # declared for as long as they live

    @classmethod
    def find_spec(cls, name: str, path: Any = None, target: Any = None) -> None:
        if name != "torchvision._meta_registrations":  # after torchvision has tried to load its compiled part
            return
        sys.meta_path.remove(cls)  # type: ignore[arg-type]
        import torch

        library = torch.library.Library("torchvision", "FRAGMENT")
        for operator in ("nms", "qnms"):
            if not hasattr(torch.ops.torchvision, operator):
                library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        cls.libraries.append(library)


sys.meta_path.insert(0, _Finder)  # type: ignore[arg-type]
