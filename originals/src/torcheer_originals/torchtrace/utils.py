"""torchtrace's `utils`."""

from torch import ones_like, zeros_like

from torcheer.autograd import from_numpy, load_from_torch, save, set_seed, tracer
from torcheer_originals.torchtrace.coloured_text import prCyan, prGreen, prRed, prYellow
from torcheer_originals.torchtrace.image_regions import (
    arange,
    generate_grad,
    inverse_pad_2d,
    iterate_regions,
    refine_para,
)
from torcheer_originals.torchtrace.pickled_weights import load

__all__ = [
    "arange", "from_numpy", "generate_grad", "inverse_pad_2d", "iterate_regions", "load", "load_from_torch",
    "ones_like", "prCyan", "prGreen", "prRed", "prYellow", "refine_para", "save", "set_seed", "tracer", "zeros_like",
]  # fmt: skip
