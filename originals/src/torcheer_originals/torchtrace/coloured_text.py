"""torchtrace's functions that print in colours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def _printer(code: str) -> Callable[[Any], None]:
    def show(text: Any) -> None:
        """Print `text` in a colour."""
        print(f"\033[{code}m{text}\033[00m")

    return show


prRed, prGreen, prYellow, prCyan = map(_printer, ("91", "92", "93", "36"))
