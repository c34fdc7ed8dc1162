"""One encoding of Sample: what goes in comes out, and what could not have gone in is told."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from seams import TYPES, decode, encode, refusal

from torcheer.errors import ArchiveDamaged, BadArgument
from torcheer.records import Sample

KINDS = st.sampled_from([np.dtype(name) for name in TYPES if hasattr(np, name)])


@given(arrays.arrays(KINDS, arrays.array_shapes(min_dims=0, min_side=0)), st.text(), st.integers(-1, 9))
def test_a_sample_comes_back_as_it_was(array: np.ndarray[Any, Any], layer: str, item: int) -> None:
    about, payload = encode(Sample(3, layer, "value", item, array))
    found = decode(json.loads(json.dumps(about)), bytes(payload), 3)
    assert (found.step, found.layer, found.variable, found.item) == (3, layer, "value", item)
    assert found.array.dtype == array.dtype and found.array.shape == array.shape
    assert found.array.tobytes() == array.tobytes()


@pytest.mark.parametrize(
    "array",
    [
        np.arange(24, dtype=">i4").reshape(2, 3, 4).transpose(2, 0, 1)[::-1],
        np.asfortranarray(np.ones((3, 4))),
        torch.arange(24).reshape(4, 6).T[1:, ::2],
        torch.ones(2, 3, requires_grad=True),
        torch.tensor([1 + 2j]).conj(),
        torch.tensor([1 + 2j]).conj().imag,
        torch.ones(3).expand(2, 3),
        [1.0, 2.0],
        7,
    ],
)
def test_arrays_of_any_layout_are_encoded_row_by_row(array: Any) -> None:
    expected = array.detach().resolve_conj().resolve_neg().numpy() if hasattr(array, "detach") else np.asarray(array)
    about, payload = encode(Sample(0, "x", "value", -1, array))
    assert np.array_equal(decode(about, payload, 0).array, expected)


@pytest.mark.parametrize(
    "make",
    [
        lambda: None,
        lambda: np.array(["text"]),
        lambda: np.array([object()]),
        lambda: np.zeros(2, "datetime64[s]"),
        lambda: np.zeros(2, [("a", "f4")]),
        lambda: torch.eye(2).to_sparse(),
        lambda: torch.ones(2, device="meta"),
        lambda: torch.quantize_per_tensor(torch.ones(2), 1.0, 0, torch.quint8),
        lambda: torch.nested.nested_tensor([torch.ones(1), torch.ones(2)]),
        lambda: torch.zeros([1] * 65),
    ],
)
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
def test_what_cannot_be_encoded_says_why(make: Callable[[], Any]) -> None:
    array = make()
    assert "cannot be kept" in refusal(array)
    with pytest.raises(BadArgument, match="cannot be kept"):
        encode(Sample(0, "x", "value", -1, array))


GOOD = {"layer": "x", "variable": "value", "item": -1, "type": "float32", "shape": [2]}


@pytest.mark.parametrize(
    ("about", "payload"),
    [
        (GOOD, bytes(7)),
        (GOOD, bytes(12)),
        ({**GOOD, "type": "object"}, bytes(8)),
        ({**GOOD, "shape": [-2]}, bytes(8)),
        ({**GOOD, "shape": [0, 2**64]}, b""),
        ({**GOOD, "item": True}, bytes(8)),
        ({}, bytes(8)),
        ([], bytes(8)),
        (None, bytes(8)),
    ],
)
def test_what_is_no_sample_is_told(about: Any, payload: bytes) -> None:
    with pytest.raises(ArchiveDamaged):
        decode(about, payload, 0)
