"""Reasons why a layer has no value in a state, recorded by the probes for the page to show."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator

from torcheer.network.history_network import NO_ACTIVATION
from torcheer.network.network_records import Network

Absence = tuple[str, str, str]  # layer, variable, why

NOT_RUN = "it did not run in this step"
COMPILED = "it runs inside compiled code, where its values cannot be seen"
NO_GRAD = "it ran without gradients (under no_grad, inference_mode or the like)"
FROZEN = "nothing in it or before it asks for a gradient (requires_grad is off)"
INPUT = "the input asks for no gradient (requires_grad is off)"
WHOLE_NUMBERS = "whole numbers have no gradient"
NO_BACKWARD = "no gradient has come: backward did not run, or the loss does not depend on it"
BESIDE = "it is worked out beside the pass, so that no gradient goes through it"
NO_HOOK = "it is computed by a function, outside of the modules whose results can be read"
FOLDED = "it was folded away on every page when this was recorded"
NOT_SELECTED = "it is not among the layers= that were given"
NOT_SENT = "it is too large to be sent, or of a type that cannot be shown"


class Absences:
    """Records which layers delivered a value in the current state, and why the others did not."""

    def __init__(self) -> None:
        self._received: set[tuple[str, str]] = set()
        self._why: dict[tuple[str, str], str] = {}
        self._ran: set[str] = set()

    def begin(self) -> None:
        """Reset for the next state."""
        self._received.clear()
        self._why.clear()
        self._ran.clear()

    def ran(self, layer: str) -> None:
        """Record that a layer ran."""
        self._ran.add(layer)

    def record(self, layer: str, variable: str, is_sent: bool = True) -> None:
        """Record that a layer had a value, and whether it could be sent."""
        if is_sent:
            self._received.add((layer, variable))
        else:
            self._why[layer, variable] = NOT_SENT

    def note(self, layer: str, variable: str, why: str) -> None:
        """Record why a layer will have no value of a variable."""
        self._why.setdefault((layer, variable), why)

    def of(
        self, network: Network, variables: Iterable[str], hidden: Iterable[str], unselected: Container[str] = ()
    ) -> Iterator[Absence]:
        """Yield each layer that lacks one of `variables`, with the reason.

        `hidden` modules run in compiled code; `unselected` layers were not asked for.
        """
        compiled = set(hidden)
        for variable in variables:
            for layer in network.layers:
                if (layer.name, variable) in self._received:
                    continue
                why = NOT_SELECTED if layer.name in unselected else self._why.get((layer.name, variable))
                if why is None and variable == "Net" and layer.name in self._ran:
                    why = NO_ACTIVATION
                if why is None:
                    why = COMPILED if layer.name.partition(":")[0] in compiled else NOT_RUN
                yield layer.name, variable, why
