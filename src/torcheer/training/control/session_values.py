"""Probe the values of a session's models for its viewers.

Hooks are attached only for steps that are due.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from torcheer.errors import TorcheerError
from torcheer.host.follow.layer_probes import LayerProbes
from torcheer.host.follow.record_rate import Budget
from torcheer.host.host import Host
from torcheer.host.nonfinite_values import NonfiniteValues
from torcheer.wire.json_codec import to_json

if TYPE_CHECKING:
    from torcheer.training.session import Session


class ValueProbes:
    """Probes on the trained models of all stages, as they are called in a step."""

    def __init__(self, host: Host, session: Session) -> None:
        self._host, self._session, self._budget = host, session, Budget()
        names = {
            node.model for stage in session.stages for pipeline in stage.training for node in session.nodes_of(pipeline)
        }
        models = {name: model for name, model in session.models.items() if name in names}
        self._layer_probes = LayerProbes(next(iter(models.values())) if len(models) == 1 else models, host)
        self._is_recording = False
        if session.options.watch is None:
            host.values.judge = NonfiniteValues(host.pass_on)

    @property
    def is_busy(self) -> bool:
        """True where the next round is recorded, or each round must be checked.

        "auto" goes by the clock.
        """
        wants = self._host.wants
        is_subscribed = bool(wants.variables or wants.weights or wants.units)
        return self._is_recording or (is_subscribed and wants.train.unit in ("trial", "epoch"))

    @property
    def is_network_known(self) -> bool:
        """True once the network has been described."""
        return self._layer_probes.is_described

    @contextmanager
    def observe_network(self) -> Iterator[None]:
        """Observe the network during a pass, to describe it."""
        with self._layer_probes.finder.record_pass():
            yield

    def write_network(self) -> None:
        """Write the network to the run's log, for viewers of a finished run."""
        network, log = self._host.network, self._session.run_log
        if network is not None and log is not None:
            with suppress(OSError, TorcheerError):  # a full disk; training will report it where it matters
                log.add_network(to_json(network))

    def begin(self, now: float, counters: Mapping[str, Any], *, is_last: bool) -> None:
        """Probe the next round if it is due; `is_last` marks the last round of an epoch."""
        if self._budget.due(now, self._host.wants, epoch=is_last):
            self._layer_probes.begin(self._session.place.step, counters)  # the first call may only describe the network
            self._is_recording = self._layer_probes.busy

    def finish(self) -> bool:
        """End the round; return whether it was probed."""
        was_recording, self._is_recording = self._is_recording, False
        if was_recording:
            self._budget.spent(self._layer_probes.finish(), time.monotonic())
        return was_recording

    @contextmanager
    def probe_test(self, counters: Mapping[str, Any], *, is_requested: bool, is_last: bool = False) -> Iterator[None]:
        """Probe a pass of a test; always where the item was requested."""
        if is_requested or self._budget.due(time.monotonic(), self._host.wants, test=True, epoch=is_last):
            self._layer_probes.begin(self._session.place.step, counters, test=True)
        try:
            yield
        finally:
            if self._layer_probes.busy:
                self._budget.spent(self._layer_probes.finish(), time.monotonic())

    def close(self) -> None:
        """Remove every hook."""
        self._layer_probes.close()
