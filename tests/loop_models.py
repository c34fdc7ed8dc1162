"""Models with loops as people write them: state-space layers, recurrent cells, a denoiser; for tests of drawings."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class SelectiveScan(nn.Module):
    """The scan of a Mamba block without functions: all in the loop, results written into a tensor."""

    def __init__(self, width: int = 8, state: int = 4) -> None:
        super().__init__()
        self.A_log, self.D = nn.Parameter(torch.rand(width, state)), nn.Parameter(torch.ones(width))
        self.dt, self.out = nn.Linear(width, width), nn.Linear(width, width)
        self.B, self.C = nn.Linear(width, state), nn.Linear(width, state)

    def forward(self, x: Tensor) -> Tensor:
        A, y = -self.A_log.exp(), torch.empty_like(x)
        h = x.new_zeros(x.shape[0], *A.shape)
        for step in range(x.shape[1]):
            now = x[:, step]
            dt, B, C = F.softplus(self.dt(now)), self.B(now), self.C(now)
            h = torch.exp(dt.unsqueeze(-1) * A) * h + dt.unsqueeze(-1) * B.unsqueeze(1) * now.unsqueeze(-1)
            y[:, step] = (h * C.unsqueeze(1)).sum(-1) + self.D * now
        return self.out(y)


class Diagonal(nn.Module):
    """A layer with a diagonal complex state (S4D), in its recurrent form."""

    def __init__(self, width: int = 4, state: int = 4) -> None:
        super().__init__()
        self.log_dt, self.D = nn.Parameter(torch.rand(width)), nn.Parameter(torch.rand(width))
        self.log_A_real, self.A_imag = nn.Parameter(torch.rand(width, state)), nn.Parameter(torch.rand(width, state))
        self.C, self.mix = nn.Parameter(torch.rand(width, state, 2)), nn.Linear(width, 2 * width)

    def forward(self, u: Tensor) -> Tensor:
        A, C = -self.log_A_real.exp() + 1j * self.A_imag, torch.view_as_complex(self.C)
        dA = torch.exp(A * self.log_dt.exp().unsqueeze(-1))
        dB = (dA - 1.0) / A
        x, outputs = torch.zeros(u.shape[0], *A.shape, dtype=torch.cfloat), []
        for step in range(u.shape[1]):
            x = dA * x + dB * u[:, step].unsqueeze(-1)
            outputs.append(2 * (C * x).sum(-1).real)
        return F.glu(self.mix(F.gelu(torch.stack(outputs, 1) + u * self.D)), -1)


class Gated(nn.Module):
    """A GRU of bare parameters."""

    def __init__(self, width: int = 4, hidden: int = 8) -> None:
        super().__init__()
        self.hidden = hidden
        self.W = nn.ParameterDict({gate: nn.Parameter(torch.rand(width, hidden)) for gate in "rzn"})
        self.U = nn.ParameterDict({gate: nn.Parameter(torch.rand(hidden, hidden)) for gate in "rzn"})
        self.b = nn.ParameterDict({gate: nn.Parameter(torch.rand(hidden)) for gate in "rzn"})

    def forward(self, x: Tensor) -> Tensor:
        h, W, U, b = torch.zeros(x.shape[0], self.hidden), self.W, self.U, self.b
        for step in range(x.shape[1]):
            now = x[:, step]
            r = torch.sigmoid(now @ W["r"] + h @ U["r"] + b["r"])
            z = torch.sigmoid(now @ W["z"] + h @ U["z"] + b["z"])
            n = torch.tanh(now @ W["n"] + r * (h @ U["n"]) + b["n"])
            h = (1 - z) * n + z * h
        return h


class Denoiser(nn.Module):
    """Ten steps from noise, with a schedule in buffers; the last adds no noise."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(5, 16), nn.SiLU(), nn.Linear(16, 4))
        beta = torch.linspace(1e-4, 0.02, 10)
        for name, schedule in (("beta", beta), ("alpha", 1 - beta), ("product", (1 - beta).cumprod(0))):
            self.register_buffer(name, schedule)

    def forward(self, x: Tensor) -> Tensor:
        for step in reversed(range(10)):
            noise = self.net(torch.cat([x, torch.full((x.shape[0], 1), step / 10)], 1))
            x = (x - self.beta[step] / (1 - self.product[step]).sqrt() * noise) / self.alpha[step].sqrt()
            if step:
                x = x + self.beta[step].sqrt() * torch.randn_like(x)
        return x
