"""One update of a pipeline whose batches several ranks share: gradients are those of the whole batch."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as distributed
from torch import Tensor, nn

from torcheer.errors import BadArgument
from torcheer.training.loop.optimizer_step import Update, make_update
from torcheer.training.parallel.heartbeats import BACKWARD, HEARTBEAT
from torcheer.training.parallel.session_ranks import SessionRanks
from torcheer.training.parallel.sharded_tensors import is_sharded, local_part, whole

if TYPE_CHECKING:
    from torcheer.training.loop.pipeline_runner import PipelineRunner
    from torcheer.training.session import Session


# Of layers that a plan splits.
_PARTS = "a colwise layer leaves each rank a part of its output, which a rowwise layer has to take"


class SharedUpdate(Update):
    """An update that adds the gradients of all ranks, each loss weighted by its items.

    A loss is divided by the usual number of items (`unit`) before its backward pass, and the sum of all gradients by
    the real share of it after: the real number is known only once all ranks have theirs, and nobody waits for that.
    """

    def share(self, replica: Replica | None, unit: float, ranks: SessionRanks) -> None:
        """Begin to add gradients.

        replica: DDP around a step, None where nothing is replicated. unit: items of a usual batch of all ranks.
        """
        self._replica, self._usual, self._ranks, self._group = replica, unit, ranks, ranks.data_group
        # Parameters of layers that are split and not sharded: neither DDP nor FSDP adds their gradients.
        parameters: list[Any] = [] if self._group is None else self._parameters
        self._split = {id(value) for value in parameters if is_sharded(value) and _is_only_split(value)}
        self._plain, self._is_checked = False, not ranks.splits_layers
        self._counts: Tensor | None = None  # items and the sum of losses, of all ranks
        # DDP takes the mean over ranks: losses are multiplied by their number, so that it is the sum.
        self._means = 1 if replica is None else ranks.share.count
        if replica is not None and self._only is not None:
            self._only.append(replica.carrier)
        self._strays: list[Tensor] = []

    def drop_gradients(self, models: Sequence[nn.Module]) -> None:
        """Let only what is trained have gradients, where models of the pipeline are sharded.

        Autograd cannot be asked for the gradients of some shards alone: it sees the whole tensors that FSDP gathers.
        """
        if self._only is None or not any(map(_is_fsdp, self._only)):
            return
        kept, self._only = set(map(id, self._only)), None
        values = [*self._parameters, *(value for model in models for value in model.parameters())]
        self._strays = [value for value in dict.fromkeys(values) if id(value) not in kept]

    def _forget_strays(self) -> None:
        for value in self._strays:
            value.grad = None

    def run_step(self, forward: Callable[[], tuple[Any, ...]]) -> tuple[Any, ...]:
        """Run the forward pass of a step; the last one before an update synchronizes gradients."""
        if self._is_checked:
            return self._run(forward)
        try:
            results = self._run(forward)
        except Exception as error:
            error.add_note(f"parallel.tensor: {_PARTS}")
            raise
        self._check_copies(float(results[2].detach()))
        return results

    def _check_copies(self, loss: float) -> None:
        """Refuse a plan with which ranks that have the same samples have different losses."""
        self._is_checked = True
        losses = self._ranks.exchange_copies(loss)
        if not any(map(math.isnan, losses)) and not math.isclose(min(losses), max(losses), rel_tol=1e-3):
            shown = ", ".join(f"{value:.6g}" for value in losses)
            raise BadArgument(
                f"parallel.tensor.plan: the ranks that split layers have different losses for the same samples, "
                f"{shown}: {_PARTS}; with seed: null, ranks draw different dropout"
            )

    def _run(self, forward: Callable[[], tuple[Any, ...]]) -> tuple[Any, ...]:
        if self._replica is None:
            return forward()
        results: list[tuple[Any, ...]] = []
        dtype = self._replica.carrier.dtype

        def step() -> tuple[Tensor, Tensor | None]:
            results.append(forward())
            loss, items = results[0][2:]
            return loss, self._message(loss, items, dtype) if self._is_last else None

        with nullcontext() if self._is_last else self._replica.no_sync():
            loss = self._replica(step)
        return *results[0][:2], loss, results[0][3]

    @property
    def _is_last(self) -> bool:
        """Whether an update follows the next backward pass."""
        return self._pending + 1 >= self._accumulate

    def _message(self, loss: Tensor, items: float, dtype: torch.dtype) -> Tensor:
        """What this rank tells the others of a step: items, their sum of losses, wishes to stop and to work."""
        wishes = self._ranks.take_wishes()
        message = torch.tensor([items, 0.0, *wishes], dtype=dtype, device=loss.device)
        message[1] = loss.detach() * items
        return message

    def backward(self, loss: Tensor, items: float) -> bool:
        """Backpropagate this rank's part of a batch; return whether the weights were updated."""
        HEARTBEAT.enter(BACKWARD)
        told = None if self._replica is not None and self._is_last else self._tell(loss, items)
        scaled = loss * (items * self._means / self._usual)
        self._restore_gradients()
        self._forget_strays()  # these may be those that another pipeline accumulates
        (self._scaler.scale(scaled) if self._scaler is not None else scaled).backward(inputs=self._only)
        self._forget_strays()
        self._gradients = [(value, value.grad) for value in self._parameters if value.grad is not None]
        if self._is_last:
            self._add_split()
        counts = self._heard(told)
        if self._ranks.carries_votes:
            self._ranks.hear(*counts[2:].tolist())
        self._counts = counts if self._counts is None else self._counts + counts
        self._pending += 1
        self.last_loss = counts[1] / counts[0]
        if self._pending < self._accumulate:
            return False
        self._finish()
        return True

    def _tell(self, loss: Tensor, items: float) -> tuple[Tensor, Any]:
        """Begin to add what ranks tell of a step whose gradients do not carry it."""
        message = self._message(loss, items, torch.float64)
        return message, distributed.all_reduce(message, group=self._group, async_op=True)

    def _heard(self, told: tuple[Tensor, Any] | None) -> Tensor:
        """Return the sum of what all ranks have told, after the backward pass."""
        if told is None:
            assert self._replica is not None
            return self._replica.take_message() * self._means
        told[1].wait()
        return told[0]

    def _clip_norm(self, parameters: list[Tensor], most: float) -> None:
        gradients = [value.grad for value in parameters if value.grad is not None]
        if any(map(is_sharded, gradients)):
            _clip_sharded(gradients, most)
        else:
            super()._clip_norm(parameters, most)

    def flush(self) -> bool:
        """Update with the pending gradients, which no rank has synchronized yet; return whether there were any."""
        if not self._pending:
            return False
        for _, gradient in self._gradients:
            if not is_sharded(gradient):
                distributed.all_reduce(gradient.div_(self._means), group=self._group)
        self._add_split()
        return super().flush()

    def _add_split(self) -> None:
        """Add the gradients of split layers over the ranks that have other samples."""
        for value, gradient in self._gradients:
            if id(value) in self._split:
                distributed.all_reduce(local_part(gradient).div_(self._means), group=self._group)

    def _finish(self) -> None:
        assert self._counts is not None
        share = self._counts[0] / self._usual
        gradients = [local_part(gradient) for _, gradient in self._gradients]
        if share.is_cuda:
            torch._foreach_div_(gradients, share.to(gradients[0].dtype))
        elif float(share) not in (0.0, 1.0):
            torch._foreach_div_(gradients, float(share))
        self._pending, self._counts, self._gradients = 0, None, []
        self._step()


def _is_fsdp(value: Any) -> bool:
    return is_sharded(value) and not _is_only_split(value)


def _is_only_split(value: Any) -> bool:
    return bool(value.device_mesh.mesh_dim_names == ("tensor",))


def _clip_sharded(gradients: list[Tensor], most: float) -> None:
    """Scale gradients to a norm, as `clip_grad_norm_`, which takes none that are sharded in different ways."""
    total = torch.stack([whole(torch.linalg.vector_norm(gradient)) for gradient in gradients]).norm()
    share = torch.clamp(most / (total + 1e-6), max=1.0)
    for gradient in gradients:
        local_part(gradient).mul_(share)


class _Message(torch.autograd.Function):
    """A loss as it is; its backward pass gives a carrier a message for its gradient."""

    @staticmethod
    def forward(context: Any, loss: Tensor, carrier: Tensor, message: Tensor) -> Tensor:
        context.message = message
        return loss.view_as(loss)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        return gradient, context.message, None


class _Step(nn.Module):
    """What DDP wraps: what a pipeline trains; its forward pass is whatever function it is given."""

    def __init__(self, parameters: Sequence[Tensor], buffers: Sequence[Tensor]) -> None:
        super().__init__()
        first = parameters[0]
        # Its gradient is what ranks tell each other of a step: they need no collective of its own for that.
        exact = first.dtype if first.dtype in (torch.float32, torch.float64) else torch.float32
        self.carrier = nn.Parameter(torch.zeros(4, dtype=exact, device=first.device))
        # DDP warns where it looks for unused parameters and finds none.
        unused = nn.Parameter(torch.zeros((), device=first.device))
        self.trained = nn.ParameterList([*parameters, unused])
        for number, buffer in enumerate(buffers):
            self.register_buffer(f"buffer{number}", buffer)

    def forward(self, step: Callable[[], tuple[Tensor, Tensor | None]]) -> Tensor:
        loss, message = step()
        return loss if message is None or not loss.requires_grad else _Message.apply(loss, self.carrier, message)


class Replica(nn.parallel.DistributedDataParallel):
    """DDP around a pipeline's step."""

    @property
    def carrier(self) -> nn.Parameter:
        """The parameter whose gradient is a message; DDP gives it the mean of those of all ranks."""
        carrier: nn.Parameter = self.module.carrier
        return carrier

    def take_message(self) -> Tensor:
        """Return the mean of the messages that the backward pass has carried."""
        assert self.carrier.grad is not None
        message, self.carrier.grad = self.carrier.grad.double(), None
        return message


def make_shared_update(session: Session, runner: PipelineRunner) -> Update:
    """Return the update of a pipeline on several ranks."""
    update = make_update(session, runner, SharedUpdate)
    assert isinstance(update, SharedUpdate)
    assert session.ranks is not None
    _check_inputs(runner, session.ranks.share.count)
    nodes = session.nodes_of(runner.name)
    names = dict.fromkeys(node.model for node in nodes if node.optimizer is not None)
    models = [session.models[name] for name in names]
    trained = set(map(id, update.parameters))
    replica = _replica(models, trained, session.ranks.data_group)
    update.share(replica, float(runner.inputs[0][0].loader.batch_size), session.ranks)
    update.drop_gradients([session.models[name] for name in dict.fromkeys(node.model for node in nodes)])
    return update


def _check_inputs(runner: PipelineRunner, count: int) -> None:
    """Refuse several loaders of which one could have samples for a rank and another none."""
    for feed, _, input in runner.inputs if len(runner.inputs) > 1 else ():
        size, samples = feed.loader.batch_size, feed.samples
        last = size if samples is None or feed.loader.drop_last else samples % size or size
        if last < count:
            raise BadArgument(
                f"pipeline {runner.name!r} joins several loaders, and the last batch of {input.loader!r} has {last} of "
                f"{size} samples, too few for {count} ranks: drop_last=True, or another batch_size"
            )


def _replica(models: list[nn.Module], trained: set[int], group: Any) -> Replica | None:
    """DDP around the step of a pipeline; None where its parameters are all sharded, or none is trained."""
    values = dict.fromkeys(value for model in models for value in model.parameters())
    parameters = [value for value in values if id(value) in trained and value.requires_grad and not is_sharded(value)]
    if not parameters:
        return None
    buffers = dict.fromkeys(buffer for model in models for buffer in model.buffers())
    step = _Step(parameters, [buffer for buffer in buffers if not is_sharded(buffer)])
    # Unused ones are looked for: one process does not mind them, and DDP then keeps its buckets as they are. Else it
    # makes others after a first step, in which a run that goes on would add gradients in another order.
    return Replica(step, process_group=group, find_unused_parameters=True)
