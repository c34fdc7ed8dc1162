"""Schema of a session's options.

Top-level keys of a config, the fields of `session_parts.Options`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torcheer.config.line_numbers import KeyPath
from torcheer.selection import config_fault
from torcheer.training.spec.read.scalar_values import (
    ANYTHING,
    COUNT,
    DEVICE,
    FLAG,
    NUMBER,
    NUMBERING,
    POSITIVE,
    SEED,
    SHARE,
    TEXT,
    is_number,
    is_whole,
    one_of,
)
from torcheer.training.spec.read.value_kinds import Either, Fault, Finding, Kind, ListOf, MapOf, Ref, Schema, Value
from torcheer.wire.notify.notify_targets import SEVERITIES


@dataclass(frozen=True)
class Layers(Kind):
    """Which layers, in the forms that a config can hold."""

    verb: str  # of `torcheer.selection`

    def walk(self, value: Any, path: KeyPath) -> Iterator[Finding]:
        if fault := config_fault(value, self.verb):
            yield Fault(path, fault)


CAPTURE = Schema("capture", {"layers": Layers("capture (config)"), "every": COUNT})
ROUNDS = ("wait", "warmup", "active", "repeat", "skip_first")
SWITCHES = ("record_shapes", "profile_memory", "with_stack")
PROFILE = Schema("profile", dict.fromkeys(ROUNDS, NUMBERING) | dict.fromkeys(SWITCHES, FLAG))
_TEXTS = Either(TEXT, of_list=ListOf(TEXT, 1))
WATCH = Schema(
    "watch",
    {
        "models": ListOf(Ref("models"), 1, is_set=True),
        "layers": Layers("watch (config)"),
        "what": _TEXTS,
        "every": Either(COUNT, of_map=MapOf(NUMBER)),
        "rules": Either(
            Value("'default', null, a list of rules or a mapping", lambda value: value in (None, "default")),
            of_list=ListOf(TEXT),
            of_map=MapOf(ANYTHING),
        ),
        "video": Either(
            Value("true, false or a pattern", lambda value: isinstance(value, bool | str)),
            of_list=ListOf(TEXT, 1),
            of_map=MapOf(ANYTHING),
        ),
        "keep": _TEXTS,
        "stop_on": _TEXTS,
        "transport": MapOf(ANYTHING),
    },
)
NOTIFY = Schema(
    "notify",
    {
        # Addresses are secrets: a config, and with it spec.json, names the variable that holds one.
        "url": Value(
            "the name of an environment variable that holds the address, such as '$TORCHEER_WEBHOOK',",
            lambda value: isinstance(value, str) and value[:1] == "$" and value[1:].isidentifier(),
        ),
        "command": ListOf(TEXT, 1),  # no text for a shell
        "on": _TEXTS,
        "severity": one_of(*SEVERITIES),
        "per_minute": COUNT,
        "timeout_secs": POSITIVE,
    },
    one_of=("url", "command"),
)
OPTIONS: dict[str, Kind] = {
    "seed": SEED,
    "device": DEVICE,
    "autocast": one_of("", "bfloat16", "float16"),
    "accumulate": COUNT,
    "ema": Value("a number from 0 up to, but not, 1", lambda value: is_number(value) and 0 <= value < 1),
    "deterministic": FLAG,
    "compile": FLAG,
    "keep_last": COUNT,
    "keep_best": Value("the name of a column", lambda value: isinstance(value, str)),
    "checkpoint_secs": SHARE,
    "checkpoint_steps": Value(
        "a whole number of 1 or more, or null", lambda value: value is None or is_whole(value, 1)
    ),
    "limit_secs": Value("a number above 0, or null", lambda value: value is None or (is_number(value) and value > 0)),
    "steps_csv": NUMBERING,
    "profile": Either(Value("a mapping, or null", lambda value: value is None), of_map=PROFILE),
    "capture": Either(Value("a mapping, or null", lambda value: value is None), of_map=CAPTURE),
    "watch": Either(Value("a mapping, or null", lambda value: value is None), of_map=WATCH),
    "notify": Either(
        Value("a mapping, a list of them, or null", lambda value: value is None),
        of_list=ListOf(NOTIFY, 1),
        of_map=NOTIFY,
    ),
    "exclude_samples": Either(
        Value("a list of samples, or a mapping of loaders to lists", lambda value: False),
        of_list=ListOf(NUMBERING),
        of_map=MapOf(ListOf(NUMBERING)),
    ),
    "system_secs": SHARE,
    "studio": FLAG,
    "writers": ListOf(one_of("tensorboard", "wandb"), is_set=True),
}
