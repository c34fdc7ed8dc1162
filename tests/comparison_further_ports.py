"""Graph attention, a decoder that looks into a memory, gated dilated convolutions; their ports, and ten more bugs."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

NODES, WIDTH, HEADS = 9, 16, 4
EDGES = torch.tensor([[0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 2, 4, 6, 8, 1], [1, 2, 3, 4, 5, 6, 7, 8, 0, 4, 6, 8, 1, 3, 5]])


class GraphAttention(nn.Module):
    """Attention over the neighbours of each node, then a convolution normalised by degree."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Linear(6, WIDTH)
        self.target, self.source = nn.Parameter(torch.randn(WIDTH)), nn.Parameter(torch.randn(WIDTH))
        self.mix, self.out = nn.Linear(WIDTH, WIDTH, bias=False), nn.Linear(WIDTH, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = self.enter(x)
        since, to = EDGES
        scores = F.leaky_relu((h @ self.target)[to] + (h @ self.source)[since], 0.2)
        weights = (scores - scores.max()).exp()
        total = torch.zeros(NODES).index_add(0, to, weights)
        weights = weights / total[to]
        h = F.elu(torch.zeros_like(h).index_add(0, to, weights[:, None] * h[since]))
        h = self.mix(h)
        degree = torch.zeros(NODES).index_add(0, to, torch.ones(len(to))) + 1
        factor = degree.rsqrt()
        messages = h[since] * (factor[since] * factor[to])[:, None]
        h = torch.zeros_like(h).index_add(0, to, messages) + h / degree[:, None]
        return self.out(F.relu(h))


class HandGraphAttention(nn.Module):
    """The same with dense matrices."""

    def __init__(self, net: GraphAttention, bug: str = "") -> None:
        super().__init__()
        self.net, self.bug = net, bug

    def forward(self, x: Tensor) -> Tensor:
        net = self.net
        linked = torch.zeros(NODES, NODES, dtype=x.dtype)
        linked[EDGES[1], EDGES[0]] = 1
        h = F.linear(x, net.enter.weight, net.enter.bias)
        scores = torch.outer(h @ net.target, torch.ones(NODES, dtype=x.dtype)) + (h @ net.source)[None]
        scores = torch.where(scores > 0, scores, 0.2 * scores).masked_fill(linked == 0, -math.inf)
        axis = 0 if self.bug == "softmax over targets" else 1
        weights = scores.softmax(axis)  # bug: softmax over targets
        h = weights @ h
        h = torch.where(h > 0, h, h.exp() - 1) @ net.mix.weight.T
        loops = linked if self.bug == "no loops" else linked + torch.eye(NODES, dtype=x.dtype)
        power = -1.0 if self.bug == "normalised twice" else -0.5
        factor = (linked.sum(1) + 1) ** power  # bug: normalised twice
        adjacency = factor[:, None] * loops * factor[None]
        h = adjacency @ h
        return h.clamp(min=0) @ net.out.weight.T + net.out.bias  # bug: no loops


class MemoryDecoder(nn.Module):
    """Post-norm layers: attention to the past with slopes for distance, then to a padded memory."""

    def __init__(self) -> None:
        super().__init__()
        self.own, self.cross = (nn.MultiheadAttention(WIDTH, HEADS, batch_first=True) for _ in range(2))
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(WIDTH) for _ in range(3))
        self.up, self.down = nn.Linear(WIDTH, 32), nn.Linear(32, WIDTH)
        self.memory = nn.Parameter(torch.randn(6, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        batch, steps, _ = x.shape
        apart = torch.arange(steps)[None] - torch.arange(steps)[:, None]
        slopes = 2.0 ** -(torch.arange(HEADS) + 1)
        bias = slopes[:, None, None] * apart.masked_fill(apart > 0, 0) + torch.where(apart > 0, -math.inf, 0.0)
        y, _ = self.own(x, x, x, attn_mask=bias.repeat(batch, 1, 1), need_weights=False)
        x = self.norm1(x + y)
        memory = self.memory.expand(batch, -1, -1)
        padding = torch.zeros(batch, 6).masked_fill(torch.arange(6) >= 4, -math.inf)
        y, _ = self.cross(x, memory, memory, key_padding_mask=padding, need_weights=False)
        x = self.norm2(x + y)
        return self.norm3(x + self.down(F.relu(self.up(x)).square()))


class HandMemoryDecoder(nn.Module):
    """The same, each product written out."""

    def __init__(self, net: MemoryDecoder, bug: str = "") -> None:
        super().__init__()
        self.net, self.bug = net, bug

    def heads(self, x: Tensor, layer: nn.MultiheadAttention, part: int) -> Tensor:
        weight, bias = layer.in_proj_weight.chunk(3)[part], layer.in_proj_bias.chunk(3)[part]
        return (x @ weight.T + bias).unflatten(-1, (HEADS, -1)).transpose(1, 2)

    def norm(self, x: Tensor, norm: nn.LayerNorm) -> Tensor:
        spread, mean = torch.var_mean(x, -1, correction=0, keepdim=True)  # bug: norm of the branch
        return (x - mean) * (spread + norm.eps).rsqrt() * norm.weight + norm.bias

    def forward(self, x: Tensor) -> Tensor:
        net, steps = self.net, x.shape[1]
        q, k, v = (self.heads(x, net.own, part) for part in range(3))
        first = 0 if self.bug == "slopes of other heads" else 1
        slopes = torch.tensor([2.0**-n for n in range(first, HEADS + first)])
        apart = (torch.arange(steps)[:, None] - torch.arange(steps)).clamp(min=0)
        scores = torch.einsum("bhtd,bhsd->bhts", q, k) / math.sqrt(WIDTH // HEADS)
        scores = scores - slopes[:, None, None] * apart  # bug: slopes of other heads
        weights = (scores + torch.full((steps, steps), -math.inf).triu(1)).softmax(-1)
        y = (weights @ v).transpose(1, 2).flatten(2) @ net.own.out_proj.weight.T + net.own.out_proj.bias
        if self.bug == "norm of the branch":
            x = x + self.norm(y, net.norm1)
        else:
            x = self.norm(x + y, net.norm1)
        memory = net.memory[None]
        q, k, v = self.heads(x, net.cross, 0), self.heads(memory, net.cross, 1), self.heads(memory, net.cross, 2)
        real = 5 if self.bug == "one more real" else 4
        scores = (q @ k.transpose(-1, -2)) * (WIDTH // HEADS) ** -0.5
        weights = F.pad(scores[..., :real].softmax(-1), (0, 6 - real))  # bug: one more real
        y = (weights @ v).transpose(1, 2).flatten(2)
        y = F.linear(y, net.cross.out_proj.weight, net.cross.out_proj.bias)
        x = self.norm(x + y, net.norm2)
        h = x @ net.up.weight.T + net.up.bias
        h = h * h if self.bug == "square without relu" else h * F.relu(h)  # bug: square without relu
        return self.norm(x + (h @ net.down.weight.T + net.down.bias), net.norm3)


class Waves(nn.Module):
    """Two gated convolutions with growing dilation, weights normalised, skips summed."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Conv1d(2, 8, 1)
        self.direction = nn.ParameterList(torch.randn(16, 8, 2) for _ in range(2))
        self.length = nn.ParameterList(torch.rand(16) + 0.5 for _ in range(2))
        self.skip, self.keep = (nn.ModuleList(nn.Conv1d(8, 8, 1) for _ in range(2)) for _ in range(2))
        self.out = nn.Conv1d(8, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.enter(x)
        total = torch.zeros_like(x)
        for n in range(2):
            weight = self.direction[n] * (self.length[n] / self.direction[n].flatten(1).norm(dim=1))[:, None, None]
            y = F.conv1d(F.pad(x, (2**n, 0)), weight, dilation=2**n)
            change, gate = y.chunk(2, 1)
            y = torch.tanh(change) * torch.sigmoid(gate)
            total = total + self.skip[n](y)
            x = x + self.keep[n](y)
        return self.out(F.relu(total))


class HandWaves(nn.Module):
    """The same with time before channels, and each tap a matrix product."""

    def __init__(self, net: Waves, bug: str = "") -> None:
        super().__init__()
        self.net, self.bug = net, bug

    def forward(self, x: Tensor) -> Tensor:
        net, skips = self.net, []
        x = x.transpose(1, 2) @ net.enter.weight[..., 0].T + net.enter.bias
        for n in range(2):
            direction = net.direction[n]
            axes = (0, 2) if self.bug == "normalised for inputs" else (1, 2)
            weight = direction / direction.square().sum(axes, keepdim=True).sqrt() * net.length[n][:, None, None]
            back = 1 if self.bug == "not dilated" else 2**n
            before = F.pad(x, (0, 0, back, 0))[:, : x.shape[1]]  # bug: not dilated
            y = before @ weight[..., 0].T + x @ weight[..., 1].T  # bug: normalised for inputs
            change, gate = y[..., :8], y[..., 8:]
            if self.bug == "gate first":
                change, gate = gate, change
            y = (2 * torch.sigmoid(2 * change) - 1) / (1 + torch.exp(-gate))  # bug: gate first
            skips.append(y @ net.skip[n].weight[..., 0].T + net.skip[n].bias)
            x = x + (y @ net.keep[n].weight[..., 0].T + net.keep[n].bias)
        y = torch.stack(skips).sum(0).relu()
        return (y @ net.out.weight[..., 0].T + net.out.bias).transpose(1, 2)
