"""What the ranks of a session tell each other: values, decisions at step boundaries."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as distributed
from torch import Tensor

from torcheer.training.checkpoints.state_codec import pack, unpack
from torcheer.training.checkpoints.tensor_files import ChecksumFile, read_tensors, write_tensors
from torcheer.training.parallel.batch_shares import Share
from torcheer.training.parallel.sharded_tensors import is_sharded


class Decision(NamedTuple):
    """What the ranks do at a boundary between two rounds."""

    is_stop: bool  # a rank was asked to stop
    is_work: bool  # rank 0 has something to do: a save that is due, a request of the studio

    def or_also(self, is_stop: bool, is_work: bool) -> Decision:
        """Return this and another one."""
        return Decision(self.is_stop or is_stop, self.is_work or is_work)


_NOTHING = Decision(is_stop=False, is_work=False)


class SessionRanks:
    """The ranks that train one session, seen from one of them."""

    def __init__(self, rank: int, count: int, words: Any) -> None:
        self.rank, self.count = rank, count
        self.share = Share(rank, count)
        self.data_group: Any = None  # the ranks that have other samples; None: all
        self._copies = 1  # ranks that have the same samples
        self._words = words  # a gloo group: what it carries never waits for a GPU
        self._vote: tuple[Tensor, Any] | None = None
        self.carries_votes = False  # gradients carry votes: they are summed over all ranks, on the CPU
        self._wishes, self._heard = _NOTHING, _NOTHING

    @property
    def is_main(self) -> bool:
        """Whether this rank owns the run directory."""
        return self.rank == 0

    def split(self, rank: int, count: int, group: Any, copies: int) -> None:
        """Let `copies` neighbouring ranks each have the same samples: they split the layers of a model."""
        self.share, self.data_group, self._copies = Share(rank, count), group, copies

    def exchange_data(self, value: Any) -> list[Any]:
        """Return the values of all ranks that have other samples."""
        return self.exchange(value)[:: self._copies]

    @property
    def splits_layers(self) -> bool:
        """Whether several ranks have the same samples."""
        return self._copies > 1

    def exchange_copies(self, value: Any) -> list[Any]:
        """Return the values of the ranks that have the same samples as this one."""
        first = self.rank - self.rank % self._copies
        return self.exchange(value)[first : first + self._copies]

    def exchange(self, value: Any) -> list[Any]:
        """Return the values of all ranks, by rank: tensors (on the CPU), numbers, text, lists, dicts. No pickle."""
        data = torch.frombuffer(bytearray(_to_bytes(value)), dtype=torch.uint8)
        sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(self.count)]
        distributed.all_gather(sizes, torch.tensor([len(data)]), group=self._words)
        most = max(int(size) for size in sizes)
        parts = [torch.empty(most, dtype=torch.uint8) for _ in sizes]
        distributed.all_gather(parts, torch.nn.functional.pad(data, (0, most - len(data))), group=self._words)
        return [_from_bytes(part[: int(size)]) for part, size in zip(parts, sizes)]

    def from_main(self, value: Any = None) -> Any:
        """Return rank 0's value; those of the others are not looked at."""
        data = torch.frombuffer(bytearray(_to_bytes(value if self.is_main else None)), dtype=torch.uint8)
        size = torch.tensor([len(data)])
        distributed.broadcast(size, 0, group=self._words)
        if not self.is_main:
            data = torch.empty(int(size), dtype=torch.uint8)
        distributed.broadcast(data, 0, group=self._words)
        return value if self.is_main else _from_bytes(data)

    def wait(self) -> None:
        """Wait until all ranks are here."""
        distributed.barrier(group=self._words)

    def vote(self, *, stops: bool, works: bool) -> Decision:
        """Say what this rank wants; return what all wanted at the boundary before, so that nobody waits.

        At the first boundary the decision is to work: nobody was asked yet.
        """
        if self.carries_votes:
            heard, self._heard = self._heard, _NOTHING
            self._wishes = self._wishes.or_also(stops, works)  # a round without a batch carries none
            return heard
        before, self._vote = self._vote, self._begin_vote(stops, works)
        if before is None:
            return Decision(is_stop=False, is_work=True)
        wishes, work = before
        work.wait()
        return Decision(*(bool(wish) for wish in wishes.tolist()))

    def _begin_vote(self, stops: bool, works: bool) -> tuple[Tensor, Any]:
        wishes = torch.tensor([stops, works], dtype=torch.int32)
        return wishes, distributed.all_reduce(wishes, distributed.ReduceOp.MAX, group=self._words, async_op=True)

    def begin_votes(self, *, carried: bool) -> None:
        """Forget the last vote of a run before: all ranks have taken part in it.

        carried: votes go with the gradients of the next step, by `take_wishes` and `hear`, not by themselves.
        """
        self._vote, self.carries_votes = None, carried
        self._wishes, self._heard = _NOTHING, Decision(is_stop=False, is_work=True)

    def take_wishes(self) -> Decision:
        """Return what this rank wants, to be carried to the others; it is not said again."""
        wishes, self._wishes = self._wishes, _NOTHING
        return wishes

    def hear(self, stops: float, works: float) -> None:
        """Take in how many ranks want to stop, and to work, by the gradients of a step."""
        self._heard = self._heard.or_also(stops > 0, works > 0)

    def share_buffers(self, models: Mapping[str, torch.nn.Module]) -> None:
        """Give all ranks the buffers of rank 0, as DDP does before each forward pass."""
        self._broadcast([buffer for model in models.values() for buffer in model.buffers()])

    def share_weights(self, models: Mapping[str, torch.nn.Module]) -> None:
        """Give all ranks the weights of rank 0: where no seed is set, each has its own."""
        self._broadcast([value for model in models.values() for value in model.parameters()])
        self.share_buffers(models)

    def _broadcast(self, tensors: Sequence[Tensor]) -> None:
        for tensor in tensors:
            if not is_sharded(tensor):  # a shard is its rank's own
                distributed.broadcast(tensor.detach(), 0)


def _to_bytes(value: Any) -> bytes:
    tensors, encoded = pack(value)
    text = json.dumps(encoded, separators=(",", ":"), allow_nan=False).encode()
    file = io.BytesIO()
    write_tensors(ChecksumFile(file), tensors)
    return len(text).to_bytes(8, "little") + text + file.getvalue()


def _from_bytes(data: Tensor) -> Any:
    content = data.numpy().tobytes()
    end = 8 + int.from_bytes(content[:8], "little")
    rest = content[end:]
    tensors = read_tensors(ChecksumFile(io.BytesIO(rest)), Path("another rank"), len(rest))
    return unpack(tensors, json.loads(content[8:end]))
