"""TorchAssistant's `output_devices`."""

from torcheer.training.output_devices import Printer as Printer
from torcheer.training.output_devices import SaveAsImages as SaveAsImages
