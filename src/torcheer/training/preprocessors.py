"""Preprocessors of values in samples, with the state that they learned from data."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from torcheer.errors import BadArgument
from torcheer.terminal import did_you_mean
from torcheer.training.collators import image_to_tensor

State = dict[str, Any]  # JSON values: saved in the session's folder


class ValuePreprocessor(ABC):
    """Convert a value; `fit` may learn from a dataset first, and what it learned is its state."""

    def fit(self, dataset: Any) -> None:  # noqa: B027
        """Learn from a dataset."""

    @property
    def needs_fit(self) -> bool:
        """True where it learns from a dataset and has not been fitted."""
        return type(self).fit is not ValuePreprocessor.fit

    @abstractmethod
    def process(self, value: Any) -> Any:
        """Return the preprocessed value."""

    def __call__(self, value: Any) -> Any:
        return self.process(value)

    def state_dict(self) -> State:
        """Return what was learned."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:  # noqa: B027
        """Restore what was learned."""


class Identity(ValuePreprocessor):
    """Return values unchanged."""

    def process(self, value: Any) -> Any:
        return value


class Normalize(ValuePreprocessor):
    """Subtract the mean and divide by the standard deviation of the dataset.

    Statistics are separate for each index of `axis`: 0 for the features of a vector or the channels of an image, -1
    for the features of a sequence, None for one mean of everything. `column` is the position in a sample of the values
    to learn from, `samples` how many of them to read.
    """

    def __init__(self, column: int | str | None = None, *, axis: int | None = 0, samples: int | None = None) -> None:
        self.column, self.axis, self.samples = column, axis, samples
        self.mean: Tensor | None = None
        self.deviation: Tensor | None = None

    @property
    def needs_fit(self) -> bool:
        return self.mean is None

    def fit(self, dataset: Any) -> None:
        count, mean, spread = 0, torch.zeros(()), torch.zeros(())
        for value in islice(values_of(dataset, self.column, type(self).__name__), self.samples):
            rows = self._rows(self._tensor(value))
            if count and mean.shape != rows.shape[1:]:
                raise BadArgument(f"values of {mean.numel()} and of {rows[0].numel()} places have no common mean")
            # merge two means by their difference: a sum of squares would lose small deviations of large numbers
            total, difference = count + len(rows), rows.mean(0) - mean
            spread = spread + rows.sub(rows.mean(0)).square().sum(0) + difference**2 * (count * len(rows) / total)
            mean, count = mean + difference * (len(rows) / total), total
        if not count:
            raise BadArgument(f"{type(self).__name__} cannot learn a mean from a dataset without samples")
        if not mean.isfinite().all():
            raise BadArgument(f"{type(self).__name__} finds values in the dataset that are not finite")
        deviation = (spread / count).sqrt()
        constant = deviation <= 1e-12 * mean.abs()  # rounding errors are no deviation
        self.mean, self.deviation = mean, torch.where(constant, 1.0, deviation)

    def process(self, value: Any) -> Any:
        tensor, mean, deviation = self._fitted(value)
        return self._like(value, (tensor - mean) / deviation)

    def inverse(self, value: Any) -> Any:
        """Undo `process`."""
        tensor, mean, deviation = self._fitted(value)
        return self._like(value, tensor * deviation + mean)

    def state_dict(self) -> State:
        statistics = {"mean": self.mean, "deviation": self.deviation}
        return {name: None if value is None else value.tolist() for name, value in statistics.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.mean, self.deviation = (
            None if state[name] is None else torch.tensor(state[name], dtype=torch.float64)
            for name in ("mean", "deviation")
        )

    def _tensor(self, value: Any) -> Tensor:
        return torch.as_tensor(value, dtype=torch.float64)

    def _rows(self, tensor: Tensor) -> Tensor:
        """Return observations × indices of the axis."""
        if self.axis is None or not tensor.ndim:
            return tensor.reshape(-1)
        return tensor.movedim(self.axis, -1).reshape(-1, tensor.shape[self.axis])

    def _fitted(self, value: Any) -> tuple[Tensor, Tensor, Tensor]:
        if self.mean is None or self.deviation is None:
            raise unfitted(self)
        tensor = self._tensor(value)
        shape = [1] * tensor.ndim
        if self.mean.ndim and self.axis is not None:
            shape[self.axis] = -1
        return tensor, self.mean.reshape(shape), self.deviation.reshape(shape)

    def _like(self, value: Any, tensor: Tensor) -> Any:
        if isinstance(value, (int, float)):
            return tensor.item()
        return tensor.to(value.dtype if isinstance(value, Tensor) and value.is_floating_point() else torch.float32)


class ImagePreprocessor(Normalize):
    """Convert images to normalised floats: channels × height × width."""

    def __init__(self, fit_index: int | str | None = 0, *, samples: int | None = 1000) -> None:
        super().__init__(fit_index, samples=samples)

    def _tensor(self, value: Any) -> Tensor:
        return image_to_tensor(value).double()


class LabelEncoder(ValuePreprocessor):
    """Number the labels of a dataset from 0, in sorted order."""

    def __init__(self, column: int | str | None = None, *, classes: Iterable[Any] | None = None) -> None:
        self.column = column
        self._numbers: dict[Any, int] | None = None
        if classes is not None:
            self._learn(classes)

    @property
    def needs_fit(self) -> bool:
        return self._numbers is None

    def fit(self, dataset: Any) -> None:
        labels = {plain(value) for value in values_of(dataset, self.column, type(self).__name__)}
        self._learn(sorted(labels, key=lambda label: (isinstance(label, str), label)))

    @property
    def classes(self) -> list[Any]:
        """The label of each number."""
        if self._numbers is None:
            raise unfitted(self)
        return list(self._numbers)

    def process(self, value: Any) -> Any:
        return self.number(value)

    def number(self, value: Any) -> int:
        """The number of a label."""
        if self._numbers is None:
            raise unfitted(self)
        number = self._numbers.get(plain(value))
        if number is None:
            near = did_you_mean(str(value), [str(label) for label in self._numbers])
            raise BadArgument(f"label {value!r} is none of the {len(self._numbers)} that were there.{near}")
        return number

    def decode(self, number: int) -> Any:
        """The label of a number."""
        return self.classes[int(number)]

    def state_dict(self) -> State:
        return {"classes": None if self._numbers is None else self.classes}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._numbers = None
        if state["classes"] is not None:
            self._learn(state["classes"])

    def _learn(self, classes: Iterable[Any]) -> None:
        self._numbers = {label: number for number, label in enumerate(dict.fromkeys(classes))}


class OneHot(LabelEncoder):
    """Encode labels as one-hot vectors; `num_classes` alone stands for the labels 0, 1, …"""

    def __init__(
        self, num_classes: int | None = None, column: int | str | None = None, *, classes: Iterable[Any] | None = None
    ) -> None:
        super().__init__(column, classes=range(num_classes) if classes is None and num_classes is not None else classes)

    def process(self, value: Any) -> Any:
        number = self.number(value)
        vector = torch.zeros(len(self._numbers or ()))
        vector[number] = 1.0
        return vector


class Tokenizer(ValuePreprocessor):
    """Convert texts to lists of token numbers of a vocabulary, the most frequent first.

    `size` is the maximum number of tokens, `ends` whether a text is put between <sos> and <eos>.
    """

    SPECIAL: tuple[str, ...] = ("<pad>", "<unk>", "<sos>", "<eos>")
    PAD, UNKNOWN, START, END = range(4)
    BETWEEN = ""  # separator of the pieces of a text

    def __init__(
        self,
        column: int | str | None = None,
        *,
        size: int | None = None,
        min_count: int = 1,
        ends: bool = True,
        tokens: Iterable[str] | None = None,
    ) -> None:
        self.column, self.size, self.min_count, self.ends = column, size, min_count, ends
        self._tokens: list[str] | None = None
        self._numbers: dict[str, int] = {}
        if tokens is not None:
            self._learn(tokens)

    @abstractmethod
    def pieces(self, text: str) -> Sequence[str]:
        """The characters or words of a text."""

    @property
    def needs_fit(self) -> bool:
        return self._tokens is None

    def fit(self, dataset: Any) -> None:
        counts: Counter[str] = Counter()
        for text in values_of(dataset, self.column, type(self).__name__):
            counts.update(self.pieces(text))
        often = [piece for piece, count in counts.items() if count >= self.min_count]
        self._learn(sorted(often, key=lambda piece: (-counts[piece], piece))[: self.size])

    def __len__(self) -> int:
        """Return the size of the vocabulary, special tokens included."""
        return len(self.tokens)

    @property
    def tokens(self) -> list[str]:
        """The token of each number."""
        if self._tokens is None:
            raise unfitted(self)
        return self._tokens

    def process(self, text: str) -> list[int]:
        if self._tokens is None:
            raise unfitted(self)
        tokens = [self._numbers.get(piece, self.UNKNOWN) for piece in self.pieces(text)]
        return [self.START, *tokens, self.END] if self.ends else tokens

    def decode(self, numbers: Any) -> str:
        """Return the text of token numbers, up to the first <eos>."""
        pieces = []
        for number in numbers.tolist() if isinstance(numbers, Tensor) else numbers:
            if number == self.END:
                break
            if number not in (self.PAD, self.START):
                pieces.append(self.tokens[number])
        return self.BETWEEN.join(pieces)

    def state_dict(self) -> State:
        return {"tokens": None if self._tokens is None else self._tokens[len(self.SPECIAL) :]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._tokens, self._numbers = None, {}
        if state["tokens"] is not None:
            self._learn(state["tokens"])

    def _learn(self, tokens: Iterable[str]) -> None:
        self._tokens = list(dict.fromkeys([*self.SPECIAL, *tokens]))
        self._numbers = {token: number for number, token in enumerate(self._tokens)}


class CharTokenizer(Tokenizer):
    """Convert texts to the numbers of their characters."""

    def pieces(self, text: str) -> Sequence[str]:
        return text


class WordTokenizer(Tokenizer):
    """Convert texts to the numbers of their words and punctuation marks, ignoring case."""

    BETWEEN = " "

    def pieces(self, text: str) -> Sequence[str]:
        return re.findall(r"\w+|[^\w\s]", text.lower())


NullProcessor = Identity  # TorchAssistant's names
ValueNormalizer = Normalize


def values_of(dataset: Any, column: int | str | None, who: str) -> Iterator[Any]:
    """Yield one column of a dataset."""
    for sample in samples_of(dataset):
        if column is not None:
            yield sample[column]
        elif isinstance(sample, (tuple, list, dict)):
            raise BadArgument(f"{who} is to learn from samples of {len(sample)} columns: say which, such as column=0")
        else:
            yield sample


def samples_of(dataset: Any) -> Iterable[Any]:
    """Return the samples, by index where possible: few map-style datasets end an iteration."""
    if hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__"):
        return (dataset[number] for number in range(len(dataset)))
    stream: Iterable[Any] = dataset
    return stream


def plain(label: Any) -> Any:
    """Convert a label to a plain Python value."""
    return label.item() if hasattr(label, "item") else label


def unfitted(preprocessor: Any) -> BadArgument:
    """Make the error of a preprocessor that has not been fitted."""
    return BadArgument(f"{type(preprocessor).__name__} has seen no dataset yet: fit it first, with fit(dataset)")
