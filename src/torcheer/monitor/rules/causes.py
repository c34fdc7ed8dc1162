"""Which findings explain which: one cause speaks with one voice."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

# The mistakes of a loop or a loss: what follows from them is not told by itself, but for what ends the run.
MISTAKES: Final = ("loss_scale", "forgotten_zero_grad", "activation_twice")

# By rule, or rule and kind of its finding: what may follow from it. Told with the cause's advice; causes come first.
EXPLAINS: Final[dict[str, tuple[str, ...]]] = {
    "loss_scale": (
        "exploding_gradient", "vanishing_gradient", "update_ratio", "unchanged", "all_zero", "dead_relu", "saturation",
        "loss_plateau", "nan_inf",
    ),
    "forgotten_zero_grad": (
        "exploding_gradient", "update_ratio", "loss_plateau", "saturation", "dead_relu", "all_zero", "nan_inf",
    ),
    "activation_twice": ("loss_plateau", "vanishing_gradient", "update_ratio", "saturation", "unchanged"),
    "poor_initialisation": (
        "exploding_gradient", "vanishing_gradient", "saturation", "dead_relu", "all_zero", "unchanged", "update_ratio",
        "loss_spike", "loss_plateau", "overfitting", "nan_inf",
    ),
    "update_ratio high": (
        "exploding_gradient", "vanishing_gradient", "saturation", "dead_relu", "all_zero", "unchanged",
        "update_ratio low", "loss_spike", "loss_plateau", "overfitting", "nan_inf",
    ),
    "exploding_gradient": (
        "vanishing_gradient", "saturation", "dead_relu", "all_zero", "unchanged", "update_ratio", "loss_spike",
        "loss_plateau", "overfitting", "nan_inf",
    ),
    "saturation": ("vanishing_gradient", "all_zero", "unchanged", "update_ratio low", "loss_plateau"),
    "dead_relu": ("vanishing_gradient", "all_zero", "unchanged", "update_ratio low", "loss_plateau"),
    "vanishing_gradient": ("all_zero", "unchanged", "update_ratio low", "loss_plateau"),
    "all_zero": ("vanishing_gradient", "unchanged", "update_ratio low", "loss_plateau"),
    "update_ratio low": ("unchanged", "loss_plateau"),
    "unchanged": ("update_ratio low", "loss_plateau"),
    "nan_inf": ("unchanged", "loss_plateau"),
}  # fmt: skip
_ORDER: Final = {name: place for place, name in enumerate(EXPLAINS)}


@dataclass(slots=True)
class Cause:
    """A finding that was told, and may explain others."""

    rule: str
    kind: str
    step: int  # of its alert
    since: int
    advice: str
    last_look: int  # at which it was found
    root: Cause | None = None  # what it follows from itself
    told: set[tuple[str, str]] = field(default_factory=set)  # rules and kinds of what was told to follow from it

    def explains(self, rule: str, kind: str) -> bool:
        """Whether a finding may follow from this one."""
        consequences = EXPLAINS.get(f"{self.rule} {self.kind}".rstrip()) or EXPLAINS.get(self.rule, ())
        return rule in consequences or f"{rule} {kind}" in consequences

    @property
    def order(self) -> tuple[int, int]:
        """The place among the causes of a finding: the first is the root."""
        return self.since, rank(self.rule, self.kind)

    def __str__(self) -> str:
        return f"{self.rule} at step {self.step}"


def rank(rule: str, kind: str) -> int:
    """The place of a finding in the order of causes, for those of the same step."""
    return _ORDER.get(f"{rule} {kind}".rstrip(), len(_ORDER))
