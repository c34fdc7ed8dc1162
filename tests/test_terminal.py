"""Text for people: sizes, tables, progress, and names that were misspelt."""

from __future__ import annotations

import pytest

from torcheer.terminal import did_you_mean

# Did you mean


@pytest.mark.parametrize(
    ("word", "known", "text"),
    [
        ("Lienar", ["Linear", "Bilinear"], " Did you mean 'Linear'?"),
        ("linear", ["Linear", "Bilinear"], " Did you mean 'Linear'?"),
        ("Lienar", ["linear", "Linear"], " Did you mean 'Linear'?"),
        ("lienar", ["linear", "Linear"], " Did you mean 'linear'?"),
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
