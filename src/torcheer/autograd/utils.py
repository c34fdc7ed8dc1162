"""torchtrace's module of this name; each function is loaded when it is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torcheer.public_names import lazy_names

if TYPE_CHECKING:
    from torch import ones_like, zeros_like

    from torcheer.autograd.tape.traced_tensor import tracer
    from torcheer.autograd.weight_files import from_numpy, load, load_from_torch, save, set_seed
    from torcheer.originals.torchtrace.coloured_text import prCyan, prGreen, prRed, prYellow
    from torcheer.originals.torchtrace.image_regions import (
        arange,
        generate_grad,
        inverse_pad_2d,
        iterate_regions,
        refine_para,
    )

__all__ = [
    "arange", "from_numpy", "generate_grad", "inverse_pad_2d", "iterate_regions", "load", "load_from_torch",
    "ones_like", "prCyan", "prGreen", "prRed", "prYellow", "refine_para", "save", "set_seed", "tracer", "zeros_like",
]  # fmt: skip

_REGIONS, _TEXT = "torcheer.originals.torchtrace.image_regions", "torcheer.originals.torchtrace.coloured_text"
_FILES = "torcheer.autograd.weight_files"

__getattr__, __dir__ = lazy_names(
    __name__,
    dict.fromkeys(("arange", "generate_grad", "inverse_pad_2d", "iterate_regions", "refine_para"), _REGIONS)
    | dict.fromkeys(("prCyan", "prGreen", "prRed", "prYellow"), _TEXT)
    | dict.fromkeys(("from_numpy", "load", "load_from_torch", "save", "set_seed"), _FILES)
    | {"ones_like": "torch", "zeros_like": "torch", "tracer": "torcheer.autograd.tape.traced_tensor"},
)
