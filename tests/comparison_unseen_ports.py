"""References and ports written after the matcher was finished, to see what it finds at first try."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from comparison_ports import DEPTH, HEADS, WIDTH
from torch import Tensor, nn

GROUPED = HEADS // 2  # heads that share a key


class Decoder(nn.Module):
    """Scaled embedding, grouped attention with a padding mask, gated MLP, mean over the words."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(50, WIDTH)
        self.norm1, self.norm2, self.last = (nn.RMSNorm(WIDTH, 1e-6) for _ in range(3))
        self.q = nn.Linear(WIDTH, WIDTH, bias=False)
        self.k, self.v = (nn.Linear(WIDTH, GROUPED * DEPTH, bias=False) for _ in range(2))
        self.o = nn.Linear(WIDTH, WIDTH, bias=False)
        self.gate, self.up = (nn.Linear(WIDTH, 3 * WIDTH, bias=False) for _ in range(2))
        self.down = nn.Linear(3 * WIDTH, WIDTH, bias=False)
        for norm in (self.norm1, self.norm2, self.last):
            nn.init.normal_(norm.weight, 1, 0.2)

    def forward(self, ids: Tensor) -> Tensor:
        real = ids > 5
        x = self.words(ids) * math.sqrt(WIDTH)
        h = self.norm1(x)
        q = self.q(h).view(*h.shape[:2], HEADS, DEPTH).transpose(1, 2)
        k, v = (f(h).view(*h.shape[:2], GROUPED, DEPTH).transpose(1, 2) for f in (self.k, self.v))
        k, v = k.repeat_interleave(2, 1), v.repeat_interleave(2, 1)
        scores = (q @ k.transpose(-1, -2)) / math.sqrt(DEPTH)
        scores = scores.masked_fill(~real[:, None, None], torch.finfo(scores.dtype).min)
        x = x + self.o((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
        h = self.norm2(x)
        x = x + self.down(F.silu(self.gate(h)) * self.up(h))
        x = self.last(x)
        return (x * real[..., None]).sum(1) / real.sum(1, keepdim=True)


class HandDecoder(nn.Module):
    """The decoder with einsum, one matrix for gate and up, and attention in groups."""

    def __init__(self, net: Decoder, bug: str = "") -> None:
        super().__init__()
        self.net, self.bug = net, bug
        self.both = nn.Parameter(torch.cat([net.gate.weight.detach(), net.up.weight.detach()]))

    def norm(self, x: Tensor, weight: Tensor) -> Tensor:
        if self.bug == "mean taken off":
            x = x - x.mean(-1, keepdim=True)  # bug: mean taken off
        return weight * (x / torch.sqrt(torch.linalg.vector_norm(x, dim=-1, keepdim=True) ** 2 / WIDTH + 1e-6))

    def forward(self, ids: Tensor) -> Tensor:
        net = self.net
        real = ids.gt(5)
        x = F.one_hot(ids, 50).to(net.words.weight.dtype) @ net.words.weight
        if self.bug != "no embedding scale":
            x = x * WIDTH**0.5
        h = self.norm(x, net.norm1.weight)
        q = torch.einsum("btc,hdc->bthd", h, net.q.weight.view(HEADS, DEPTH, WIDTH))
        k, v = (torch.einsum("btc,hdc->bthd", h, f.weight.view(GROUPED, DEPTH, WIDTH)) for f in (net.k, net.v))
        groups = (2, GROUPED) if self.bug == "groups exchanged" else (GROUPED, 2)
        q = q.unflatten(2, groups)
        if self.bug == "groups exchanged":
            q = q.transpose(2, 3)  # bug: groups exchanged
        scores = torch.einsum("btgrd,bsgd->bgrts", q, k) * DEPTH**-0.5
        bias = torch.where(real, 0.0, -1e9).to(scores.dtype)[:, None, None, None]
        if self.bug == "mask of queries":
            bias = bias.transpose(-1, -2)  # bug: mask of queries
        weights = F.softmax(scores + bias, -1)
        y = torch.einsum("bgrts,bsgd->btgrd", weights, v)
        x = x + y.flatten(2) @ net.o.weight.T  # bug: no embedding scale
        gate, up = (self.norm(x, net.norm2.weight) @ self.both.T).chunk(2, -1)
        if self.bug == "gate and up":
            gate, up = up, gate
        h = gate * torch.sigmoid(gate) * up  # bug: gate and up
        x = self.norm(x + h @ net.down.weight.T, net.last.weight)
        if self.bug == "padding counted":
            return x.mean(1)  # bug: padding counted
        return torch.einsum("btc,bt->bc", x, real.to(x.dtype)) / real.to(x.dtype).sum(1)[:, None]


class SmallUNet(nn.Module):
    """Depthwise and grouped layers, a step down and up, and a skip connection."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Conv2d(3, 8, 3, padding=1)
        self.depthwise, self.pointwise = nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.Conv2d(8, 8, 1)
        self.norm = nn.GroupNorm(4, 8)
        self.leave = nn.Conv2d(16, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        skip = F.silu(self.enter(x))
        y = F.avg_pool2d(skip, 2)
        y = F.silu(self.norm(self.pointwise(self.depthwise(y))))
        y = F.interpolate(y, scale_factor=2, mode="bilinear", align_corners=False)
        return self.leave(torch.cat([skip, y], 1))


class HandUNet(nn.Module):
    """The same with channels last, as linear layers where it can be."""

    def __init__(self, net: SmallUNet, bug: str = "") -> None:
        super().__init__()
        self.net, self.bug = net, bug

    def norm(self, x: Tensor) -> Tensor:
        groups = 2 if self.bug == "two groups" else 4
        parts = x.unflatten(-1, (groups, -1)).permute(0, 3, 1, 2, 4).flatten(2)
        unbiased = self.bug == "unbiased"
        spread, mean = torch.var_mean(parts, -1, unbiased=unbiased, keepdim=True)  # bug: unbiased
        parts = (parts - mean) * (spread + 1e-5).rsqrt()  # bug: two groups
        x = parts.unflatten(2, (*x.shape[1:3], -1)).permute(0, 2, 3, 1, 4).flatten(3)
        return x * self.net.norm.weight + self.net.norm.bias

    def forward(self, image: Tensor) -> Tensor:
        net = self.net
        skip = F.conv2d(image, net.enter.weight, net.enter.bias, padding=1).permute(0, 2, 3, 1)
        skip = skip * skip.sigmoid()
        batch, height, width, channels = skip.shape
        y = skip.reshape(batch, height // 2, 2, width // 2, 2, channels).mean((2, 4))
        padded = F.pad(y, (0, 0, 1, 1, 1, 1))
        taps = [
            padded[:, i : i + height // 2, j : j + width // 2] * net.depthwise.weight[:, 0, i, j]
            for i in range(3)
            for j in range(3)
        ]
        y = sum(taps[1:], taps[0]) + net.depthwise.bias
        y = F.linear(y, net.pointwise.weight[:, :, 0, 0], net.pointwise.bias)
        y = self.norm(y)
        y = (y * y.sigmoid()).permute(0, 3, 1, 2)
        corners = self.bug == "corners"
        y = F.interpolate(y, size=(height, width), mode="bilinear", align_corners=corners)  # bug: corners
        y = y.permute(0, 2, 3, 1)
        parts = [y, skip] if self.bug == "skip order" else [skip, y]
        y = torch.cat(parts, -1)  # bug: skip order
        return F.linear(y, net.leave.weight.flatten(1), net.leave.bias).permute(0, 3, 1, 2)
