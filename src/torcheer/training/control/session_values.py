"""The values of a session's models for whoever looks at them: hooks for a step that is due, and none otherwise."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from torcheer.host.follow.layer_probes import LayerProbes
from torcheer.host.follow.record_rate import Budget
from torcheer.host.host import Host
from torcheer.training.checkpoints.run_directory import replace_file
from torcheer.wire.json_codec import plain

if TYPE_CHECKING:
    from torcheer.training.session import Session


class Looking:
    """What is shown of a session's models: the trained ones of all stages, as they are called in a step."""

    def __init__(self, host: Host, session: Session) -> None:
        self._host, self._session, self._budget = host, session, Budget()
        names = {node.model for stage in session.stages for one in stage.training for node in session.nodes_of(one)}
        models = {name: model for name, model in session.models.items() if name in names}
        self._probing = LayerProbes(next(iter(models.values())) if len(models) == 1 else models, host)
        self._is_recording = False

    @property
    def is_busy(self) -> bool:
        """Whether the round that comes is looked at, or each one has to be asked about; "auto" goes by the clock."""
        wants = self._host.wants
        looks = bool(wants.variables or wants.weights or wants.units)
        return self._is_recording or (looks and wants.train.unit in ("trial", "epoch"))

    @property
    def is_known(self) -> bool:
        """Whether the network has been described."""
        return self._probing.is_described

    @contextmanager
    def introducing(self) -> Iterator[None]:
        """Around a pass that tells what the network is."""
        self._probing.observe()
        try:
            yield
        finally:
            self._probing.end_observation()

    def keep_network(self) -> None:
        """Write what the network is to `<run>/network.json`, for whoever looks at the run when it is over."""
        network, directory = self._host.network, self._session.directory
        if network is not None and directory is not None:
            with suppress(OSError):  # a full disk; training will say so where it matters
                replace_file(directory / "network.json", json.dumps(plain(network)).encode() + b"\n")

    def begin(self, now: float, counters: Mapping[str, Any], *, is_last: bool) -> None:
        """Look at the round that comes next, if it is due; `is_last` says that it is the last of its epoch."""
        if self._budget.due(now, self._host.wants, epoch=is_last):
            self._probing.begin(self._session.place.step, counters)  # the first may tell what the network is, no more
            self._is_recording = self._probing.busy

    def finish(self) -> bool:
        """The round is done; whether it was looked at."""
        was, self._is_recording = self._is_recording, False
        if was:
            self._budget.spent(self._probing.finish(), time.monotonic())
        return was

    @contextmanager
    def testing(self, counters: Mapping[str, Any], *, is_asked: bool, is_last: bool = False) -> Iterator[None]:
        """Around a pass of a test; one that was asked for by itself is always looked at."""
        if is_asked or self._budget.due(time.monotonic(), self._host.wants, test=True, epoch=is_last):
            self._probing.begin(self._session.place.step, counters, test=True)
        try:
            yield
        finally:
            if self._probing.busy:
                self._budget.spent(self._probing.finish(), time.monotonic())

    def close(self) -> None:
        """Take every hook off."""
        self._probing.close()
