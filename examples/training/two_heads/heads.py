"""An autoencoder with two heads: one draws what was seen, one says what it is."""

import torch
from torch import nn


class Stripes(torch.utils.data.Dataset):
    """Noisy images of 8 × 8 with stripes: 0 horizontal, 1 vertical, 2 none."""

    def __init__(self, count, seed=0):
        random = torch.Generator().manual_seed(seed)
        self.labels = torch.arange(count) % 3
        self.images = 0.3 * torch.rand(count, 1, 8, 8, generator=random)
        self.images[self.labels == 0, :, ::2, :] += 0.7
        self.images[self.labels == 1, :, :, ::2] += 0.7

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.images[index], int(self.labels[index])


class Encoder(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(64, size), nn.Tanh())

    def forward(self, image):
        return self.layers(image)


class Decoder(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(size, 64), nn.Sigmoid(), nn.Unflatten(1, (1, 8, 8)))

    def forward(self, code):
        return self.layers(code)


class Classifier(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.layer = nn.Linear(size, 3)

    def forward(self, code):
        return {"classes": self.layer(code)}


class Net(nn.Module):
    """A classifier alone, for a config in which all else is filled in."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.Tanh(), nn.Linear(16, 3))

    def forward(self, image):
        return self.layers(image)
