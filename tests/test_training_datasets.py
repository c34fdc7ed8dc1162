"""Datasets of datasets, and preprocessors: nothing is lost or doubled, and what was learned can be kept."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader, IterableDataset

from torcheer.errors import BadArgument
from torcheer.training.datasets import (
    Linked,
    Merged,
    Preprocessed,
    PreprocessedStream,
    Split,
    preprocessed,
    preprocessors_of,
)
from torcheer.training.preprocessors import (
    CharTokenizer,
    Identity,
    ImagePreprocessor,
    LabelEncoder,
    Normalize,
    NullProcessor,
    OneHot,
    ValueNormalizer,
    WordTokenizer,
)

shares = st.lists(st.integers(0, 20), min_size=1, max_size=5).filter(any).map(lambda n: [one / sum(n) for one in n])


class Bare:
    """Only a length and `[ ]`, and no end: as many datasets are."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[int, str]:
        return index, str(index)


# Split


@given(st.integers(0, 300), shares, st.integers(0, 3))
def test_a_split_neither_loses_nor_doubles_a_sample(count: int, ratio: list[float], seed: int) -> None:
    split = Split(range(count), ratio, seed=seed)
    assert sorted(sample for part in split for sample in part) == list(range(count))


@given(st.integers(0, 300), shares)
def test_the_parts_of_a_split_are_within_one_of_their_share(count: int, ratio: list[float]) -> None:
    sizes = [len(part) for part in Split(range(count), ratio)]
    assert all(abs(size - share * count) < 1 + 1e-9 for size, share in zip(sizes, ratio))


@pytest.mark.parametrize(
    ("ratio", "count", "sizes"),
    [([0.29, 0.71], 100, [29, 71]), ([0.8, 0.1, 0.1], 10, [8, 1, 1]), ([0.333] * 3, 9, [3, 3, 3]), ([1], 5, [5])],
)
def test_the_sizes_of_a_split_are_what_a_person_expects(ratio: list[float], count: int, sizes: list[int]) -> None:
    assert [len(part) for part in Split(Bare(count), ratio)] == sizes


def test_the_parts_have_names_and_numbers() -> None:
    split = Split(Bare(10), [0.6, 0.2, 0.2])
    assert [list(part) for part in (split.train, split.val, split.test)] == [list(split[n]) for n in range(3)]
    assert split["val"][0] == split.val[0]


def test_the_same_seed_splits_the_same_way_and_another_does_not() -> None:
    one, same, other = (Split(range(50), [0.5, 0.5], seed=seed).indices for seed in (1, 1, 2))
    assert one == same != other


def test_a_split_leaves_the_generators_alone() -> None:
    before = torch.get_rng_state(), np.random.get_state()[1].tolist()
    Split(range(50), [0.5, 0.5])
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.random.get_state()[1].tolist() == before[1]


def test_a_split_that_is_not_shuffled_keeps_the_order() -> None:
    assert [list(part) for part in Split(range(5), [0.6, 0.4], shuffle=False)] == [[0, 1, 2], [3, 4]]


@pytest.mark.parametrize(
    ("ratio", "said"),
    [
        ([0.8, 0.1], "add up to 1, and these to 0.9"),
        ([0.9, 0.2], "these to 1.1"),
        ([1.5, -0.5], "not negative"),
        ([], "not negative"),
        ([float("nan"), 1.0], "not negative"),
    ],
)
def test_ratios_that_are_no_shares_are_refused(ratio: list[float], said: str) -> None:
    with pytest.raises(BadArgument, match=said):
        Split(range(10), ratio)


def test_a_split_is_restored_from_json_whatever_the_seed() -> None:
    before = Split(range(30), [0.7, 0.3], seed=1)
    after = Split(range(30), [0.7, 0.3], seed=2)
    after.load_state_dict(json.loads(json.dumps(before.state_dict())))
    assert after.indices == before.indices


def test_a_split_says_when_the_dataset_has_changed() -> None:
    kept = Split(range(30), [0.7, 0.3]).state_dict()
    with pytest.raises(BadArgument, match="had 30 samples when it was split, and now has 31"):
        Split(range(31), [0.7, 0.3]).load_state_dict(kept)


@pytest.mark.parametrize("parts", [[[0, 1], [1]], [[0], [1]], [[0, 1], [3]]])
def test_a_split_that_was_damaged_is_refused(parts: list[list[int]]) -> None:
    with pytest.raises(BadArgument, match="loses samples or has some twice"):
        Split(range(3), [0.5, 0.5]).load_state_dict({"size": 3, "parts": parts})


# Merged, Preprocessed


@given(st.lists(st.integers(0, 5), min_size=1, max_size=5))
def test_merged_datasets_stand_one_behind_the_other(counts: list[int]) -> None:
    parts = [[(number, index) for index in range(count)] for number, count in enumerate(counts)]
    merged = Merged(*parts)
    expected = [sample for part in parts for sample in part]
    assert [merged[index] for index in range(len(merged))] == expected
    assert [merged[-index - 1] for index in range(len(merged))] == expected[::-1]


def double(value: Any) -> Any:
    return value * 2


def test_each_place_of_a_sample_goes_through_its_preprocessor() -> None:
    assert Preprocessed(Bare(3), [double, None])[2] == (4, "2")
    assert Linked(Bare(3), ["", double])[2] == (2, "22")


def test_places_without_a_preprocessor_stay_as_they_are() -> None:
    assert Preprocessed(Bare(3), [double])[2] == (4, "2")


def test_a_sample_that_is_no_tuple_stays_none() -> None:
    assert Preprocessed([1, 2], [double])[1] == 4


def test_dicts_take_a_dict_of_preprocessors() -> None:
    assert Preprocessed([{"x": 1, "y": 2}], {"x": double})[0] == {"x": 2, "y": 2}


def test_a_loader_batches_a_preprocessed_split_in_workers() -> None:
    dataset = Preprocessed(Split(Bare(6), [0.5, 0.5], shuffle=False).train, [double])
    batches = list(DataLoader(dataset, batch_size=2, num_workers=1))
    assert [batch[0].tolist() for batch in batches] == [[0, 2], [4]]


class Stream(IterableDataset):
    def __iter__(self) -> Any:
        return iter([(1, "a"), (2, "b")])


def test_a_stream_is_preprocessed_as_it_comes() -> None:
    stream = preprocessed(Stream(), [double])
    assert isinstance(stream, PreprocessedStream)
    assert list(stream) == [(2, "a"), (4, "b")]
    assert isinstance(preprocessed(Bare(2), [double]), Preprocessed)


def test_what_a_raw_value_goes_through_is_known_from_the_dataset() -> None:
    inner = Split(Preprocessed(Bare(4), [double]), [1.0]).train
    first, second = preprocessors_of(Merged(Preprocessed(inner, [double, str.upper]), Bare(2)))
    assert (first(1), second("a")) == (4, "A")
    assert preprocessors_of(Bare(2)) == []


# Preprocessors


def kept(before: Any, after: Any) -> Any:
    """A preprocessor that knows what another learned, by way of JSON."""
    after.load_state_dict(json.loads(json.dumps(before.state_dict())))
    return after


def test_the_null_processor_leaves_values_alone() -> None:
    thing = object()
    assert NullProcessor is Identity
    assert (Identity()(thing), Identity().process(thing)) == (thing, thing)


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=20))
def test_numbers_are_normalised_by_their_mean_and_deviation(values: list[float]) -> None:
    normalize = Normalize()
    normalize.fit(values)
    deviation = np.std(values) if np.std(values) > 1e-12 * abs(np.mean(values)) else 1.0
    expected = [(value - np.mean(values)) / deviation for value in values]
    assert [normalize(value) for value in values] == pytest.approx(expected, rel=1e-6, abs=1e-6)


def test_small_deviations_of_large_numbers_are_not_lost() -> None:
    normalize = Normalize()
    normalize.fit([1e9, 1e9 + 1, 1e9 + 2])
    assert normalize(1e9 + 2) == pytest.approx(1.5**0.5)


def test_vectors_are_normalised_by_feature_and_images_by_channel() -> None:
    vectors, images = torch.randn(50, 3) * 5 + 2, torch.rand(20, 3, 4, 4)
    for values, axes in ((vectors, 0), (images, (0, 2, 3))):
        normalize = Normalize()
        normalize.fit(list(values))
        made = torch.stack([normalize(value) for value in values])
        assert made.dtype == torch.float32
        torch.testing.assert_close(made.mean(axes), torch.zeros(3), atol=1e-5, rtol=0)
        torch.testing.assert_close(made.std(axes, unbiased=False), torch.ones(3))


def test_one_mean_of_everything_is_taken_without_an_axis() -> None:
    normalize = Normalize(axis=None)
    normalize.fit([torch.tensor([0.0, 2.0]), torch.tensor([4.0])])
    assert normalize(torch.tensor([2.0, 2.0])).tolist() == [0, 0]


def test_a_feature_that_never_changes_is_only_moved() -> None:
    normalize = Normalize()
    normalize.fit([torch.full((1, 7, 7), 0.1)] * 3)
    assert normalize(torch.full((1, 7, 7), 0.1)).abs().max() < 1e-6


def test_normalising_can_be_undone() -> None:
    normalize = ValueNormalizer(column=0)
    normalize.fit([(torch.tensor([1.0, 5.0]), 0), (torch.tensor([3.0, 9.0]), 0)])
    assert normalize.inverse(normalize(torch.tensor([7.0, 8.0]))).tolist() == [7, 8]


def test_only_so_many_samples_are_looked_at() -> None:
    normalize = Normalize(samples=2)
    normalize.fit([0.0, 2.0, 1000.0])
    assert normalize(1.0) == 0


def test_what_normalize_learned_is_kept_exactly() -> None:
    before = Normalize()
    before.fit(list(torch.randn(9, 3)))
    value = torch.randn(3)
    assert torch.equal(kept(before, Normalize())(value), before(value))
    assert kept(Normalize(), Normalize()).mean is None


@pytest.mark.parametrize(
    ("dataset", "said"),
    [
        ([], "dataset without samples"),
        ([1.0, float("nan")], "not finite"),
        ([(1.0, 2)], "samples of 2 columns: say which, such as column=0"),
        ([torch.ones(2), torch.ones(3)], "values of 2 and of 3 places have no common mean"),
    ],
)
def test_normalize_says_what_it_cannot_learn_from(dataset: list[Any], said: str) -> None:
    with pytest.raises(BadArgument, match=said):
        Normalize().fit(dataset)


@pytest.mark.parametrize(
    "one", [Normalize(), LabelEncoder(), OneHot(), CharTokenizer()], ids=lambda x: type(x).__name__
)
def test_a_preprocessor_that_was_not_fitted_says_so(one: Any) -> None:
    with pytest.raises(BadArgument, match=r"has seen no dataset yet: fit it first"):
        one.process("a" if isinstance(one, CharTokenizer) else 1)


def test_images_are_made_ready_with_the_statistics_of_their_channels() -> None:
    images = [(np.full((4, 4, 3), level, np.uint8), 0) for level in (0, 255)]
    preprocess = ImagePreprocessor(0)
    preprocess.fit(images)
    assert preprocess(images[1][0]).shape == (3, 4, 4)
    assert preprocess(images[1][0]).unique().tolist() == [1.0]


def test_labels_are_numbered_in_their_order() -> None:
    encoder = LabelEncoder(column=1)
    encoder.fit([(0, "dog"), (0, "cat"), (0, "dog")])
    assert [encoder("cat"), encoder("dog"), encoder.decode(1)] == [0, 1, "dog"]
    assert kept(encoder, LabelEncoder())("dog") == 1


def test_labels_may_be_tensors_or_numpy_numbers() -> None:
    encoder = LabelEncoder()
    encoder.fit([torch.tensor(7), np.int64(3), 5])
    assert json.loads(json.dumps(encoder.state_dict())) == {"classes": [3, 5, 7]}
    assert encoder(torch.tensor(5)) == 1


def test_a_label_becomes_one_hot() -> None:
    assert OneHot(3)(2).tolist() == [0, 0, 1]
    assert OneHot(classes=["a", "b"])("a").tolist() == [1, 0]
    with pytest.raises(BadArgument, match="label 3 is none of the 3"):
        OneHot(3)(3)


@given(st.text(max_size=30))
def test_characters_come_back_as_they_went_in(text: str) -> None:
    tokenizer = CharTokenizer()
    tokenizer.fit([text])
    assert tokenizer.decode(tokenizer(text)) == text


def test_a_text_stands_between_its_ends() -> None:
    tokenizer = CharTokenizer(tokens="ab")
    assert tokenizer("ab?") == [2, 4, 5, 1, 3]
    assert CharTokenizer(tokens="ab", ends=False)("ab") == [4, 5]
    assert tokenizer.decode(torch.tensor([2, 4, 0, 3, 5])) == "a"
    assert len(tokenizer) == 6


def test_words_are_kept_by_how_often_they_occur() -> None:
    tokenizer = WordTokenizer(0, size=2)
    tokenizer.fit([("the cat, the dog", 0), ("The dog", 1)])
    assert tokenizer.tokens[4:] == ["the", "dog"]
    assert tokenizer.decode(tokenizer("the cat")) == "the <unk>"


def test_rare_words_are_left_out() -> None:
    tokenizer = WordTokenizer(min_count=2)
    tokenizer.fit(["a b", "b c"])
    assert tokenizer.tokens[4:] == ["b"]


def test_a_vocabulary_is_kept() -> None:
    tokenizer = WordTokenizer()
    tokenizer.fit(["some words here"])
    assert kept(tokenizer, WordTokenizer())("words here") == tokenizer("words here")


def test_a_dataset_with_fitted_preprocessors_can_be_pickled() -> None:
    tokenizer = WordTokenizer(tokens=["a"])
    dataset = Preprocessed([("a", 1)], [tokenizer, OneHot(2)])
    assert repr(pickle.loads(pickle.dumps(dataset))[0]) == repr(dataset[0])


# What is refused

REFUSED = {
    "a part that is not there is named with those that are": (
        lambda: Split(range(5), [0.6, 0.4]).test,
        BadArgument,
        r"no part 'test': it has 2 parts, train, val, or \[0\] and up",
    ),
    "a part that is not there by its number is refused": (
        lambda: Split(range(5), [0.6, 0.4])[2],
        BadArgument,
        "no part 2",
    ),
    "a merged dataset ends where the last ends": (
        lambda: Merged(Bare(1), Bare(3))[4],
        IndexError,
        "no sample 4 among 4",
    ),
    "nothing cannot be merged": (lambda: Merged(), BadArgument, "nothing to merge"),
    "more preprocessors than places are refused": (
        lambda: Preprocessed(Bare(1), [None, None, double])[0],
        BadArgument,
        "3 preprocessors for the 2 places of a sample",
    ),
    "an unfitted preprocessor is not taken for none": (
        lambda: Preprocessed(["text"], [CharTokenizer()])[0],
        BadArgument,
        "CharTokenizer has seen no dataset yet",
    ),
    "a label that was never there is named with the nearest": (
        lambda: LabelEncoder(classes=["cat", "dog"])("dgo"),
        BadArgument,
        r"label 'dgo' is none of the 2 that were there. Did you mean 'dog'\?",
    ),
}


@pytest.mark.parametrize(("call", "error", "says"), REFUSED.values(), ids=REFUSED)
def test_datasets_refuse_and_say_why(call: Callable[..., Any], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        call()
