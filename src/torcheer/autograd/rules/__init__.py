"""One rule per operation. Read them: they are the lesson.

In the formulas $y$ is the result, $\\bar y$ the gradient that arrives at it, $\\bar x$ the one that goes on to $x$.
"""

from torcheer.autograd.rules import (
    activations,
    arithmetic,
    convolutions,
    elementary,
    indexing,
    linalg,
    products,
    reductions,
    resampling,
    shapes,
    windows,
)  # fmt: skip
from torcheer.autograd.rules.table import COMPOSITES, RULES, Rule, Shape, composite, rule

__all__ = [
    "COMPOSITES", "RULES", "Rule", "Shape", "activations", "arithmetic", "composite", "convolutions", "elementary",
    "indexing", "linalg", "products", "reductions", "resampling", "rule", "shapes", "windows",
]  # fmt: skip
