"""ONNX: a model's graph, its nodes and weights; weights may lie in a file beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from fuzz.dice import Dice, product
from fuzz.grammars.protobuf import Fields, Packed, message

_WIDTHS: Final = {1: 4, 2: 1, 3: 1, 4: 2, 5: 2, 6: 4, 7: 8, 9: 1, 10: 2, 11: 8, 12: 4, 13: 8, 16: 2, 17: 1, 19: 1}
_LISTS: Final = {1: (4, "f4"), 6: (5, "i4"), 7: (7, "i8"), 2: (5, "u1"), 3: (5, "i1"), 9: (5, "bool"), 11: (10, "f8"),
                 12: (11, "u4"), 13: (11, "u8"), 4: (5, "u2"), 5: (5, "i2")}  # fmt: skip
_OPERATIONS: Final = ("Gemm", "Relu", "Add", "Conv", "BatchNormalization", "Reshape", "Concat")


def write_file(dice: Dice, folder: Path) -> Path:
    """Write a model."""
    path = folder / "model.onnx"
    external: dict[str, bytes] = {}
    weights = [f"w{number}.{dice.name()}" for number in range(dice.randint(0, 4))]
    fields: Fields = [(2, "graph")]
    fields += [(5, _tensor(dice, name, external)) for name in weights]
    values, nodes = ["x", *weights], []
    for number in range(dice.randint(0, 5)):
        inputs = [dice.choice(values) for _ in range(dice.randint(1, 3))]
        values.append(f"v{number}")
        nodes.append((1, _node(dice, number, inputs, values[-1])))
    fields = [*nodes, *fields, (11, _value_info(dice, "x")), (12, _value_info(dice, values[-1]))]
    model: Fields = [(1, 8), (2, "fuzz"), (3, "1.0"), (8, message(dice, [(1, ""), (2, 17)]))]
    model.append((7, message(dice, fields)))
    path.write_bytes(dice.field(message(dice, model)))
    for name, data in external.items():
        (folder / name).write_bytes(dice.field(data))
    return path


def _node(dice: Dice, number: int, inputs: list[str], output: str) -> bytes:
    fields: Fields = [(1, name) for name in inputs] + [(2, output)]
    fields += [(3, dice.one_of(f"/body/body.{number}/op", f"n{number}", "")), (4, dice.choice(_OPERATIONS))]
    if dice.random() < 0.5:
        attribute: Any = dice.one_of(
            [(2, 0.5), (20, 1)], [(3, 7), (20, 2)], [(4, b"text"), (20, 3)],
            [*((8, part) for part in (1, 2, 3)), (20, 7)], [*((7, part) for part in (0.5, 1.5)), (20, 6)],
        )  # fmt: skip
        fields.append((5, message(dice, [(1, "alpha"), *attribute])))
    if dice.random() < 0.3:
        scopes = dice.either("['', 'body', 'body.0', 'linear']", lambda: "[" * 90, lambda: "(1,)*9**9", lambda: "{}")
        fields.append((9, message(dice, [(1, "pkg.torch.onnx.name_scopes"), (2, scopes)])))
    return message(dice, fields)


def _tensor(dice: Dice, name: str, external: dict[str, bytes]) -> bytes:
    type = dice.choice(list(_WIDTHS))
    shape = dice.shape()
    count = product(shape)
    fields: Fields = [(1, size) for size in shape]
    if dice.random() < 0.5 and shape:
        fields = [(1, Packed(shape))]
    fields += [(2, dice.either(type, lambda: dice.choice((0, 8, 14, 15, 21, 22, 99)))), (8, name)]
    if type in _LISTS and dice.random() < 0.4:
        fields += _listed(dice, type, count)
    elif dice.random() < 0.2:
        fields += _external(dice, count * _WIDTHS[type], external)
    else:
        data = bytes(dice.randrange(2) for _ in range(count)) if type == 9 else dice.randbytes(count * _WIDTHS[type])
        fields.append((9, dice.field(data)))
    return message(dice, fields)


def _listed(dice: Dice, type: int, count: int) -> Fields:
    """Numbers as a list, in one field or in one each."""
    import numpy as np

    number, form = _LISTS[type]
    data = dice.numbers(count, form)
    if form in ("f4", "f8"):
        return [(number, dice.field(data))]
    values = [int(value) for value in np.frombuffer(data, form)]
    return [(number, Packed(values))] if dice.random() < 0.6 else [(number, value) for value in values]


def _external(dice: Dice, size: int, external: dict[str, bytes]) -> Fields:
    offset = dice.one_of(0, 16)
    external["weights.bin"] = dice.randbytes(offset + size)
    location = dice.either(
        "weights.bin", lambda: dice.choice(("../w.bin", "/etc/passwd", "", ".", "model.onnx", "none", "a\0b"))
    )
    texts = {"location": location, "offset": str(dice.field(offset)), "length": str(dice.field(size))}
    texts["offset"] = dice.either(texts["offset"], lambda: dice.choice(("", "x", "1e3", " 1", "-1", "9" * 5000, "०")))
    entries: Fields = [(13, message(dice, [(1, key), (2, text)])) for key, text in texts.items()]
    return [*entries, (14, 1)]


def _value_info(dice: Dice, name: str) -> bytes:
    sizes = [dice.one_of([(1, 3)], [(2, "batch")], []) for _ in range(dice.randint(0, 3))]
    dimensions: Fields = [(1, message(dice, size)) for size in sizes]
    tensor = message(dice, [(1, 1), (2, message(dice, dimensions))])
    return message(dice, [(1, name), (2, message(dice, [(1, tensor)]))])
