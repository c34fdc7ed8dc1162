"""TorchAssistant's `adapters`."""

from torcheer.training.adapters import DefaultInputAdapter as DefaultInputAdapter
