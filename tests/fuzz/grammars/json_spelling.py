"""JSON as hostile programs spell it: keys that stand twice, numbers of a thousand digits, nesting, texts cut short."""

from __future__ import annotations

import json
from typing import Any

from fuzz.dice import Dice


def spelled(dice: Dice, value: Any) -> bytes:
    """The JSON of a value, with a hostile spelling here and there."""
    return dice.either(_text(dice, value).encode("utf-8", "surrogatepass"), lambda: _around(dice, value))


def _around(dice: Dice, value: Any) -> bytes:
    text = _text(dice, value).encode("utf-8", "surrogatepass")
    return dice.choice((
        b"\xef\xbb\xbf" + text, b" \n" + text, text + b" ", text + b"x", text + text, text[:-1], b"", b"null", b"[]",
        text.replace(b":", b": /* */", 1), text.replace(b'"', b"'", 2), dice.damaged(text), text + b"\0",
        text.decode("utf-8", "replace").encode("utf-16"), b"[" * 100_000, b'{"a":' * 3_000 + b"1" + b"}" * 3_000,
    ))  # fmt: skip


def _text(dice: Dice, value: Any) -> str:
    if dice.turns():
        return dice.choice(_odd_values(dice, value))
    if isinstance(value, dict):
        items = [(f"{json.dumps(str(name))}:", part) for name, part in value.items()]
        if items and dice.turns():
            items.append((dice.choice(items)[0], dice.choice(items)[1]))  # a key that stands twice
        return "{" + ",".join(key + _text(dice, part) for key, part in items) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(_text(dice, part) for part in value) + "]"
    return json.dumps(value)


def _odd_values(dice: Dice, value: Any) -> list[str]:
    odd = ["null", "true", "[]", "{}", '""', "-1", "1.5", "NaN", "1e999", "-0", "9" * 5000, "1" * 400, '"\\ud800"',
           "[" * 500 + "]" * 500, '"a\\u0000b"', "18446744073709551616", "[1]", '{"a":1}']  # fmt: skip
    if type(value) is int:
        odd += [
            f"{value}.0",
            f"{value}e0",
            f"-{value}",
            f"0{value}",
            f"+{value}",
            f'"{value}"',
            str(dice.changed(value)),
        ]
    elif isinstance(value, str):
        odd += [json.dumps(dice.changed(value)) for _ in range(6)]
    elif isinstance(value, list | tuple) and all(type(part) is int for part in value):
        odd += [json.dumps(dice.changed(list(value))) for _ in range(6)]
    return odd
