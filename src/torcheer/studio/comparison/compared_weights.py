"""Two model files or checkpoints, tensor by tensor: matched by their names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from numpy.typing import NDArray

from torcheer.encoding import TYPES
from torcheer.modelfiles import FileTensor, ModelFile
from torcheer.network.network_records import Layer, Network
from torcheer.studio.comparison.comparison_rows import FIRST_THAT_DIFFERS, Row, row_of
from torcheer.studio.comparison.tensor_pairs import DIFFERENCE, Pair, pair_names
from torcheer.studio.files.file_network import MOST_CELLS, network_of
from torcheer.studio.tensors.lazy_difference import LazyDifference
from torcheer.terminal import plural

_MOST_DECODED: Final = 64 << 20  # numbers of a tensor in blocks, such as GGUF's, which is decoded whole


class ComparedWeights:
    """The tensors of two files; their numbers are read as they are compared, or looked at."""

    batch = 0

    def __init__(self, first: ModelFile, second: ModelFile, titles: tuple[str, str]) -> None:
        self.titles = titles
        self.pairs: dict[str, Pair] = {}
        for name, other in pair_names(list(first), list(second)):
            tensors = first.tensors.get(name), second.tensors.get(other)
            self.pairs[name or other] = Pair(name or other, *tensors, other if name and other != name else "")
        self.total = len(self.pairs)
        self.first_difference, self.summary = "", tuple[str, ...]()
        self.network: Network = network_of(" → ".join(titles), map(_tensor_of, self.pairs.values()))

    def layer(self, name: str) -> Layer | None:
        """A tensor as a layer of its own shape; drawn in 3D it may be a sample."""
        pair = self.pairs.get(name)
        return None if pair is None else Layer(name, pair.shape, view="weight")

    def array(self, name: str, variable: str) -> Any:
        """A tensor of either side, or their difference, lazily; None where it cannot be shown."""
        pair = self.pairs.get(name)
        return None if pair is None or self.why(name, variable) else pair.array(variable)

    def sample(self, name: str, variable: str) -> NDArray[Any] | None:
        """The same for the 3D view: of a large tensor a sample, evenly spread."""
        pair = self.pairs.get(name)
        if pair is None or self.why(name, variable):
            return None
        sides = (pair.first, pair.second) if variable == DIFFERENCE else (pair.side(variable),)
        parts = [tensor.preview(MOST_CELLS) for tensor in sides if isinstance(tensor, FileTensor)]
        return LazyDifference(*parts).__array__() if len(parts) == 2 else parts[0] if parts else None

    def why(self, name: str, variable: str) -> str:
        """Why a tensor cannot be shown; "" if it can."""
        pair = self.pairs[name]
        tensor = pair.side(variable) if variable != DIFFERENCE else pair.first
        if variable == DIFFERENCE and pair.absence:
            return pair.absence
        if not isinstance(tensor, FileTensor):
            return pair.absence
        if not tensor.is_readable:
            return f"{tensor.type} is not decoded"
        is_large = tensor.type not in TYPES and tensor.size > _MOST_DECODED
        return f"it is {tensor.type} of {tensor.size:,} numbers, and more than 64 million are not decoded" if (
            is_large) else ""  # fmt: skip

    def rows(self) -> Iterator[Row]:
        """Measure tensor after tensor."""
        counts = Counter[str]()
        for pair in self.pairs.values():
            row = row_of(pair, pair.measured())
            if row.differs and not self.first_difference:
                self.first_difference, row = pair.name, replace(row, result=FIRST_THAT_DIFFERS)
            counts[row.group] += 1
            parts = ", ".join(f"{count:,} {group}" for group, count in counts.items())
            self.summary = (f"{plural(counts.total(), 'tensor')}: {parts}",)
            yield row

    def graph(self) -> None:
        """None of their own."""


def _tensor_of(pair: Pair) -> FileTensor:
    """The tensor that stands for a pair in the network."""
    tensor = pair.first if pair.first is not None else pair.second
    assert isinstance(tensor, FileTensor)
    return tensor
