"""The table of all rules, and the parsing of the setting `rules=`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from torcheer.errors import BadArgument
from torcheer.monitor.rules.bad_values import AllZero, NanInf
from torcheer.monitor.rules.dead_units import DeadRelu, Saturation
from torcheer.monitor.rules.gradient_size import ExplodingGradient, VanishingGradient
from torcheer.monitor.rules.loop_mistakes import ForgottenZeroGrad, FrozenLayer
from torcheer.monitor.rules.loss_mistakes import ActivationTwice, LossScale
from torcheer.monitor.rules.loss_spikes import LossSpike
from torcheer.monitor.rules.metric_rules import LossPlateau, Overfitting, StalledLoader
from torcheer.monitor.rules.rule import Rule
from torcheer.monitor.rules.weight_rules import PoorInitialisation, Unchanged, UpdateRatio
from torcheer.terminal import did_you_mean

RULES: dict[str, type[Rule]] = {
    rule.name: rule
    for rule in (
        NanInf, ExplodingGradient, VanishingGradient, DeadRelu, Saturation, AllZero, Unchanged, UpdateRatio,
        PoorInitialisation, LossSpike, LossPlateau, Overfitting, StalledLoader, LossScale, ForgottenZeroGrad,
        ActivationTwice, FrozenLayer,
    )
}  # fmt: skip

Settings = dict[str, dict[str, Any]]


def resolve_rules(rules: Any = "default") -> Settings:
    """Resolve `rules=` to the selected rules, each with all of its settings, as JSON values.

    "default" and "all" are all of them, "none" and None are none, a list of names is those. A mapping changes the
    default: settings that differ, False to leave a rule out.
    """
    if rules is None or rules is False or rules == "none":
        return {}
    if isinstance(rules, str):
        rules = {} if rules in ("default", "all") else [rules]
    if isinstance(rules, Mapping):
        for name in rules:
            _check_name(name)
        return {name: _rule_settings(name, rules.get(name)) for name in RULES if rules.get(name) is not False}
    if isinstance(rules, Iterable):
        return {name: _rule_settings(name, None) for name in dict.fromkeys(_check_name(name) for name in rules)}
    raise BadArgument(f"rules={rules!r}: use 'default', 'none', a list of names, or a mapping of names to settings")


def describe_rules() -> list[tuple[str, str, dict[str, Any]]]:
    """Every rule's name, description and settings, for display."""
    return [(name, (rule.__doc__ or "").strip(), dict(rule.defaults)) for name, rule in RULES.items()]


def _check_name(name: Any) -> str:
    if isinstance(name, str) and name in RULES:
        return name
    raise BadArgument(f"no rule named {name!r}.{_near(name, RULES)}")


def _rule_settings(name: str, changes: Any) -> dict[str, Any]:
    settings = {**RULES[name].defaults, **Rule.common}
    if changes is None or changes is True:
        return settings
    if not isinstance(changes, Mapping):
        raise BadArgument(f"rules: {name} is {changes!r}; use a mapping of its settings, True or False")
    for setting, value in changes.items():
        if setting not in settings:
            raise BadArgument(f"rule {name} has no setting {setting!r}.{_near(setting, settings)}")
        _check(name, setting, value, settings[setting])
    return {**settings, **changes}


def _check(name: str, setting: str, value: Any, default: Any) -> None:
    if isinstance(default, bool):
        is_valid, expected = isinstance(value, bool), "True or False"
    elif isinstance(default, int):
        is_valid, expected = type(value) is int and value >= 1, "a whole number from 1 on"
    elif isinstance(default, float):
        is_valid, expected = type(value) in (int, float) and 0 <= value < float("inf"), "a number from 0 on"
    elif isinstance(default, str):
        is_valid, expected = isinstance(value, str), "a string"
    else:
        is_valid, expected = (
            isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value),
            "a list of strings",
        )
    if not is_valid:
        raise BadArgument(f"rule {name}: {setting}={value!r} is not {expected}; its default is {default!r}")


def _near(word: Any, names: Iterable[str]) -> str:
    return did_you_mean(word, names) or f" There are {', '.join(names)}."
