"""TorchAssistant's `output_adapters`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torcheer.training.adapters import IdentityAdapter as IdentityAdapter
from torcheer.training.adapters import column_of


class OutputAdapter:
    """One's own adapter: called with the columns of a batch and all outputs, returns the columns that go on."""

    def __call__(self, all_outputs: dict[str, Any]) -> dict[str, Any]:
        raise NotImplementedError(f"{type(self).__name__} has no method __call__(all_outputs)")


class SelectVariables(OutputAdapter):
    """Pass on some columns alone."""

    def __init__(self, variable_names: Sequence[str]) -> None:
        self.variable_names = list(variable_names)

    def __call__(self, all_outputs: dict[str, Any]) -> dict[str, Any]:
        return {name: column_of(all_outputs, name) for name in self.variable_names}
