"""What Lightning's CSVLogger writes: metrics.csv, and the settings of the run in hparams.yaml."""

from __future__ import annotations

from pathlib import Path

from fuzz.dice import Dice
from fuzz.grammars.yaml_spelling import spelled


def write_folder(dice: Dice, folder: Path) -> Path:
    """Write a folder of a run."""
    path = folder / "version_0"
    path.mkdir()
    (path / "metrics.csv").write_bytes(_table(dice))
    if dice.random() < 0.7:
        (path / "hparams.yaml").write_bytes(settings(dice))
    return path


def settings(dice: Dice) -> bytes:
    """The YAML of settings."""
    values = {
        "lr": 0.1,
        "layers": [1, 2, 3],
        "optimizer": {"name": "adam", "betas": [0.9, 0.99]},
        "note": "ä: b",
        "n": None,
    }
    return spelled(dice, values)


def _table(dice: Dice) -> bytes:
    names = ["epoch", "step", *sorted({dice.name() for _ in range(dice.randint(0, 3))})]
    names = [_quoted(name) for name in dice.sample(names, len(names))]
    lines = [",".join(names)]
    for row in range(dice.randint(0, 8)):
        cells = [dice.one_of(f"{dice.random():.4f}", str(row), "") for _ in names]
        cells = [_cell(dice, cell) for cell in cells]
        lines.append(",".join(dice.either(cells, cells[:-1].copy, (cells + cells).copy)))
    text = dice.choice(("\n", "\r\n")).join(lines) + "\n"
    data = text.encode("utf-8", "surrogatepass")
    return dice.field(dice.either(
        data, lambda: b"\xef\xbb\xbf" + data, lambda: data.replace(b"\n", b"\r"), lambda: data + b'"',
        lambda: text.encode("utf-16", "replace"), lambda: data + b"1," * 100_000 + b"\n", lambda: b"",
        lambda: data + b'"' + b"x" * 200_000 + b'"\n', lambda: data + b"\0\n",
    ))  # fmt: skip


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"' if set(name) & set(',"\n\r') else name


def _cell(dice: Dice, cell: str) -> str:
    return dice.either(
        cell, lambda: "nan", lambda: "-inf", lambda: "1e999", lambda: "9" * 5000, lambda: "1_000", lambda: '"a\nb"',
        lambda: '"', lambda: "0x10", lambda: "١٢", lambda: "True", lambda: "tensor(1.)", lambda: "9" * 400,
        lambda: "1e5",
    )  # fmt: skip
