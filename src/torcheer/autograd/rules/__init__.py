"""The backward rule of every operation, one function each. Read them: they are the lesson.

In the formulas $y$ is the result, $\\bar y$ its gradient, $\\bar x$ the gradient that the rule computes for $x$.
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
