"""A history printed, drawn as text, and shown in a notebook."""

from __future__ import annotations

import io
from html.parser import HTMLParser

from fake_trace import FakeTrace, recurrent_network, small_network
from rich.console import Console

from torcheer.drawing import draw_text

SMALL = """\
Log of Small forward pass:
\tModel structure: purely feedforward, without branching; 6 total modules.
\t7 tensors (648 B) computed in forward pass; 7 tensors (648 B) saved.
\t3 parameter operations (6 parameter tensors, 36 params total; 144 B).
\tRandom seed: 7
\tTime elapsed: 0.125s
\tModule Hierarchy:
\t\tbody:
\t\t    body.0, body.1, body.2, body.3
\t\thead
\tLayers:
\t\t0: input_1_0
\t\t1: linear_1_1
\t\t2: relu_1_2
\t\t3: linear_2_3
\t\t4: relu_2_4
\t\t5: linear_3_5
\t\t6: output_1_6"""


def test_a_history_prints_as_torchlens_users_know_it() -> None:
    assert str(small_network().history()) == SMALL


def test_a_repr_is_one_line() -> None:
    assert repr(small_network().history()) == "<ModelHistory of Small: 7 operations>"


def test_passes_are_counted_and_a_loop_is_called_recurrent() -> None:
    text = str(recurrent_network().history())
    assert "Model structure: recurrent (up to 5 passes of a layer), without branching; 1 total modules." in text
    assert "\t\t1: linear_1_1 ×5\n\t\t2: relu_1_2 ×5\n\t\t11: output_1_11" in text
    assert "Random seed: not set" in text


def test_a_shared_module_without_a_loop_is_not_called_recurrent() -> None:
    trace = FakeTrace()
    a, b = trace.linear("fc", trace.input()), trace.linear("fc", trace.input())
    trace.output(trace.add("sub", a, b))
    assert "purely feedforward (up to 2 passes of a layer), with branching;" in str(trace.history())


def test_what_was_not_saved_is_not_counted_as_saved() -> None:
    trace = small_network()
    for index in range(6):
        del trace.values[index, 0]
    assert "7 tensors (648 B) computed in forward pass; 1 tensor (144 B) saved." in str(trace.history())


def test_a_pass_that_stopped_says_where_and_why() -> None:
    trace = small_network()
    del trace.list[4:]
    trace.facts |= {"stopped": "ValueError: no", "notes": ("a fused path was opened",)}
    lines = str(trace.history()).splitlines()
    assert lines[0] == "Log of Small forward pass, stopped early:"
    assert lines[1] == "\tStopped after linear_2_3 (4 operations): ValueError: no"
    assert "\tNote: a fused path was opened" in lines


def test_a_long_history_is_cut_in_the_middle_unless_asked_in_full() -> None:
    trace = FakeTrace()
    x = trace.input()
    for number in range(300):
        x = trace.linear(f"layers.{number}.inner", x)
    history = trace.history()
    text = history.text()
    assert len(text.splitlines()) < 135
    assert "\t\t… 242 more …" in text.splitlines()
    assert "300: linear_300_300" in text
    assert "… " not in history.text(full=True)
    assert all(label in history.text(full=True) for label in history.layer_labels)


def test_long_module_lists_wrap_at_a_hundred_columns() -> None:
    trace = FakeTrace()
    for number in range(13):
        trace.module(f"features.{number}", "Conv2d")
    trace.module("features", "Sequential")
    assert (
        "\t\tfeatures:\n"
        "\t\t    features.0, features.1, features.2, features.3, features.4, features.5, features.6, features.7,\n"
        "\t\t    features.8, features.9, features.10, features.11, features.12\n"
    ) in str(trace.history())


def test_rich_prints_the_text() -> None:
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(small_network().history())
    assert "Module Hierarchy:" in console.export_text()


# In a notebook


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.open.append(tag)
        self.seen.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_notebook_table_is_closed_escaped_and_loads_nothing() -> None:
    trace = FakeTrace("<script>alert(1)</script>")
    trace.module("a<b", "X")
    with trace.inside("a<b"):
        trace.add("<i>", trace.input())
    page = trace.history()._repr_html_()
    tags = Tags()
    tags.feed(page)
    assert tags.open == []
    assert tags.seen <= {"div", "pre", "details", "summary", "table", "tr", "th", "td"}
    assert "http" not in page
    assert "a&lt;b" in page


def test_a_long_notebook_table_says_how_much_is_left_out() -> None:
    trace = FakeTrace()
    for _ in range(250):
        trace.add("sin")
    assert "… 50 more …" in trace.history()._repr_html_()


# As a text drawing

UNROLLED = """\
Small
├─ input_1_0  1×6
├─ body (Sequential)
│  ├─ linear_1_1  2×6  48 B of parameters  [body.0 (Linear)]
│  ├─ relu_1_2  3×6  [body.1 (ReLU)]
│  ├─ linear_2_3  4×6  48 B of parameters  [body.2 (Linear)]
│  └─ relu_2_4  5×6  [body.3 (ReLU)]
├─ linear_3_5  6×6  48 B of parameters  [head (Linear)]
└─ output_1_6  6×6
"""

ROLLED = """\
Recurrent (repeats rolled)
├─ input_1_0  2×3
├─ linear_1_1 ×5  2×3  48 B of parameters  [fc (Linear)]  ← input_1_0, relu_1_2
├─ relu_1_2 ×5  2×3
└─ output_1_11  2×3
"""


def test_a_drawing_nests_operations_in_their_modules() -> None:
    assert draw_text(small_network().history(), rolled=False) == UNROLLED


def test_a_rolled_drawing_has_one_line_per_layer() -> None:
    assert draw_text(recurrent_network().history(), rolled=True) == ROLLED


def test_an_unrolled_drawing_has_one_line_per_operation() -> None:
    lines = draw_text(recurrent_network().history(), rolled=False).splitlines()
    assert len(lines) == 13
    assert lines[4] == "├─ linear_1_1:2  2×3  48 B of parameters  [fc:2 (Linear)]"


def test_a_parent_that_is_not_the_line_above_is_named() -> None:
    trace = FakeTrace()
    x = trace.input()
    y = trace.add("sin", x)
    trace.add("add", y, x, edited="zeroed", note="odd")
    last = draw_text(trace.history()).splitlines()[-1]
    assert last == "└─ add_1_2  2×3  ← sin_1_1, input_1_0  edited: zeroed  note: odd"
