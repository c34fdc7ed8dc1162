"""Process groups: what other ranks write into a tensor is an operation, and what it held before stays what it was."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from children import run_ranks
from seams import process_groups
from torch import distributed as dist

import torcheer as tl

pytestmark = [
    pytest.mark.skipif(not dist.is_available(), reason="torch without distributed"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]

SCRIPT = """
    import json, os, sys, warnings
    import torch, torch.distributed as dist
    import torcheer as tl

    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    rank = int(sys.argv[1])
    other = 1 - rank
    dist.init_process_group("gloo", init_method=f"file://{os.getcwd()}/store", rank=rank, world_size=2)
    group = dist.group.WORLD

    def all_reduce(y): dist.all_reduce(y)
    def all_reduce_of_complex_numbers(y):
        z = torch.view_as_complex(y.view(2, 2))
        dist.all_reduce(z)
        return z + 0
    def all_reduce_later(y):
        work = dist.all_reduce(y, async_op=True)
        torch.ones(3) + 1  # meanwhile
        work.wait()
    def all_reduce_coalesced(y): dist.all_reduce_coalesced([y])
    def broadcast(y): dist.broadcast(y, 1)
    def broadcast_later(y): dist.broadcast(y, 1, async_op=True).wait()
    def reduce(y): dist.reduce(y, 0)
    def all_gather(y): dist.all_gather([y[:2], y[2:]], torch.full((2,), float(rank)))
    def all_gather_into_tensor(y): dist.all_gather_into_tensor(y, torch.full((2,), float(rank)))
    def all_gather_later(y): dist.all_gather_into_tensor(y, torch.full((2,), float(rank)), async_op=True).wait()
    def reduce_scatter(y): dist.reduce_scatter_tensor(y, torch.arange(8.0))
    def reduce_scatter_later(y): dist.reduce_scatter_tensor(y, torch.arange(8.0), async_op=True).wait()
    def all_to_all_single(y): dist.all_to_all_single(y, torch.arange(4.0) + 10 * rank)
    def all_to_all_later(y): dist.all_to_all_single(y, torch.arange(4.0) + 10 * rank, async_op=True).wait()
    def scatter(y): dist.scatter(y, [torch.ones(4), torch.ones(4) * 2] if rank == 0 else None, src=0)
    def gather(y): dist.gather(torch.ones(2) * rank, [y[:2], y[2:]] if rank == 0 else None, dst=0)
    def send_and_recv(y):
        if rank == 0:
            dist.send(torch.arange(4.0), 1)
            dist.recv(y, 1)
        else:
            dist.recv(y, 0)
            dist.send(torch.arange(4.0), 0)
    def isend_and_irecv(y):
        works = [dist.isend(torch.arange(4.0) + rank, other), dist.irecv(y, other)]
        for work in works:
            work.wait()
    def batch(y):
        sent = torch.arange(4.0) + rank
        for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, sent, other), dist.P2POp(dist.irecv, y, other)]):
            work.wait()
    def methods(y): group.allreduce([y]).wait()
    def methods_by_keyword(y): group.broadcast(tensor=y, root=1).wait()
    def coalesced(y):
        with dist._coalescing_manager():
            dist.all_reduce(y)

    scenes = [all_reduce, all_reduce_of_complex_numbers, all_reduce_later, all_reduce_coalesced, broadcast,
              broadcast_later, reduce, all_gather, all_gather_into_tensor, all_gather_later, reduce_scatter,
              reduce_scatter_later, all_to_all_single, all_to_all_later, scatter, gather, send_and_recv,
              isend_and_irecv, batch, methods, methods_by_keyword, coalesced]
    told = {}
    for scene in scenes:
        def run():
            y = torch.arange(1.0, 5) * (rank + 1)
            scene(y)
            return y, y * 2
        plain = [tensor.tolist() for tensor in run()]
        dist.barrier()
        for save in ("all", "clone"):
            kept = {} if save == "all" else {"layers_to_save": tl.Save("all", guard="clone")}
            with tl.recording(**kept) as history:
                y, z = run()
            report = history.validate()
            talks = [history[index] for index in report.unjudged]
            told[f"{scene.__name__} {save}"] = {
                "plain": plain, "captured": [y.tolist(), z.tolist()],
                "before": next(op for op in history if op.name == "mul").tensor_contents.tolist(),
                "result": history[len(history) - 1].tensor_contents.tolist(),
                "talks": [op.name for op in talks],
                "inplace": all(op.record.inplace for op in talks),
                "parents": all(op.parents for op in talks),
                "here": all(op.source.file.endswith("script.py") for op in talks),
                "received": torch.cat([op.tensor_contents.flatten() if isinstance(op.tensor_contents, torch.Tensor) else
                                       torch.cat(op.tensor_contents) for op in talks]).tolist() if talks else [],
                "held": bool(report), "text": str(report),
            }
            dist.barrier()
    with open(f"told{rank}.json", "w") as file:
        json.dump(told, file, default=str)
"""


NAMES = {
    "all_reduce": "all_reduce",
    "all_reduce_later": "all_reduce",
    "all_reduce_coalesced": "all_reduce_coalesced",
    "broadcast": "broadcast",
    "broadcast_later": "broadcast",
    "reduce": "reduce",
    "all_gather": "all_gather",
    "all_gather_into_tensor": "all_gather_single",
    "all_gather_later": "all_gather_single",
    "reduce_scatter": "reduce_scatter_single",
    "reduce_scatter_later": "reduce_scatter_single",
    "all_to_all_single": "all_to_all_single",
    "all_to_all_later": "all_to_all_single",
    "scatter": "scatter",
    "gather": "gather",
    "send_and_recv": "recv",
    "isend_and_irecv": "irecv",
    "batch": "irecv",
    "methods": "all_reduce",
    "methods_by_keyword": "broadcast",
    "coalesced": "all_reduce_coalesced",
}
EARLIER = {  # in torch 2.11
    "irecv": "recv",
    "all_gather_single": "all_gather_into_tensor",
    "reduce_scatter_single": "reduce_scatter_tensor",
}


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each of two ranks found."""
    return run_ranks(SCRIPT, tmp_path_factory.mktemp("ranks"))


@pytest.mark.parametrize("save", ["all", "clone"])
@pytest.mark.parametrize("scene", NAMES)
def test_what_other_ranks_write_is_an_operation(told: list[dict[str, Any]], scene: str, save: str) -> None:
    for rank, found in enumerate(one[f"{scene} {save}"] for one in told):
        assert found["captured"] == found["plain"]
        assert found["before"] == [number * (rank + 1) for number in (1.0, 2.0, 3.0, 4.0)]
        assert found["result"] == found["plain"][1]
        assert found["held"] if save == "all" else "FAILED" not in found["text"], found["text"]
        if (scene, rank) == ("gather", 1):  # it only gives
            assert found["talks"] == []
            continue
        assert found["talks"] in ([NAMES[scene]], [EARLIER.get(NAMES[scene])])
        assert found["received"] == found["plain"][0]
        assert found["inplace"] and found["parents"] and found["here"]


@pytest.mark.parametrize("save", ["all", "clone"])
def test_complex_numbers_are_received(told: list[dict[str, Any]], save: str) -> None:
    for found in (one[f"all_reduce_of_complex_numbers {save}"] for one in told):
        assert found["captured"] == found["plain"]
        assert found["held"] if save == "all" else "FAILED" not in found["text"], found["text"]
        assert found["talks"] == ["all_reduce"]


# -- one rank ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def process_group(tmp_path: Path) -> Iterator[None]:
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def methods() -> dict[str, Any]:
    return dict(vars(dist.ProcessGroup))


def test_nothing_stays_changed_and_nothing_is_changed_without_a_process_group() -> None:
    before = methods()
    with tl.recording():
        assert methods() == before


def test_the_methods_are_put_back_also_after_an_error(process_group: None) -> None:
    before = methods()
    with pytest.raises(ZeroDivisionError), tl.recording():
        assert methods() != before
        raise ZeroDivisionError
    assert methods() == before and not process_groups.MESSAGES.by_thread


def test_other_threads_are_not_recorded(process_group: None) -> None:
    y = torch.ones(2)
    with tl.recording() as history:
        thread = threading.Thread(target=lambda: dist.group.WORLD.allreduce([y]).wait())
        thread.start()
        thread.join()
        y + 1
    assert [op.name for op in history] == ["unseen", "add"]


def test_both_of_two_recordings_see_it(process_group: None) -> None:
    with tl.recording() as outer, tl.recording() as inner:
        y = torch.ones(2) * 2
        dist.all_reduce(y)
        dist.group.WORLD.allreduce([y]).wait()
        y + 1
    for history in (outer, inner):
        assert [op.name for op in history] == ["ones", "mul", "all_reduce", "all_reduce", "add"]
        assert history.validate()


@pytest.mark.parametrize("level", ["function", "aten"])
def test_every_level_has_it_once(process_group: None, level: str) -> None:
    with tl.recording(level=level) as history:
        y = torch.ones(2) * 2
        dist.all_reduce(y)
        y + 1
    assert [op.name for op in history] == ["ones", "mul", "all_reduce", "add"]
    assert history.validate()


def test_a_parameter_that_is_reduced_is_told_apart_from_what_it_was(process_group: None) -> None:
    class Average(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(3))
            self.register_buffer("mean", torch.zeros(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x * self.weight + self.mean
            with torch.no_grad():
                dist.all_reduce(self.mean, dist.ReduceOp.SUM)
                dist.broadcast(self.weight, 0)
            return y * self.weight + self.mean

    history = tl.log_forward_pass(Average(), torch.ones(3))
    assert history.validate()
    assert [op.name for op in history].count("broadcast") == 1


def test_a_call_that_is_refused_leaves_no_operation(process_group: None) -> None:
    with tl.recording() as history:
        y = torch.ones(2) * 2
        with pytest.raises((ValueError, TypeError, RuntimeError)):
            dist.broadcast(y, 5)
        y + 1
    assert [op.name for op in history] == ["ones", "mul", "add"]
    assert history.validate()


def test_a_group_that_is_gone_is_not_asked_by_replay(tmp_path: Path) -> None:
    with tl.recording() as history:
        dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
        y = torch.ones(2) * 2
        dist.all_reduce(y)
        y + 1
        dist.destroy_process_group()
    report = history.validate()
    assert report and [history[index].name for index in report.unjudged] == ["all_reduce"]


def test_a_history_holds_no_process_group(process_group: None) -> None:
    group = dist.new_group([0])
    with tl.recording() as history:
        y = torch.ones(2) * 2
        held = sys.getrefcount(group)
        dist.all_reduce(y, group=group)
        work = dist.all_reduce(y, group=group, async_op=True)
        work.wait()
        group.allreduce([y]).wait()
    assert [op.name for op in history].count("all_reduce") == 3
    assert sys.getrefcount(group) == held
    assert not any(isinstance(cell, dist.Work) for cell in history.trace.recorder.rows)


def test_a_history_with_collectives_is_saved_and_loaded(process_group: None, tmp_path: Path) -> None:
    with tl.recording() as history:
        y = torch.ones(2) * 2
        dist.all_reduce(y, async_op=True).wait()
        y + 1
    history.save(tmp_path / "history")
    loaded = tl.load(tmp_path / "history")
    assert [op.name for op in loaded] == ["ones", "mul", "all_reduce", "add"]
    assert "allreduce_1" in str(loaded)
