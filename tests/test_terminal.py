"""Text for people: sizes, tables, progress, and names that were misspelt."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import termios
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from seams import (
    Progress,
    did_you_mean,
    first_names,
    format_table,
    human_bytes,
    human_count,
    human_number,
    human_secs,
    human_shape,
    plural,
    terminal,
)

from torcheer.errors import TorcheerWarning

# One home


def test_no_other_file_compares_names_measures_the_terminal_or_warns() -> None:
    room = Path(terminal.__file__).parent
    texts = {file: file.read_text() for file in room.parent.rglob("*.py") if room not in file.parents}
    words = ("difflib", "get_close_matches", "get_terminal_size", "rich.progress import", "import progress")
    words += ("warnings.warn(", "stacklevel")
    assert [(file.name, word) for file, text in texts.items() for word in words if word in text] == []


# Warnings


@pytest.mark.parametrize("say", [terminal.warn, terminal.warn_or_print])
def test_a_warning_points_at_the_program_however_deep_in_torcheer_it_is_raised(say: Callable[[str], None]) -> None:
    ours, torchs = {"__name__": "torcheer.somewhere", "say": say}, {"__name__": "torch.somewhere"}
    exec("def inner(): say('text')", ours)
    exec("def call(function): function()", torchs)
    with pytest.warns(TorcheerWarning, match="text") as warned:
        torchs["call"](ours["inner"])
    assert [warning.filename for warning in warned] == [__file__]


def test_a_warning_that_no_line_of_the_program_led_to_is_given_all_the_same() -> None:
    with pytest.warns(TorcheerWarning, match="text"):
        thread = threading.Thread(target=terminal.warn, args=("text",))
        thread.start()
        thread.join()


# Did you mean


@pytest.mark.parametrize(
    ("word", "known", "text"),
    [
        ("Lienar", ["Linear", "Bilinear"], " Did you mean 'Linear'?"),
        ("linear", ["Linear", "Bilinear"], " Did you mean 'Linear'?"),
        ("Lienar", ["linear", "Linear"], " Did you mean 'Linear'?"),
        ("lienar", ["linear", "Linear"], " Did you mean 'linear'?"),
        ("Adma", ["Adamax", "Adam", "AdamW"], " Did you mean 'Adam'?"),
        ("xyz", ["Linear"], ""),
        ("", ["Linear"], ""),
        ("a", [], ""),
        ("fd", ["conv", "fc"], " Did you mean 'fc'?"),
        ("loss", ["loss"], ""),  # the very name that did not work is no help
        (3, ["conv1", "33"], " Did you mean '33'?"),
        ("x" * 1_000_000, ["x" * 100], " Did you mean '" + "x" * 100 + "'?"),
    ],
)
def test_the_nearest_name_is_suggested_where_one_is_near(word: object, known: list[str], text: str) -> None:
    assert did_you_mean(word, known) == text


def test_as_many_names_are_suggested_as_are_asked_for_the_nearest_first() -> None:
    names = ["linear_1", "linear_2", "conv2d_1", "linear_22"]
    assert did_you_mean("linaer_2", names, most=2) == " Did you mean 'linear_2' or 'linear_22'?"


def test_a_name_that_differs_only_in_case_is_suggested_alone() -> None:
    assert did_you_mean("RELU_1", ["relu_11", "relu_1", "relu_2"], most=3) == " Did you mean 'relu_1'?"


def test_of_very_many_names_those_that_begin_alike_are_compared() -> None:
    names = [*(f"enc_{number}" for number in range(100_000)), "encoder.layers.11.attention.output"]
    assert did_you_mean("encoder.layers.11.attentoin.output", names) == f" Did you mean {names[-1]!r}?"
    assert did_you_mean("Xncoder.layers.11.attention.output", names) == ""  # comparing with all would take seconds


# Numbers


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (1023, "1023 B"), (259584, "253.5 KB"), (5035840, "4.8 MB"), (2**40, "1.0 TB")]
)
def test_sizes_are_in_units_of_1024(count: int, text: str) -> None:
    assert human_bytes(count) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(999, "999"), (1000, "1k"), (18_432, "18.4k"), (99_960, "100k"), (37_800_000, "37.8M"), (7 * 10**9, "7B")],
)
def test_counts_are_in_units_of_1000(count: int, text: str) -> None:
    assert human_count(count) == text


@pytest.mark.parametrize(
    ("secs", "text"),
    [
        (0, "0 s"), (3.5e-5, "35 µs"), (0.00124, "1.24 ms"), (0.99999, "1 s"), (9.5, "9.5 s"), (31.44, "31.4 s"),
        (99.99, "1 min 40 s"), (250, "4 min 10 s"), (3600, "1 h"), (3723, "1 h 2 min"), (100_000, "1 d 3 h"),
    ],
)  # fmt: skip
def test_durations_have_the_unit_that_fits(secs: float, text: str) -> None:
    assert human_secs(secs) == text


def test_a_shape_names_its_lengths() -> None:
    assert [human_shape(shape) for shape in ((1, 64, 55), (), (None, 3))] == ["1×64×55", "scalar", "?×3"]


def test_a_measured_number_has_four_digits_and_nan_is_a_dash() -> None:
    assert [human_number(number) for number in (0.123456, 1e-9, float("nan"))] == ["0.1235", "1e-09", "–"]


def test_a_count_agrees_with_its_noun() -> None:
    assert [plural(1, "layer"), plural(2000, "layer"), plural(2, "box", "es")] == ["1 layer", "2,000 layers", "2 boxes"]


# Tables

ROWS = [
    ("step", "layer", "variable", "size"),
    ("1", "features.0.convolution.weight", "value", "4.1 MB"),
    ("10", "fc", "gradient", "9 B"),
]


def test_a_table_aligns_texts_left_and_numbers_right() -> None:
    assert format_table(ROWS, left=3) == [
        "step  layer                          variable    size",
        "1     features.0.convolution.weight  value     4.1 MB",
        "10    fc                             gradient     9 B",
    ]
    assert format_table([], left=1) == []


@pytest.mark.parametrize(
    ("width", "lines"),
    [
        (53, format_table(ROWS, left=3)),
        (40, ["step  layer             variable    size",
              "1     features….weight  value     4.1 MB",
              "10    fc                gradient     9 B"]),
        (30, ["step  layer               size",
              "1     features….weight  4.1 MB",
              "10    fc                   9 B"]),
        (20, ["layer           size", "featur…eight  4.1 MB", "fc               9 B"]),
    ],
)  # fmt: skip
def test_where_there_is_no_room_columns_are_dropped_and_names_cut(width: int, lines: list[str]) -> None:
    assert format_table(ROWS, left=3, width=width, shorten="layer", drop=("variable", "step")) == lines


def test_ten_times_the_rows_take_about_ten_times_as_long() -> None:
    def cost(count: int) -> float:
        start = time.process_time()
        format_table([("layer", "step"), *((f"features.{row}", str(row)) for row in range(count))], left=1)
        return time.process_time() - start

    assert min(cost(20_000) for _ in range(3)) < 40 * min(cost(2000) for _ in range(3))


def test_a_table_prints_no_control_characters() -> None:
    assert format_table([("a\x1b[31m", "1\n2")], left=2) == ["a\\x1b[31m  1\\n2"]


@pytest.mark.parametrize(("columns", "width"), [("60", 60), ("", 1 << 20), ("0", 1 << 20), ("wide", 1 << 20)])
def test_a_pipe_has_any_width_unless_columns_is_set(columns: str, width: int) -> None:
    code = "from torcheer.terminal import line_width; print(line_width())"
    found = subprocess.run([sys.executable, "-c", code], env={**os.environ, "COLUMNS": columns}, capture_output=True)
    assert int(found.stdout) == width


def test_the_first_names_are_listed_and_more_is_a_sign() -> None:
    assert [first_names("abc", 3), first_names("abcd", 3), first_names(())] == ["a, b, c", "a, b, c, …", ""]


# Progress

WORK = """
import sys, time, torcheer.terminal.progress as terminal
terminal.PATIENCE_SECS = terminal.LINE_SECS = terminal.REDRAW_SECS = 0.0
with terminal.Progress("verifying [red]run", 2048, **PROGRESS) as progress:
    progress.add(1024)
    MEANWHILE
    progress.add(1024)
print("done")
"""


def work(meanwhile: str = "pass", **progress: bool | None) -> list[str]:
    return [sys.executable, "-c", WORK.replace("**PROGRESS", f"**{progress}").replace("MEANWHILE", meanwhile)]


def on_terminal(command: list[str], columns: int = 100, **environment: str) -> str:
    """What a program writes to a terminal of so many columns."""
    ours, theirs = os.openpty()
    termios.tcsetwinsize(theirs, (24, columns))
    unset = ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "CI")
    env = {name: value for name, value in os.environ.items() if name not in unset} | {"TERM": "xterm", **environment}
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=env) as program:
        os.close(theirs)
        written = b""
        try:
            while part := os.read(ours, 4096):
                written += part
        except OSError:  # the program has ended: Linux says so with an error
            pass
        finally:
            os.close(ours)
        assert program.wait() == 0
    return written.decode()


def drawn(text: str) -> list[str]:
    """The lines of a terminal's output, each state of a redrawn one by itself, without colours."""
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
    return [line.rstrip() for line in re.split(r"[\r\n]+", plain) if line.strip()]


def test_progress_is_a_bar_on_a_terminal_and_words_in_between_stay_whole() -> None:
    text = on_terminal(work("print('a word in between', file=sys.stderr)"))
    lines = drawn(text)
    assert any(re.fullmatch(r"verifying \[red\]run [━╸╺ ]+ 1\.0 KB of 2\.0 KB, .* a second", line) for line in lines)
    assert "a word in between" in lines
    assert text.index("\x1b[?25l") < text.index("\x1b[?25h")  # the cursor is back
    assert "2.0 KB of 2.0 KB" in lines[-2] and lines[-1] == "done"


def test_a_narrow_terminal_has_no_bar_and_no_line_wraps() -> None:
    lines = drawn(on_terminal(work(), columns=60))
    assert any("1.0 KB of 2.0 KB" in line for line in lines) and not any("━" in line for line in lines)
    assert max(map(len, lines)) <= 60


def test_no_color_is_honoured() -> None:
    assert "\x1b[3" not in on_terminal(work(), NO_COLOR="1") and "\x1b[9" not in on_terminal(work(), NO_COLOR="1")


def test_a_dumb_terminal_gets_lines() -> None:
    text = on_terminal(work(), TERM="dumb")
    assert "\x1b" not in text and "verifying [red]run: 1.0 KB of 2.0 KB" in text


@pytest.mark.parametrize(
    ("progress", "is_shown"), [({}, True), ({"progress": None}, False), ({"progress": False}, False)]
)
def test_a_pipe_gets_lines_where_they_are_asked_for(progress: dict[str, bool | None], is_shown: bool) -> None:
    found = subprocess.run(work(**progress), capture_output=True, text=True)
    assert ("verifying [red]run: 1.0 KB of 2.0 KB" in found.stderr) == is_shown
    assert "\x1b" not in found.stderr and found.stdout == "done\n"


def test_a_terminal_shows_progress_unless_it_is_refused() -> None:
    assert "1.0 KB of" in on_terminal(work(progress=None)) and "1.0 KB of" not in on_terminal(work(progress=False))


def test_without_rich_a_terminal_gets_lines() -> None:
    command = work()
    command[-1] = f"import sys; sys.modules['rich'] = None\n{command[-1]}"
    assert "verifying [red]run: 1.0 KB of 2.0 KB" in on_terminal(command)


@pytest.mark.parametrize("stderr", ["2>&-", "2>/dev/full"])
def test_a_stderr_that_takes_nothing_does_not_end_the_work(stderr: str) -> None:
    found = subprocess.run(f"exec {shlex.join(work())} {stderr}", shell=True, stdout=subprocess.PIPE, text=True)
    assert found.stdout == "done\n"


def test_ctrl_c_ends_it_and_gives_the_cursor_back() -> None:
    work_text = work("signal.raise_signal(signal.SIGINT)")[-1]
    guarded = f"import signal\ntry:\n{textwrap.indent(work_text, '  ')}\nexcept KeyboardInterrupt: print('interrupted')"
    text = on_terminal([sys.executable, "-c", guarded])
    assert text.index("\x1b[?25l") < text.index("\x1b[?25h") < text.index("interrupted")
    assert "done" not in text


def test_quick_work_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress("verifying run", 2048) as progress:
        progress.add(1024)
    assert capsys.readouterr().err == ""


def test_work_of_earlier_runs_counts_as_done_and_not_as_speed() -> None:
    progress = Progress("extracting", 50, "samples")
    progress.skip(24)
    assert progress.text() == "24 of 50 samples, 0 a second"
    progress.add(1)
    assert re.fullmatch(r"25 of 50 samples, .* left, [\d,]+ a second", progress.text())


def test_slow_work_says_how_long_each_piece_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([100.0, 100.0, 125.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(now))
    progress = Progress("zoo", 10, "models", progress=False)
    progress.add(2)
    assert progress.text() == "2 of 10 models, 1 min 40 s left, 12.5 s each"


def test_work_of_unknown_length_says_how_much_is_done() -> None:
    progress = Progress("reading", None, "rows")
    progress.add(2000)
    assert progress.text().startswith("2,000 rows, ")
