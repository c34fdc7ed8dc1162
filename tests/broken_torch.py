"""A torch with one private name broken: each part of torcheer gives the right result or one sentence that names it.

`broken_torch.py NAME...` (all names by default) prints a line of JSON for each name and way of breaking it:
"missing", as the name is taken out of torcheer's hands, and "otherwise", as its check finds it to behave. A fork for
each keeps the others whole; dynamo is loaded once, before, if a program with `cond` is asked for (--cond).
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch
from seams import aten_level, higher_order, torch_probes, torch_state  # noqa: F401 (loaded late: names are bound in it)
from torch import Tensor, nn

import torcheer as tl
from torcheer import autograd
from torcheer.errors import UnsupportedTorch


class Model(nn.Module):
    """A write in place, a pool, a fused attention kernel and a scripted part."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.attention = nn.Conv2d(1, 2, 3), nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
        self.scripted = torch.jit.script(nn.Linear(4, 4))

    def forward(self, x: Tensor) -> Tensor:
        x = torch.nn.functional.max_pool2d(self.conv(x).relu_(), 2)
        x = self.scripted(self.attention(x.flatten(2)))
        return x.add_(1)


def result_of(history: Any) -> Tensor:
    value: Tensor = next(op for op in history if op.label.startswith("output")).tensor_contents
    return value


def capture(model: nn.Module, x: Tensor, expected: Tensor) -> bool:
    with torch.no_grad():
        return torch.equal(result_of(tl.log_forward_pass(model, x)), expected)


def validate(model: nn.Module, x: Tensor, expected: Tensor) -> bool:
    with torch.no_grad():
        return bool(tl.log_forward_pass(model, x).validate())


def gradients(model: nn.Module, x: Tensor, expected: Tensor) -> bool:
    history = tl.log_forward_pass(model, x, save_gradients=True)
    result_of(history).sum().backward()
    return bool((history["conv2d_1"].grad_contents != 0).any())


def backward(model: nn.Module, x: Tensor, expected: Tensor) -> bool:
    layer = nn.Sequential(nn.Linear(3, 4), nn.MaxPool1d(2))
    data = torch.rand(2, 3)
    layer(data).sum().backward()
    plain = layer[0].weight.grad.clone()
    layer.zero_grad()
    with autograd.record():
        layer(data).sum().backward()
    return torch.allclose(layer[0].weight.grad, plain)


def cond(model: nn.Module, x: Tensor, expected: Tensor) -> bool:
    class Branch(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))  # type: ignore[no-any-return]

    with torch.no_grad():
        return torch.equal(result_of(tl.log_forward_pass(Branch(), x)), torch.sin(x))


PARTS = (capture, validate, gradients, backward)


def take_away(name: str) -> None:
    """Replace what torcheer holds of a name, wherever it is bound, by what stands for a missing one."""
    original, missing = torch_state._find(name), torch_state._Missing(name)
    if name in ("torch._ops.OpOverload", "torch._ops.OpOverloadPacket", "torch._ops.HigherOrderOperator"):
        missing = ()
    elif name == "torch._jit_internal.boolean_dispatched":
        missing = {}
    find = torch_state._find
    torch_state._find = lambda asked, instead=None: (  # type: ignore[assignment]
        (missing if instead is None else instead) if asked == name else find(asked, instead)
    )

    def without(value: Any) -> Any:
        if value is original:
            return missing
        if type(value) is tuple:
            return tuple(map(without, value))
        if value is torch_state._DISPATCH_STACK[1] and name == "torch._C._pop_torch_dispatch_stack":
            return missing
        return value

    for module in [module for key, module in sys.modules.items() if key.startswith("torcheer")]:
        for key, value in list(vars(module).items()):
            if value is original or type(value) is tuple:
                setattr(module, key, without(value))
    for key, value in list(torch_state.FUSED_KERNELS.items()):
        torch_state.FUSED_KERNELS[key] = without(value)


def change(name: str) -> None:
    """Let the name's check find that it behaves otherwise."""
    torch_probes.PROBES[name] = lambda: False


def try_parts(name: str, break_it: Callable[[str], None], parts: Any, *given: Any) -> dict[str, str]:
    """What each part does: "right", "WRONG …", or the sentence."""
    break_it(name)
    said: dict[str, str] = {}
    for part in parts:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            try:
                outcome = "right" if part(*given) else "WRONG result"
            except UnsupportedTorch as error:
                outcome = str(error)
            except Exception as error:
                outcome = f"WRONG {type(error).__name__}: {error}"
        texts = [str(warning.message) for warning in warned if "torcheer" in str(warning.message)]
        said[part.__name__] = " / ".join([outcome, *texts])
    return said


def main() -> None:
    torch.set_num_threads(1)
    names = [word for word in sys.argv[1:] if not word.startswith("--")] or list(torch_probes.PROBES)
    parts = (*PARTS, cond) if "--cond" in sys.argv else PARTS
    torch.manual_seed(1)  # of 150 seeds six give a convolution without a positive output, and no gradients
    model, x = Model().eval(), torch.rand(1, 1, 6, 6)
    with torch.no_grad():
        expected = model(x)
    if cond in parts:
        import torch._dynamo as _
    for name in names:
        ways = [change, *([take_away] if name in torch_state.NAMES and "_dynamo" not in name else [])]
        for way in ways:
            reading, writing = os.pipe()
            if os.fork() == 0:
                said = try_parts(name, way, parts, model, x, expected)
                os.write(writing, json.dumps({"name": name, "way": way.__name__, "parts": said}).encode())
                os._exit(0)
            os.close(writing)
            with open(reading, "rb") as file:
                text = file.read().decode()
            _, status = os.wait()
            print(text or json.dumps({"name": name, "way": way.__name__, "parts": {"": f"WRONG ended with {status}"}}))


if __name__ == "__main__":
    main()
