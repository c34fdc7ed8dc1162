"""Replay on several ranks: real processes and gloo. It ends, agrees, and never runs a collective again."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from children import run_ranks

pytestmark = pytest.mark.skipif(not torch.distributed.is_available(), reason="torch without distributed")

SCRIPT = """
    import json, os, sys, warnings
    import torch, torch.distributed as dist
    import torch.distributed._functional_collectives as collectives
    from torch import nn
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import DTensor, Shard, distribute_tensor
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    import torcheer as tl

    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    rank = int(sys.argv[1])
    dist.init_process_group("gloo", init_method=f"file://{os.getcwd()}/store", rank=rank, world_size=2)
    mesh = init_device_mesh("cpu", (2,))

    def net():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))

    def step(model, x):
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        with tl.recording(model) as history:
            model(x).pow(2).sum().backward()
            optimizer.step()
        return history

    def sharded(model):
        fully_shard(model[0])
        fully_shard(model)
        return model

    def data_parallel():
        return step(nn.parallel.DistributedDataParallel(net()), torch.randn(6, 4))

    def functional():
        with tl.recording() as history:
            y = collectives.all_reduce(torch.ones(4) * (rank + 1), "sum", [0, 1])
            z = collectives.all_gather_tensor(y + 1, 0, [0, 1]) * 2
        assert z.tolist() == [8.0] * 8, z
        return history

    def tensor_parallel():
        return step(parallelize_module(net(), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()}), torch.ones(6, 4))

    def fully_sharded_forward():
        return tl.log_forward_pass(sharded(net()), torch.randn(6, 4))

    def fully_sharded_step():
        return step(sharded(net()), torch.randn(6, 4))

    def fully_sharded_proof():
        model, x = sharded(net()), torch.randn(6, 4)
        model(x)
        report = tl.validate(model, x)
        assert report and report.equal == 4, report  # two linears, relu and the output: the proof kept whole weights
        return tl.log_forward_pass(net(), x)

    def communicates_inside():
        a, b = (distribute_tensor(torch.ones(4, 4), mesh, [Shard(0)]) for _ in range(2))
        with tl.recording() as history:
            c = a @ b + 1  # gathers b
        return history

    def wrong_shard_on_one_rank():
        a = distribute_tensor(torch.ones(4, 4), mesh, [Shard(0)])
        with tl.recording() as history:
            c = a * 2 + 1
        product = next(op.index for op in history if op.name == "mul")
        if rank == 1:
            wrong = DTensor.from_local(torch.zeros(2, 4), mesh, [Shard(0)])
            history.trace.recorder.memory.copies[product << 20] = wrong
        return history

    class Talks(torch.Tensor):  # refuses to work where a dispatch mode looks on, and communicates elsewhere
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            if torch._C._len_torch_dispatch_stack():
                raise RuntimeError("not while somebody looks on")
            result = super().__torch_function__(func, types, args, kwargs or {})
            if func is torch.Tensor.mul:
                dist.all_reduce(torch.ones(1))
                talks.append(1)
            return result

    talks = []

    def communicates_only_unguarded():
        x = torch.ones(4).as_subclass(Talks)
        with tl.recording() as history:
            y = x.mul(2)
        assert len(talks) == 1
        if rank == 0:  # alone, it would wait for ever
            history.validate()
        assert len(talks) == 1
        return tl.log_forward_pass(net(), torch.ones(1, 4))

    told = {}
    for scene in (data_parallel, functional, tensor_parallel, communicates_inside, wrong_shard_on_one_rank,
                  fully_sharded_forward, fully_sharded_step, fully_sharded_proof, communicates_only_unguarded):
        history = scene()
        report = history.validate()
        told[scene.__name__] = {
            "held": bool(report), "text": str(report), "names": [op.name for op in history],
            "unjudged": [history[index].name for index in report.unjudged],
            "failures": [history[index].name for index in report.failures],
        }
        dist.barrier()  # no collective is left over from a replay
    with open(f"told{rank}.json", "w") as file:
        json.dump(told, file)
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each of two ranks found."""
    return run_ranks(SCRIPT, tmp_path_factory.mktemp("ranks"))


@pytest.mark.parametrize(
    "scene",
    ["data_parallel", "functional", "tensor_parallel", "communicates_inside"],
)
def test_replay_ends_and_holds_and_the_ranks_agree(told: list[dict[str, Any]], scene: str) -> None:
    first, second = (rank[scene] for rank in told)
    assert first["held"], first["text"]
    assert first == second


@pytest.mark.parametrize("scene", ["fully_sharded_forward", "fully_sharded_step"])
def test_a_replay_without_the_whole_weights_ends_and_is_no_verdict(told: list[dict[str, Any]], scene: str) -> None:
    first, second = (rank[scene] for rank in told)
    assert ": not judged, " in first["text"] and "keeps the whole for its proof" in first["text"]
    assert first == second and not first["held"] and not first["failures"]


def test_functional_collectives_are_not_judged(told: list[dict[str, Any]]) -> None:
    found = told[0]["functional"]
    assert found["unjudged"] == ["all_reduce", "all_gather_into_tensor"]
    assert "2 cannot be judged: collectives are never run again" in found["text"]


def test_the_collectives_of_a_tensor_parallel_step_are_not_judged(told: list[dict[str, Any]]) -> None:
    found = told[0]["tensor_parallel"]
    assert "redistribute" in found["unjudged"] and found["names"].count("linear") == 2
    assert "unseen" not in found["names"][: found["names"].index("pow")]  # local tensors and DTensors are connected


def test_an_operation_that_communicates_inside_is_not_run_again(told: list[dict[str, Any]]) -> None:
    assert told[0]["communicates_inside"]["unjudged"] == ["matmul"]


def test_what_raises_under_guard_is_not_run_without_it(told: list[dict[str, Any]]) -> None:
    assert told[0]["communicates_only_unguarded"]["held"]  # the script asserts it, and ended


def test_a_wrong_shard_is_found_on_its_rank(told: list[dict[str, Any]]) -> None:
    first, second = (rank["wrong_shard_on_one_rank"] for rank in told)
    assert first["held"] and not second["held"]
    assert second["failures"][0] == "mul"


@pytest.mark.parametrize("scene", ["fully_sharded_forward", "fully_sharded_step"])
def test_a_fully_sharded_model_shows_its_layers_and_nothing_of_fsdps(told: list[dict[str, Any]], scene: str) -> None:
    names = told[0][scene]["names"]
    assert names[:5] == ["input", "linear", "relu", "linear", "output" if scene == "fully_sharded_forward" else "pow"]
    assert not {"unseen", "alias", "copy_", "all_gather_single", "reduce_scatter_single"} & set(names)
    assert "2 not judged: FSDP gathered a weight of it from the ranks" in told[0][scene]["text"]


def test_a_proof_of_a_fully_sharded_model_keeps_the_weights_that_it_needs(told: list[dict[str, Any]]) -> None:
    assert all(rank["fully_sharded_proof"]["held"] for rank in told)  # the script asserts it, and ended
