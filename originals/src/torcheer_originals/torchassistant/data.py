"""TorchAssistant's `data`: datasets made of datasets."""

from torcheer.training.datasets import Merged as MergedDataset
from torcheer.training.datasets import Preprocessed as WrappedDataset
from torcheer.training.datasets import Split as DataSplit

__all__ = ["DataSplit", "MergedDataset", "WrappedDataset"]
