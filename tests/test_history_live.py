"""A history over a trace that grows."""

from __future__ import annotations

from fake_trace import FakeTrace, recurrent_network, small_network

from torcheer.history import ModelHistory


def test_making_a_history_asks_nothing_of_the_trace() -> None:
    trace = small_network()
    ModelHistory(trace)
    assert trace.asked == 0


def test_a_history_follows_its_trace_as_it_grows() -> None:
    trace = FakeTrace()
    history = trace.history()
    x = trace.linear("fc", trace.input())
    assert history.layer_labels == ["input_1_0", "linear_1_1"]
    first = history[1]
    x = trace.add("relu", x, line=7)
    x = trace.add("relu", trace.linear("fc", x), line=7)
    assert history.layer_labels == ["input_1_0", "linear_1_1", "relu_1_2"]
    assert first.label == "linear_1_1:1"
    assert history[-1].label == "relu_1_2:2"
    assert len(history) == 5


def test_what_was_worked_out_is_kept_while_nothing_changes() -> None:
    history = recurrent_network().history()
    assert history.facts is history.facts
    assert history.facts.layers is history.facts.layers


def test_a_trace_that_hands_out_copies_of_its_list_is_not_read_anew() -> None:
    trace = small_network()
    original = trace.ops
    trace.ops = lambda: list(original())  # type: ignore[method-assign]
    history = trace.history()
    assert history.facts is history.facts


def test_a_changed_last_operation_is_noticed() -> None:
    trace = small_network()
    history = trace.history()
    assert history[-1].note == ""
    trace.change(-1, note="late")
    assert history[-1].note == "late"


def test_a_reader_gets_every_operation() -> None:
    seen: list[int] = []
    small_network().history().follow(lambda op: seen.append(op.index))
    assert seen == list(range(7))
