"""torchtrace's names: those of the readable autograd, and what torcheer does not need itself.

import torcheer_originals.torchtrace as torchtrace
from torcheer_originals.torchtrace import nn, utils

A program that imports this is one for torchtrace, and hears once of each thing that was different there.
"""

import sys

from torcheer.autograd import (
    Sequential,
    base,
    from_numpy,
    init,
    nn,
    no_grad,
    optim,
    save,
    set_seed,
    tracer,
)
from torcheer.terminal.notices import DIFFERENCES
from torcheer_originals.torchtrace import utils
from torcheer_originals.torchtrace.coloured_text import prCyan, prGreen, prYellow
from torcheer_originals.torchtrace.met_differences import meet
from torcheer_originals.torchtrace.pickled_weights import load

__all__ = [
    "Sequential", "base", "from_numpy", "init", "load", "nn", "no_grad", "optim", "prCyan", "prGreen", "prYellow",
    "save", "set_seed", "tracer", "utils",
]  # fmt: skip

# As modules: `from torchtrace.nn import Linear`, `from torchtrace.tracer import tracer`.
for _name, _module in {"base": base, "init": init, "nn": nn, "optim": optim}.items():
    sys.modules[f"{__name__}.{_name}"] = _module
sys.modules[f"{__name__}.tracer"] = sys.modules["torcheer.autograd.tracer"]
DIFFERENCES["torchtrace"] = meet
