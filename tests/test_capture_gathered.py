"""Models that FSDP2 shards or tensor parallel splits, captured on one rank: their own work, with shards as weights.

On two ranks: `test_validate_ranks`, `test_dist_ranks`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from seams import gathered_weights, torch_state
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import torcheer as tl
from torcheer.errors import ValueUnavailable

if not torch.distributed.is_available():
    pytest.skip("torch without distributed", allow_module_level=True)

from torch import distributed
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

pytestmark = pytest.mark.filterwarnings("ignore")
X = torch.rand(4, 8, generator=torch.Generator().manual_seed(0))


class Block(nn.Module):
    """A residual block; one of its weights is read through a view."""

    def __init__(self, is_checkpointed: bool) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(8), nn.Linear(8, 16), nn.Parameter(torch.rand(8, 16) / 16)
        self.is_checkpointed = is_checkpointed

    def inner(self, x: Tensor) -> Tensor:
        return self.up(self.norm(x)).relu() @ self.down.t()

    def forward(self, x: Tensor) -> Tensor:
        return x + (checkpoint(self.inner, x, use_reentrant=False) if self.is_checkpointed else self.inner(x))


def net(is_checkpointed: bool = False) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(Block(is_checkpointed), Block(is_checkpointed), nn.Linear(8, 3))


def sharded(model: nn.Sequential, **options: Any) -> nn.Sequential:
    mesh = init_device_mesh("cpu", (1,))
    for block in list(model)[:-1]:
        fully_shard(block, mesh=mesh, **options)
    return fully_shard(model, mesh=mesh, **options)


@pytest.fixture(scope="module", autouse=True)
def process_group() -> Iterator[None]:
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


def graph(history: tl.ModelHistory) -> list[Any]:
    """Each operation with its parameters and parents."""
    records = [op.record for op in history]
    return [
        (op.name, [stored.name for stored in op.stored], [(edge.parent, edge.output) for edge in op.parents])
        for op in records
    ]


def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    model(X).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


@pytest.mark.parametrize("reshard", [None, True, False])
@pytest.mark.parametrize("is_checkpointed", [False, True])
def test_a_sharded_model_has_the_operations_and_values_of_the_same_model_unsharded(
    reshard: bool | None, is_checkpointed: bool
) -> None:
    models = net(is_checkpointed), sharded(net(is_checkpointed), reshard_after_forward=reshard)
    optimizers = [torch.optim.SGD(model.parameters(), 0.1, foreach=False) for model in models]
    plain, captured = (tl.log_forward_pass(model, X) for model in models)
    assert graph(captured) == graph(plain)
    for ours, theirs in zip(captured, plain, strict=True):
        assert torch.equal(ours.tensor_contents, theirs.tensor_contents), ours.label
    report = captured.validate()
    assert report and report.equal == plain.validate().equal
    steps = []
    for model, optimizer in zip(models, optimizers, strict=True):
        with tl.recording(model) as history:
            for _ in range(2):  # the second pass reads what the optimizer wrote
                step(model, optimizer)
        assert history.validate()
        steps.append(graph(history))
    assert steps[1] == steps[0]
    for ours, theirs in zip(models[1].parameters(), models[0].parameters(), strict=True):
        assert torch.equal(getattr(ours, "full_tensor", lambda: ours)(), theirs)  # noqa: B023


def test_casts_of_mixed_precision_are_the_models_own_work() -> None:
    model = sharded(net(), mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16))
    history = tl.log_forward_pass(model, X)
    names = [op.name for op in history]
    assert names.count("to") == 1 and len(history) == len(tl.log_forward_pass(net(), X)) + 1
    assert history["linear_1"].tensor_contents.dtype is torch.bfloat16
    assert history["linear_1"].record.stored[0].dtype == "torch.float32"  # the parameter's own
    assert history.validate().equal == len(history) - 1


def test_gradients_are_those_of_the_same_model_unsharded() -> None:
    found = []
    for model in (net(), sharded(net())):
        history = tl.log_forward_pass(model, X, save_gradients=True).backward()
        found.append([*(history.trace.stored_gradients(name)[0] for name in history.info.stored)])
        found[-1] += [op.grad_contents for op in history if op.name in ("linear", "relu")]
    assert len(found[0]) == 17 and all(map(torch.equal, *found))


def test_weights_are_shards_and_views_of_gathered_ones_keep_their_values() -> None:
    model = sharded(net())
    expected = net()[0].down
    history = tl.log_forward_pass(model, X)
    assert history.trace.stored_value("0.down") is model[0].down  # nothing was copied
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model(X)  # gathers other weights into the same memory
    assert torch.equal(history["t_1"].tensor_contents, expected.t())
    with pytest.raises(ValueUnavailable, match="written in place"):
        history.trace.stored_value("0.down")


@pytest.mark.parametrize("layers", ["none", ["0"], tl.Save("all", guard="clone")])
def test_partial_captures_leave_gathering_out_too(layers: Any) -> None:
    histories = [tl.log_forward_pass(model, X, layers_to_save=layers) for model in (net(), sharded(net()))]
    assert graph(histories[1]) == graph(histories[0])


def test_fsdp_is_as_it_was_after_a_capture_also_after_an_error() -> None:
    group: Any = torch_state.fsdp_group()
    before = dict(vars(group))
    model = sharded(net())
    tl.log_forward_pass(model, X)
    with pytest.raises(RuntimeError):
        tl.log_forward_pass(model, X[:, :3])
    assert dict(vars(group)) == before


def test_a_torch_without_a_method_of_fsdps_records_its_work_as_any(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(gathered_weights.METHODS, "_never_there", gathered_weights.METHODS["unshard"])
    history = tl.log_forward_pass(sharded(net()), X)
    assert len(history) > len(tl.log_forward_pass(net(), X))
    assert torch.equal(history["output_1"].tensor_contents, net()(X)) and history.validate()


def test_a_saved_history_has_the_weights(tmp_path: Path) -> None:
    tl.log_forward_pass(sharded(net()), X).save(tmp_path / "pass", parameters=True)
    loaded = tl.load(tmp_path / "pass").trace.stored_value("0.up.weight")
    assert torch.equal(torch.as_tensor(loaded), net()[0].up.weight)


@pytest.mark.parametrize("is_sharded", [False, True])
def test_a_tensor_parallel_model_is_one_graph_with_its_conversions(is_sharded: bool) -> None:
    def make() -> nn.Sequential:
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))

    mesh = init_device_mesh("cpu", (1, 1), mesh_dim_names=("data", "tensor"))
    plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    model = parallelize_module(make(), mesh["tensor"], plan)
    if is_sharded:
        fully_shard(model, mesh=mesh["data"])
    plain, history = tl.log_forward_pass(make(), X), tl.log_forward_pass(model, X)
    conversions = {"from_local", "redistribute", "to_local"}
    kept = [op for op in history if op.name not in conversions]
    assert [op.name for op in kept] == [op.name for op in plain] and len(kept) < len(history)
    assert all(op.record.parents for op in history if op.name != "input")
    for ours, theirs in zip(kept, plain, strict=True):
        value = ours.tensor_contents
        assert torch.equal(getattr(value, "full_tensor", lambda: value)(), theirs.tensor_contents)  # noqa: B023
    assert [stored.name for stored in kept[1].record.stored] == ["0.weight", "0.bias"]
    report = history.validate()
    assert not any("unseen" in text for text in report.verdicts.values())
    with tl.recording(model) as step_history:
        model(X).square().mean().backward()
    for proof in (report, step_history.validate()):
        assert not proof.failures and not proof.dead_edges and proof.equal
        assert proof if not is_sharded else "keeps the whole for its proof" in str(proof), proof
    model[1].inplace = True  # writes into the local tensor, past the DTensor that linear returned
    with torch.no_grad():
        history = tl.log_forward_pass(model, X)
    assert torch.equal(history["output_1"].tensor_contents, plain["output_1"].tensor_contents)
    with pytest.raises(ValueUnavailable, match="written in place"):
        history["linear_1"].tensor_contents  # noqa: B018
    assert all(type(vars(type(model[0].weight))[name]).__name__ in ("function", "staticmethod") for name in conversions)
