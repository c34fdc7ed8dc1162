"""How many bytes of each value are sent: all of some keys, a fair share of the ring for the others."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from torch import Tensor

from torcheer.samples import Key
from torcheer.selection import matches_value
from torcheer.tap.reduction.reduction_batch import row_bytes
from torcheer.tap.tensor_copies import Report, refusal

_PLANNED_BYTES = 64 << 10  # at least, per tensor, however many are expected
_LEAST_BYTES = 4 << 10  # at least, per tensor, however many there are
_BUSY_BYTES = 16 << 10  # at least, per tensor, while the child is behind
_BEHIND, _CAUGHT_UP = 0.25, 0.05  # of the ring, filled with what the child has not read as a watched step begins
_STEP_SHARES = 5  # eighths of the ring that a watched step may fill: the child may not have read all of the last one
_TWINS = {"weight": "update", "update": "weight"}  # compared with each other: the same numbers of both are sent


class FullKeys:
    """The keys that are sent in full: those that match a pattern of "layer/variable"."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self.patterns = tuple(patterns)
        self._known: dict[Key, bool] = {}

    def __contains__(self, key: Key) -> bool:
        is_full = self._known.get(key)
        if is_full is None:
            layer, variable = key
            variables = {variable, _TWINS.get(variable, variable)}
            is_full = any(matches_value(p, layer, each) for each in variables for p in self.patterns)
            self._known[key] = is_full
        return is_full

    def unmatched(self, keys: Collection[Key]) -> list[str]:
        """The patterns that none of these keys matches."""
        return [pattern for pattern in self.patterns if not any(matches_value(pattern, *key) for key in keys)]


class ByteLimits:
    """The limit of each value; a watched step that overflowed the ring lowers that of the next.

    A value on a device in `devices` is reduced there: its limit is what is reduced. One that is sent in full has
    `share_bytes`, an eighth of the ring.
    """

    def __init__(self, limit_bytes: int, share_bytes: int, full_keys: FullKeys, report: Report) -> None:
        self.limit_bytes, self.share_bytes, self.full_keys = limit_bytes, share_bytes, full_keys
        self.devices = frozenset({"cuda"})  # types of devices on which values are reduced, without waiting
        self._planned_bytes, self._report = limit_bytes, report
        self._pace = 1.0  # share of a large tensor's limit that the child keeps up with
        self._sizes: list[int] = []  # of this step's tensors, in full
        self.note = self._sizes.append  # counts a value of this step, by its size in full
        self._snapshots: dict[Key, int] = {}  # the limit of a key's last snapshot
        self._reported: set[str] = set()  # what was reported once

    def begin(self, backlog: float = 0.0) -> None:
        """Begin a watched step: where the last one overflowed the ring, or the child is behind, send less of each.

        A layer that is called 200 times in a pass has 200 values, which the plan did not expect. What still does not
        fit, because it is sent in full or the child is slow, is sent at another step. `backlog`: the filled share of
        the ring.
        """
        if not self._sizes:
            return
        fair = max(fair_share(self._sizes, _STEP_SHARES * self.share_bytes), _LEAST_BYTES)
        limit = min(self._planned_bytes, fair)
        if backlog > _BEHIND:
            self._pace = max(self._pace / 2, min(_BUSY_BYTES / limit, 1.0))
        elif backlog < _CAUGHT_UP:
            self._pace = min(self._pace * 2, 1.0)
        self.limit_bytes = min(limit, max(int(limit * self._pace), _BUSY_BYTES))
        self._sizes.clear()

    @property
    def keys_in_full(self) -> FullKeys | frozenset[Key]:
        """The keys that are sent in full; nearly always none, which is asked for every value."""
        return self.full_keys if self.full_keys.patterns else frozenset()

    def expected(self, key: Key, size_bytes: int) -> int:
        """The size in this step of a value that had so many bytes in the last."""
        return size_bytes if key in self.full_keys else min(size_bytes, self.limit_bytes)

    def limit(self, tensor: Tensor, key: Key, minus: Tensor | None = None) -> int:
        """How many bytes of a value are sent or reduced; where a snapshot is subtracted, as many as it has."""
        if minus is not None and key in self._snapshots:
            return self._snapshots[key]
        if key in self.full_keys:
            if tensor.nbytes > self.share_bytes and not refusal(tensor):
                self._report_sampling(tensor, key)
            return self.share_bytes
        return row_bytes(tensor) if tensor.device.type in self.devices else self.limit_bytes

    def snapshot_limit(self, tensor: Tensor, key: Key) -> int:
        """The limit of a snapshot, which holds for the value that it is subtracted from."""
        limit = self._snapshots[key] = self.limit(tensor, key)
        return limit

    def _report_sampling(self, tensor: Tensor, key: Key) -> None:
        """Report once that a value to be sent in full does not fit and is sent as a flat subsample."""
        self._report_once(
            "sampling",
            f"{key[0]} ({key[1]}) has {tensor.nbytes:,} bytes, more than an eighth of the ring: only every n-th "
            f"is sent, and so of others. Transport(bytes={ring_for(tensor.nbytes)}) has room for all of them",
        )

    def report_overflow(self, step_bytes: int) -> None:
        """Report once that a step is larger than the ring; where the child is only slow, closing reports the drops."""
        ring_bytes = 8 * self.share_bytes
        if step_bytes > ring_bytes:
            self._report_once(
                "overflow",
                f"one look has {step_bytes:,} bytes, and the ring {ring_bytes:,}: not all of its values find room. "
                "They take turns, so that each comes at some looks; `w.drops` says how many of each did not. "
                f"Transport(bytes={ring_for(step_bytes // 6)}) has room for all of them",
            )

    def _report_once(self, topic: str, text: str) -> None:
        if topic not in self._reported:
            self._reported.add(topic)
            self._report(text)


def fair_bytes(values: int, share_bytes: int) -> int:
    """How many bytes of each of `values` values are sent, so that all of them fit into the ring."""
    return min(max(share_bytes * 4 // max(values, 1), _PLANNED_BYTES), share_bytes)


def fair_share(sizes: Sequence[int], room: int) -> int:
    """The largest share per value such that all fit into `room`; what small values leave goes to the others."""
    for number, size in enumerate(sorted(sizes)):
        share = room // (len(sizes) - number)
        if size > share:
            return share
        room -= size
    return max(sizes)


def ring_for(size_bytes: int) -> str:
    """A ring size that has room for such a value, as one would write it: "8 << 20"."""
    megabytes = 1
    while megabytes << 20 < 8 * size_bytes + (1 << 20):
        megabytes *= 2
    return f"{megabytes} << 20"
