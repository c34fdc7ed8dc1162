"""Forty-odd small architectures, for tests that a network is the same wherever it is shown."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import models
import torch
import torch.nn.functional as F
from studio_runs import Digits
from torch import Tensor, nn
from torch.nn.utils import parametrizations

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

import gallery


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down1, self.down2 = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 8, 3, padding=1)
        self.up = nn.ConvTranspose2d(8, 4, 2, stride=2)
        self.out = nn.Conv2d(8, 1, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        wide = F.relu(self.down1(x))
        deep = F.relu(self.down2(F.max_pool2d(wide, 2)))
        return self.out(torch.cat([wide, self.up(deep)], 1))


class Dense(nn.Module):
    """Each layer reads all before it."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv2d(2 + 2 * n, 2, 3, padding=1) for n in range(4))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.cat([x, torch.relu(layer(x))], 1)
        return x


class SqueezeExcite(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.less, self.more = nn.Conv2d(3, 8, 3, padding=1), nn.Linear(8, 2), nn.Linear(2, 8)
        self.pool, self.act, self.gate = nn.AdaptiveAvgPool2d(1), nn.SiLU(), nn.Sigmoid()

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x)
        return y * self.gate(self.more(self.act(self.less(self.pool(y).flatten(1)))))[:, :, None, None]


class Variational(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.read, self.mean, self.spread = nn.Linear(12, 8), nn.Linear(8, 3), nn.Linear(8, 3)
        self.write = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 12))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        h = torch.relu(self.read(x))
        mean, spread = self.mean(h), self.spread(h)
        return self.write(mean + torch.randn_like(mean) * (spread / 2).exp()), mean, spread


class Vision(nn.Module):
    """A vision transformer: a class token and places that are parameters of the model itself."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 16, 4, stride=4)
        self.token, self.places = nn.Parameter(torch.zeros(1, 1, 16)), nn.Parameter(torch.zeros(1, 5, 16))
        layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        words = self.patches(x).flatten(2).transpose(1, 2)
        words = torch.cat([self.token.expand(len(x), -1, -1), words], 1) + self.places
        return self.head(self.encoder(words)[:, 0])


class Mixer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Sequential(nn.Linear(6, 12), nn.GELU(), nn.Linear(12, 6))
        self.channels = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))
        self.norm1, self.norm2 = nn.LayerNorm(8), nn.LayerNorm(8)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.norm2(x))


class Experts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(6, 3)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 6)) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        shares = self.gate(x).softmax(-1)
        return sum(shares[:, n : n + 1] * expert(x) for n, expert in enumerate(self.experts))  # type: ignore[return-value]


class Functions(nn.Module):
    """Layers without modules: parameters of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Parameter(torch.randn(8, 5)), nn.Parameter(torch.randn(3, 8))
        self.gain = nn.Parameter(torch.ones(8))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(torch.tanh(F.linear(x, self.first) * self.gain), self.second)


class Scaled(nn.Module):
    """Blocks with a parameter of their own beside their modules."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(_ScaledBlock() for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x


class _ScaledBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.gain = nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.1)), nn.Parameter(torch.ones(6))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.gain * self.inner(x)


class DropsInside(nn.Module):
    """A part with functions, and a dropout as its only module."""

    def __init__(self) -> None:
        super().__init__()
        self.part, self.out = _DropsInside(), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.part(x))


class _DropsInside(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight, self.drop = nn.Parameter(torch.randn(4, 5)), nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        return self.drop(torch.relu(x @ self.weight.t()))


class Siamese(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 4))

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        return (self.body(left) - self.body(right)).abs().sum(1, keepdim=True)


class Decoder(nn.Module):
    def __init__(self, batch_first: bool) -> None:
        super().__init__()
        self.layer = nn.TransformerDecoderLayer(16, 4, 32, batch_first=batch_first)

    def forward(self, said: Tensor, read: Tensor) -> Tensor:
        return self.layer(said, read)


class Unrolled(nn.Module):
    def __init__(self, steps: int, cell: Callable[[int, int], nn.Module] = nn.GRUCell) -> None:
        super().__init__()
        self.cell, self.out, self.steps = cell(4, 6), nn.Linear(6, 2), steps

    def forward(self, x: Tensor) -> Tensor:
        h = x.new_zeros(len(x), 6)
        for step in range(self.steps):
            h = self.cell(x[:, step], h)
        return self.out(h)


class Pair(nn.Module):
    """A part that returns what it computed first last, and a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.part, self.out = _Pair(), nn.Linear(5, 2)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        main, aside = self.part(x)
        return {"y": self.out(main), "z": aside}


class _Pair(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(5, 4))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        aside = x.exp()
        return torch.tanh(x @ self.weight.t()), aside


def _separable() -> nn.Module:
    depth, point = nn.Conv2d(4, 4, 3, padding=1, groups=4), nn.Conv2d(4, 8, 1)
    return nn.Sequential(depth, nn.BatchNorm2d(4), nn.ReLU6(), point, nn.BatchNorm2d(8), nn.Hardswish())


def _discriminator() -> nn.Module:
    normed = parametrizations.spectral_norm(nn.Linear(8, 8))
    return nn.Sequential(normed, nn.LeakyReLU(0.2), parametrizations.weight_norm(nn.Linear(8, 1)), nn.Sigmoid())


def _encoder(layers: int = 2, **options: Any) -> nn.Module:
    layer = nn.TransformerEncoderLayer(16, 4, 32, **options)
    return nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)


def _ids(*shape: int, most: int = 9) -> Tensor:
    return torch.randint(0, most, shape, generator=torch.Generator().manual_seed(0))


Case = tuple[Callable[[], nn.Module], Callable[[], tuple[Any, ...]]]

ARCHITECTURES: dict[str, Case] = {
    "digits": (Digits, lambda: (torch.rand(4, 1, 8, 8),)),
    "linear and relu": (models.LinearRelu, lambda: (torch.rand(3, 5),)),
    "relu net": (models.relu_net, lambda: (torch.rand(2, 4),)),
    "small": (models.small, lambda: (torch.rand(5, 1, 8, 8),)),
    "small, not in place": (lambda: models.small(False), lambda: (torch.rand(5, 1, 8, 8),)),
    "perceptron": (models.mlp, lambda: (torch.rand(3, 20),)),
    "perceptron of sigmoids": (lambda: models.mlp(nn.Sigmoid, 5), lambda: (torch.rand(3, 20),)),
    "transformer": (models.Transformer, lambda: (torch.rand(3, 5, 20),)),
    "LeNet": (models.LeNet, lambda: (models.images(4, 1, 28),)),
    "AlexNet": (lambda: models.AlexNet(1 / 16), lambda: (models.images(2, 3, 96),)),
    "LSTM": (models.Recurrent, lambda: (torch.rand(4, 7, 5),)),
    "ResNet block": (models.ResNetBlock, lambda: (models.images(6, 4, 10),)),
    "GPT": (models.GPT, lambda: (_ids(2, 12),)),
    "named layers": (models.NamedLayers, lambda: (torch.rand(3, 1, 6, 6),)),
    "loop of functions": (models.TanhLoop, lambda: (torch.rand(3, 4),)),
    "swap": (models.Swap, lambda: (torch.rand(3, 5),)),
    "gallery: recurrent": (gallery.Recurrent, lambda: (torch.rand(2, 5),)),
    "gallery: LSTM by hand": (gallery.LstmByHand, lambda: (torch.rand(2, 6, 8),)),
    "gallery: ResNet-18": (gallery.ResNet18, lambda: (models.images(2, 3, 32),)),
    "gallery: Inception": (gallery.Branches, lambda: (torch.rand(2, 64, 6, 6),)),
    "gallery: tuning": (gallery.Tuning, lambda: (_ids(3, 12),)),
    "gallery: translator": (gallery.Translator, lambda: (_ids(2, 8), _ids(2, 6))),
    "gallery: short translator": (lambda: gallery.Translator(2), lambda: (_ids(3, 8), _ids(3, 6))),
    "gallery: residual": (gallery.Residual, lambda: (torch.rand(3, 4),)),
    "U-net": (UNet, lambda: (torch.rand(2, 1, 8, 8),)),
    "DenseNet": (Dense, lambda: (torch.rand(3, 2, 5, 5),)),
    "squeeze and excite": (SqueezeExcite, lambda: (torch.rand(2, 3, 6, 6),)),
    "variational": (Variational, lambda: (torch.rand(5, 12),)),
    "vision transformer": (Vision, lambda: (torch.rand(3, 3, 8, 8),)),
    "mixer": (Mixer, lambda: (torch.rand(2, 6, 8),)),
    "experts": (Experts, lambda: (torch.rand(4, 6),)),
    "functions": (Functions, lambda: (torch.rand(4, 5),)),
    "scaled": (Scaled, lambda: (torch.rand(4, 6),)),
    "dropout inside": (DropsInside, lambda: (torch.rand(3, 5),)),
    "siamese": (Siamese, lambda: (torch.rand(3, 5), torch.rand(3, 5))),
    "decoder": (lambda: Decoder(True), lambda: (torch.rand(3, 4, 16), torch.rand(3, 7, 16))),
    "decoder, time first": (lambda: Decoder(False), lambda: (torch.rand(4, 3, 16), torch.rand(7, 3, 16))),
    "encoder": (lambda: _encoder(batch_first=True), lambda: (torch.rand(3, 7, 16),)),
    "encoder, time first": (_encoder, lambda: (torch.rand(7, 3, 16),)),
    "encoder, norm first": (lambda: _encoder(3, batch_first=True, norm_first=True), lambda: (torch.rand(3, 7, 16),)),
    "short loop": (lambda: Unrolled(3), lambda: (torch.rand(3, 3, 4),)),
    "long loop": (lambda: Unrolled(9), lambda: (torch.rand(3, 9, 4),)),
    "loop of cells": (lambda: Unrolled(4, nn.RNNCell), lambda: (torch.rand(3, 4, 4),)),
    "pair": (Pair, lambda: (torch.rand(3, 4),)),
    "separable": (_separable, lambda: (torch.rand(2, 4, 6, 6),)),
    "discriminator": (_discriminator, lambda: (torch.rand(3, 8),)),
    "one linear": (lambda: nn.Linear(4, 3), lambda: (torch.rand(2, 4),)),
    "one convolution": (lambda: nn.Conv2d(1, 2, 3), lambda: (torch.rand(2, 1, 5, 5),)),
    "one LSTM": (lambda: nn.LSTM(4, 6, 2), lambda: (torch.rand(5, 2, 4),)),
    "one GRU, batch first": (lambda: nn.GRU(4, 6, batch_first=True), lambda: (torch.rand(2, 5, 4),)),
    "sound": (
        lambda: nn.Sequential(nn.Conv1d(1, 4, 5, stride=2), nn.ReLU(), nn.AvgPool1d(2), nn.Flatten(), nn.Linear(60, 3)),
        lambda: (torch.rand(2, 1, 64),),
    ),
    "volumes": (
        lambda: nn.Sequential(nn.Conv3d(1, 2, 3), nn.BatchNorm3d(2), nn.ELU(), nn.Flatten(), nn.Linear(128, 2)),
        lambda: (torch.rand(2, 1, 6, 6, 6),),
    ),
    "autoencoder": (
        lambda: nn.Sequential(nn.Conv2d(1, 4, 3, 2, 1), nn.GELU(), nn.ConvTranspose2d(4, 1, 4, 2, 1), nn.Sigmoid()),
        lambda: (torch.rand(2, 1, 8, 8),),
    ),
    "words": (
        lambda: nn.Sequential(nn.EmbeddingBag(9, 6), nn.LayerNorm(6), nn.Linear(6, 4), nn.LogSoftmax(-1)),
        lambda: (_ids(3, 5),),
    ),
    "one item": (lambda: nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 8)), lambda: (torch.rand(4),)),
}  # fmt: skip
