"""Models that several test files share: from a single function to a small GPT."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Does(nn.Module):
    """A function as a model."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


class DoesWith(nn.Module):
    """A function of the model itself and its inputs, with some modules."""

    def __init__(self, function: Callable[..., Any], **modules: nn.Module) -> None:
        super().__init__()
        self.function = function
        for name, module in modules.items():
            self.add_module(name, module)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(self, *args, **kwargs)


class LinearRelu(nn.Module):
    """Two operations, one of them no module."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(5, 5)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.fc(x))


class Swap(nn.Module):
    """An operation with two results, which change places."""

    def forward(self, x: Tensor) -> Tensor:
        one, two = x.split([2, 3], 1)
        return torch.cat([two, one], 1)


class TanhLoop(nn.Module):
    """A loop without parameters."""

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(4):
            x = torch.tanh(x + 1)
        return x


class Noisy(nn.Module):
    """Says something else every time."""

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.randn_like(x)


class Sparse(nn.Module):
    """Its output has no dense numbers."""

    def forward(self, x: Tensor) -> Tensor:
        return x.to_sparse()


def relu_net(inplace: bool = False) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=inplace), nn.Linear(4, 2))


def small(inplace: bool = True) -> nn.Sequential:
    """A little of everything: a batch norm, an in-place module, a layer without parameters."""
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=inplace), nn.Flatten(), nn.Dropout(0.2)]
    return nn.Sequential(*layers, nn.Linear(4 * 6 * 6, 3))


def mlp(activation: Callable[[], nn.Module] = nn.ReLU, layers: int = 3) -> nn.Sequential:
    """A perceptron from 20 numbers to four classes."""
    torch.manual_seed(0)
    sizes = [20] + [32] * layers
    parts = [part for size in sizes[:-1] for part in (nn.Linear(size, 32), activation())]
    return nn.Sequential(*parts, nn.Linear(32, 4))


class Transformer(nn.Module):
    """Two small encoder layers, from 20 numbers to four classes."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = nn.Linear(20, 32), nn.Linear(32, 4)
        layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.layers(self.first(x)).mean(1))


class LeNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 5, padding=2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(16 * 5 * 5, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = torch.flatten(x, 1)
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x)))))


class AlexNet(nn.Module):
    """The net of 2012 as torchvision writes it; `width` makes it narrower."""

    def __init__(self, width: float = 1.0) -> None:
        super().__init__()
        a, b, c, d, hidden = (int(size * width) for size in (64, 192, 384, 256, 4096))
        self.features = nn.Sequential(
            nn.Conv2d(3, a, 11, stride=4, padding=2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2),
            nn.Conv2d(a, b, 5, padding=2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2),
            nn.Conv2d(b, c, 3, padding=1), nn.ReLU(inplace=True),
            nn.Conv2d(c, d, 3, padding=1), nn.ReLU(inplace=True),
            nn.Conv2d(d, d, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2),
        )  # fmt: skip
        self.avgpool = nn.AdaptiveAvgPool2d((6, 6))
        self.classifier = nn.Sequential(
            nn.Dropout(), nn.Linear(d * 36, hidden), nn.ReLU(inplace=True),
            nn.Dropout(), nn.Linear(hidden, hidden), nn.ReLU(inplace=True), nn.Linear(hidden, 10),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(torch.flatten(self.avgpool(self.features(x)), 1))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(5, 8, num_layers=2, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.lstm(x)[0][:, -1])


class ResNetBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(4, 8, 3, stride=2, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 8, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(8)
        self.down = nn.Sequential(nn.Conv2d(4, 8, 1, stride=2, bias=False), nn.BatchNorm2d(8))
        self.relu = nn.ReLU(inplace=True)
        self.fc = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        out += self.down(x)
        return self.fc(self.relu(out).mean((2, 3)))


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(x).split(width, dim=2)
        q, k, v = (one.view(batch, length, self.heads, width // self.heads).transpose(1, 2) for one in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).contiguous().view(batch, length, width))


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(0.1))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.ln1(x))
        return x + self.mlp(self.ln2(x))


class GPT(nn.Module):
    """Two layers, with the weights of the last one tied to the first."""

    def __init__(self, words: int = 17, width: int = 16, length: int = 12) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, 4) for _ in range(2))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, x: Tensor) -> Tensor:
        h = self.tokens(x) + self.places(torch.arange(x.shape[1]))
        for block in self.blocks:
            h = block(h)
        return self.head(self.norm(h)).flatten(0, 1)


def images(count: int, channels: int, size: int) -> Tensor:
    return torch.randn(count, channels, size, size, generator=torch.Generator().manual_seed(3))


def labels(count: int, classes: int) -> Tensor:
    return torch.randint(0, classes, (count,), generator=torch.Generator().manual_seed(4))


# Models to train on both backwards: name -> how to build it, what it reads, what it should say
CASES: dict[str, tuple[Callable[[], nn.Module], Callable[[], Tensor], Tensor]] = {
    "LeNet": (LeNet, lambda: images(4, 1, 28), labels(4, 10)),
    "AlexNet": (lambda: AlexNet(1 / 16), lambda: images(3, 3, 96), labels(3, 10)),
    "2-layer LSTM": (Recurrent, lambda: torch.randn(4, 7, 5, generator=torch.Generator().manual_seed(3)), labels(4, 3)),
    "ResNet block": (ResNetBlock, lambda: images(6, 4, 10), labels(6, 3)),
    "GPT": (GPT, lambda: labels(24, 17).view(2, 12), labels(24, 17)),
}


class NamedLayers(nn.Module):
    """Its operations: input 0, conv2d 1, relu 2, conv2d 3, flatten 4, linear 5, relu 6, output 7."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.features = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Conv2d(2, 2, 3))
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.head(self.features(x).flatten(1)))


class SkipBlock(nn.Module):
    """Two layers and a way around them: what it returns none of its layers has."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.second(self.first(x))
