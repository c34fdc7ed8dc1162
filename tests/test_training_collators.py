"""Collators: samples into batches, and what is said of samples that make none."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from torcheer.errors import BadArgument
from torcheer.training.collators import (
    BatchDivide,
    ColumnWiseCollator,
    PadSequences,
    SeqsToOneHot,
    StackTensors,
    images_to_tensor,
    no_transform,
    seqs_to_tensor,
    to_float_tensor,
    to_long_tensor,
)

Image = pytest.importorskip("PIL.Image")

sequences = st.lists(st.lists(st.integers(0, 9), max_size=6), min_size=1, max_size=5)


def test_a_batch_of_tuples_becomes_a_list_of_lists() -> None:
    assert BatchDivide()([("a", 1), ("b", 2), ("c", 3)]) == [["a", "b", "c"], [1, 2, 3]]


def test_a_batch_of_dicts_becomes_a_dict_of_lists() -> None:
    assert BatchDivide()([{"x": 1, "y": 2}, {"x": 3, "y": 4}]) == {"x": [1, 3], "y": [2, 4]}


def test_samples_that_are_no_tuples_are_one_column() -> None:
    assert BatchDivide()(["a", "b"]) == [["a", "b"]]


def test_a_collator_can_be_asked_for_the_batch_of_some_inputs() -> None:
    assert BatchDivide().collate_inputs(("a", 1), ("b", 2)) == [["a", "b"], [1, 2]]


def test_columns_of_numbers_arrays_and_tensors_are_stacked_and_texts_stay() -> None:
    batch = [(torch.ones(2), np.zeros(3, np.int16), 1, 0.5, [1, 2], "a") for _ in range(4)]
    *tensors, texts = StackTensors()(batch)
    assert [tuple(one.shape) for one in tensors] == [(4, 2), (4, 3), (4,), (4,), (4, 2)]
    assert [one.dtype for one in tensors] == [torch.float32, torch.int16, torch.int64, torch.float32, torch.int64]
    assert texts == ["a"] * 4


def test_dicts_are_stacked_by_key() -> None:
    stacked = StackTensors()([{"x": 1}, {"x": 2}])
    assert stacked["x"].tolist() == [1, 2]


@pytest.mark.parametrize("pair", [([1, 2], [3]), (torch.ones(2), torch.ones(3)), (np.ones(2), np.ones(3))])
def test_what_cannot_be_stacked_names_the_column_and_the_collator_to_use(pair: tuple) -> None:
    with pytest.raises(BadArgument, match=r"column 1 makes no tensor: .*PadSequences"):
        StackTensors()([(0, pair[0]), (0, pair[1])])


def test_each_column_goes_to_a_collator_of_its_own() -> None:
    collate = ColumnWiseCollator([to_float_tensor, to_long_tensor, None, no_transform])
    a, b, c, d = collate([(1, 1.0, "a", 1), (2, 2.0, "b", 2)])
    assert (a.dtype, b.dtype, c, d) == (torch.float32, torch.int64, ["a", "b"], [1, 2])


def test_a_collator_that_returns_a_tuple_makes_several_columns() -> None:
    padded, lengths, labels = ColumnWiseCollator([PadSequences(), to_long_tensor])([([1, 2], 0), ([3], 1)])
    assert (padded.tolist(), lengths.tolist(), labels.tolist()) == ([[1, 2], [3, 0]], [2, 1], [0, 1])


@given(sequences)
def test_padding_keeps_every_sequence_and_its_length(batch: list[list[int]]) -> None:
    padded, lengths = PadSequences(-1)(batch)
    assert padded.shape == (len(batch), max(map(len, batch)))
    assert [row[:length].tolist() for row, length in zip(padded, lengths)] == batch
    assert all((row[length:] == -1).all() for row, length in zip(padded, lengths))


def test_padding_loses_no_fraction_to_whole_numbers_that_come_first() -> None:
    assert PadSequences()([[1, 2], [0.5], []])[0].tolist() == [[1, 2], [0.5, 0], [0, 0]]


def test_an_empty_sequence_leaves_whole_numbers_whole() -> None:
    assert PadSequences()([[], [1]])[0].dtype == torch.int64


def test_sequences_of_vectors_are_padded_along_time() -> None:
    padded, lengths = PadSequences()([torch.ones(3, 2), torch.ones(1, 2)])
    assert (padded.shape, lengths.tolist()) == ((2, 3, 2), [3, 1])


def test_one_hot_sequences_go_on_with_their_own_last_class() -> None:
    hot = SeqsToOneHot(4)([[0, 1, 3], [2, 3]])
    assert hot.dtype == torch.float32
    assert hot.argmax(-1).tolist() == [[0, 1, 3], [2, 3, 3]]
    assert hot.sum(-1).tolist() == [[1, 1, 1], [1, 1, 1]]


def test_one_hot_sequences_take_a_padding_value() -> None:
    assert SeqsToOneHot(4, padding_value=0)([[1, 2], []]).argmax(-1).tolist() == [[1, 2], [0, 0]]


@pytest.mark.parametrize(("classes", "wrong"), [([4], 4), ([-1, 9], -1)])
def test_a_class_out_of_range_is_named(classes: list[int], wrong: int) -> None:
    with pytest.raises(BadArgument, match=f"class {wrong} is none of num_classes=4"):
        SeqsToOneHot(4)([classes])


@pytest.mark.parametrize(
    ("mode", "colour", "expected"),
    [("L", 51, [0.2]), ("RGB", (255, 0, 51), [1.0, 0.0, 0.2]), ("1", 1, [1.0]), ("RGBA", (0, 0, 0, 255), [0, 0, 0, 1])],
)
def test_pillow_images_become_floats_channels_first(mode: str, colour: object, expected: list[float]) -> None:
    tensor = images_to_tensor([Image.new(mode, (5, 4), colour)])
    assert tensor.shape == (1, len(expected), 4, 5)
    torch.testing.assert_close(tensor[0, :, 0, 0], torch.tensor(expected, dtype=torch.float32))


def test_an_image_with_a_palette_becomes_colours() -> None:
    assert images_to_tensor([Image.new("RGB", (2, 2), (255, 0, 0)).convert("P")])[0, :, 0, 0].tolist() == [1, 0, 0]


def test_arrays_are_height_width_channels_and_tensors_channels_first() -> None:
    array, tensor = np.zeros((4, 5, 3), np.uint8), torch.zeros(3, 4, 5, dtype=torch.uint8)
    assert images_to_tensor([array, tensor]).shape == (2, 3, 4, 5)


def test_sixteen_bit_images_end_at_one() -> None:
    assert images_to_tensor([np.full((2, 2), 65535, np.uint16)]).max() == 1


def test_images_that_are_floats_stay_as_they_are() -> None:
    assert images_to_tensor([np.full((2, 2), 0.25)])[0, 0, 0, 0] == 0.25


COLLATORS = [BatchDivide(), StackTensors(), ColumnWiseCollator([PadSequences(), SeqsToOneHot(5)])]


@pytest.mark.parametrize("collate", COLLATORS, ids=lambda one: type(one).__name__)
def test_a_collator_survives_the_way_to_a_worker(collate: object) -> None:
    batch = [([1, 2], [3, 4]), ([0, 0], [1, 2])]
    assert repr(pickle.loads(pickle.dumps(collate))(batch)) == repr(collate(batch))  # type: ignore[operator]


def test_a_data_loader_takes_a_collator() -> None:
    assert list(DataLoader([(1, "a"), (2, "b")], batch_size=2, collate_fn=BatchDivide())) == [[[1, 2], ["a", "b"]]]  # type: ignore[arg-type]


# What is refused

REFUSED = {
    "samples of different lengths are refused": (
        lambda: BatchDivide()([(1, 2), (3,)]),
        "different numbers of columns: 1, 2",
    ),
    "a batch of nothing is refused": (lambda: BatchDivide()([]), "no samples"),
    "what is no number is named by its type": (
        lambda: StackTensors()([(object(),)]),
        "column 0 holds object, which makes no tensor: see BatchDivide",
    ),
    "a wrong number of collators is said": (
        lambda: ColumnWiseCollator([None])([(1, 2)]),
        "1 collators, and a sample 2 columns",
    ),
    "an empty sequence without a padding value is refused": (lambda: seqs_to_tensor([[1], []]), "give a padding_value"),
    "images of different sizes are refused with their shapes": (
        lambda: images_to_tensor([Image.new("L", (2, 2)), Image.new("L", (3, 3))]),
        r"\(1, 2, 2\), \(1, 3, 3\), make no batch: resize",
    ),
    "what is no image is refused with its shape": (
        lambda: images_to_tensor([np.zeros(7)]),
        r"2 or 3 axes, and this one the shape \(7,\)",
    ),
}


@pytest.mark.parametrize(("call", "says"), REFUSED.values(), ids=REFUSED)
def test_collators_refuse_and_say_why(call: Callable[..., Any], says: str) -> None:
    with pytest.raises(BadArgument, match=says):
        call()
