"""Values of samples made ready for a model, with what was learned from the data to do it."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from torcheer.config import nearest
from torcheer.errors import BadArgument
from torcheer.training.collators import image_to_tensor

State = dict[str, Any]  # what JSON can hold: it is kept in the session's folder


class ValuePreprocessor(ABC):
    """Makes one value of another; `fit` may look at a dataset first, and what it learned is its state."""

    def fit(self, dataset: Any) -> None:  # noqa: B027
        """Learn from a dataset what is needed."""

    @property
    def needs_fit(self) -> bool:
        """Whether it learns from a dataset and has seen none yet."""
        return type(self).fit is not ValuePreprocessor.fit

    @abstractmethod
    def process(self, value: Any) -> Any:
        """The value, made ready."""

    def __call__(self, value: Any) -> Any:
        return self.process(value)

    def state_dict(self) -> State:
        """What was learned."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:  # noqa: B027
        """Know again what was learned."""


class Identity(ValuePreprocessor):
    """Leaves values as they are."""

    def process(self, value: Any) -> Any:
        return value


class Normalize(ValuePreprocessor):
    """Subtracts the mean and divides by the standard deviation of the dataset.

    `axis` has statistics of its own for each of its places: 0 for the features of a vector or the channels of an
    image, -1 for the features of a sequence, None for one mean of everything. `column` is the place in a sample of the
    values to learn from, `samples` how many of them to look at.
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
            more = self._rows(self._tensor(value))
            if count and mean.shape != more.shape[1:]:
                raise BadArgument(f"values of {mean.numel()} and of {more[0].numel()} places have no common mean")
            # two means and their distance: a sum of squares would lose small deviations of large numbers
            total, away = count + len(more), more.mean(0) - mean
            spread = spread + more.sub(more.mean(0)).square().sum(0) + away**2 * (count * len(more) / total)
            mean, count = mean + away * (len(more) / total), total
        if not count:
            raise BadArgument(f"{type(self).__name__} cannot learn a mean from a dataset without samples")
        if not mean.isfinite().all():
            raise BadArgument(f"{type(self).__name__} finds values in the dataset that are not finite")
        deviation = (spread / count).sqrt()
        constant = deviation <= 1e-12 * mean.abs()  # what rounding leaves is no deviation
        self.mean, self.deviation = mean, torch.where(constant, 1.0, deviation)

    def process(self, value: Any) -> Any:
        tensor, mean, deviation = self._fitted(value)
        return self._like(value, (tensor - mean) / deviation)

    def inverse(self, value: Any) -> Any:
        """The value that was made into this one."""
        tensor, mean, deviation = self._fitted(value)
        return self._like(value, tensor * deviation + mean)

    def state_dict(self) -> State:
        known = {"mean": self.mean, "deviation": self.deviation}
        return {name: None if one is None else one.tolist() for name, one in known.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.mean, self.deviation = (
            None if state[name] is None else torch.tensor(state[name], dtype=torch.float64)
            for name in ("mean", "deviation")
        )

    def _tensor(self, value: Any) -> Tensor:
        return torch.as_tensor(value, dtype=torch.float64)

    def _rows(self, tensor: Tensor) -> Tensor:
        """Observations × places of the axis."""
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
    """Images as normalised floats: channels × height × width."""

    def __init__(self, fit_index: int | str | None = 0, *, samples: int | None = 1000) -> None:
        super().__init__(fit_index, samples=samples)

    def _tensor(self, value: Any) -> Tensor:
        return image_to_tensor(value).double()


class LabelEncoder(ValuePreprocessor):
    """Numbers the labels of a dataset from 0, in their order."""

    def __init__(self, column: int | str | None = None, *, classes: Iterable[Any] | None = None) -> None:
        self.column = column
        self._numbers: dict[Any, int] | None = None
        if classes is not None:
            self._learn(classes)

    @property
    def needs_fit(self) -> bool:
        return self._numbers is None

    def fit(self, dataset: Any) -> None:
        found = {plain(value) for value in values_of(dataset, self.column, type(self).__name__)}
        self._learn(sorted(found, key=lambda one: (isinstance(one, str), one)))

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
            near = nearest(str(value), [str(one) for one in self._numbers])
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
    """Makes a vector of zeros with a one of each label; `num_classes` alone stands for the labels 0, 1, …"""

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
    """Texts as lists of numbers: those of a vocabulary, the most frequent first.

    `size` is the most words to keep, `ends` whether a text is put between <sos> and <eos>.
    """

    SPECIAL = ("<pad>", "<unk>", "<sos>", "<eos>")
    PAD, UNKNOWN, START, END = range(4)
    BETWEEN = ""  # what stands between the pieces of a text

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
        self._known: list[str] | None = None
        self._numbers: dict[str, int] = {}
        if tokens is not None:
            self._learn(tokens)

    @abstractmethod
    def pieces(self, text: str) -> Sequence[str]:
        """The characters or words of a text."""

    @property
    def needs_fit(self) -> bool:
        return self._known is None

    def fit(self, dataset: Any) -> None:
        counts: Counter[str] = Counter()
        for text in values_of(dataset, self.column, type(self).__name__):
            counts.update(self.pieces(text))
        often = [piece for piece, count in counts.items() if count >= self.min_count]
        self._learn(sorted(often, key=lambda piece: (-counts[piece], piece))[: self.size])

    def __len__(self) -> int:
        """How many numbers there are, the special ones included."""
        return len(self.tokens)

    @property
    def tokens(self) -> list[str]:
        """The piece of each number."""
        if self._known is None:
            raise unfitted(self)
        return self._known

    def process(self, text: str) -> list[int]:
        if self._known is None:
            raise unfitted(self)
        tokens = [self._numbers.get(piece, self.UNKNOWN) for piece in self.pieces(text)]
        return [self.START, *tokens, self.END] if self.ends else tokens

    def decode(self, numbers: Any) -> str:
        """The text of some numbers, up to the first <eos>."""
        found = []
        for number in numbers.tolist() if isinstance(numbers, Tensor) else numbers:
            if number == self.END:
                break
            if number not in (self.PAD, self.START):
                found.append(self.tokens[number])
        return self.BETWEEN.join(found)

    def state_dict(self) -> State:
        return {"tokens": None if self._known is None else self._known[len(self.SPECIAL) :]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._known, self._numbers = None, {}
        if state["tokens"] is not None:
            self._learn(state["tokens"])

    def _learn(self, tokens: Iterable[str]) -> None:
        self._known = list(dict.fromkeys([*self.SPECIAL, *tokens]))
        self._numbers = {token: number for number, token in enumerate(self._known)}


class CharTokenizer(Tokenizer):
    """Texts as the numbers of their characters."""

    def pieces(self, text: str) -> Sequence[str]:
        return text


class WordTokenizer(Tokenizer):
    """Texts as the numbers of their words and signs, small letters and capitals alike."""

    BETWEEN = " "

    def pieces(self, text: str) -> Sequence[str]:
        return re.findall(r"\w+|[^\w\s]", text.lower())


NullProcessor = Identity  # the names that TorchAssistant has
ValueNormalizer = Normalize


def values_of(dataset: Any, column: int | str | None, who: str) -> Iterator[Any]:
    """One column of a dataset."""
    for sample in samples_of(dataset):
        if column is not None:
            yield sample[column]
        elif isinstance(sample, (tuple, list, dict)):
            raise BadArgument(f"{who} is to learn from samples of {len(sample)} columns: say which, such as column=0")
        else:
            yield sample


def samples_of(dataset: Any) -> Iterable[Any]:
    """The samples; by number where there are numbers, since few datasets say where they end."""
    if hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__"):
        return (dataset[number] for number in range(len(dataset)))
    stream: Iterable[Any] = dataset
    return stream


def plain(label: Any) -> Any:
    """A label as JSON holds it."""
    return label.item() if hasattr(label, "item") else label


def unfitted(preprocessor: Any) -> BadArgument:
    """The error of a preprocessor that knows nothing yet."""
    return BadArgument(f"{type(preprocessor).__name__} has seen no dataset yet: fit it first, with fit(dataset)")
