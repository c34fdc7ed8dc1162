"""The one way off a device: what two sinks want of a value is copied once."""

from __future__ import annotations

import pytest
import torch
from seams import READY, SharedCopies, copy_to_host, host_copy


def test_the_same_numbers_are_copied_once_for_all_who_share() -> None:
    value = torch.arange(6.0).view(2, 3)
    with SharedCopies():
        first, again, other = host_copy(value), host_copy(value.detach()), host_copy(value[:1])
    assert first is again and first is not other
    assert first is not None and torch.equal(first.tensor, value)


def test_a_copy_is_not_shared_with_a_later_value_in_the_same_memory() -> None:
    value = torch.zeros(3)
    with SharedCopies():
        first = host_copy(value)
    value += 1
    with SharedCopies():
        second = host_copy(value)
    assert first is not None and second is not None
    assert first.tensor.tolist() == [0, 0, 0] and second.tensor.tolist() == [1, 1, 1]


def test_a_copy_holds_the_numbers_of_its_moment() -> None:
    value = torch.ones(3)
    copy = host_copy(value)
    value.zero_()
    assert copy is not None and copy.arrived and copy.tensor.tolist() == [1, 1, 1]


def test_on_a_device_without_streams_nothing_is_in_flight() -> None:
    copies, event = copy_to_host([torch.ones(2), torch.zeros(1)])
    assert event is READY and event.query() and [copy.tolist() for copy in copies] == [[1, 1], [0]]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_on_a_gpu_two_sinks_share_one_pinned_copy() -> None:
    value = torch.arange(6.0, device="cuda")
    with SharedCopies():
        first, again = host_copy(value), host_copy(value)
    value.zero_()
    torch.cuda.synchronize()
    assert first is again and first is not None and first.arrived
    assert first.tensor.is_pinned() and first.tensor.tolist() == [0, 1, 2, 3, 4, 5]
