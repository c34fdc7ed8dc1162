"""TorchAssistant's `preprocessors`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch.utils.data import Subset

from torcheer.errors import BadArgument
from torcheer.training import preprocessors
from torcheer.training.preprocessors import (
    CharTokenizer,
    Identity,
    NullProcessor,
    OneHot,
    Tokenizer,
    ValueNormalizer,
    ValuePreprocessor,
    WordTokenizer,
    values_of,
)

__all__ = [
    "CharTokenizer",
    "ExamplePreprocessor",
    "Identity",
    "ImagePreprocessor",
    "NullProcessor",
    "OneHot",
    "SimpleNormalizer",
    "TextPreprocessor",
    "TrainablePreprocessor",
    "ValueNormalizer",
    "ValuePreprocessor",
    "WordTokenizer",
]

# more samples than this -> the share of them, drawn at random, that a preprocessor learns from
SHARES = {10**6: 0.01, 10**4: 0.1, 10**3: 0.5}


class SimpleNormalizer(ValuePreprocessor):
    """Divide values by 255."""

    def process(self, value: Any) -> Any:
        return value / 255


class ExamplePreprocessor:
    """Convert all values of a sample."""

    def process(self, values: Any) -> Any:
        """Return the converted values."""


class TrainablePreprocessor(ValuePreprocessor):
    """Learn from one position of the samples: `_do_fit(values)` goes through them, and yields after each."""

    def __init__(self, fit_index: int) -> None:
        self.fit_index = fit_index

    def fit(self, dataset: Any) -> None:
        for _ in self._do_fit(values_of(part_to_fit(dataset), self.fit_index, type(self).__name__)):
            pass

    def process(self, value: Any) -> Any:
        return value

    def _do_fit(self, column: Iterable[Any]) -> Iterator[Any]:
        yield from ()


class ImagePreprocessor(preprocessors.ImagePreprocessor):
    """Convert images to floats, each channel normalised by the means of the images' own means and deviations."""

    def __init__(self, fit_index: int = 0) -> None:
        super().__init__(fit_index, samples=None)

    def fit(self, dataset: Any) -> None:
        count, means, deviations = 0, torch.zeros(()), torch.zeros(())
        for value in values_of(part_to_fit(dataset), self.column, type(self).__name__):
            rows = self._rows(self._tensor(value))
            if count and means.shape != rows.shape[1:]:
                raise BadArgument(f"images of {means.numel()} and of {rows.shape[1]} channels have no common mean")
            means, deviations, count = means + rows.mean(0), deviations + rows.std(0), count + 1
        if not count:
            raise BadArgument("ImagePreprocessor cannot learn a mean from a dataset without images")
        self.mean, self.deviation = means / count, deviations / count
        self.deviation[self.deviation == 0] = 1.0  # images of one colour

    @property
    def mu(self) -> list[float]:
        """The mean of each channel."""
        return [] if self.mean is None else self.mean.tolist()

    @property
    def sd(self) -> list[float]:
        """What each channel is divided by."""
        return [] if self.deviation is None else self.deviation.tolist()


class TextPreprocessor(Tokenizer):
    """Convert texts to the numbers of their words, between those of <start> and <end>; unknown words are <OOV>."""

    SPECIAL = sentence_start, sentence_end, out_of_vocab = ("<start>", "<end>", "<OOV>")
    START, END, UNKNOWN = range(3)
    PAD = -1  # there is none
    BETWEEN = " "

    def __init__(self, fit_index: int) -> None:
        super().__init__(fit_index)

    def fit(self, dataset: Any) -> None:
        super().fit(part_to_fit(dataset))

    def pieces(self, text: str) -> Sequence[str]:
        return re.findall(r"\w+", text)

    @property
    def num_words(self) -> int:
        """Number of words, special ones included."""
        return len(self)

    @property
    def num_classes(self) -> int:
        """Number of words, special ones included."""
        return len(self)

    @property
    def word_indices(self) -> dict[str, int]:
        """The number of each word."""
        return {word: number for number, word in enumerate(self.tokens)}

    @property
    def index2word(self) -> dict[int, str]:
        """The word of each number."""
        return dict(enumerate(self.tokens))

    def encode_word(self, word: str) -> int:
        """Return the number of a word, or that of <OOV>."""
        return self._numbers.get(word, self.UNKNOWN)

    def decode_token(self, token: int) -> str:
        """Return the word of a number, or <OOV>."""
        return self.tokens[token] if 0 <= token < len(self) else self.out_of_vocab

    def decode(self, tokens: Any) -> str:
        """Return the words of all numbers, special ones included."""
        return self.BETWEEN.join(self.decode_token(int(token)) for token in tokens)


def part_to_fit(dataset: Any) -> Any:
    """Return the samples that a preprocessor learns from: of a large dataset, some that are drawn at random."""
    size = len(dataset) if hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__") else 0
    share = next((share for least, share in SHARES.items() if size > least), 1.0)
    if share == 1.0:
        return dataset
    return Subset(dataset, torch.randperm(size)[: int(size * share)].tolist())
