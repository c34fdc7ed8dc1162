"""Damage to the ring's memory: it is skipped and counted, and never read as something else."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from inspector_spine import all_of, checksums, offer, reader_of  # noqa: F401
from seams import HANDLED, PASSED, TAIL, TAKEN, Ring
from seams import RING_HEAD as HEAD

SMALL = 64 << 10


def pattern(step: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(step).integers(0, 2**32, 20 + 37 * (step % 9), dtype=np.uint32)


@pytest.mark.usefixtures("checksums")
@pytest.mark.parametrize("policy", ["drop", "latest"])
@pytest.mark.parametrize("seed", range(10))
def test_damage_is_skipped_and_counted_and_never_read(seed: int, policy: str) -> None:
    draw, ring = random.Random(seed), Ring(SMALL if policy == "drop" else 4 * SMALL, policy=policy)
    reader, found, sent = reader_of(ring), list[Any](), 0
    counts = policy == "latest" and 64 << 7  # of the table of boxes, every second line are the reader's counts
    for lap in range(6):
        while sent < 40 * (lap + 1):
            assert offer(ring, pattern(sent), sent, layer=str(sent % 40))
            sent += 1
        for _ in range(draw.choice([1, 3, 100])):
            place = draw.randrange(ring.memory.size)
            if place >= counts or place % 128 < 64:
                ring.memory.data[place] ^= 1 << draw.randrange(8)
        found += all_of(reader)
    reader.finish()
    steps = [value.sample.step for value in found]
    assert steps == sorted(set(steps)) or policy == "latest"
    assert all(value.sample.array.tobytes() == pattern(value.sample.step).tobytes() for value in found)
    hidden = ring._writer.waiting(("", "")) if policy == "latest" else 0  # where the number of a box is damaged
    assert len(found) + reader.damaged + sum(ring.dropped.values()) + hidden == sent
    ring.memory.data[:] = b"\xff" * ring.memory.size if policy == "drop" else ring.memory.data
    assert offer(ring, pattern(5), 5, layer="new") and [value.sample.step for value in all_of(reader)][-1:] == [5]


def test_a_record_of_an_earlier_lap_is_not_read_again() -> None:
    ring = Ring(SMALL)
    reader = reader_of(ring)
    offer(ring, pattern(0), 0)
    old = bytes(ring.memory.data[:1024])
    step = 1
    while ring.memory.data[:64] == old[:64]:
        all_of(reader)
        offer(ring, pattern(step), step)
        step += 1
    ring.memory.data[:1024] = old
    assert all_of(reader) == []
    reader.finish()
    assert reader.damaged == 1


def test_lengths_that_lie_do_not_mislead_the_reader() -> None:
    ring = Ring(SMALL)
    for step in range(10):
        offer(ring, pattern(step), step)
    words = ring.memory.data.cast("Q")
    words[2] = 2**63  # the first record's length
    reader = reader_of(ring)
    assert [sent.sample.step for sent in all_of(reader)] == list(range(1, 10)) and reader.damaged == 1


@pytest.mark.parametrize("seed", range(6))
def test_damage_to_the_numbers_in_front_heals_with_the_next_record(seed: int) -> None:
    draw, ring = random.Random(seed), Ring(SMALL)
    reader, found = reader_of(ring), list[Any]()
    for step in range(200):
        offer(ring, pattern(step), step)
        place, words = draw.randrange(5, 32), ring.memory.words
        value = draw.choice([0, 2**40, 2**64 - 1, words[place] + 64, words[place] + 640, words[place] // 2])
        words[place] = value % 2**64
        found += all_of(reader)
    offer(ring, pattern(200), 200), offer(ring, pattern(201), 201)
    found += all_of(reader)
    assert found[-1].sample.step == 201
    assert all(sent.sample.array.tobytes() == pattern(sent.sample.step).tobytes() for sent in found)
    assert [sent.sample.step for sent in found] == sorted({sent.sample.step for sent in found})


def test_a_writers_position_that_lies_is_not_believed() -> None:
    ring = Ring(SMALL)
    reader, found = reader_of(ring), list[int]()
    for step in range(100):
        offer(ring, pattern(step), step)
        if step % 3:
            ring.memory.words[HEAD] += 64 * (step % 7)
        found += [sent.sample.step for sent in all_of(reader)]
    assert found == list(range(100)) and reader.damaged == 0


def test_a_record_that_is_whole_but_says_nonsense_is_damaged() -> None:
    ring = Ring(SMALL)
    good = {"layer": "a", "variable": "output", "item": -1, "type": "uint8", "shape": (3,), "step": 1}
    for wrong in ({"shape": (4,)}, {"type": "float3"}, {"item": "x"}, {"sums": [1, 2]}, {"whole": 3}):
        ring.offer({**good, **wrong}, 3, lambda view: None)
    ring.offer(good, 3, lambda view: None)
    reader = reader_of(ring)
    assert len(all_of(reader)) == 1 and reader.damaged == 5


def test_another_reader_goes_on_where_the_first_was_killed() -> None:
    ring = Ring(SMALL)
    for step in range(6):
        offer(ring, pattern(step), step)
    first = reader_of(ring)
    assert first.take() is not None
    first.done()
    assert first.take() is not None  # and never done with it
    second = reader_of(ring)
    assert [sent.sample.step for sent in all_of(second)] == [2, 3, 4, 5]
    assert (ring.taken, ring.handled, ring.damaged) == (6, 1, 0)


@pytest.mark.parametrize("place", [TAIL, PASSED, TAKEN, HANDLED])
def test_a_reader_killed_between_the_two_halves_of_a_number_costs_nothing(place: int) -> None:
    ring = Ring(SMALL)
    for step in range(6):
        offer(ring, pattern(step), step)
    first, before = reader_of(ring), 0
    for _ in range(3):
        before = ring.memory.words[place + 1]
        assert first.take() is not None
        first.done()
    ring.memory.words[place + 1] = before  # the third time, it did not come to that
    second = reader_of(ring)
    assert (ring.taken, ring.handled) == (second.taken, second.handled) == (3, 3)
    assert [sent.sample.step for sent in all_of(second)] == [3, 4, 5]
    second.finish()
    assert second.damaged == 0
