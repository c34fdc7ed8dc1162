"""Programs of torch.export.save: a graph in JSON, tables of weights, and their bytes, in a zip."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from fuzz.dice import Dice, product
from fuzz.grammars.json_spelling import spelled
from fuzz.grammars.zips import zipped

_WIDTHS: Final = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 2, 7: 4, 8: 8, 10: 8, 12: 1, 13: 2}


def write_file(dice: Dice, folder: Path) -> Path:
    """Write a program of a few operations."""
    names = [f"w{number}" for number in range(dice.randint(0, 3))]
    config, files = {}, []
    for number, name in enumerate(names):
        meta, data = _tensor(dice)
        config[name] = {"path_name": dice.field(f"weight_{number}"), "is_param": True,
        "use_pickle": dice.either(False, lambda: True),
                        "tensor_meta": meta}  # fmt: skip
        files.append((f"p/data/weights/weight_{number}", dice.field(data)))
    values = ["x", *(f"p_{name}" for name in names)]
    nodes = []
    for number in range(dice.randint(0, 4)):
        inputs = [_argument(dice, dice.choice(values)) for _ in range(dice.randint(1, 3))]
        values.append(f"v{number}")
        nodes.append(_node(dice, inputs, values[-1]))
    program = _program(dice, names, nodes, values)
    files = [
        ("p/archive_format", b"pt2"), ("p/models/model.json", spelled(dice, program)),
        ("p/data/weights/model_weights_config.json", spelled(dice, {"config": config})), *files,
        ("p/byteorder", b"little"), ("p/version", b"6"),
    ]  # fmt: skip
    path = folder / "model.pt2"
    path.write_bytes(zipped(dice, files))
    return path


def _tensor(dice: Dice) -> tuple[dict[str, Any], bytes]:
    type, shape = dice.choice(list(_WIDTHS)), dice.shape()
    strides = [product(shape[axis + 1 :]) for axis in range(len(shape))]
    meta = {"dtype": type, "sizes": [_size(dice, size) for size in shape], "requires_grad": False,
            "strides": [_size(dice, stride) for stride in strides], "storage_offset": _size(dice, 0), "layout": 7,
            "device": {"type": "cpu", "index": None}}  # fmt: skip
    return meta, dice.randbytes(product(shape) * _WIDTHS[type])


def _size(dice: Dice, size: int) -> dict[str, Any]:
    return dice.either(
        {"as_int": size}, lambda: {"as_int": dice.changed(size)},
        lambda: {"as_expr": {"expr_str": "s0", "hint": {"as_int": size}}},
        lambda: {"as_expr": None}, dict, lambda: {"as_int": str(size)},
    )  # fmt: skip


def _argument(dice: Dice, name: str) -> dict[str, Any]:
    argument: dict[str, Any] = dice.one_of(
        {"as_tensor": {"name": name}}, {"as_tensors": [{"name": name}]}, {"as_int": 3}, {"as_ints": [1, 2]},
        {"as_none": True}, {"as_string": "x"}, {"as_optional_tensors": [{"as_tensor": {"name": name}},
        {"as_none": True}]},
    )  # fmt: skip
    return {"name": "self", "arg": argument, "kind": 1}


def _node(dice: Dice, inputs: list[dict[str, Any]], output: str) -> dict[str, Any]:
    stack = "L__self__body,L['self'].body,torch.nn.modules.container.Sequential;L__self__body_0,body.0,torch.nn.Linear"
    return {"target": dice.field("torch.ops.aten.relu.default"), "inputs": inputs, "is_hop_single_tensor_return": None,
            "outputs": [{"as_tensor": {"name": output}}],
            "metadata": {"nn_module_stack": dice.field(stack)}}  # fmt: skip


def _program(dice: Dice, names: list[str], nodes: list[dict[str, Any]], values: list[str]) -> dict[str, Any]:
    specs = [{"parameter": {"arg": {"name": f"p_{name}"}, "parameter_name": name}} for name in names]
    specs.append({"user_input": {"arg": {"as_tensor": {"name": "x"}}}})
    graph = {
        "inputs": [{"as_tensor": {"name": value}} for value in ("x", *(f"p_{name}" for name in names))],
        "outputs": [{"as_tensor": {"name": values[-1]}}], "nodes": nodes, "sym_int_values": {},
        "tensor_values": {value: {**_tensor(dice)[0]} for value in values},
    }  # fmt: skip
    module = {"graph": graph, "signature": {"input_specs": specs, "output_specs": []}, "module_call_graph": []}
    return json.loads(json.dumps({"graph_module": module, "opset_version": {"aten": 10}, "torch_version": "2.13.0",
                                  "schema_version": {"major": 8, "minor": 14}}))  # fmt: skip
