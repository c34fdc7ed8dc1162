"""Why a layer has no value in a state: said by who looked, so that a page need not guess."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from torcheer.network.network_records import Network

Absence = tuple[str, str, str]  # layer, variable, why

NOT_RUN = "it did not run in this step"
COMPILED = "it runs inside compiled code, where its values cannot be seen"
NO_GRAD = "it ran without gradients (under no_grad, inference_mode or the like)"
FROZEN = "nothing in it or before it asks for a gradient (requires_grad is off)"
INPUT = "the input asks for no gradient (requires_grad is off)"
WHOLE_NUMBERS = "whole numbers have no gradient"
NO_BACKWARD = "no gradient has come: backward did not run, or the loss does not depend on it"
NO_ACTIVATION = "no activation follows it: what comes out of it is its Act"
BESIDE = "it is worked out beside the pass, so that no gradient goes through it"
NOT_SENT = "it is too large to be sent, or of a type that cannot be shown"


class Absences:
    """What came of each layer in the state that is being made, and why the rest did not."""

    def __init__(self) -> None:
        self._came: set[tuple[str, str]] = set()
        self._why: dict[tuple[str, str], str] = {}
        self._ran: set[str] = set()

    def begin(self) -> None:
        """Another state."""
        self._came.clear()
        self._why.clear()
        self._ran.clear()

    def ran(self, layer: str) -> None:
        """It returned something."""
        self._ran.add(layer)

    def came(self, layer: str, variable: str, is_sent: bool = True) -> None:
        """There is a value; whether it could be sent."""
        if is_sent:
            self._came.add((layer, variable))
        else:
            self._why[layer, variable] = NOT_SENT

    def note(self, layer: str, variable: str, why: str) -> None:
        """There will be none."""
        self._why.setdefault((layer, variable), why)

    def of(self, network: Network, variables: Iterable[str], hidden: Iterable[str]) -> Iterator[Absence]:
        """Every layer that lacks one of these, and why; `hidden` are modules inside compiled code."""
        compiled = set(hidden)
        for variable in variables:
            for layer in network.layers:
                if (layer.name, variable) in self._came:
                    continue
                why = self._why.get((layer.name, variable))
                if why is None and variable == "Net" and layer.name in self._ran:
                    why = NO_ACTIVATION
                if why is None:
                    why = COMPILED if layer.name.partition(":")[0] in compiled else NOT_RUN
                yield layer.name, variable, why
