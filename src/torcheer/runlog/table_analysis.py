"""What a column of tensors says: how alike its rows are, along which axes they differ, which belong together."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from torcheer.errors import BadArgument

if TYPE_CHECKING:
    from torcheer.runlog.table import Table

Matrix = NDArray[np.float64]


class Components(NamedTuple):
    """What `pca` finds."""

    scores: Matrix  # (rows, components): each row along the axes
    axes: Matrix  # (components, numbers of a cell): unit vectors
    explained: Matrix  # the share of the variance along each axis


class Clusters(NamedTuple):
    """What `cluster` finds."""

    order: NDArray[np.intp]  # rows, so that those alike lie side by side
    merges: list[tuple[int, int, float]]  # who joined whom, at which distance; row n + i is what merge i made


def _euclidean(rows: Matrix) -> Matrix:
    return np.stack([np.linalg.norm(rows - row, axis=1) for row in rows])  # all at once, it would fill the memory


def _cosine(rows: Matrix) -> Matrix:
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    unit = np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0)  # nothing is like a row of zeros
    found: Matrix = unit @ unit.T
    return found


SIMILARITIES: dict[str, Callable[[Matrix], Matrix]] = {
    "correlation": lambda rows: _cosine(rows - rows.mean(1, keepdims=True)),
    "cosine": _cosine,
    "euclidean": lambda rows: -_euclidean(rows),
}


class Analysis:
    """Similarity, principal components and clusters of a table's column."""

    def similarity(self: Any, column: str, measure: str = "correlation") -> Matrix:
        """How alike every two rows are: a (rows, rows) matrix of their correlation, cosine, or negative distance."""
        if measure not in SIMILARITIES:
            raise BadArgument(f"similarity(measure={measure!r}): there are {', '.join(SIMILARITIES)}")
        return SIMILARITIES[measure](_rows(self, column))

    def pca(self: Any, column: str, components: int = 2) -> Components:
        """The axes along which rows differ most, and where each row lies on them."""
        rows = _rows(self, column)
        if not 1 <= components <= min(rows.shape):
            raise BadArgument(
                f"pca of {rows.shape[0]} rows of {rows.shape[1]} numbers has 1 to {min(rows.shape)} components"
            )
        centred = rows - rows.mean(0)
        _, sizes, axes = np.linalg.svd(centred, full_matrices=False)
        axes = (
            axes * np.where(axes[np.arange(len(axes)), np.abs(axes).argmax(1)] < 0, -1, 1)[:, None]
        )  # a sign to rely on
        total = max(float((sizes**2).sum()), np.finfo(float).tiny)
        return Components(centred @ axes[:components].T, axes[:components], (sizes**2 / total)[:components])

    def cluster(self: Any, column: str, measure: str = "euclidean") -> Clusters:
        """Join the two groups of rows that are nearest on average, again and again."""
        alike = Analysis.similarity(self, column, measure)
        return _joined(alike.max(initial=0.0) - alike if measure != "euclidean" else -alike)


def _rows(table: Table, column: str) -> Matrix:
    values = table[column]
    if values.dtype == object:
        raise BadArgument(f"{column!r} holds text, which has no similarity; take a column of tensors")
    rows = np.asarray(values, np.float64).reshape(len(values), -1) if len(values) else np.zeros((0, 1))
    if not len(rows):
        raise BadArgument(f"{column!r} of {table.name} has no rows yet")
    if not np.isfinite(rows).all():
        raise BadArgument(f"{column!r} of {table.name} holds NaN or infinite numbers; leave those rows out by `where`")
    return rows


def _joined(distances: Matrix) -> Clusters:
    count = len(distances)
    between = distances.astype(np.float64)
    np.fill_diagonal(between, np.inf)
    groups = {number: (number, [number]) for number in range(count)}  # place in the matrix -> its number, its rows
    merges = []
    for step in range(count - 1):
        one, other = sorted(divmod(int(between.argmin()), count))
        (first, left), (second, right) = groups[one], groups.pop(other)
        merges.append((first, second, float(between[one, other])))
        weights = len(left) / (len(left) + len(right))
        mean = weights * between[one] + (1 - weights) * between[other]
        between[one], between[:, one] = mean, mean
        between[other], between[:, other], between[one, one] = np.inf, np.inf, np.inf
        groups[one] = (count + step, left + right)
    return Clusters(np.array(next(iter(groups.values()))[1], np.intp), merges)
