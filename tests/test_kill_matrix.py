"""A little of the kill matrix, and what makes a kill count; `make test-kills` runs all of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from kill_matrix import PLACES, Trials, landing, short_folder
from kill_programs import PROGRAMS

pytestmark = pytest.mark.house

BRIEFLY = [("trainer", "in its rename")]


@pytest.fixture(scope="module")
def trials() -> Iterator[Trials]:
    with short_folder() as folder:
        trials = Trials(folder)
        yield trials
        trials.close()


@pytest.mark.parametrize(("program", "name"), BRIEFLY)
def test_a_program_killed_at_a_place_goes_on_to_the_same_bits_and_leaves_nothing(
    trials: Trials, program: str, name: str
) -> None:
    (place,) = (place for place in PLACES if (place.program, place.name) == (program, name))
    tally = trials.run(place, 1)
    assert tally.problems == [] and (tally.landed, tally.equal, tally.left) == (1, 1, 0)


@pytest.mark.parametrize(
    ("facts", "status", "counts"),
    [
        ([{"here": "f", "pid": 2**22 + 1}], -9, True),
        ([{"here": "f", "pid": 2**22 + 1}, {"left": "f"}], -9, False),
        ([{"started": 2**22 + 1}], -9, False),
        ([{"here": "f", "pid": 2**22 + 1}], 0, False),
    ],
    ids=["there", "left before", "never there", "ended by itself"],
)
def test_a_kill_counts_where_the_last_that_is_known_is_that_it_was_there(
    facts: list[dict[str, object]], status: int, counts: bool, tmp_path: Path
) -> None:
    (tmp_path / "facts.jsonl").write_text("".join(json.dumps(fact) + "\n" for fact in facts))
    assert (landing(tmp_path, 2**22 + 1, status) is not None) == counts


def test_the_matrix_has_two_hundred_kills_and_every_program() -> None:
    assert sum(place.kills for place in PLACES) == 200
    assert {place.program for place in PLACES} == set(PROGRAMS)
