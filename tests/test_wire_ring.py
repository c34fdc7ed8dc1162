"""The ring: what goes in comes out bit for bit or is counted, whatever happens to the memory between."""

from __future__ import annotations

import math
import os
import random
import signal
import threading
import time
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from children import Child
from hypothesis import given, settings
from hypothesis import strategies as st
from inspector_spine import PATH, SCRIPTS, all_of, checksums, offer, reader_of  # noqa: F401
from leftovers import nothing_added, traces
from seams import Ring, RingDamaged, RingReader, Statistics

from torcheer.errors import BadArgument

SMALL = 64 << 10
POLICIES = ("drop", "latest", "block")


# -- what arrives ----------------------------------------------------------------------------------------------------

ARRAYS: dict[str, Any] = {
    "float32": np.arange(12, dtype=np.float32).reshape(3, 4),
    "NaN and Inf": np.array([math.nan, math.inf, -math.inf, -0.0]),
    "another NaN": np.array([0x7FC12345], np.uint32).view(np.float32),
    "float16": np.array([1.5, 65504], np.float16),
    "bfloat16": np.array([1.5, math.nan, 3e38], ml_dtypes.bfloat16),
    "float8_e4m3fn": np.array([1.5, 448, math.nan], ml_dtypes.float8_e4m3fn),
    "float8_e5m2": np.array([1.5, math.inf], ml_dtypes.float8_e5m2),
    "int64": np.array([2**63 - 1, -(2**63)]),
    "uint64": np.array([2**64 - 1], np.uint64),
    "bool": np.array([[True], [False]]),
    "complex64": np.array([1 + 2j, complex(math.nan, 1)], np.complex64),
    "complex128": np.array([1 + 2j]),
    "0-d": np.array(3.5, np.float32),
    "empty": np.empty((0, 7), np.int16),
    "odd bytes": np.arange(13, dtype=np.uint8),
    "turned": np.arange(6.0).reshape(2, 3).T,
    "big-endian": np.arange(3, dtype=">i4"),
}


@pytest.mark.usefixtures("checksums")
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("array", ARRAYS.values(), ids=ARRAYS.keys())
def test_an_array_arrives_bit_for_bit(array: Any, policy: str) -> None:
    ring = Ring(SMALL, policy=policy)
    assert offer(ring, array, step=7)
    (sent,) = all_of(reader_of(ring))
    assert sent.sample.step == 7 and sent.key == ("a", "output")
    assert sent.sample.array.dtype == array.dtype.newbyteorder("<") and sent.sample.array.shape == array.shape
    assert sent.sample.array.tobytes() == array.astype(array.dtype.newbyteorder("<")).tobytes()


def test_what_is_said_beside_the_array_arrives_too() -> None:
    ring = Ring(SMALL)
    sums = [4, 9, 1, 0.5, 2.0, 1.0, 0.75, 1, 2]  # of nine numbers six are finite, one of them is zero
    told = {"time_secs": 1.5, "device": "cuda:0", "message": "épöch:3 \ud800", "count": np.int64(40), "stride": 4}
    offer(ring, np.zeros(2), step=np.int64(3), whole=(4, 2), finite=False, sums=sums, **told)
    offer(ring, np.zeros(2))
    sent, plain = all_of(reader_of(ring))
    assert (sent.sample.step, sent.time_secs, sent.device, sent.message) == (3, 1.5, "cuda:0", told["message"])
    assert (sent.count, sent.stride, sent.whole, sent.finite) == (40, 4, (4, 2), False)
    assert sent.summary == Statistics(9, 1, 0.5, 2.0, 1.0, 0.75, nans=1, infs=2, stride=4)
    assert (plain.device, plain.whole, plain.finite, plain.summary) == ("cpu", (), None, None)


def test_the_array_is_a_snapshot_and_the_readers_own() -> None:
    ring, array = Ring(SMALL), np.arange(4.0)
    offer(ring, array)
    array += 1
    reader = reader_of(ring)
    first = reader.take()
    assert first is not None and first.sample.array.tolist() == [0, 1, 2, 3]
    for _ in range(2000):
        offer(ring, array)
        reader.take()
    assert first.sample.array.tolist() == [0, 1, 2, 3]
    first.sample.array[0] = 9  # writable


# -- how much fits ---------------------------------------------------------------------------------------------------


def test_where_there_is_no_room_the_newest_are_dropped_and_counted_by_key() -> None:
    ring = Ring(SMALL)
    sent = [offer(ring, np.full(500, step, np.float32), step, layer=f"l{step % 2}") for step in range(60)]
    kept = sent.index(False)
    assert 20 < kept < 40 and not any(sent[kept:])
    assert [value.sample.step for value in all_of(reader_of(ring))] == list(range(kept))
    assert sum(ring.dropped.values()) == 60 - kept and set(ring.dropped) == {("l0", "output"), ("l1", "output")}
    assert offer(ring, np.zeros(500, np.float32))


def test_a_value_larger_than_its_share_is_dropped_and_one_of_that_size_is_not() -> None:
    ring = Ring(1 << 20)
    assert ring.share_bytes == 1 << 17
    assert offer(ring, np.zeros(ring.share_bytes, np.uint8))
    assert not offer(ring, np.zeros(ring.share_bytes + 1, np.uint8), layer="large")
    assert ring.dropped == {("large", "output"): 1}


@pytest.mark.parametrize("policy", POLICIES)
def test_so_many_records_wait_at_most(policy: str) -> None:
    ring = Ring(SMALL, policy=policy, most_records=3)
    assert [offer(ring, np.zeros(1), layer=str(step)) for step in range(5)] == [True] * 3 + [False] * 2
    reader = reader_of(ring)
    assert reader.take() is not None
    assert offer(ring, np.zeros(1), layer="new") and not offer(ring, np.zeros(1), layer="newer")


@pytest.mark.timing
def test_block_waits_for_room_and_then_drops() -> None:
    ring = Ring(SMALL, policy="block", block_ms=100)
    while ring.offered < 7:
        assert offer(ring, np.zeros(8192, np.uint8), ring.offered)
    begun = time.monotonic()
    assert not offer(ring, np.zeros(8192, np.uint8), 7)
    assert time.monotonic() - begun >= 0.1


def test_block_takes_the_room_that_comes_while_it_waits() -> None:
    ring = Ring(SMALL, policy="block", block_ms=30_000)
    while ring.offered < 7:
        assert offer(ring, np.zeros(8192, np.uint8), ring.offered)
    reader = reader_of(ring)
    thread = threading.Timer(0.02, reader.take)
    thread.start()
    assert offer(ring, np.zeros(8192, np.uint8), 8)
    thread.join()
    assert [sent.sample.step for sent in all_of(reader)] == [1, 2, 3, 4, 5, 6, 8]


def test_latest_keeps_the_newest_of_each_key_and_counts_the_others_as_dropped() -> None:
    ring = Ring(SMALL, policy="latest")
    reader = reader_of(ring)
    for step in range(10):
        assert offer(ring, np.full(3, step), step, "a")
        assert offer(ring, np.full(step, step), 100 + step, "b")  # its box grows
    assert sorted((sent.key[0], sent.sample.step, len(sent.sample.array)) for sent in all_of(reader)) == [
        ("a", 9, 3), ("b", 109, 9),
    ]  # fmt: skip
    assert ring.dropped == {("a", "output"): 9, ("b", "output"): 9}
    assert reader.take() is None
    assert offer(ring, np.zeros(1), 11, "a") and len(all_of(reader)) == 1
    assert ring.dropped == {("a", "output"): 9, ("b", "output"): 9} and ring.offered == 21


def test_latest_takes_turns_so_that_no_key_waits_for_ever() -> None:
    ring = Ring(SMALL, policy="latest")
    reader, seen = reader_of(ring), set()
    for step in range(20):
        for layer in "abcd":
            offer(ring, np.zeros(1), step, layer)
        sent = reader.take()
        assert sent is not None
        seen.add(sent.key[0])
    assert seen == set("abcd")


def test_latest_with_no_box_left_drops() -> None:
    ring = Ring(SMALL, policy="latest")
    sent = [offer(ring, np.zeros(100), layer=str(number)) for number in range(200)]
    assert 20 < sum(sent) < 200
    assert len(all_of(reader_of(ring))) == sum(sent) and sum(ring.dropped.values()) == 200 - sum(sent)


@settings(max_examples=60)
@given(st.lists(st.one_of(st.integers(0, 8192), st.none()), max_size=150))
def test_the_ring_is_a_list_with_an_end(moves: list[int | None]) -> None:
    ring = Ring(SMALL)
    reader, waiting = reader_of(ring), list[tuple[int, int]]()
    for step, size in enumerate(moves):
        if size is None:
            sent = reader.take()
            found = None if sent is None else (sent.sample.step, len(sent.sample.array))
            assert found == (waiting.pop(0) if waiting else None)
            assert sent is None or bytes(sent.sample.array) == bytes([sent.sample.step % 251]) * len(sent.sample.array)
        elif offer(ring, np.full(size, step % 251, np.uint8), step):
            waiting.append((step, size))
        else:
            assert sum(size for _, size in waiting) > SMALL // 2
    assert [(sent.sample.step, len(sent.sample.array)) for sent in all_of(reader)] == waiting
    assert ring.offered == ring.published + sum(ring.dropped.values()) and reader.damaged == 0
    reader.close(), ring.close()


def test_a_ring_that_is_always_full_stays_whole() -> None:
    ring, draw, steps = Ring(SMALL), random.Random(0), iter(range(10**9))
    reader, waiting = reader_of(ring), list[int]()
    for _ in range(3000):
        while offer(ring, np.zeros(draw.choice([0, 10, 500, 5000]), np.uint8), step := next(steps)):
            waiting.append(step)
        sent = reader.take()
        assert sent is not None and sent.sample.step == waiting.pop(0)
    assert [sent.sample.step for sent in all_of(reader)] == waiting and reader.damaged == 0


# -- who writes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", POLICIES)
def test_threads_may_offer_at_once(policy: str) -> None:
    ring = Ring(SMALL, policy=policy, block_ms=1.0)
    reader, found, told = reader_of(ring), list[Any](), list[int]()

    def work(number: int) -> None:
        told.append(sum(offer(ring, np.full(200, step), step, str(number)) for step in range(500)))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        found += all_of(reader)
    found += all_of(reader)
    assert ring.offered == 2000 == len(found) + sum(ring.dropped.values()) and reader.damaged == 0
    assert policy == "latest" or len(found) == sum(told)
    for number in "0123":
        steps = [sent.sample.step for sent in found if sent.key[0] == number]
        assert steps == sorted(set(steps))
    assert all((sent.sample.array == sent.sample.step).all() for sent in found)


def test_threads_take_turns_at_copying() -> None:
    ring, told = Ring(SMALL), list[bool]()

    def work(layer: str) -> None:
        about = {"layer": layer, "variable": "output", "item": -1, "type": "uint8", "shape": (4,), "step": 1}
        for _ in range(20):
            told.append(ring.offer(about, 4, lambda view: time.sleep(0.0005)))

    threads = [threading.Thread(target=work, args=(layer,)) for layer in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert told == [True] * 40 and len(all_of(reader_of(ring))) == 40


@pytest.mark.parametrize("policy", POLICIES)
def test_a_copy_that_fails_sends_nothing_and_is_counted(policy: str) -> None:
    ring = Ring(SMALL, policy=policy)
    about = {"layer": "a", "variable": "output", "item": -1, "type": "uint8", "shape": (100,), "step": 1}

    def fill(view: memoryview) -> None:
        view[:50] = b"x" * 50
        raise RuntimeError("the tensor is gone")

    offer(ring, np.ones(100), layer="b")
    with pytest.raises(RuntimeError, match="the tensor is gone"):
        ring.offer(about, 100, fill)
    offer(ring, np.ones(100), layer="c")
    assert [sent.key[0] for sent in all_of(reader_of(ring))] == ["b", "c"]
    assert ring.offered == 3 and ring.dropped == {("a", "output"): 1}


def test_a_view_that_was_kept_can_damage_its_record_but_not_the_ring() -> None:
    ring, kept = Ring(SMALL), list[memoryview]()
    about = {"layer": "a", "variable": "output", "item": -1, "type": "uint8", "shape": (8,), "step": 1}
    ring.offer(about, 8, kept.append)
    kept[0][:] = b"too late"
    offer(ring, np.ones(3), 2)
    reader = reader_of(ring)
    assert [sent.sample.step for sent in all_of(reader)] == [2] and reader.damaged == 1
    reader.close(), ring.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # one may strike where none can pass
@pytest.mark.parametrize("policy", POLICIES)
def test_ctrl_c_at_any_moment_leaves_the_ring_whole(policy: str) -> None:
    ring = Ring(4 * SMALL, policy=policy)
    reader, found, draw = reader_of(ring), list[Any](), random.Random(0)
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        for lap in range(300):
            try:
                signal.setitimer(signal.ITIMER_REAL, 2e-5 + 4e-4 * draw.random())
                for step in range(10 * lap, 10 * lap + 10):
                    offer(ring, np.full(500, step), step, layer=str(step % 3))
                time.sleep(0.0005)
                signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                pass
            found += all_of(reader)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    offer(ring, np.full(500, 9999), 9999)
    found += all_of(reader)
    assert found[-1].sample.step == 9999 and all((sent.sample.array == sent.sample.step).all() for sent in found)
    assert ring.offered == len(found) + sum(ring.dropped.values()) and reader.damaged == 0


def test_an_offer_from_within_an_offer_is_dropped() -> None:
    ring = Ring(SMALL)
    about = {"layer": "a", "variable": "output", "item": -1, "type": "uint8", "shape": (1,), "step": 1}
    inner: list[bool] = []
    ring.offer(about, 1, lambda view: inner.append(offer(ring, np.ones(1), layer="inner")))
    assert inner == [False] and ring.dropped == {("inner", "output"): 1}
    assert [sent.key[0] for sent in all_of(reader_of(ring))] == ["a"]


def test_a_forked_process_writes_nothing() -> None:
    ring = Ring(SMALL)
    offer(ring, np.ones(1), 1)
    ring._lock.acquire()  # as another thread may hold it when the process is forked
    child = os.fork()
    if not child:
        os._exit(int(offer(ring, np.zeros(1), 2)))
    ring._lock.release()
    assert os.waitpid(child, 0)[1] == 0
    offer(ring, np.ones(1), 3)
    assert [sent.sample.step for sent in all_of(reader_of(ring))] == [1, 3]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_producer_killed_in_the_middle_of_a_copy_leaves_no_half_record(policy: str) -> None:
    with Child(SCRIPTS / "half_a_copy.py", policy, env=PATH) as process:
        number = int(process.line())
        reader = RingReader(os.open(f"/proc/{process.pid}/fd/{number}", os.O_RDWR))
        process.send_signal(signal.SIGKILL)
        process.wait()
    found = {sent.sample.step: sent.sample.array for sent in all_of(reader)}
    assert set(found) == ({0, 1} if policy == "latest" else {0, 1, 2})  # the box of the third was being overwritten
    assert all((array == step).all() for step, array in found.items()) and reader.damaged == 0


# -- its door --------------------------------------------------------------------------------------------------------


def test_settings_that_mean_nothing_are_refused() -> None:
    with pytest.raises(BadArgument, match="no policy 'newest'; there are drop, latest, block"):
        Ring(policy="newest")
    with pytest.raises(BadArgument, match="a ring of 10 bytes is too small; 65,536 is the least"):
        Ring(10)
    with pytest.raises(BadArgument, match="try a smaller ring"):
        Ring(1 << 60)
    with pytest.raises(RingDamaged, match="holds no ring"):
        fd = os.memfd_create("other")
        os.ftruncate(fd, 1 << 16)
        RingReader(fd)


def test_what_json_cannot_say_is_refused_by_name() -> None:
    with pytest.raises(TypeError, match="complex cannot be part of what a record says"):
        offer(Ring(SMALL), np.ones(1), message=1j)


def test_without_memfd_a_file_without_a_name_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create")
    ring = Ring(SMALL)
    offer(ring, np.arange(3), 1)
    assert [sent.sample.array.tolist() for sent in all_of(reader_of(ring))] == [[0, 1, 2]]


def test_a_closed_ring_still_knows_what_became_of_everything() -> None:
    ring = Ring(SMALL, policy="latest", most_records=2)
    reader = reader_of(ring)
    for layer in "abca":
        offer(ring, np.ones(1), layer=layer)
    assert len(all_of(reader)) == 2
    reader.done()
    ring.close()
    ring.close()
    assert (ring.offered, ring.published, ring.taken, ring.handled) == (4, 3, 2, 1)
    assert ring.dropped == {("a", "output"): 1, ("c", "output"): 1} and not offer(ring, np.ones(1))


@pytest.mark.parametrize("policy", POLICIES)
def test_closing_gives_back_every_descriptor_and_mapping(policy: str) -> None:
    before = traces()
    for _ in range(5):
        ring = Ring(SMALL, policy=policy)
        reader = reader_of(ring)
        offer(ring, np.ones(4))
        reader.take()
        reader.close(), ring.close()
    assert nothing_added(traces(), before)


def test_values_offered_together_arrive_as_each_alone() -> None:
    ring = Ring(SMALL)
    arrays = [np.arange(3.0), np.zeros((0, 2), np.float32), np.ones((2, 2), np.int16)]
    headers = [
        {"layer": f"fc{number}", "variable": "output", "item": -1, "type": array.dtype.name,
         "shape": list(array.shape), "step": 7, "time_secs": 1.5, "count": number}
        for number, array in enumerate(arrays)
    ]  # fmt: skip
    offers = [(header, array.nbytes, filler(array)) for header, array in zip(headers, arrays)]
    assert ring.offer_together(offers) and (ring.offered, ring.waiting) == (3, 3)
    reader = reader_of(ring)
    for header, array in zip(headers, arrays):
        sent = reader.take()
        assert sent is not None and sent.key == (header["layer"], "output") and sent.count == header["count"]
        assert sent.sample.array.dtype == array.dtype and sent.sample.array.tolist() == array.tolist()
        reader.done()
    assert reader.take() is None and (reader.taken, reader.handled, ring.waiting, ring.unhandled) == (3, 3, 0, 0)


def test_what_was_taken_together_and_not_handled_is_counted() -> None:
    ring = Ring(SMALL)
    header = {"layer": "a", "variable": "output", "item": -1, "type": "uint8", "shape": [1], "step": 1}
    ring.offer_together([(header, 1, lambda view: None)] * 5)
    reader = reader_of(ring)
    for _ in range(2):
        reader.take()
        reader.done()
    reader.close()  # a reader that is killed: the next one goes on behind the record
    assert reader_of(ring).take() is None
    assert (ring.offered, ring.handled, ring.taken - ring.handled, ring.waiting) == (5, 2, 3, 0)


@pytest.mark.parametrize("options", [{"policy": "latest"}, {"most_records": 2}, {"policy": "block", "block_ms": 1.0}])
def test_a_ring_that_counts_single_values_is_offered_them_singly(options: dict[str, Any]) -> None:
    header = {"layer": "a", "variable": "output", "item": -1, "type": "uint8", "shape": [1], "step": 1}
    ring = Ring(SMALL, **options)
    assert not ring.offer_together([(header, 1, lambda view: None)] * 2) and ring.offered == 0


def test_what_finds_no_room_together_is_not_counted_as_dropped() -> None:
    ring = Ring(SMALL)
    header = {"layer": "a", "variable": "output", "item": -1, "type": "uint8", "shape": [6000], "step": 1}
    assert not ring.offer_together([(header, 6000, lambda view: None)] * 3) and not ring.dropped


def filler(array: Any) -> Any:
    data = array.tobytes()
    return lambda view: view.__setitem__(slice(None), data)
