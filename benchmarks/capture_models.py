"""The models whose capture is measured: how each is made, and what its capture may cost."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))

Built = tuple[nn.Module, tuple[Any, ...]]  # a model in eval mode and what it is called with


@dataclass(frozen=True)
class Case:
    """One row of the table."""

    title: str
    make: Callable[[], Built]
    floor: float  # the capture may cost this many plain forwards,
    aim: float  # and should cost this many
    pairs: int  # plain and captured runs that are compared; fewer where a run is slow
    fastpath: bool = True  # whether torch may take its fused attention: capture computes its inside beside it
    timed: bool = True  # False: only its memory is measured


class Recurrent(nn.Module):
    """One cell, 200 steps."""

    def __init__(self, width: int = 64, steps: int = 200) -> None:
        super().__init__()
        self.width, self.steps = width, steps
        self.from_input, self.from_state = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        state = torch.zeros(len(x), self.width)
        for _ in range(self.steps):
            state = torch.tanh(self.from_input(x) + self.from_state(state))
        return state


class LstmByHand(nn.Module):
    """An LSTM cell written out, 100 steps."""

    def __init__(self, width: int = 64, steps: int = 100) -> None:
        super().__init__()
        self.width, self.steps = width, steps
        self.from_input, self.from_state = nn.Linear(width, 4 * width), nn.Linear(width, 4 * width)

    def forward(self, x: Tensor) -> Tensor:
        state = cell = torch.zeros(len(x), self.width)
        for _ in range(self.steps):
            i, f, g, o = (self.from_input(x) + self.from_state(state)).chunk(4, 1)
            cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)
            state = torch.sigmoid(o) * torch.tanh(cell)
        return state


# -- stand-ins, for a machine without torchvision or transformers ----------------------------------------------------


class _Block(nn.Module):
    """ResNet's basic block, with torchvision's in-place operations."""

    def __init__(self, inner: int, outer: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inner, outer, 3, stride, 1, bias=False), nn.BatchNorm2d(outer)
        self.conv2, self.bn2 = nn.Conv2d(outer, outer, 3, 1, 1, bias=False), nn.BatchNorm2d(outer)
        self.relu = nn.ReLU(inplace=True)
        changes = stride != 1 or inner != outer
        shortcut = [nn.Conv2d(inner, outer, 1, stride, bias=False), nn.BatchNorm2d(outer)]
        self.downsample = nn.Sequential(*shortcut) if changes else None

    def forward(self, x: Tensor) -> Tensor:
        out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        out += x if self.downsample is None else self.downsample(x)
        return self.relu(out)


class ResNet18(nn.Module):
    """ResNet-18 as torchvision lays it out."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)
        )
        widths = [(64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2)]
        self.layers = nn.Sequential(*[b for i, o, s in widths for b in (_Block(i, o, s), _Block(o, o, 1))])
        self.avgpool, self.fc = nn.AdaptiveAvgPool2d((1, 1)), nn.Linear(512, 1000)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(torch.flatten(self.avgpool(self.layers(self.stem(x))), 1))


class _Layer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = self.c_attn(self.ln_1(x)).split(width, 2)
        q, k, v = (t.view(batch, length, self.heads, -1).transpose(1, 2) for t in (q, k, v))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.c_proj(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.ln_2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    """GPT-2 small."""

    def __init__(self, width: int = 768, layers: int = 12, heads: int = 12, words: int = 50257) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(words, width), nn.Embedding(1024, width)
        self.h = nn.ModuleList(_Layer(width, heads) for _ in range(layers))
        self.ln_f, self.lm_head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)
        self.lm_head.weight = self.wte.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1], device=tokens.device))
        for layer in self.h:
            x = layer(x)
        return self.lm_head(self.ln_f(x))


# -- making them -----------------------------------------------------------------------------------------------------


def torchvision_models() -> Any:
    """`torchvision.models`, or None; on a torch it was not built for, two schemas it asks for are declared."""
    try:
        from torchvision import models
    except ImportError:
        return None
    except RuntimeError:  # its kernels are missing, its models need none of them
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        _stub = torch.library.Library("torchvision", "DEF")
        _stub.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _stub.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _stubs.append(_stub)  # declared for as long as it lives
        from torchvision import models
    return models


_stubs: list[Any] = []


def transformers() -> Any:
    """`transformers`, or None."""
    torchvision_models()  # it imports torchvision where there is one
    try:
        import transformers
    except ImportError:
        return None
    return transformers


def _mlp(batch: int = 16) -> Built:
    layers = [layer for _ in range(16) for layer in (nn.Linear(64, 64), nn.ReLU())]
    return nn.Sequential(*layers), (torch.randn(batch, 64),)


def _alexnet() -> Built:
    from alexnet import AlexNet

    return AlexNet(), (torch.randn(1, 3, 224, 224),)


def _resnet18() -> Built:
    models = torchvision_models()
    return (models.resnet18() if models else ResNet18()), (torch.randn(1, 3, 224, 224),)


def _swin_v2_t() -> Built:
    models = torchvision_models()
    if models is None:
        raise ModuleNotFoundError("needs torchvision")
    return models.swin_v2_t(), (torch.randn(1, 3, 256, 256),)


def _gpt2() -> Built:
    tokens = torch.randint(0, 50257, (1, 64))
    hf = transformers()
    if hf is None:
        return Gpt2(), (tokens,)
    return hf.GPT2LMHeadModel(hf.GPT2Config()), (tokens,)


def _gpt2_tiny() -> Built:
    hf = transformers()
    if hf is None:
        raise ModuleNotFoundError("needs transformers")
    shape = {"n_layer": 12, "n_embd": 64, "n_head": 4, "vocab_size": 500, "n_positions": 64}
    config = hf.GPT2Config(**shape, bos_token_id=0, eos_token_id=0)
    return hf.GPT2LMHeadModel(config), (torch.randint(0, 500, (1, 16)),)


def _encoder() -> Built:
    layer = nn.TransformerEncoderLayer(256, 8, 1024, batch_first=True)
    return nn.TransformerEncoder(layer, 6), (torch.randn(8, 64, 256),)


CASES = {
    "mlp": Case("MLP 16×(Linear 64 + ReLU), b16", _mlp, 3.3, 2.5, 400),
    "recurrent": Case("recurrent, 200 steps", lambda: (Recurrent(), (torch.randn(16, 64),)), 2.6, 2.0, 60),
    "lstm": Case("LSTM cell by hand, 100 steps", lambda: (LstmByHand(), (torch.randn(16, 64),)), 2.6, 2.0, 60),
    "alexnet": Case("AlexNet", _alexnet, 1.10, 1.03, 40),
    "resnet18": Case("ResNet-18", _resnet18, 1.15, 1.05, 40),
    "swin_v2_t": Case("swin_v2_t", _swin_v2_t, 1.25, 1.12, 30),
    "gpt2": Case("GPT-2 small, 64 tokens", _gpt2, 1.15, 1.05, 30),
    "encoder": Case("TransformerEncoder, 6 layers, d256", _encoder, 1.25, 1.25, 40, fastpath=False),
    "gpt2-tiny": Case("12 GPT-2 blocks of width 64", _gpt2_tiny, 3.3, 2.5, 40, timed=False),
    "mlp-wide": Case("the MLP, b4096", lambda: _mlp(4096), 3.3, 2.5, 0, timed=False),
}


def build(name: str) -> Built:
    """A case's model, always with the same random weights; "alexnet:kept" overwrites nothing in place."""
    name, _, kept = name.partition(":")
    torch.manual_seed(0)
    model, inputs = CASES[name].make()
    for module in model.modules() if kept else ():
        if hasattr(module, "inplace"):
            module.inplace = False
    return model.eval(), inputs
