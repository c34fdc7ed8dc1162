"""How often states are recorded."""

from __future__ import annotations

import pytest
from seams import AUTO, Every, Wants
from seams import RateBudget as Budget


def times(wants: Wants, cost_secs: float, total_secs: float, trial_secs: float, test: bool = False) -> list[float]:
    """When trials of a loop were recorded."""
    budget, now, found = Budget(), 0.0, []
    while now < total_secs:
        if budget.due(now, wants, test):
            found.append(now)
            now += cost_secs
            budget.spent(cost_secs, now)
        now += trial_secs
    return found


@pytest.mark.parametrize("cost_secs", [0.0001, 0.002, 0.1])
@pytest.mark.parametrize("trial_secs", [0.0001, 0.01, 0.5])
def test_automatic_recording_takes_one_percent_of_the_time_and_is_no_more_than_twenty_a_second(
    cost_secs: float, trial_secs: float
) -> None:
    found = times(Wants(("Act",)), cost_secs, 100.0, trial_secs)
    assert len(found) * cost_secs <= 0.01 * 100 + cost_secs and 1 < len(found) <= 2001
    most = min(20 * 100, 1 / cost_secs, 100 / trial_secs)
    assert len(found) > 0.6 * most  # and not much less than is allowed


@pytest.mark.parametrize("count", [1, 3, 10])
def test_every_so_many_trials(count: int) -> None:
    budget, wants = Budget(), Wants(("Act",), train=Every("trial", count))
    found = [trial for trial in range(40) if budget.due(0.0, wants)]
    assert found == list(range(0, 40, count))


def test_only_the_ends_of_epochs_and_of_these_every_so_many() -> None:
    budget, wants = Budget(), Wants(("Act",), train=Every("epoch", 2))
    found = [trial for trial in range(60) if budget.due(0.0, wants, epoch=trial % 10 == 9)]
    assert found == [9, 29, 49]


def test_off_is_off_and_training_and_testing_are_apart() -> None:
    budget = Budget()
    wants = Wants(("Act",), train=Every("off"), test=Every("trial", 2))
    assert [budget.due(0.0, wants) for _ in range(5)] == [False] * 5
    assert [budget.due(0.0, wants, test=True) for _ in range(4)] == [True, False, True, False]


@pytest.mark.parametrize("wants", [Wants(), Wants(train=Every("trial"), test=Every("trial"))])
def test_nobody_looks_nothing_is_due(wants: Wants) -> None:
    assert not Budget().due(0.0, wants) and not Budget().due(0.0, wants, test=True)


def test_weights_alone_are_looked_at_too() -> None:
    assert Budget().due(0.0, Wants(weights=True)) and Budget().due(0.0, Wants(units=(("fc", 1),)))


def test_a_new_choice_counts_from_now_on() -> None:
    budget = Budget()
    slow, quick = Wants(("Act",), train=Every("trial", 100)), Wants(("Act",), train=Every("trial", 5))
    assert budget.due(0.0, slow) and not budget.due(0.0, slow)
    assert budget.due(0.0, quick) and not budget.due(0.0, quick)
    assert budget.due(0.0, Wants(("Act",), train=AUTO))


def test_an_unknown_unit_records_nothing() -> None:
    assert not Budget().due(0.0, Wants(("Act",), train=Every("fortnight")))
