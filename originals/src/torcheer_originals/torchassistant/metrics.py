"""TorchAssistant's `metrics`: names that its configs use."""

from torcheer.training.metrics import METRICS as metric_functions

__all__ = ["metric_functions"]
