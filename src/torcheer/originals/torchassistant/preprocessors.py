"""TorchAssistant's `preprocessors`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from torcheer.training.preprocessors import (
    CharTokenizer,
    Identity,
    ImagePreprocessor,
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
        for _ in self._do_fit(values_of(dataset, self.fit_index, type(self).__name__)):
            pass

    def process(self, value: Any) -> Any:
        return value

    def _do_fit(self, column: Iterable[Any]) -> Iterator[Any]:
        yield from ()


class TextPreprocessor(Tokenizer):
    """Convert texts to the numbers of their words, between those of <start> and <end>; unknown words are <OOV>."""

    SPECIAL = sentence_start, sentence_end, out_of_vocab = ("<start>", "<end>", "<OOV>")
    START, END, UNKNOWN = range(3)
    PAD = -1  # there is none
    BETWEEN = " "

    def __init__(self, fit_index: int) -> None:
        super().__init__(fit_index)

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
