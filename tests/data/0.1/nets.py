"""The networks and the data that the files of this folder were made with."""

import torch
from torch import nn


class Net(nn.Module):
    """Batch norm in training mode, an in-place operation, attention, a skip, and a layer that is used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.relu = nn.ReLU(inplace=True)
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)
        self.again = nn.Linear(4, 4)
        self.head = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.relu(self.norm(self.conv(x)))
        rows = x.flatten(2).transpose(1, 2)
        rows = rows + self.attention(rows, rows, rows)[0]
        rows = self.again(self.again(rows).tanh())
        return self.head(rows.mean(1))


def net() -> Net:
    torch.manual_seed(3)
    return Net()


def images(count: int) -> torch.Tensor:
    return torch.rand(count, 1, 6, 6, generator=torch.Generator().manual_seed(4))


def small() -> nn.Module:
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))


def rows(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    found = torch.rand(count, 4, generator=torch.Generator().manual_seed(6))
    return found, found[:, :3].argmax(1)
