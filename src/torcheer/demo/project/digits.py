"""The dataset and the model that training.yaml names.

Handwritten digits, and a small convolutional network.
"""

import csv
import gzip
from pathlib import Path

import torch
from torch import nn

FILE = Path(__file__).with_name("digits.csv.gz")


class Digits(torch.utils.data.Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Handwritten digits of 8 × 8 pixels from 0 to 1, with their labels."""

    def __init__(self) -> None:
        with gzip.open(FILE, "rt") as file:
            rows = torch.tensor([[int(cell) for cell in row] for row in csv.reader(file)])
        self.images = rows[:, :64].float().reshape(-1, 1, 8, 8) / 16
        self.labels = rows[:, 64]

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.images[index], self.labels[index]


class Net(nn.Module):
    """Two convolutional blocks, each halving the size, and two linear layers."""

    def __init__(self, maps: int = 16, width: int = 48) -> None:
        super().__init__()
        self.edges = nn.Sequential(nn.Conv2d(1, maps, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
        self.strokes = nn.Sequential(nn.Conv2d(maps, 2 * maps, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
        self.hidden = nn.Sequential(nn.Linear(2 * maps * 4, width), nn.ReLU(), nn.Dropout(0.2))
        self.digit = nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.strokes(self.edges(x))
        digit: torch.Tensor = self.digit(self.hidden(x.flatten(1)))
        return digit
