"""The code that the config of the killed run names."""

import os
import time

import torch
from torch import nn


class Rows(torch.utils.data.Dataset):
    """Rows of four numbers, the largest of which is the label; WAIT_SECS slows them down, for whoever kills it."""

    def __init__(self, count):
        draw = torch.Generator().manual_seed(0)
        self.rows = torch.rand(count, 4, generator=draw)
        self.wait_secs = float(os.environ.get("WAIT_SECS", "0"))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        time.sleep(self.wait_secs)
        return self.rows[index], int(self.rows[index].argmax())


class Net(nn.Module):
    """With what a checkpoint must hold beside weights: running statistics, and random numbers that are drawn."""

    def __init__(self):
        super().__init__()
        # Without a bias: before a batch norm its gradient is rounding alone, which Adam would make large.
        first = nn.Linear(4, 8, bias=False)
        self.layers = nn.Sequential(first, nn.BatchNorm1d(8), nn.ReLU(inplace=True), nn.Dropout(0.1), nn.Linear(8, 4))

    def forward(self, x):
        return self.layers(x)
