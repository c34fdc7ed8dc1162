"""A shell in a terminal of its own, as a person has it: runs a program, hears keys, and can be closed."""

from __future__ import annotations

import os
import pty
import re
import select
import shlex
import signal
import sys
from contextlib import suppress
from typing import Any

from waiting import WAIT_SECS, wait_until

_NOT_OURS = ("CI", "DISPLAY", "WAYLAND_DISPLAY", "TORCHEER_PAGE_SECS", "SSH_CONNECTION", "VSCODE_PROXY_URI")


class Terminal:
    """Runs a Python program; its shell stays when that has ended. Leaving the `with` block closes the terminal."""

    def __init__(self, *arguments: Any, env: dict[str, str] | None = None, cwd: Any = None) -> None:
        command = shlex.join([sys.executable, *map(str, arguments)])
        script = f"trap : INT; {command}; echo the shell is back: $?; while :; do sleep 1; done"
        kept = {name: value for name, value in os.environ.items() if name not in _NOT_OURS}
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            os.chdir(cwd or os.getcwd())
            os.execve("/bin/sh", ["sh", "-c", script], {**kept, "TORCHEER_NO_BROWSER": "1", **(env or {})})
        self.text = ""

    def until(self, pattern: str) -> str:
        """Read until the text matches; its group, or all that matched."""
        found = wait_until(lambda: self._read() or re.search(pattern, self.text), pattern, seen=lambda: self.text)
        return str(found[found.re.groups])

    def ends(self) -> int:
        """Wait for the program's end: its exit status."""
        return int(self.until(r"the shell is back: (\d+)"))

    def _read(self) -> None:
        while select.select([self._fd], [], [], 0.01)[0]:
            try:
                self.text += os.read(self._fd, 4096).decode(errors="replace").replace("\r\n", "\n")
            except OSError:  # all that had it open have ended
                return

    def type(self, text: str) -> None:
        """Type a text; "\\t" is the tabulator."""
        os.write(self._fd, text.encode())

    def press_ctrl_c(self) -> None:
        """Press Ctrl-C."""
        os.write(self._fd, b"\x03")

    def close(self) -> None:
        """Close it, as one closes its window; a second time does nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGHUP)
            wait_until(lambda: os.waitpid(self.pid, os.WNOHANG)[0], "the shell to end", secs=WAIT_SECS)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
