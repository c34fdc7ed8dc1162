"""t-SNE: points in the plane that are neighbours where the rows of a matrix are."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[Any]

STEPS, EARLY_STEPS, EXAGGERATION = 500, 125, 12.0  # at first, neighbours attract each other the more


def embed(rows: Any, perplexity: float = 30.0, seed: int = 0) -> Matrix:
    """Return a point for each row, (rows, 2). `perplexity` says how many neighbours count, at most a third."""
    values = np.asarray(rows, np.float64).reshape(len(rows), -1)
    if len(values) < 3:
        return np.zeros((len(values), 2)) + np.arange(len(values))[:, None]
    target = _neighbour_shares(_squared_distances(values), min(perplexity, (len(values) - 1) / 3))
    points = np.random.default_rng(seed).normal(scale=1e-4, size=(len(values), 2))
    learning_rate = max(len(values) / EXAGGERATION, 10.0)  # a larger one throws few points about
    velocity, gains = np.zeros_like(points), np.ones_like(points)
    for step in range(STEPS):
        early = step < EARLY_STEPS
        gradient = _gradient(points, target * (EXAGGERATION if early else 1.0))
        gains = np.maximum(np.where(gradient * velocity < 0, gains + 0.2, gains * 0.8), 0.01)
        velocity = (0.5 if early else 0.8) * velocity - learning_rate * gains * gradient
        points = points + velocity
        points = points - points.mean(0)
    return points


def _gradient(points: Matrix, target: Matrix) -> Matrix:
    closeness = 1 / (1 + _squared_distances(points))
    np.fill_diagonal(closeness, 0.0)
    pull = (target - closeness / closeness.sum()) * closeness
    gradient: Matrix = 4 * (pull.sum(1)[:, None] * points - pull @ points)
    return gradient


def _neighbour_shares(distances: Matrix, perplexity: float) -> Matrix:
    """How much each row counts as a neighbour of each other; all of them add up to 1."""
    shares = np.zeros_like(distances)
    for row, away in enumerate(distances):
        shares[row] = _shares_of(away, row, np.log(perplexity))
    shares = shares + shares.T
    result: Matrix = np.maximum(shares / shares.sum(), 1e-12)
    return result


def _shares_of(away: Matrix, row: int, entropy: float) -> Matrix:
    """One row's neighbours, with the width at which they have this entropy, by bisection."""
    low, high, width = 0.0, np.inf, 1.0 / (away.mean() or 1.0)
    shares: Matrix = away
    for _ in range(50):
        weights = np.exp(-(away - np.delete(away, row).min()) * width)
        weights[row] = 0.0
        shares = weights / weights.sum()
        reached = -(shares[shares > 0] * np.log(shares[shares > 0])).sum()
        if abs(reached - entropy) < 1e-5:
            break
        low, high = (width, high) if reached > entropy else (low, width)
        width = width * 2 if np.isinf(high) else (low + high) / 2
    return shares


def _squared_distances(values: Matrix) -> Matrix:
    squares = (values**2).sum(1)
    distances: Matrix = np.maximum(squares[:, None] + squares - 2 * values @ values.T, 0.0)
    return distances
