"""A generator against a discriminator, on points of a circle."""

import math

import torch
from torch import nn


class Circle(torch.utils.data.Dataset):
    """Points at a distance of 1 from the middle."""

    def __init__(self, count):
        angles = torch.arange(count) * (2 * math.pi / count)
        self.points = torch.stack([angles.cos(), angles.sin()], 1)

    def __len__(self):
        return len(self.points)

    def __getitem__(self, index):
        return (self.points[index],)


class Noise(torch.utils.data.Dataset):
    """Random numbers, other ones each time."""

    def __init__(self, count, size):
        self.count, self.size = count, size

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return (torch.randn(self.size),)


def perceptron(inputs, width, outputs):
    return nn.Sequential(nn.Linear(inputs, width), nn.LeakyReLU(0.2), nn.Linear(width, outputs))


class Generator(nn.Module):
    def __init__(self, size, width=16):
        super().__init__()
        self.layers = perceptron(size, width, 2)

    def forward(self, z):
        return self.layers(z)


class Discriminator(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.layers = perceptron(2, width, 1)

    def forward(self, x):
        return self.layers(x)


def as_real(score):
    return score, torch.ones_like(score)


def as_fake(score):
    return score, torch.zeros_like(score)
