"""Where layers are: the class of a module, and the line of the program that calls it."""

from __future__ import annotations

from collections.abc import Mapping

from torch import nn

from torcheer.models import unwrapped
from torcheer.selection import class_name
from torcheer.terminal.notices import program_line

Places = dict[str, str]  # by layer: "ReLU, net.py:14"


def classes_of(modules: Mapping[str, nn.Module]) -> Places:
    """The classes of modules by name: all that is known of their places before the first pass."""
    return {name: class_name(unwrapped(module)) for name, module in modules.items()}


def place_of(module: nn.Module) -> str:
    """The place of a module that is being called.

    The line is that of the program's nearest frame; it is not known where the module was made. For a part of a
    `Sequential` it is the line that calls the `Sequential`.
    """
    return ", ".join(filter(None, (class_name(unwrapped(module)), program_line())))
