"""One rule per operation. Read them: they are the lesson.

In the formulas $y$ is the result, $\\bar y$ the gradient that arrives at it, $\\bar x$ the one that goes on to $x$.
"""

from torcheer.autograd.rules import (  # fmt: skip
    activations,
    arithmetic,
    convolutions,
    elementary,
    indexing,
    linalg,
    padding,
    products,
    reductions,
    resampling,
    shapes,
)
from torcheer.autograd.rules.rule_table import COMPOSITES, RULES, Rule, Shape, composite, rule

__all__ = [
    "COMPOSITES",
    "RULES",
    "Rule",
    "Shape",
    "activations",
    "arithmetic",
    "composite",
    "convolutions",
    "elementary",
    "indexing",
    "linalg",
    "padding",
    "products",
    "reductions",
    "resampling",
    "rule",
    "shapes",
]  # fmt: skip
