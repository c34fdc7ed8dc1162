"""A package for each of torcheer's predecessors, with the names that its published programs use."""

from torcheer.terminal.notices import LIBRARIES

LIBRARIES.add(__name__)  # so that a warning points at a line of the program
