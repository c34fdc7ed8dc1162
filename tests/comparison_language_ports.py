"""More references and ports: a GPT-2 of transformers, an LSTM, rotary attention; see `comparison_ports`."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from comparison_ports import DEPTH, HEADS, WIDTH
from torch import Tensor, nn


class HandGPT(nn.Module):
    """A hand-written GPT with the weights of a GPT2LMHeadModel."""

    def __init__(self, gpt: nn.Module, bug: str = "") -> None:
        super().__init__()
        self.bug, self.config = bug, gpt.config
        self.weights = nn.ParameterDict({name.replace(".", "|"): value for name, value in gpt.named_parameters()})

    def weight(self, name: str) -> Tensor:
        return self.weights[("transformer." + name).replace(".", "|")]

    def linear(self, x: Tensor, name: str) -> Tensor:
        return F.linear(x, self.weight(name + ".weight").T, self.weight(name + ".bias"))

    def norm(self, x: Tensor, name: str) -> Tensor:
        scale, shift = self.weight(name + ".weight"), self.weight(name + ".bias")
        return F.layer_norm(x, x.shape[-1:], scale, shift)  # bug: layer order

    def attend(self, x: Tensor, name: str) -> Tensor:
        q, k, v = self.linear(x, name + ".c_attn").unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.linear(y.transpose(1, 2).flatten(2), name + ".c_proj")

    def mlp(self, x: Tensor, name: str) -> Tensor:
        h = self.linear(x, name + ".c_fc")
        h = F.gelu(h, approximate="none" if self.bug == "gpt gelu" else "tanh")  # bug: gpt gelu
        return self.linear(h, name + ".c_proj")

    def forward(self, ids: Tensor) -> Tensor:
        places = torch.arange(ids.shape[1]) + (self.bug == "positions")  # bug: positions
        x = self.weight("wte.weight")[ids] + self.weight("wpe.weight")[places]
        if self.bug == "dropout":
            x = F.dropout(x, 0.1, training=True)  # bug: dropout
        layers = list(range(self.config.n_layer))
        for layer in reversed(layers) if self.bug == "layer order" else layers:
            x = x + self.attend(self.norm(x, f"h.{layer}.ln_1"), f"h.{layer}.attn")
            x = x + self.mlp(self.norm(x, f"h.{layer}.ln_2"), f"h.{layer}.mlp")
        x = self.norm(x, "ln_f") if self.bug != "final norm" else x
        table = self.weight("wpe.weight" if self.bug == "tied" else "wte.weight")
        return x @ table.T  # bug: tied, final norm


class Recurrent(nn.Module):
    """An LSTM over a sequence, and a linear reading of its last state."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(6, 8, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.lstm(x)[0])


class HandRecurrent(nn.Module):
    """The LSTM, step by step."""

    def __init__(self, net: Recurrent, bug: str = "") -> None:
        super().__init__()
        self.net, self.bug = net, bug

    def forward(self, x: Tensor) -> Tensor:
        lstm = self.net.lstm
        h = c = x.new_zeros(len(x), 8)
        states = []
        for step in range(x.shape[1]):
            gates = torch.einsum("bi,gi->bg", x[:, step], lstm.weight_ih_l0) + lstm.bias_ih_l0
            gates = gates + torch.einsum("bi,gi->bg", h, lstm.weight_hh_l0)
            if self.bug != "recurrent bias":
                gates = gates + lstm.bias_hh_l0
            i, f, g, o = gates.split(8, 1)
            if self.bug == "gates":
                i, f = f, i
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()  # bug: gates, recurrent bias
            h = o.sigmoid() * c.tanh()
            states.append(h)
        return F.linear(torch.stack(states, 1), self.net.head.weight, self.net.head.bias)


def angles(tokens: int, base: float = 10000.0) -> Tensor:
    """Return the angle of each position and pair of channels."""
    steps = torch.arange(0, DEPTH, 2) / DEPTH
    return torch.outer(torch.arange(tokens).float(), base**-steps)


class Rotary(nn.Module):
    """Attention with rotary positions, channels paired as halves."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(3))
        self.scale = nn.Parameter(torch.randn(WIDTH) * 0.1 + 1)

    def turn(self, x: Tensor) -> Tensor:
        turned = torch.cat([angles(x.shape[2])] * 2, -1)
        half = torch.cat([-x[..., DEPTH // 2 :], x[..., : DEPTH // 2]], -1)
        return x * turned.cos() + half * turned.sin()

    def forward(self, x: Tensor) -> Tensor:
        x = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * self.scale
        q, k, v = (f(x).unflatten(-1, (HEADS, DEPTH)).transpose(1, 2) for f in (self.query, self.key, self.value))
        return F.scaled_dot_product_attention(self.turn(q), self.turn(k), v).transpose(1, 2).flatten(2)


class InterleavedRotary(nn.Module):
    """The same with channels paired as neighbours: the rows of the query and key weights are reordered for it."""

    def __init__(self, net: Rotary, bug: str = "") -> None:
        super().__init__()
        self.net, self.bug = net, bug
        order = torch.arange(WIDTH).view(HEADS, 2, DEPTH // 2).transpose(1, 2).flatten()
        order = torch.arange(WIDTH) if bug == "rotary pairs" else order
        self.query, self.key = (nn.Parameter(f.weight.detach()[order]) for f in (net.query, net.key))

    def turn(self, x: Tensor) -> Tensor:
        base = 500000.0 if self.bug == "rotary base" else 10000.0
        pairs = torch.view_as_complex(x.float().unflatten(-1, (-1, 2)))
        turns = torch.polar(torch.ones(()), angles(x.shape[2], base))
        return torch.view_as_real(pairs * turns).flatten(-2)  # bug: rotary pairs, rotary base

    def forward(self, x: Tensor) -> Tensor:
        scale = x.pow(2).mean(-1, keepdim=True).add(1e-6).sqrt()
        x = self.net.scale * (x / scale)
        q, k, v = (x @ w.T for w in (self.query, self.key, self.net.value.weight))
        q, k, v = (y.reshape(*y.shape[:2], HEADS, DEPTH).permute(0, 2, 1, 3) for y in (q, k, v))
        scores = self.turn(q) @ self.turn(k).mT / math.sqrt(DEPTH)
        return (scores.softmax(-1) @ v).permute(0, 2, 1, 3).reshape(*x.shape)


class Buckets(nn.Module):
    """Hashed positions in a table, as 64-bit numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(64, WIDTH)

    def forward(self, ids: Tensor) -> Tensor:
        hashed = (ids * 31 + torch.arange(ids.shape[1]) * 17) % 64
        return torch.tanh(self.table(hashed)).sum(1)


class NarrowBuckets(nn.Module):
    """The same; with the bug in 8-bit numbers."""

    def __init__(self, net: Buckets, bug: str = "") -> None:
        super().__init__()
        self.net, self.bug = net, bug

    def forward(self, ids: Tensor) -> Tensor:
        small = ids.to(torch.int8) if self.bug == "overflow" else ids
        hashed = small * 31  # bug: overflow
        if self.bug == "overflow":
            hashed = hashed.long() // 2 * 2
        hashed = torch.remainder(hashed + torch.arange(ids.shape[1]).mul(17), 64)
        return self.net.table.weight[hashed].tanh().sum(1)
