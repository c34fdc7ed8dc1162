"""A real shell in a terminal, and its screen as HTML."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time
from contextlib import suppress
from html import escape
from pathlib import Path

COLUMNS, ROWS = 104, 27
WAIT_SECS = 120.0
_TOKEN = re.compile(r"\x1b\[([?\d;]*)([A-Za-z])|\x1b\][^\x07]*\x07|([\r\n\b\x07])|([^\x1b\r\n\b\x07]+)")
_STYLES = {"1": "bold", "2": "dim", "31": "red", "32": "green", "33": "yellow", "34": "blue", "35": "pink"}
_STYLES |= {"36": "cyan", "90": "grey"}


class Screen:
    """The lines that a terminal shows: text, colours, and a cursor that goes back to rewrite a progress bar."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.lines: list[list[tuple[str, str]]] = [[]]  # of characters with their style
        self.row = self.column = 0
        self.style = ""

    def write(self, text: str) -> None:
        for token in _TOKEN.finditer(text):
            number, command, control, words = token.groups()
            if words:
                for character in words:
                    self._put(character)
            elif control:
                self._control(control)
            elif command == "m":
                self.style = " ".join(_STYLES.get(part, "") for part in number.split(";")).strip()
            elif command == "A":
                self.row = max(0, self.row - int(number or 1))
            elif command == "K":
                self.lines[self.row][0 if number == "2" else self.column :] = []
            elif command in "HJ":  # a cleared screen
                self.clear()

    def html(self) -> str:
        """The last lines, with a block for the cursor."""
        rows = [_line(line) for line in self._used()[-ROWS:]]
        if self.row == len(self._used()) - 1:
            rows[-1] += '<span class="cursor"> </span>'
        return "\n".join(rows)

    def text(self) -> str:
        return "\n".join("".join(character for character, _ in line) for line in self._used())

    def _used(self) -> list[list[tuple[str, str]]]:
        """The lines down to the cursor, or to the last one that has text."""
        last = max((number for number, line in enumerate(self.lines) if line), default=0)
        return self.lines[: max(last, self.row) + 1]

    def _put(self, character: str) -> None:
        if self.column == COLUMNS:
            self._control("\n")
            self.column = 0
        line = self.lines[self.row]
        line += [(" ", "")] * (self.column - len(line))
        line[self.column : self.column + 1] = [(character, self.style)]
        self.column += 1

    def _control(self, control: str) -> None:
        if control == "\r":
            self.column = 0
        elif control == "\b":
            self.column = max(0, self.column - 1)
        elif control == "\n":
            self.row += 1
            if self.row == len(self.lines):
                self.lines.append([])


def _line(line: list[tuple[str, str]]) -> str:
    """A line as spans, one for each run of equal style."""
    parts, start = [], 0
    for end in range(1, len(line) + 1):
        if end == len(line) or line[end][1] != line[start][1]:
            text, style = escape("".join(character for character, _ in line[start:end])), line[start][1]
            parts.append(f'<span class="{style}">{text}</span>' if style else text)
            start = end
    return "".join(parts)


class Shell:
    """An interactive shell; leaving the `with` block ends it and what it runs."""

    def __init__(self, folder: Path, path: Path) -> None:
        self.screen = Screen()
        self.pid, self._file = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            kept = {name: os.environ[name] for name in ("HOME", "LANG", "CHROMIUM") if name in os.environ}
            variables = {"PATH": f"{path}:/usr/bin:/bin", "PS1": "$ ", "TERM": "xterm", "TORCHEER_NO_BROWSER": "1"}
            quiet = {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
            utf8 = {"LANG": "C.UTF-8", "PYTHONUTF8": "1"}
            os.execvpe("dash", ["dash", "-i"], {**kept, **variables, **quiet, **utf8})
        fcntl.ioctl(self._file, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self.until(r"\$ $")
        self.type("set +m; clear\n")  # without job control a program that is stopped stays in the foreground
        self.until(r"^\$ $")

    def type(self, text: str) -> None:
        os.write(self._file, text.encode())

    def read(self, secs: float = 0.02) -> None:
        """Put onto the screen what was printed; wait for more at most `secs`."""
        while select.select([self._file], [], [], secs)[0]:
            try:
                self.screen.write(os.read(self._file, 65536).decode(errors="replace"))
            except OSError:  # closed
                return

    def until(self, pattern: str) -> str:
        """Read until the screen's text matches; return the last group or the match."""
        end = time.monotonic() + WAIT_SECS
        while not (found := re.search(pattern, self.screen.text())):
            if time.monotonic() > end:
                raise TimeoutError(f"waited for {pattern!r}; the terminal shows:\n{self.screen.text()}")
            self.read(0.05)
        return str(found[found.re.groups])

    def child(self) -> int:
        """The process that the shell runs; 0 if none."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        return int(children[0]) if children else 0

    def close(self) -> None:
        """End what runs, then the shell."""
        if child := self.child():
            os.kill(child, signal.SIGCONT)
            os.kill(child, signal.SIGTERM)
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGHUP)
        os.close(self._file)
        os.waitpid(self.pid, 0)

    def __enter__(self) -> Shell:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
