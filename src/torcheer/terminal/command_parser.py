"""The parser of a command's arguments."""

from __future__ import annotations

import argparse
import sys
from typing import NoReturn

from torcheer.terminal.text_tables import folded


class CommandParser(argparse.ArgumentParser):
    """A parser whose errors are folded as a command's other errors are; those of its subcommands, too."""

    def error(self, message: str) -> NoReturn:
        """Print the usage and what is wrong, and exit with 2."""
        self.print_usage(sys.stderr)
        self.exit(2, folded(f"{self.prog}: error: {message}") + "\n")
