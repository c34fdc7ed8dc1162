"""A mixture of experts, a GRU with additive attention, a selective state space; their ports, and bugs held back."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WIDTH, EXPERTS, CHOSEN = 24, 5, 2


class Experts(nn.Module):
    """Each token goes to the two experts with the highest weights, which are normalised; one expert serves all."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.router = nn.Linear(WIDTH, EXPERTS, bias=False)
        self.up = nn.ModuleList(nn.Linear(WIDTH, 40) for _ in range(EXPERTS))
        self.down = nn.ModuleList(nn.Linear(40, WIDTH) for _ in range(EXPERTS))
        self.shared, self.gate = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 1)

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm(x).flatten(0, 1)
        weights, chosen = self.router(h).softmax(-1).topk(CHOSEN, -1)
        weights = weights / weights.sum(-1, keepdim=True)
        out = torch.zeros_like(h)
        for number in range(EXPERTS):
            token, place = torch.where(chosen == number)
            y = self.down[number](F.silu(self.up[number](h[token])))
            out.index_add_(0, token, y * weights[token, place, None])
        out = out + torch.sigmoid(self.gate(h)) * self.shared(h)
        return x + out.view_as(x)


class HandExperts(nn.Module):
    """All experts of all tokens at once, weighted by a dense matrix."""

    def __init__(self, net: Experts, bug: str = "") -> None:
        super().__init__()
        self.net, self.bug = net, bug
        self.up, self.down = (
            nn.Parameter(torch.stack([m.weight.detach() for m in part])) for part in (net.up, net.down)
        )
        self.up_bias, self.down_bias = (
            nn.Parameter(torch.stack([m.bias.detach() for m in part])) for part in (net.up, net.down)
        )

    def forward(self, x: Tensor) -> Tensor:
        net = self.net
        h = F.layer_norm(x, (WIDTH,), net.norm.weight, net.norm.bias)
        logits = torch.einsum("btc,ec->bte", h, net.router.weight)
        best, chosen = logits.topk(CHOSEN, -1)
        if self.bug == "not normalised":
            best = logits.softmax(-1).gather(-1, chosen)
        else:
            best = best.softmax(-1)
        weights = torch.zeros_like(logits).scatter(-1, chosen, best)  # bug: not normalised
        y = torch.einsum("btc,efc->btef", h, self.up) + self.up_bias
        y = y * torch.sigmoid(y)
        y = torch.einsum("btef,ecf->btec", y, self.down)
        if self.bug == "bias of all experts":
            out = torch.einsum("btec,bte->btc", y, weights) + self.down_bias.sum(0)  # bug: bias of all experts
        else:
            out = torch.einsum("btec,bte->btc", y + self.down_bias, weights)
        shared = F.linear(h, net.shared.weight, net.shared.bias)
        gate = F.linear(h, net.gate.weight, net.gate.bias)
        gate = gate.softmax(-1) if self.bug == "gate of one" else gate.sigmoid()  # bug: gate of one
        return x + (out + gate * shared)


class Summary(nn.Module):
    """A GRU in both directions and an additive attention over its states."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(12, 10, batch_first=True, bidirectional=True)
        self.score, self.query = nn.Linear(20, 16), nn.Linear(16, 1, bias=False)
        self.out = nn.Linear(20, 6)

    def forward(self, x: Tensor) -> Tensor:
        states, _ = self.gru(x)
        weights = torch.softmax(self.query(torch.tanh(self.score(states))), 1)
        return F.log_softmax(self.out((weights * states).sum(1)), -1)


class HandSummary(nn.Module):
    """The GRU step by step, the attention by a matrix product."""

    def __init__(self, net: Summary, bug: str = "") -> None:
        super().__init__()
        self.net, self.bug = net, bug

    def run(self, x: Tensor, suffix: str) -> list[Tensor]:
        """Return the state after each step."""
        gru, states = self.net.gru, []
        w, u, b, c = (getattr(gru, f"{name}_l0{suffix}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
        state = x.new_zeros(len(x), 10)
        for step in range(x.shape[1]):
            given, kept = (F.linear(x[:, step], w, b), F.linear(state, u, c))
            reset, update = (torch.sigmoid(given[:, n : n + 10] + kept[:, n : n + 10]) for n in (0, 10))
            new = torch.tanh(given[:, 20:] + reset * kept[:, 20:])
            if self.bug == "update inverted":
                state = update * new + (1 - update) * state  # bug: update inverted
            else:
                state = new + update * (state - new)
            states.append(state)
        return states

    def forward(self, x: Tensor) -> Tensor:
        net = self.net
        forth, back = self.run(x, ""), self.run(x.flip(1), "_reverse")
        if self.bug != "backward not turned":
            back = back[::-1]
        both = [torch.cat(pair, -1) for pair in zip(forth, back, strict=True)]
        states = torch.stack(both, 1)  # bug: backward not turned
        hidden = (states @ net.score.weight.T + net.score.bias).tanh()
        scores = hidden @ net.query.weight[0]
        axis = 0 if self.bug == "attention over samples" else 1
        weights = scores.exp() / scores.exp().sum(axis, keepdim=True)  # bug: attention over samples
        y = torch.bmm(weights[:, None], states)[:, 0] @ net.out.weight.T + net.out.bias
        return y - y.logsumexp(-1, keepdim=True)


INNER, STATES = 16, 4


class StateSpace(nn.Module):
    """A selective state space: a causal convolution, steps of data-dependent length, a gate."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Linear(WIDTH, 2 * INNER, bias=False)
        self.conv = nn.Conv1d(INNER, INNER, 4, padding=3, groups=INNER)
        self.select, self.lengths = nn.Linear(INNER, 2 * STATES + 3, bias=False), nn.Linear(3, INNER)
        self.log_decay = nn.Parameter(torch.log(torch.rand(INNER, STATES) + 0.5))
        self.direct = nn.Parameter(torch.rand(INNER) + 0.5)
        self.leave = nn.Linear(INNER, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        inner, gate = self.enter(x).chunk(2, -1)
        inner = F.silu(self.conv(inner.transpose(1, 2))[..., : x.shape[1]]).transpose(1, 2)
        length, into, out = self.select(inner).split([3, STATES, STATES], -1)
        length = F.softplus(self.lengths(length))
        decay = torch.exp(length[..., None] * -torch.exp(self.log_decay))
        write = length[..., None] * into[:, :, None] * inner[..., None]
        state, results = torch.zeros_like(write[:, 0]), []
        for step in range(x.shape[1]):
            state = decay[:, step] * state + write[:, step]
            results.append((state * out[:, step, None]).sum(-1))
        y = torch.stack(results, 1) + inner * self.direct
        return self.leave(y * F.silu(gate))


class HandStateSpace(nn.Module):
    """The same without a loop: a convolution of shifted products, and steps summed in closed form."""

    def __init__(self, net: StateSpace, bug: str = "") -> None:
        super().__init__()
        self.net, self.bug = net, bug

    def forward(self, x: Tensor) -> Tensor:
        net, steps = self.net, x.shape[1]
        inner, gate = (F.linear(x, weight) for weight in net.enter.weight.chunk(2))
        padded = F.pad(inner, (0, 0, 0, 3) if self.bug == "convolution of the future" else (0, 0, 3, 0))
        taps = torch.stack([padded[:, n : n + steps] for n in range(4)], -1)
        inner = (taps * net.conv.weight[:, 0]).sum(-1) + net.conv.bias  # bug: convolution of the future
        inner = inner / (1 + torch.exp(-inner))
        length, both = F.linear(inner, net.select.weight).split([3, 2 * STATES], -1)
        into, out = both.chunk(2, -1)
        length = torch.log1p(torch.exp(F.linear(length, net.lengths.weight, net.lengths.bias)))
        sign = 1.0 if self.bug == "decay inverted" else -1.0
        rate = sign * net.log_decay.exp()
        summed = torch.cumsum(length, 1)
        apart = summed[:, :, None] - summed[:, None]
        later = torch.ones(steps, steps).tril().bool()[None, :, :, None, None]
        kernel = torch.where(later, torch.exp(apart[..., None] * rate), 0.0)  # bug: decay inverted
        write = torch.einsum("bsd,bsn,bsd->bsdn", length, into, inner)
        y = torch.einsum("btsdn,bsdn,btn->btd", kernel, write, out)
        y = y + (x.mean(-1, keepdim=True) if self.bug == "direct path" else inner) * net.direct  # bug: direct path
        return (y * gate * gate.sigmoid()) @ net.leave.weight.T
