"""Analyses of a column of tensors: similarity of its rows, principal components, clusters."""

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
    """The result of `pca`."""

    scores: Matrix  # (rows, components): each row's coordinates on the axes
    axes: Matrix  # (components, numbers of a cell): unit vectors
    explained: Matrix  # the share of the variance along each axis


class Clusters(NamedTuple):
    """The result of `cluster`."""

    order: NDArray[np.intp]  # row numbers, with similar rows side by side
    merges: list[tuple[int, int, float]]  # two groups and their distance; merge i creates group n + i


def _euclidean(rows: Matrix) -> Matrix:
    return np.stack(
        [np.linalg.norm(rows - row, axis=1) for row in rows]
    )  # row by row: all at once would not fit into memory


def _cosine(rows: Matrix) -> Matrix:
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    unit = np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0)  # a row of zeros is similar to nothing
    similarity: Matrix = unit @ unit.T
    return similarity


SIMILARITIES: dict[str, Callable[[Matrix], Matrix]] = {
    "correlation": lambda rows: _cosine(rows - rows.mean(1, keepdims=True)),
    "cosine": _cosine,
    "euclidean": lambda rows: -_euclidean(rows),
}


class TableAnalysis:
    """Similarity, principal components and clusters of a table's column."""

    def similarity(self: Any, column: str, measure: str = "correlation") -> Matrix:
        """A (rows, rows) matrix of the rows' correlation, cosine, or negative euclidean distance."""
        if measure not in SIMILARITIES:
            raise BadArgument(f"similarity(measure={measure!r}): there are {', '.join(SIMILARITIES)}")
        return SIMILARITIES[measure](_rows(self, column))

    def pca(self: Any, column: str, components: int = 2) -> Components:
        """The first principal components of the rows, and each row's scores."""
        rows = _rows(self, column)
        if not 1 <= components <= min(rows.shape):
            raise BadArgument(
                f"pca of {rows.shape[0]} rows of {rows.shape[1]} numbers has 1 to {min(rows.shape)} components"
            )
        centred = rows - rows.mean(0)
        _, sizes, axes = np.linalg.svd(centred, full_matrices=False)
        axes = (
            axes * np.where(axes[np.arange(len(axes)), np.abs(axes).argmax(1)] < 0, -1, 1)[:, None]
        )  # a deterministic sign
        total = max(float((sizes**2).sum()), np.finfo(float).tiny)
        return Components(centred @ axes[:components].T, axes[:components], (sizes**2 / total)[:components])

    def cluster(self: Any, column: str, measure: str = "euclidean") -> Clusters:
        """Cluster the rows hierarchically, with average linkage."""
        similarity = TableAnalysis.similarity(self, column, measure)
        return _merge_groups(similarity.max(initial=0.0) - similarity if measure != "euclidean" else -similarity)


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


def _merge_groups(distances: Matrix) -> Clusters:
    count = len(distances)
    between = distances.astype(np.float64)
    np.fill_diagonal(between, np.inf)
    groups = {number: (number, [number]) for number in range(count)}  # row of the matrix -> group number, its rows
    merges = []
    for step in range(count - 1):
        target, source = sorted(divmod(int(between.argmin()), count))
        (first, first_rows), (second, second_rows) = groups[target], groups.pop(source)
        merges.append((first, second, float(between[target, source])))
        weights = len(first_rows) / (len(first_rows) + len(second_rows))
        mean = weights * between[target] + (1 - weights) * between[source]
        between[target], between[:, target] = mean, mean
        between[source], between[:, source], between[target, target] = np.inf, np.inf, np.inf
        groups[target] = (count + step, first_rows + second_rows)
    return Clusters(np.array(next(iter(groups.values()))[1], np.intp), merges)
