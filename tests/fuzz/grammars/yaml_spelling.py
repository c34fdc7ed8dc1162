"""YAML as hostile programs spell it: aliases of aliases, tags of Python, merges, odd keys and numbers."""

from __future__ import annotations

import json
from typing import Any, Final

from fuzz.dice import Dice

_HOSTILE_LINES: Final = (
    "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]", "self: &s [*s]", "m: &m {k: *m}", "<<: {lr: 1}", "<<: [1, 2]",
    "x: !!python/object/apply:os.system [id]", "x: !!python/tuple [1, 2]", "x: !custom 1", "? [1, 2]\n: 3", "1: 2",
    "null: 1", "~: 2", "{a: 1}: 2", "d: 2001-01-01", "d: 2001-99-99", "d: 2001-01-01T99:99:99Z", "o: 0o17", "o: 017",
    "s: 1:30:00", "s: 190:20:30.15", "b: 0b101", "h: 0xFFFFFFFFFFFFFFFFFFFF", "i: .inf", "n: .nan", "e: 1e5",
    "e: 1e999",
    "n: 1_000", "big: " + "9" * 5000, "f: " + "[" * 2000, "f: " + "{a: " * 500, "\ttab: 1", "t: |\n  text\n  more",
    "t: >-\n  text", "u: \"\\ud800\"", "u: \"\\x00\"", "%YAML 9.9\n---", "---\na: 1\n---\nb: 2", "...", "- 1",
    "a: 1\na: 2",
    "s: !!set {a, b}", "bin: !!binary aGFsbG8=", "bin: !!binary '*'", "om: !!omap [a: 1]", "p: !!pairs [a: 1]",
    "i: !!int x", "f: !!float x", "b: !!bool maybe", "t: !!timestamp x", "m: !!map [1]", "key with: colon: twice",
    "a: *unknown", "&x", "a: 'open", 'a: "open', "on: off", "yes: no", "v: =", "é: ü", "k: \u2028x", "? ", ": ", "@x",
    "`x",
)  # fmt: skip


def spelled(dice: Dice, values: dict[str, Any]) -> bytes:
    """The YAML of these values, with hostile lines in it."""
    lines = _lines(dice, values, 0)
    while dice.turns():
        lines.insert(dice.randint(0, len(lines)), dice.choice(_HOSTILE_LINES))
        if dice.random() < 0.5:
            break
    if dice.hostility and dice.random() < 0.02 and dice.turns():
        lines.append(_laughs())
    data = ("\n".join(lines) + "\n").encode("utf-8", "surrogatepass")
    return dice.field(dice.either(
        data, lambda: b"\xef\xbb\xbf" + data, lambda: data + b"\xff", lambda: b"",
        lambda: data.decode("utf-8", "replace")
        .encode("utf-16"), lambda: data + b"\0", lambda: data.replace(b"\n", b"\r"), lambda: data.replace(b"  ", b"\t"),
    ))  # fmt: skip


def _laughs() -> str:
    """Ten lists, each of ten times the one before."""
    lines = ["a0: &a0 [x, x]"]
    lines += [f"a{number}: &a{number} [{', '.join([f'*a{number - 1}'] * 10)}]" for number in range(1, 10)]
    return "\n".join(lines)


def _lines(dice: Dice, value: dict[str, Any], depth: int) -> list[str]:
    lines = []
    for name, part in value.items():
        start = "  " * depth + dice.field(name)
        if isinstance(part, dict) and dice.random() < 0.7:
            lines += [f"{start}:", *_lines(dice, part, depth + 1)]
        elif isinstance(part, list) and dice.random() < 0.5:
            lines += [f"{start}:", *("  " * depth + f"- {_scalar(dice, item)}" for item in part)]
        else:
            lines.append(f"{start}: {_scalar(dice, part)}")
    return lines


def _scalar(dice: Dice, value: Any) -> str:
    if isinstance(value, str) and dice.random() < 0.5:
        return json.dumps(dice.field(value))
    return json.dumps(dice.field(value), ensure_ascii=False)
