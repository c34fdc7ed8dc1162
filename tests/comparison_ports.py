"""Reference models and independently written ports of them, with one bug each on request.

The line that is wrong with bug "x" ends in a comment "bug: x".
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WIDTH, HEADS, TOKENS = 32, 4, 7
DEPTH = WIDTH // HEADS


def fill(model: nn.Module, seed: int = 0) -> nn.Module:
    """Give norms and running statistics numbers of their own, as training would."""
    torch.manual_seed(seed)
    for module in model.modules():
        if isinstance(module, nn.LayerNorm | nn.GroupNorm | nn.BatchNorm2d):
            nn.init.normal_(module.weight, 1, 0.2)
            nn.init.normal_(module.bias, 0, 0.2)
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.running_mean, 0, 0.3)
            nn.init.uniform_(module.running_var, 0.5, 1.5)
    return model.eval()


# A transformer block


class Block(nn.Module):
    """Pre-norm attention and MLP of nn modules; attention in one call, or step by step."""

    def __init__(self, explicit: bool = False) -> None:
        super().__init__()
        self.explicit = explicit
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if not self.explicit:
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)
        scores = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(q.shape[-1])
        future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
        return torch.matmul(scores.masked_fill(future, -math.inf).softmax(-1), v)

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, _ = x.shape
        h = self.norm1(x)
        q, k, v = (f(h).view(batch, tokens, HEADS, -1).transpose(1, 2) for f in (self.query, self.key, self.value))
        y = self.attend(q, k, v).transpose(1, 2).reshape(batch, tokens, -1)
        x = x + self.out(y)
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class HandBlock(nn.Module):
    """The block with plain tensors: fused qkv, weights as (in, out), norms and softmax by hand."""

    def __init__(self, block: Block, bug: str = "") -> None:
        super().__init__()
        self.bug = bug
        projections = (block.query, block.key, block.value)
        self.wqkv = nn.Parameter(torch.cat([p.weight.detach().T for p in projections], 1))
        self.bqkv = nn.Parameter(torch.cat([p.bias.detach() for p in projections]))
        self.wo, self.w1, self.w2 = (
            nn.Parameter(p.weight.detach().T.contiguous()) for p in (block.out, block.up, block.down)
        )
        self.bo, self.b1, self.b2 = block.out.bias, block.up.bias, block.down.bias
        self.norms = nn.ParameterList([block.norm1.weight, block.norm1.bias, block.norm2.weight, block.norm2.bias])

    def norm(self, x: Tensor, which: int) -> Tensor:
        eps = 1e-6 if self.bug == "eps" else 1e-5
        centred = x - x.mean(-1, keepdim=True)
        spread = torch.rsqrt(centred.square().mean(-1, keepdim=True) + eps)  # bug: eps
        if self.bug == "norm bias":
            return centred * spread * self.norms[which]  # bug: norm bias
        return centred * spread * self.norms[which] + self.norms[which + 1]

    def heads(self, x: Tensor) -> Tensor:
        if self.bug == "split":
            return x.reshape(*x.shape[:2], DEPTH, HEADS).permute(0, 3, 1, 2)  # bug: split
        if self.bug == "heads":
            return x.reshape(*x.shape[:2], HEADS * 2, -1).permute(0, 2, 1, 3)  # bug: heads
        return x.reshape(*x.shape[:2], HEADS, DEPTH).permute(0, 2, 1, 3)

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if self.bug == "swapped":
            q, k = k, q
        scores = torch.einsum("bhid,bhjd->bhij", q, k)  # bug: swapped
        if self.bug != "scale":
            scores = scores * q.shape[-1] ** -0.5
        mask = torch.full(scores.shape[-2:], -1e9, dtype=scores.dtype, device=q.device).triu(1)
        if self.bug == "inverted":
            mask = torch.full(scores.shape[-2:], -1e9, dtype=scores.dtype, device=q.device).tril(-1)  # bug: inverted
        if self.bug != "not causal":
            scores = scores + mask  # bug: scale
        weights = torch.softmax(scores, 2 if self.bug == "axis" else 3)  # bug: axis, not causal
        return torch.einsum("bhij,bhjd->bihd", weights, v).flatten(2)

    def activation(self, x: Tensor) -> Tensor:
        if self.bug == "gelu":
            return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))  # bug: gelu
        return x * 0.5 * (1 + torch.erf(x / math.sqrt(2)))

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm(x, 0)
        q, k, v = map(self.heads, (h @ self.wqkv + self.bqkv).chunk(3, -1))
        y = self.attend(q, k, v)
        y = y @ (self.wo.T if self.bug == "transposed" else self.wo)  # bug: transposed, linear bias
        if self.bug != "linear bias":
            y = y + self.bo
        x = (h if self.bug == "residual" else x) + y  # bug: residual
        if self.bug == "norm order":
            x = self.norm(x, 2)
            h = torch.matmul(x, self.w1) + self.b1
        elif self.bug == "half":
            h = (self.norm(x, 2).half() @ self.w1.half()).float() + self.b1  # bug: half
        else:
            h = self.norm(x, 2) @ self.w1 + self.b1
        return x + (self.activation(h) @ self.w2 + self.b2)  # bug: norm order


# A convolutional network


class ConvNet(nn.Module):
    """A small residual network for images."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.stem_norm = nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8)
        self.conv1, self.norm1 = nn.Conv2d(8, 8, 3, 1, 1, bias=False), nn.BatchNorm2d(8)
        self.conv2, self.norm2 = nn.Conv2d(8, 8, 3, 1, 1, bias=False), nn.BatchNorm2d(8)
        self.group = nn.GroupNorm(2, 8)
        self.head = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.stem_norm(self.stem(x)))
        x = F.max_pool2d(x, 2)
        y = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        x = F.relu(x + y)
        return self.head(F.adaptive_avg_pool2d(self.group(x), 1).flatten(1))


class HandConvNet(nn.Module):
    """The network with convolutions as matrix products and norms as formulas."""

    def __init__(self, net: ConvNet, bug: str = "") -> None:
        super().__init__()
        self.net, self.bug = net, bug

    def conv(self, x: Tensor, weight: Tensor, stride: int, padding: int) -> Tensor:
        side = (x.shape[-1] + 2 * padding - 3) // stride + 1
        columns = F.unfold(x, 3, padding=padding, stride=stride)  # bug: padding, no relu
        flat = weight.transpose(0, 1) if self.bug == "conv transposed" and weight.shape[1] == 8 else weight
        flat = flat.flatten(1) @ columns  # bug: conv transposed
        return flat.unflatten(-1, (side, side))

    def norm(self, x: Tensor, norm: nn.BatchNorm2d) -> Tensor:
        mean, var = norm.running_mean, norm.running_var
        if self.bug == "batch statistics" and norm is self.net.norm1:
            mean, var = x.mean((0, 2, 3)), x.var((0, 2, 3), unbiased=False)  # bug: batch statistics
        if self.bug == "swapped statistics" and norm is self.net.norm2:
            mean, var = var, mean.abs()
        scale = norm.weight / torch.sqrt(var + norm.eps)
        return x * scale[:, None, None] + (norm.bias - mean * scale)[:, None, None]  # bug: swapped statistics

    def forward(self, x: Tensor) -> Tensor:
        net = self.net
        if self.bug == "bgr":
            x = x[:, [2, 1, 0]]  # bug: bgr
        x = self.norm(self.conv(x, net.stem.weight, 2, 1), net.stem_norm).clamp(min=0)
        x = x.unfold(2, 2, 2).unfold(3, 2, 2).amax((-2, -1))
        if self.bug == "pool":
            x = self.norm(self.conv(x, net.stem.weight, 2, 1), net.stem_norm)
        padding = (1, 1)
        if self.bug == "padding":
            x_padded = F.pad(x, (0, 2, 0, 2))  # bug: padding
            y = self.conv(x_padded, net.conv1.weight, 1, 0)
        else:
            y = self.conv(x, net.conv1.weight, 1, padding[0])
        y = self.norm(y, net.norm1)
        if self.bug != "no relu":
            y = y.clamp(min=0)
        y = self.norm(self.conv(y, net.conv2.weight, 1, 1), net.norm2)
        x = (x + y).clamp(min=0)
        groups = x.unflatten(1, (2, 4)).flatten(2)
        centred = groups - groups.mean(-1, keepdim=True)
        groups = centred / torch.sqrt(centred.square().mean(-1, keepdim=True) + net.group.eps)
        x = groups.reshape(x.shape) * net.group.weight[:, None, None] + net.group.bias[:, None, None]
        return torch.addmm(net.head.bias, x.mean((2, 3)), net.head.weight.T)
