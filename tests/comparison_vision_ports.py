"""An MLP-Mixer, a ConvNeXt block with squeeze and excitation, shifted windows; their ports, and bugs held back."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

PATCHES, CHANNELS = 16, 24


class Mixer(nn.Module):
    """Patches, one block that mixes patches and channels, a mean."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, CHANNELS, 4, stride=4)
        self.norm1, self.norm2, self.last = (nn.LayerNorm(CHANNELS, 1e-6) for _ in range(3))
        self.across, self.back = nn.Linear(PATCHES, 32), nn.Linear(32, PATCHES)
        self.up, self.down = nn.Linear(CHANNELS, 48), nn.Linear(48, CHANNELS)
        self.head = nn.Linear(CHANNELS, 10)

    def forward(self, image: Tensor) -> Tensor:
        x = self.patches(image).flatten(2).transpose(1, 2)
        y = self.norm1(x).transpose(1, 2)
        x = x + self.back(F.gelu(self.across(y))).transpose(1, 2)
        x = x + self.down(F.gelu(self.up(self.norm2(x))))
        return self.head(self.last(x).mean(1))


class HandMixer(nn.Module):
    """The mixer with unfolded patches and einsum."""

    def __init__(self, net: Mixer, bug: str = "") -> None:
        super().__init__()
        self.net, self.bug = net, bug

    def norm(self, x: Tensor, norm: nn.LayerNorm) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        return centred / (centred.square().mean(-1, keepdim=True) + norm.eps).sqrt() * norm.weight + norm.bias

    def forward(self, image: Tensor) -> Tensor:
        net, batch = self.net, len(image)
        if self.bug == "patch columns first":
            image = image.transpose(2, 3)
        tiles = image.unfold(2, 4, 4).unfold(3, 4, 4)
        tiles = tiles.permute(0, 2, 3, 1, 4, 5).reshape(batch, PATCHES, -1)
        x = tiles @ net.patches.weight.flatten(1).T + net.patches.bias  # bug: patch columns first
        h = self.norm(x, net.norm1)
        mixed = torch.einsum("bpc,hp->bhc", h, net.across.weight)
        if self.bug == "mixing bias":
            mixed = mixed + F.pad(net.across.bias, (0, 0))[: mixed.shape[1], None].flip(0)  # bug: mixing bias
        else:
            mixed = mixed + net.across.bias[:, None]
        gate = 1 + torch.erf(mixed / math.sqrt(2))
        x = x + torch.einsum("bhc,ph->bpc", 0.5 * mixed * gate, net.back.weight) + net.back.bias[:, None]
        h = self.norm(x, net.norm2) @ net.up.weight.T + net.up.bias
        x = x + (0.5 * h * (1 + torch.erf(h / math.sqrt(2)))) @ net.down.weight.T + net.down.bias
        if self.bug == "mean before norm":
            x = self.norm(x.mean(1), net.last)  # bug: mean before norm
            return F.linear(x, net.head.weight, net.head.bias)
        return F.linear(self.norm(x, net.last).sum(1) / PATCHES, net.head.weight, net.head.bias)


class ConvNeXt(nn.Module):
    """Stem, a block with a depthwise 7x7, a layer scale, squeeze and excitation with hard functions, a step down."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.stem_norm = nn.Conv2d(3, 16, 2, stride=2), nn.BatchNorm2d(16)
        self.depthwise = nn.Conv2d(16, 16, 7, padding=3, groups=16)
        self.norm = nn.LayerNorm(16, 1e-6)
        self.up, self.down = nn.Linear(16, 64), nn.Linear(64, 16)
        self.scale = nn.Parameter(torch.rand(16) + 0.5)
        self.squeeze, self.excite = nn.Conv2d(16, 4, 1), nn.Conv2d(4, 16, 1)
        self.step = nn.Conv2d(16, 24, 3, stride=2, padding=1, dilation=1)

    def forward(self, x: Tensor) -> Tensor:
        x = F.hardswish(self.stem_norm(self.stem(x)))
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = self.scale * self.down(F.gelu(self.up(y)))
        x = x + y.permute(0, 3, 1, 2)
        gate = self.excite(F.relu(self.squeeze(F.adaptive_avg_pool2d(x, 1))))
        x = x * F.hardsigmoid(gate)
        return F.max_pool2d(self.step(x), 3, 2, 1)


class HandConvNeXt(nn.Module):
    """The same with the batch norm folded into the stem, 1x1 convolutions for linear layers, pooling by mean."""

    def __init__(self, net: ConvNeXt, bug: str = "") -> None:
        super().__init__()
        self.net, self.bug = net, bug
        norm = net.stem_norm
        factor = norm.weight / (norm.running_var + norm.eps).sqrt()
        mean = norm.running_mean if bug != "folded bias" else torch.zeros(16)
        self.weight = nn.Parameter((net.stem.weight * factor[:, None, None, None]).detach())
        self.bias = nn.Parameter(((net.stem.bias - mean) * factor + norm.bias).detach())

    def forward(self, x: Tensor) -> Tensor:
        net = self.net
        x = F.conv2d(x, self.weight, self.bias, stride=2)  # bug: folded bias
        x = x * F.relu6(x + 3) / 6
        y = F.conv2d(F.pad(x, (3, 3, 3, 3)), net.depthwise.weight, net.depthwise.bias, groups=16)
        axes = (1, 2, 3) if self.bug == "norm over space" else 1
        spread, mean = torch.var_mean(y, axes, correction=0, keepdim=True)
        y = (y - mean) * torch.rsqrt(spread + 1e-6)  # bug: norm over space
        y = y * net.norm.weight[:, None, None] + net.norm.bias[:, None, None]
        y = F.conv2d(y, net.up.weight[:, :, None, None], net.up.bias)
        y = F.conv2d(F.gelu(y), net.down.weight[:, :, None, None], net.down.bias)
        scale = net.scale[:, None, None]
        x = (x + y) * scale if self.bug == "scale of both" else x + y * scale  # bug: scale of both
        reduce = torch.amax if self.bug == "squeezed by max" else torch.mean
        pooled = reduce(x, (2, 3), keepdim=True)  # bug: squeezed by max
        gate = F.conv2d(F.conv2d(pooled, net.squeeze.weight, net.squeeze.bias).clamp(min=0), net.excite.weight)
        gate = gate + net.excite.bias[:, None, None]
        x = x * ((gate + 3).clamp(0, 6) / 6)
        y = F.conv2d(F.pad(x, (1, 1, 1, 1)), net.step.weight, net.step.bias, stride=2)
        return F.pad(y, (1, 1, 1, 1), value=-math.inf).unfold(2, 3, 2).unfold(3, 3, 2).amax((-1, -2))


SIDE, WINDOW, HEADS, WIDTH = 8, 4, 2, 16


def window_index() -> Tensor:
    """Return for each pair of places in a window the row of the bias table."""
    places = torch.stack(torch.meshgrid(torch.arange(WINDOW), torch.arange(WINDOW), indexing="ij")).flatten(1)
    apart = (places[:, :, None] - places[:, None]).permute(1, 2, 0) + WINDOW - 1
    return apart[..., 0] * (2 * WINDOW - 1) + apart[..., 1]


class Windows(nn.Module):
    """Attention in shifted windows with a bias for each relative place, then patches merged."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.table = nn.Parameter(torch.randn((2 * WINDOW - 1) ** 2, HEADS))
        self.merge_norm, self.merge = nn.LayerNorm(4 * WIDTH), nn.Linear(4 * WIDTH, 2 * WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        batch = len(x)
        shifted = torch.roll(self.norm(x), (-2, -2), (1, 2))
        tiles = shifted.view(batch, 2, WINDOW, 2, WINDOW, WIDTH).permute(0, 1, 3, 2, 4, 5).reshape(-1, WINDOW**2, WIDTH)
        q, k, v = self.qkv(tiles).reshape(-1, WINDOW**2, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        scores = (q * (WIDTH // HEADS) ** -0.5) @ k.transpose(-2, -1)
        scores = scores + self.table[window_index()].permute(2, 0, 1)
        y = (scores.softmax(-1) @ v).transpose(1, 2).reshape(-1, WINDOW**2, WIDTH)
        y = (
            self.out(y)
            .view(batch, 2, 2, WINDOW, WINDOW, WIDTH)
            .permute(0, 1, 3, 2, 4, 5)
            .reshape(batch, SIDE, SIDE, WIDTH)
        )
        x = x + torch.roll(y, (2, 2), (1, 2))
        parts = [x[:, 0::2, 0::2], x[:, 1::2, 0::2], x[:, 0::2, 1::2], x[:, 1::2, 1::2]]
        return self.merge(self.merge_norm(torch.cat(parts, -1)))


class HandWindows(nn.Module):
    """The same with three projections, gathered windows and the fused attention."""

    def __init__(self, net: Windows, bug: str = "") -> None:
        super().__init__()
        self.net, self.bug = net, bug
        weights, biases = net.qkv.weight.detach().chunk(3), net.qkv.bias.detach().chunk(3)
        self.weights = nn.ParameterList(weight.clone() for weight in weights)
        self.biases = nn.ParameterList(bias.clone() for bias in biases)

    def places(self, shift: int) -> Tensor:
        """Return which places of the flat map each window holds."""
        numbers = torch.arange(SIDE * SIDE).view(SIDE, SIDE).roll((-shift, -shift), (0, 1))
        return numbers.unfold(0, WINDOW, WINDOW).unfold(1, WINDOW, WINDOW).flatten(2).flatten(0, 1)

    def forward(self, x: Tensor) -> Tensor:
        net, batch = self.net, len(x)
        h = F.layer_norm(x, (WIDTH,), net.norm.weight, net.norm.bias).flatten(1, 2)
        places = self.places(-2 if self.bug == "shifted the other way" else 2)
        tiles = h[:, places]  # bug: shifted the other way
        q, k, v = (
            F.linear(tiles, weight, bias).unflatten(-1, (HEADS, -1)).transpose(2, 3)
            for weight, bias in zip(self.weights, self.biases, strict=True)
        )
        index = window_index().T if self.bug == "bias of the opposite place" else window_index()
        bias = net.table.T[:, index]
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)  # bug: bias of the opposite place
        y = F.linear(y.transpose(2, 3).flatten(3), net.out.weight, net.out.bias)
        back = self.places(2).flatten().argsort()
        if self.bug == "not shifted back":
            back = self.places(0).flatten().argsort()
        y = y.flatten(1, 2)[:, back]
        x = x + y.view(batch, SIDE, SIDE, WIDTH)  # bug: not shifted back
        cells = x.unflatten(1, (-1, 2)).unflatten(3, (-1, 2))
        order = (0, 1, 3, 2, 4, 5) if self.bug == "merged by rows" else (0, 1, 3, 4, 2, 5)
        cells = cells.permute(order).flatten(3)  # bug: merged by rows
        h = F.layer_norm(cells, (4 * WIDTH,), net.merge_norm.weight, net.merge_norm.bias)
        return h @ net.merge.weight.T
