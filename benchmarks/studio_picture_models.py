"""The seven networks whose pictures are taken: real architectures, small where only their weights would be large."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from capture_models import Built, torchvision_models, transformers
from torch import Tensor, nn


def llama() -> Built:
    """Llama with 32 blocks, narrow."""
    library = transformers()
    config = library.LlamaConfig(
        num_hidden_layers=32, hidden_size=128, intermediate_size=352, num_attention_heads=8, num_key_value_heads=4,
        vocab_size=1000,
    )  # fmt: skip
    return library.LlamaForCausalLM(config), (torch.randint(0, 1000, (1, 24)),)


def resnet152() -> Built:
    return torchvision_models().resnet152(), (_photo(224),)


def swin() -> Built:
    return torchvision_models().swin_t(), (_photo(224),)


class Convolutions(nn.Sequential):
    """Two convolutions of a U-Net, each with its norm and activation."""

    def __init__(self, inner: int, outer: int) -> None:
        super().__init__(
            nn.Conv2d(inner, outer, 3, padding=1), nn.BatchNorm2d(outer), nn.ReLU(),
            nn.Conv2d(outer, outer, 3, padding=1), nn.BatchNorm2d(outer), nn.ReLU(),
        )  # fmt: skip


class UNet(nn.Module):
    """Ronneberger's U-Net with four levels; what goes down meets what comes up."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        widths = [width * 2**level for level in range(4)]
        self.down = nn.ModuleList(Convolutions(a, b) for a, b in zip([3, *widths], widths))
        self.bottom = Convolutions(widths[-1], 2 * widths[-1])
        self.widen = nn.ModuleList(nn.ConvTranspose2d(2 * b, b, 2, 2) for b in reversed(widths))
        self.up = nn.ModuleList(Convolutions(2 * b, b) for b in reversed(widths))
        self.head = nn.Conv2d(width, 2, 1)

    def forward(self, image: Tensor) -> Tensor:
        skips, x = [], image
        for down in self.down:
            skips.append(down(x))
            x = nn.functional.max_pool2d(skips[-1], 2)
        x = self.bottom(x)
        for widen, up in zip(self.widen, self.up):
            x = up(torch.cat([skips.pop(), widen(x)], 1))
        return self.head(x)


def unet() -> Built:
    return UNet(), (_photo(96),)


class Tagger(nn.Module):
    """A bidirectional LSTM of two layers that tags words."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(1000, 64)
        self.lstm = nn.LSTM(64, 96, num_layers=2, bidirectional=True, batch_first=True)
        self.dropout = nn.Dropout(0.1)
        self.tags = nn.Linear(192, 17)

    def forward(self, words: Tensor) -> Tensor:
        states, _ = self.lstm(self.embedding(words))
        return self.tags(self.dropout(states))


def lstm() -> Built:
    return Tagger(), (torch.randint(0, 1000, (2, 20)),)


class Gan(nn.Module):
    """DCGAN's two nets, as a step of training calls them: the discriminator sees real and generated images."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.generator = nn.Sequential(
            nn.ConvTranspose2d(64, 4 * width, 4), nn.BatchNorm2d(4 * width), nn.ReLU(),
            nn.ConvTranspose2d(4 * width, 2 * width, 4, 2, 1), nn.BatchNorm2d(2 * width), nn.ReLU(),
            nn.ConvTranspose2d(2 * width, width, 4, 2, 1), nn.BatchNorm2d(width), nn.ReLU(),
            nn.ConvTranspose2d(width, 3, 4, 2, 1), nn.Tanh(),
        )  # fmt: skip
        self.discriminator = nn.Sequential(
            nn.Conv2d(3, width, 4, 2, 1), nn.LeakyReLU(0.2),
            nn.Conv2d(width, 2 * width, 4, 2, 1), nn.BatchNorm2d(2 * width), nn.LeakyReLU(0.2),
            nn.Conv2d(2 * width, 4 * width, 4, 2, 1), nn.BatchNorm2d(4 * width), nn.LeakyReLU(0.2),
            nn.Conv2d(4 * width, 1, 4), nn.Flatten(),
        )  # fmt: skip

    def forward(self, noise: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
        return self.discriminator(real), self.discriminator(self.generator(noise))


def gan() -> Built:
    return Gan(), (torch.randn(1, 64, 1, 1), _photo(32))


def mixture() -> Built:
    """Mixtral: eight experts in each of eight blocks, two of them for each token."""
    library = transformers()
    config = library.MixtralConfig(
        num_hidden_layers=8, hidden_size=128, intermediate_size=256, num_attention_heads=8, num_key_value_heads=4,
        vocab_size=1000, num_local_experts=8, num_experts_per_tok=2,
    )  # fmt: skip
    return library.MixtralForCausalLM(config), (torch.randint(0, 1000, (1, 24)),)


def _photo(size: int) -> Tensor:
    """An RGB picture with edges and a gradient, so that feature maps have something to show."""
    rows, columns = torch.meshgrid(torch.linspace(-1, 1, size), torch.linspace(-1, 1, size), indexing="ij")
    sun = ((rows + 0.4) ** 2 + (columns - 0.3) ** 2 < 0.09).float()
    hills = (rows > 0.25 + 0.2 * torch.sin(4 * columns)).float()
    sky = (1 - hills) * (1 - sun)
    red = sun + 0.35 * hills + sky * (0.45 + 0.25 * rows)
    green = 0.85 * sun + 0.6 * hills + sky * (0.65 + 0.15 * rows)
    blue = 0.3 * sun + 0.25 * hills + 0.95 * sky
    return torch.stack([red, green, blue])[None].clamp(0, 1)


NETWORKS: dict[str, tuple[str, Callable[[], Built]]] = {
    "llama": ("Llama, 32 blocks", llama),
    "resnet152": ("ResNet-152", resnet152),
    "unet": ("U-Net", unet),
    "swin": ("swin_t", swin),
    "lstm": ("LSTM", lstm),
    "gan": ("GAN", gan),
    "mixture": ("Mixture of experts", mixture),
}


def build(name: str) -> tuple[nn.Module, tuple[Any, ...]]:
    """A network in evaluation mode, always with the same random weights, and what it is called with."""
    torch.manual_seed(0)
    model, inputs = NETWORKS[name][1]()
    return model.eval(), inputs
