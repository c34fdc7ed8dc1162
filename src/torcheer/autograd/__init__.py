"""The readable autograd: record operations, run and print their backward pass.

import torcheer.autograd as autograd

with autograd.record():
    loss = model(x).square().mean()
    autograd.backward(loss, show=True)

`tracer`, torchtrace's class of tensors, has all methods of a torch.Tensor: `help(autograd.tracer)`.
"""

import sys

from torch import no_grad

from torcheer.autograd import base, composites, init, nn, optim
from torcheer.autograd.base import Operator
from torcheer.autograd.explanation.backward_steps import Explanation, explain
from torcheer.autograd.gradients.derivatives import backward, grad, hessian, jacobian, jvp
from torcheer.autograd.gradients.gradcheck import gradcheck
from torcheer.autograd.nn import Sequential
from torcheer.autograd.rules import Shape, composite, rule
from torcheer.autograd.tape import autograd_methods, traced_tensor
from torcheer.autograd.tape.tape import Tape
from torcheer.autograd.tape.traced_tensor import tracer
from torcheer.autograd.weight_files import from_numpy, load, load_from_torch, save, set_seed

__all__ = [
    "Explanation",
    "Operator",
    "Sequential",
    "Shape",
    "Tape",
    "autograd_methods",
    "backward",
    "base",
    "composite",
    "composites",
    "explain",
    "from_numpy",
    "grad",
    "gradcheck",
    "hessian",
    "init",
    "jacobian",
    "jvp",
    "load",
    "load_from_torch",
    "nn",
    "no_grad",
    "optim",
    "record",
    "rule",
    "save",
    "set_seed",
    "tracer",
]  # fmt: skip

# torchtrace's `from torchtrace.tracer import tracer`: a file of that name would hide the class.
sys.modules[f"{__name__}.tracer"] = traced_tensor


def __dir__() -> list[str]:
    """All names but `tracer`, whose inherited methods would be nine tenths of this module's help."""
    return [name for name in __all__ if name != "tracer"]


def record(borrow: bool = False) -> Tape:
    """Record every operation in a `with` block: `with record(): model(x).sum().backward()`.

    Args:
        borrow: use torch's own backward for operations that have no rule here, instead of raising MissingRule.
    """
    return Tape(borrow)
