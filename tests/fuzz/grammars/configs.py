"""Configs of training in JSON, YAML and TOML, as `torcheer check` reads them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from fuzz.dice import Dice
from fuzz.grammars import json_spelling, yaml_spelling

_EXAMPLES: Final = Path(__file__).parents[3] / "examples" / "training"
_HOSTILE_TOML: Final = (
    "a = 1\na = 2", "[t]\n[t]", "a.b = 1\na = 2", "a = [1, [2, [3]]]", "a = " + "[" * 500 + "]" * 500, "d = 1979-05-27",
    "d = 07:32:00", "a = 0xFF", "a = 0o7", "a = inf", "a = -nan", "a = 1e999", "a = 1_000",
    "a = " + "9" * 5000, "'' = 1",
    "\"\\u0000\" = 1", "a = '''x\n'''", 'a = """\\\n x"""', "[[t]]\n[[t]]\nx = 1", "[t.a]\n[t]",
    "a = {b = 1, b = 2}", "a =",
    "= 1", "a = tru", "# \x00", "[" , "a = 'x", "a = \"\\ud800\"", "1 = 1", "a . b = 2", "[a]]", "x = {a.b = 1}",
    "\ufeffa = 1",
)  # fmt: skip


def write_json(dice: Dice, folder: Path) -> Path:
    """Write a config in JSON."""
    path = folder / "training.json"
    path.write_bytes(dice.field(json_spelling.spelled(dice, _values(dice))))
    return path


def write_yaml(dice: Dice, folder: Path) -> Path:
    """Write a config in YAML."""
    path = folder / "training.yaml"
    path.write_bytes(yaml_spelling.spelled(dice, _values(dice)))
    return path


def write_toml(dice: Dice, folder: Path) -> Path:
    """Write a config in TOML."""
    lines = (_EXAMPLES / "two_heads" / "classifier_only.toml").read_text().splitlines()
    lines = [line.replace("seed = 7", f"seed = {dice.randrange(10_000)}") for line in lines]
    while dice.turns():
        lines.insert(dice.randint(0, len(lines)), dice.choice(_HOSTILE_TOML))
        if dice.random() < 0.5:
            break
    data = ("\n".join(lines) + "\n").encode("utf-8", "surrogatepass")
    path = folder / "training.toml"
    path.write_bytes(
        dice.field(dice.either(data, lambda: data + b"\xff", lambda: b"", lambda: data.replace(b"\n", b"\r")))
    )
    return path


def _values(dice: Dice) -> dict[str, Any]:
    """A config, or any other mapping."""
    if dice.random() < 0.7:
        example = dice.choice(("gan", "translation", "my_examples/mnist"))
        return dict(json.loads((_EXAMPLES / example / "training.json").read_text()))
    return {
        "seed": 1,
        "models": {"m": {"class": "torch.nn.Linear", "in": 3}},
        "list": [1, 2.5, "x", None, True],
        "": {},
    }
