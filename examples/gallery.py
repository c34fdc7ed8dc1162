"""Every picture of docs/gallery.md: `python examples/gallery.py [folder]` draws them again."""

import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from alexnet import AlexNet
from torch import Tensor, nn

import torcheer as tl
from torcheer import autograd
from torcheer.drawing import Drawing


class Recurrent(nn.Module):
    """One Linear, four times."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(5, 5)

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(4):
            x = torch.relu(self.fc(x) + 1)
        return x


class LstmByHand(nn.Module):
    """An LSTM cell over six steps, written out."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.read, self.recall = nn.Linear(8, 4 * width), nn.Linear(width, 4 * width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        state = cell = torch.zeros(x.shape[0], 16)
        for step in x.unbind(1):
            i, f, g, o = (self.read(step) + self.recall(state)).chunk(4, 1)
            cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)
            state = torch.sigmoid(o) * torch.tanh(cell)
        return state


class Mamba(nn.Module):
    """A block of a selective state-space model: convolution, scan and gate."""

    def __init__(self, width: int = 8, state: int = 4, rank: int = 2) -> None:
        super().__init__()
        inner = self.inner = 2 * width
        self.state, self.rank = state, rank
        self.in_proj, self.out_proj = nn.Linear(width, 2 * inner, bias=False), nn.Linear(inner, width, bias=False)
        self.conv1d = nn.Conv1d(inner, inner, 4, groups=inner, padding=3)
        self.x_proj, self.dt_proj = nn.Linear(inner, rank + 2 * state, bias=False), nn.Linear(rank, inner)
        self.A_log = nn.Parameter(torch.arange(1, state + 1).float().repeat(inner, 1).log())
        self.D = nn.Parameter(torch.ones(inner))

    def forward(self, x: Tensor) -> Tensor:
        x, gate = self.in_proj(x).split([self.inner, self.inner], -1)
        x = F.silu(self.conv1d(x.transpose(1, 2))[:, :, : x.shape[1]].transpose(1, 2))
        return self.out_proj(self.ssm(x) * F.silu(gate))

    def ssm(self, x: Tensor) -> Tensor:
        A, D = -torch.exp(self.A_log.float()), self.D.float()
        delta, B, C = self.x_proj(x).split([self.rank, self.state, self.state], -1)
        delta = F.softplus(self.dt_proj(delta))
        return self.selective_scan(x, delta, A, B, C, D)

    def selective_scan(self, u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor) -> Tensor:
        decay = torch.exp(torch.einsum("bld,dn->bldn", delta, A))
        into = torch.einsum("bld,bln,bld->bldn", delta, B, u)
        x, outputs = torch.zeros(u.shape[0], u.shape[2], self.state), []
        for step in range(u.shape[1]):
            x = decay[:, step] * x + into[:, step]
            outputs.append(torch.einsum("bdn,bn->bd", x, C[:, step, :]))
        return torch.stack(outputs, 1) + u * D


class Block(nn.Module):
    """ResNet's basic block."""

    def __init__(self, inner: int, outer: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inner, outer, 3, stride, 1, bias=False), nn.BatchNorm2d(outer)
        self.conv2, self.bn2 = nn.Conv2d(outer, outer, 3, 1, 1, bias=False), nn.BatchNorm2d(outer)
        self.relu = nn.ReLU()
        shortcut = nn.Sequential(nn.Conv2d(inner, outer, 1, stride, bias=False), nn.BatchNorm2d(outer))
        self.downsample = shortcut if stride != 1 else None

    def forward(self, x: Tensor) -> Tensor:
        out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        return self.relu(out + (x if self.downsample is None else self.downsample(x)))


class ResNet18(nn.Module):
    """ResNet-18 as torchvision lays it out."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64)
        self.relu, self.maxpool = nn.ReLU(), nn.MaxPool2d(3, 2, 1)
        self.layer1 = nn.Sequential(Block(64, 64), Block(64, 64))
        self.layer2 = nn.Sequential(Block(64, 128, 2), Block(128, 128))
        self.layer3 = nn.Sequential(Block(128, 256, 2), Block(256, 256))
        self.layer4 = nn.Sequential(Block(256, 512, 2), Block(512, 512))
        self.avgpool, self.fc = nn.AdaptiveAvgPool2d((1, 1)), nn.Linear(512, 1000)

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(torch.flatten(self.avgpool(x), 1))


class Branches(nn.Module):
    """Four ways through a picture, joined: an Inception block."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Conv2d(64, 32, 1)
        self.three = nn.Sequential(nn.Conv2d(64, 48, 1), nn.ReLU(), nn.Conv2d(48, 64, 3, padding=1))
        self.five = nn.Sequential(nn.Conv2d(64, 16, 1), nn.ReLU(), nn.Conv2d(16, 32, 5, padding=2))
        self.pool = nn.Sequential(nn.MaxPool2d(3, 1, 1), nn.Conv2d(64, 32, 1))

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(torch.cat([self.one(x), self.three(x), self.five(x), self.pool(x)], 1))


class Tuning(nn.Module):
    """A frozen encoder, a trained head, weights used twice, bare parameters and a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(100, 32)
        self.places = nn.Parameter(torch.zeros(1, 12, 32))
        self.encoder = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32))
        self.register_buffer("mask", torch.ones(12, 1))
        self.head = nn.Linear(32, 100, bias=False)
        self.head.weight = self.embed.weight
        self.encoder.requires_grad_(False)

    def forward(self, words: Tensor) -> Tensor:
        x = self.embed(words) + self.places
        x = x + self.encoder(x) * self.mask
        return self.head(x)


class Broken(nn.Module):
    """The last Linear does not fit."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU())
        self.head = nn.Linear(32, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))


class Translator(nn.Module):
    """nn.Transformer, 19 layers each way, between embeddings and a head: 1,932 operations with inputs and outputs."""

    def __init__(self, layers: int = 19, width: int = 32, words: int = 100) -> None:
        super().__init__()
        self.scale = width**0.5
        self.source, self.target = nn.Embedding(words, width), nn.Embedding(words, width)
        self.source_places = nn.Parameter(torch.randn(8, width))
        self.target_places = nn.Parameter(torch.randn(6, width))
        self.transformer = nn.Transformer(width, 4, layers, layers, 2 * width, batch_first=True)
        self.head = nn.Linear(width, words)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        read = self.source(source) * self.scale + self.source_places
        said = self.target(target) * self.scale + self.target_places
        return torch.log_softmax(self.head(self.transformer(read, said)), -1)


def broken() -> Drawing:
    """What ran before the error."""
    try:
        tl.log_forward_pass(Broken(), torch.rand(2, 8))
    except RuntimeError as error:
        return error.history.draw()  # type: ignore[attr-defined]
    raise AssertionError("it should have failed")


def backward_of(model: nn.Module, x: Tensor, depth: int | str | None = None) -> Drawing:
    """Forward and backward of a loss; the weights are simple numbers, so that the loss is the same everywhere."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(0.5)
    with autograd.record():
        loss = model(x).square().mean()
        return tl.draw(loss, depth=depth)


class Residual(nn.Module):
    """x + f(x): gradients part and meet again."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.inner(x)


class UNet(nn.Module):
    """Down, up and a skip, told the time."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.time = nn.Sequential(nn.Linear(4, width), nn.SiLU())
        self.down, self.middle = nn.Conv2d(3, width, 3, padding=1), nn.Conv2d(width, width, 3, padding=1)
        self.up = nn.Conv2d(2 * width, 3, 3, padding=1)

    def forward(self, x: Tensor, step: Tensor) -> Tensor:
        angles = step[:, None] * torch.tensor([1.0, 0.1])
        time = self.time(torch.cat([angles.sin(), angles.cos()], 1))
        skip = torch.relu(self.down(x) + time[:, :, None, None])
        inner = F.interpolate(self.middle(F.avg_pool2d(skip, 2)), scale_factor=2.0)
        return self.up(torch.cat([inner, skip], 1))


class Scheduler:
    """Steps from noise to a picture, as in DDPM."""

    def __init__(self, steps: int) -> None:
        self.betas = torch.linspace(0.0001, 0.02, steps)
        self.kept = torch.cumprod(1 - self.betas, 0)

    def step(self, noise: Tensor, t: int, x: Tensor) -> Tensor:
        """One step of the reverse process."""
        kept, before = self.kept[t], self.kept[t - 1] if t > 0 else torch.tensor(1.0)
        beta = 1 - kept / before
        clean = ((x - (1 - kept).sqrt() * noise) / kept.sqrt()).clamp(-1, 1)
        x = before.sqrt() * beta / (1 - kept) * clean + (1 - beta).sqrt() * (1 - before) / (1 - kept) * x
        return x + self.variance(t, kept, before).sqrt() * torch.randn_like(x) if t > 0 else x

    def variance(self, t: int, kept: Tensor, before: Tensor) -> Tensor:
        """How much noise a step adds."""
        return torch.clamp((1 - before) / (1 - kept) * self.betas[t], min=1e-20)


@torch.no_grad()
def denoising(steps: int = 6) -> tl.ModelHistory:
    """A loop around a model, recorded."""
    model = UNet()
    with tl.recording(model) as history:
        scheduler, x = Scheduler(steps), picture(8)
        for t in reversed(range(steps)):
            x = scheduler.step(model(x, torch.full((1,), float(t))), t, x)
    return history


def picture(size: int) -> Tensor:
    """A random image."""
    return torch.rand(1, 3, size, size)


LAYER = {"d_model": 64, "nhead": 4, "dim_feedforward": 128, "batch_first": True}
WORDS = (torch.zeros(1, 8, dtype=torch.long), torch.zeros(1, 6, dtype=torch.long))

GALLERY: dict[str, Callable[[], Drawing]] = {
    "alexnet": lambda: tl.draw(AlexNet(), picture(224)),
    "resnet18": lambda: tl.draw(ResNet18(), picture(64), depth="all"),
    "resnet18-folded": lambda: tl.draw(ResNet18(), picture(64)),
    "transformer-block": lambda: tl.draw(nn.TransformerEncoderLayer(**LAYER), torch.rand(1, 10, 64)),
    "encoder": lambda: tl.draw(nn.TransformerEncoder(nn.TransformerEncoderLayer(**LAYER), 6), torch.rand(1, 10, 64)),
    "translator": lambda: tl.draw(Translator().eval(), WORDS),
    "recurrent": lambda: tl.draw(Recurrent(), torch.rand(2, 5)),
    "recurrent-rolled": lambda: tl.draw(Recurrent(), torch.rand(2, 5), rolled=True),
    "lstm": lambda: tl.draw(nn.LSTM(8, 16, num_layers=2), torch.rand(5, 1, 8)),
    "lstm-rolled": lambda: tl.draw(LstmByHand(), torch.rand(2, 6, 8), rolled=True),
    "mamba": lambda: tl.draw(Mamba(), torch.rand(2, 100, 8)),
    "mamba-scan": lambda: tl.draw(Mamba(), torch.rand(2, 100, 8), rolled=True, depth=2),
    "denoising": lambda: tl.draw(denoising()),
    "denoising-rolled": lambda: tl.draw(denoising(), rolled=True),
    "branches": lambda: tl.draw(Branches(), torch.rand(1, 64, 16, 16)),
    "branches-right": lambda: tl.draw(Branches(), torch.rand(1, 64, 16, 16), direction="right"),
    "tuning": lambda: tl.draw(Tuning(), torch.zeros(1, 12, dtype=torch.long)),
    "flops-dark": lambda: tl.draw(AlexNet(), picture(224), colour_by="flops", style="dark"),
    "stopped": broken,
    "backward": lambda: backward_of(nn.Sequential(nn.Linear(2, 2), nn.ReLU()), torch.ones(1, 2), depth="all"),
    "backward-folded": lambda: backward_of(nn.Sequential(*[Residual() for _ in range(3)]), torch.ones(1, 4)),
}

if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1] / "docs" / "gallery"
    folder.mkdir(parents=True, exist_ok=True)
    for name, draw in GALLERY.items():
        start = time.perf_counter()
        print(draw().save(folder / f"{name}.svg"), f"{time.perf_counter() - start:.2f} s")
