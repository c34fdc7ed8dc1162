"""A backward pass you can read."""

from torcheer.autograd import composites as _composites
from torcheer.autograd import specials as _specials
from torcheer.autograd.rules import composite, rule
from torcheer.autograd.tape import Tape
from torcheer.autograd.tensor import tracer


def record(borrow: bool = False) -> Tape:
    """Record everything in the block: `with record(): model(x).sum().backward()`."""
    return Tape(borrow)
