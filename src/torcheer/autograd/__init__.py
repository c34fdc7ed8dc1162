"""A backward pass you can read.

import torcheer.autograd as autograd

with autograd.record():
    loss = model(x).square().mean()
    autograd.backward(loss, show=True)
"""

from torcheer.autograd import composites as _composites
from torcheer.autograd import specials as _specials
from torcheer.autograd.gradcheck import gradcheck
from torcheer.autograd.higher import backward, grad, hessian, jacobian, jvp
from torcheer.autograd.rules import Shape, composite, rule
from torcheer.autograd.steps import Explanation, explain
from torcheer.autograd.tape import Tape
from torcheer.autograd.tensor import tracer
from torcheer.autograd import nn


def record(borrow: bool = False) -> Tape:
    """Record everything in the block: `with record(): model(x).sum().backward()`."""
    return Tape(borrow)
