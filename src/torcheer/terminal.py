"""Text for people: sizes, shapes, tables, progress, misspelt names.

Only the bar of `Progress` and training's live view use rich, where it is installed: see docs/decisions/0011-rich.md.
"""

from __future__ import annotations

import logging
import math
import os
import reprlib
import shutil
import sys
import textwrap
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from typing import Any, TextIO

from torcheer.errors import TorcheerWarning

# Numbers


def human_bytes(count: float) -> str:
    """Format a size in the largest fitting unit of 1024: "253.5 KB"."""
    size, unit = float(count), "B"
    for larger in ("KB", "MB", "GB", "TB", "PB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{count:.0f} B" if unit == "B" else f"{size:.1f} {unit}"


def human_count(count: int) -> str:
    """Format a large count: "999", "18.4k", "37.8M", "7B"."""
    for size, unit in ((10**12, "T"), (10**9, "B"), (10**6, "M"), (10**3, "k")):
        if count >= size:
            number = count / size
            return (f"{number:.1f}" if number < 99.95 else f"{number:.0f}").removesuffix(".0") + unit
    return str(count)


def human_flops(count: int, unknown: int) -> str:
    """Format FLOPs, with a mark if some operations could not be counted."""
    return human_count(count) + (" +?" if unknown else "")


def human_number(number: float) -> str:
    """Format a statistic with four digits; "–" where there is none, which is NaN."""
    return "–" if math.isnan(number) else f"{number:.4g}"


def human_secs(secs: float) -> str:
    """Format a duration: "35 µs", "1.24 ms", "9.5 s", "4 min 10 s", "1 h 2 min"."""
    for unit, size, most in (("µs", 1e-6, 1e-3), ("ms", 1e-3, 1.0), ("s", 1.0, 100.0)):
        if 0 < secs < most * 0.9995 or (secs <= 0 and unit == "s"):
            return f"{secs / size:.3g} {unit}"
    minutes, seconds = divmod(round(secs), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = [(days, "d"), (hours, "h"), (minutes, "min"), (seconds, "s")]
    first = next(place for place, (number, _) in enumerate(parts) if number)
    return " ".join(f"{number} {unit}" for number, unit in parts[first : first + 2] if number)


def human_shape(shape: Iterable[int | None]) -> str:
    """Format a shape: "1×64×55×55"; "?" for a length that differs, "scalar" for a single number."""
    return "×".join("?" if length is None else str(length) for length in shape) or "scalar"


def human_place(path: Iterable[int | str]) -> str:
    """Format where a value stands in nested containers: "past_key_values.layers[0].keys"."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).removeprefix(".")


def plural(count: int, noun: str, ending: str = "s") -> str:
    """Format a count with its noun: "1 layer", "2,000 layers"."""
    return f"{count:,} {noun}{'' if count == 1 else ending}"


def ordinal(number: int) -> str:
    """Format an ordinal number.

    >>> ordinal(2), ordinal(3), ordinal(11), ordinal(21)
    ('2nd', '3rd', '11th', '21st')
    """
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10 if number // 10 % 10 != 1 else 0, "th")
    return f"{number}{ending}"


# Names


MOST_COMPARED = 5000  # a history can have 100,000 names: comparing with all of them takes seconds


def did_you_mean(name: object, names: Iterable[object], most: int = 1) -> str:
    """Return the sentence " Did you mean 'x' or 'y'?", or "" where no name is near.

    name: what was asked for; names: what there is; most: how many names to suggest at most.
    Upper and lower case count as the same. Of very many names, those with the same first letters are compared.
    """
    asked = str(name)[:200]
    word = asked.lower()
    by_lower: dict[str, str] = {}
    for known in map(str, names):
        if known != name and (known.lower() not in by_lower or known[:1] == asked[:1]):
            by_lower[known.lower()] = known
    candidates = list(by_lower)
    if len(candidates) > MOST_COMPARED:
        candidates.sort(key=lambda known: sum(known[:letters] != word[:letters] for letters in (3, 10, 20, 40)))
    near = [word] if word in by_lower else get_close_matches(word, candidates[:MOST_COMPARED], most + 4, cutoff=0.5)
    near = sorted(near, key=lambda known: sorted(known) != sorted(word))[:most]  # "Adma" is rather "Adam" than "Adamax"
    return f" Did you mean {' or '.join(repr(by_lower[known]) for known in near)}?" if near else ""


def first_names(names: Iterable[object], most: int = 8) -> str:
    """List the first names, separated by commas; "…" at the end where there are more."""
    known = list(map(str, names))
    return ", ".join([*known[:most], *["…"] * (len(known) > most)])


def shortened(text: str, width: int) -> str:
    """Shorten a name to `width` characters by leaving out its middle."""
    if len(text) <= width:
        return text
    end = (width - 1) // 2
    return f"{text[: width - 1 - end]}…{text[len(text) - end :]}"


def short_repr(value: object) -> str:
    """Return a value's repr on one short line: of an untrusted value it may be endless."""
    return _short.repr(value)


_short = reprlib.Repr()
_short.maxstring = _short.maxother = _short.maxlong = 60


def printable(text: str) -> str:
    """Escape control characters in untrusted text: it cannot move the cursor or change colours."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in text
    )


# Facts for programs: `torcheer COMMAND --json`


JSON_HELP = "print the result as one JSON document; text goes to stderr"


def add_json(parser: Any) -> None:
    """Add the option that `torcheer.cli` reads before the command does."""
    parser.add_argument("--json", action="store_true", help=JSON_HELP)


_told: list[tuple[dict[str, Any], Callable[[dict[str, Any]], object]]] = []  # of the command that runs, if any


@contextmanager
def facts_told(announce: Callable[[dict[str, Any]], object]) -> Iterator[dict[str, Any]]:
    """Yield what is told while the body runs; `announce` is called with what cannot wait until its end."""
    facts: dict[str, Any] = {}
    _told.append((facts, announce))
    try:
        yield facts
    finally:
        _told.pop()


def tell(**facts: Any) -> None:
    """Add facts to the document of the command that runs; nothing happens where no document is wanted."""
    if _told:
        _told[-1][0].update(facts)


def tell_item(key: str, value: Any) -> None:
    """Append to a list of the document of the command that runs."""
    if _told:
        _told[-1][0].setdefault(key, []).append(value)


def tell_now(**facts: Any) -> None:
    """Announce facts at once, in a document of their own: the command goes on for long."""
    if _told:
        _told[-1][1](facts)


def plain_data(value: Any) -> Any:
    """Return a value as JSON holds it: arrays as lists, what is not finite as null, what is unknown as its text."""
    if isinstance(value, dict):
        return {str(key): plain_data(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain_data(item) for item in value]
    if hasattr(value, "tolist"):
        return plain_data(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, str | bool | int | float | None) else str(value)


# Lines and tables


ANY_WIDTH = 1 << 20  # of a file or a pipe
_LEAST_WIDTH = 12  # of a shortened column


def line_width() -> int:
    """Return the longest line to print: the terminal's width; any for a file or a pipe unless COLUMNS is set."""
    columns = os.environ.get("COLUMNS", "")
    is_known = is_terminal(sys.stdout) or (columns.isdecimal() and int(columns) > 0)
    return shutil.get_terminal_size().columns if is_known else ANY_WIDTH


def folded(text: str, stream: TextIO | None = None) -> str:
    """Break lines between words where they are longer than the terminal; of a file or a pipe they stay whole.

    stream: where the text is printed; the standard error by default
    """
    stream = sys.stderr if stream is None else stream
    if not is_terminal(stream):
        return text
    try:
        width = int(os.environ.get("COLUMNS", "")) or os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):
        width = shutil.get_terminal_size().columns
    fold = textwrap.TextWrapper(
        max(width, _LEAST_WIDTH), subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )
    lines = (fold.wrap(line) if len(line) > width else [line] for line in text.split("\n"))
    return "\n".join(part for parts in lines for part in parts)


def cut(lines: list[str], limit: int) -> list[str]:
    """Truncate to `limit` lines; a line in the middle says how many were left out."""
    if len(lines) <= limit:
        return lines
    start, end = limit - limit // 3 - 1, limit // 3
    indent = lines[start][: len(lines[start]) - len(lines[start].lstrip())]
    return [*lines[:start], f"{indent}… {len(lines) - start - end:,} more …", *lines[len(lines) - end :]]


def format_table(
    rows: Iterable[Sequence[str]],
    left: int,
    *,
    width: int = ANY_WIDTH,
    shorten: str | None = None,
    drop: Sequence[str] = (),
) -> list[str]:
    """Format rows of cells as lines.

    left: so many columns are left-aligned, the others, the numbers, right-aligned.
    width: of the longest line. Where there is no room, the columns `drop` are left out, in this order, then the
    column `shorten` is cut in the middle; both are names in the first row.
    """
    columns = [
        (str.ljust if place < left else str.rjust, [printable(cell) for cell in cells])
        for place, cells in enumerate(zip(*rows, strict=True))
    ]
    for name in drop:
        if sum(_least_width(cells, shorten) + 2 for _, cells in columns) - 2 <= width:
            break
        columns = [column for column in columns if column[1][0] != name]
    room = max(width - sum(_width(cells) + 2 for _, cells in columns if cells[0] != shorten), _LEAST_WIDTH)
    padded = []
    for align, cells in columns:
        shown = [shortened(cell, room) for cell in cells] if cells[0] == shorten else cells
        size = _width(shown)
        padded.append([align(cell, size) for cell in shown])
    return ["  ".join(cells).rstrip() for cells in zip(*padded, strict=True)]


def _width(cells: list[str]) -> int:
    return max(map(len, cells))


def _least_width(cells: list[str], shorten: str | None) -> int:
    return min(_width(cells), _LEAST_WIDTH) if cells[0] == shorten else _width(cells)


def plot_text(
    xs: Sequence[float],
    ys: Sequence[float],
    *,
    mark: float | None = None,
    labels: tuple[str, str] = ("", ""),
    log_x: bool = False,
    size: tuple[int, int] = (60, 12),
) -> list[str]:
    """Draw a curve in characters; a column of `│` stands at `mark`.

    labels: of the y axis, above it, and of the x axis, below it. size: columns and rows of the curve.
    """
    if not xs:
        return [f"{labels[0]}: nothing to draw"]
    columns, rows = size
    places = [math.log(x) for x in xs] if log_x else list(map(float, xs))
    left, width = min(places), (max(places) - min(places)) or 1.0
    low, height = min(ys), (max(ys) - min(ys)) or 1.0

    def column(place: float) -> int:
        return round((place - left) / width * (columns - 1))

    grid = [[" "] * columns for _ in range(rows)]
    if mark is not None:
        for line in grid:
            line[column(math.log(mark) if log_x else mark)] = "│"
    for place, y in zip(places, ys):
        grid[rows - 1 - round((y - low) / height * (rows - 1))][column(place)] = "•"
    names = [human_number(max(ys)), *[""] * (rows - 2), human_number(min(ys))]
    margin = max(map(len, names))
    axis = f"{human_number(min(xs))}{labels[1].center(columns - len(human_number(min(xs)) + human_number(max(xs))))}"
    lines = [f"{name:>{margin}} ┤{''.join(line).rstrip()}" for name, line in zip(names, grid)]
    return [
        *filter(None, labels[:1]),
        *lines,
        f"{' ' * margin} └{'─' * columns}",
        f"{' ' * (margin + 2)}{axis}{human_number(max(xs))}",
    ]


# Progress


PATIENCE_SECS = 2.0  # work that takes less shows no bar
LINE_SECS = 10.0  # before each line where there is no bar
REDRAW_SECS = 0.1  # between two redraws of a bar

ProgressCallback = Callable[[int], object]  # called with the bytes, or whatever is counted, that were done since


def warn_or_print(text: str, *, stacklevel: int = 1) -> None:
    """Warn, `stacklevel` frames above the caller; where warnings are errors, print: a model must not see this one."""
    try:
        warnings.warn(text, TorcheerWarning, stacklevel=stacklevel + 2)
    except RuntimeWarning:
        try:
            print(text if text.startswith("torcheer") else f"torcheer: {text}", file=sys.stderr)
        except (OSError, ValueError):  # stderr is closed
            return


def warn_of_difference(original: str, text: str) -> None:
    """Warn once in a process of what an original does otherwise, at the first line that is not torcheer's.

    - `original`: the name of its page in docs/migration.
    """
    if (original, text) in _differences:
        return
    _differences.add((original, text))
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in ("torcheer", "torch"):
        level, frame = level + 1, frame.f_back
    warn_or_print(f"{text} (docs/migration/{original}.md says why)", stacklevel=level)


_differences: set[tuple[str, str]] = set()  # those that were said


def notice(room: str, text: str) -> None:
    """Log what a program's user did not ask for, under `torcheer.ROOM`: a retry, a worker that was replaced.

    It is printed on stderr until the program gives the logger `torcheer` a handler or a level of its own.
    """
    root = logging.getLogger("torcheer")
    if not root.handlers:
        root.addHandler(_StderrHandler())
    logging.getLogger(f"torcheer.{room}").warning(text)


class _StderrHandler(logging.Handler):
    """Prints on what stderr is at the time; never raises."""

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(OSError, ValueError, AttributeError):
            print(f"torcheer: {record.getMessage()}", file=sys.stderr, flush=True)


def ignore_progress(count: int) -> None:
    """The progress callback of callers who want none."""


def is_terminal(stream: TextIO | None) -> bool:
    """Return whether a person sees this stream on a terminal."""
    return stream is not None and stream.isatty()


def is_notebook() -> bool:
    """Return whether this runs in a notebook cell."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None


def can_redraw(stream: TextIO | None) -> bool:
    """Return whether the stream is a terminal on which lines can be drawn again."""
    return is_terminal(stream) and os.environ.get("TERM") not in ("dumb", "unknown")


def wants_progress(progress: bool | None, stream: TextIO | None) -> bool:
    """Return whether `progress=` asks for it; None means on a terminal and in a notebook."""
    is_wanted = is_terminal(stream) or is_notebook() if progress is None else progress
    return bool(is_wanted) and stream is not None


class Progress:
    """Show on stderr how far long work is.

    A bar on a terminal, for work of more than two seconds; a line every ten seconds elsewhere, or without rich.

    >>> with Progress("verifying run", 2048) as progress:
    ...     progress.add(1024)
    """

    def __init__(
        self, title: str, total: int | None = None, unit: str = "bytes", *, progress: bool | None = True
    ) -> None:
        """Begin to count.

        total: how much there is; None or 0 where unknown. unit: "bytes", or what is counted, as a plural.
        progress: False shows nothing; None shows it on a terminal and in a notebook only.
        """
        self.title, self.total, self.unit, self.done = printable(title), total or 0, unit, 0
        self._earlier = 0  # done before this run: counting it would make the rest look quick
        self._start = time.monotonic()
        wait_secs = PATIENCE_SECS if can_redraw(sys.stderr) else LINE_SECS
        self._next_secs = self._start + wait_secs if wants_progress(progress, sys.stderr) else math.inf
        self._bar: Any = None

    def skip(self, count: int) -> None:
        """Count what was done before this run."""
        self._earlier += count
        self.done += count

    def add(self, count: int) -> None:
        """Count what was done since the last call, and show it from time to time."""
        self.done += count
        if time.monotonic() >= self._next_secs:
            try:
                self._show()
            except OSError:  # nobody can see it any more; the work goes on
                self._next_secs = math.inf

    def text(self) -> str:
        """Return how much is done, the time that is left, and how fast it goes."""
        rate = (self.done - self._earlier) / max(time.monotonic() - self._start, 1e-9)
        show = human_bytes if self.unit == "bytes" else "{:,.0f}".format
        of = f" of {show(self.total)}" if self.total else ""
        unit = "" if self.unit == "bytes" else f" {self.unit}"
        left = (self.total - self.done) / rate if rate else 0.0
        left_text = f", {human_secs(math.ceil(left))} left" if left > 0 else ""
        speed = f"{human_secs(1 / rate)} each" if 0 < rate < 1 else f"{show(rate)} a second"
        return f"{show(self.done)}{of}{unit}{left_text}, {speed}"

    def _show(self) -> None:
        if self._bar is None and can_redraw(sys.stderr):
            self._bar = _start_bar(self.title, self.total)
        if self._bar is None:
            print(f"{self.title}: {self.text()}", file=sys.stderr, flush=True)
        else:
            self._bar.update(0, completed=self.done, text=self.text(), refresh=True)
        self._next_secs = time.monotonic() + (LINE_SECS if self._bar is None else REDRAW_SECS)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            with suppress(OSError):
                self._bar.update(0, completed=self.done, text=self.text())
                self._bar.stop()


def _start_bar(title: str, total: int) -> Any:
    """Start a bar that is drawn by calls alone; None where rich is not installed.

    A drawing thread could hold a lock while a loader's worker is forked, and the worker would wait for it for ever.
    """
    try:
        from rich import progress
        from rich.console import Console
        from rich.table import Column
    except ImportError:
        return None
    console = Console(stderr=True, highlight=False)
    has_room = console.width >= 80
    name = Column(no_wrap=True, overflow="ellipsis", max_width=max(console.width - 76, _LEAST_WIDTH))
    bar = progress.Progress(
        progress.TextColumn("{task.description}", markup=False, table_column=name),
        *[progress.BarColumn(bar_width=20)] * has_room,
        progress.TextColumn("{task.fields[text]}", markup=False),
        console=console,
        auto_refresh=False,
    )
    bar.add_task(title, total=total or None, text="")
    bar.start()
    return bar
