"""Watching several processes that train one model: real torchrun, gloo, on the CPU."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from children import LEAVE_GROUP, run_python

import torcheer as tl
from torcheer.errors import BadArgument
from torcheer.inspector import open_watch

pytestmark = pytest.mark.skipif(not torch.distributed.is_available(), reason="torch without distributed")

BEGIN = """
    import json, os, sys, warnings
    import torch, torch.distributed as dist
    from torch import nn
    import torcheer as tl
    from torcheer.monitor.watch import Transport
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(inplace=True), nn.Linear(8, 2))
    def train(model, steps=5, watch=None):
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        found = []
        for step in range(steps):
            torch.manual_seed(100 * rank + step)
            optimizer.zero_grad()
            loss = model(torch.rand(3, 4)).pow(2).sum()
            loss.backward()
            optimizer.step()
            found.append(loss.item())
        return found
    def tell(**what):
        with open(f"told{rank}.json", "w") as file:
            json.dump(what, file)
"""


def run(tmp_path: Path, code: str) -> list[dict[str, object]]:
    """What two ranks tell."""
    (tmp_path / "script.py").write_text("".join(map(textwrap.dedent, (BEGIN, code, LEAVE_GROUP))))
    run_python(
        "-m",
        "torch.distributed.run",
        "--nproc-per-node=2",
        "--standalone",
        "script.py",
        cwd=tmp_path,
        env={"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", "OMP_NUM_THREADS": "1"},
    )
    return [json.loads((tmp_path / f"told{rank}.json").read_text()) for rank in (0, 1)]


@pytest.mark.slow
def test_of_replicas_the_first_one_is_watched(tmp_path: Path) -> None:
    first, second = run(
        tmp_path,
        """
        import copy
        plain = train(nn.parallel.DistributedDataParallel(copy.deepcopy(model)))
        wrapped = nn.parallel.DistributedDataParallel(model)
        what = ("output", "grad", "weight", "weight_grad", "update")
        with tl.watch(wrapped, what=what, every=2, to="run", keep="*",
                      transport=Transport(8 << 20, drain_secs=60)) as w:
            watched = train(wrapped)
        tell(same=plain == watched, offered=w.account.offered, problems=w.problems, step=w.step,
             gradient=model[2].weight.grad.tolist())
        """,
    )
    assert first["same"] and second["same"]
    assert first["problems"] == second["problems"] == []
    assert first["offered"] and not second["offered"]
    found = open_watch(tmp_path / "run")
    assert {layer for layer, variable in found.keys() if variable == "grad"} == {"0", "1", "2"}
    assert found["2.weight", "update"].steps.tolist() == [0, 2, 4]
    gradient = found["2.weight", "weight_grad"].values[4]  # as the optimizer saw it: the mean over both
    assert np.allclose(gradient, first["gradient"]) and np.allclose(gradient, second["gradient"])


def test_of_shards_every_process_watches_its_own(tmp_path: Path) -> None:
    told = run(
        tmp_path,
        """
        import copy
        from torch.distributed.fsdp import fully_shard
        def sharded(model):
            for part in (model[0], model[2]):
                fully_shard(part)
            return fully_shard(model)
        plain = train(sharded(copy.deepcopy(model)))
        model = sharded(model)
        what = ("output", "grad", "weight", "weight_grad", "update")
        with tl.watch(model, what=what, every=2, to="run", keep="*", transport=Transport(8 << 20, drain_secs=60)) as w:
            shard = model[2].weight.to_local().tolist()
            watched = train(model)
        tell(same=plain == watched, problems=w.problems, shard=shard, to=str(w.to))
        """,
    )
    for rank, one in enumerate(told):
        assert one["same"] and one["problems"] == []
        found = open_watch(tmp_path / "run" / f"rank{rank}")
        assert one["to"] == str(found.path)
        name = f"2.weight@rank{rank}"
        assert found[name, "weight"].values[0].tolist() == one["shard"]
        assert found[name, "update"].steps.tolist() == found[name, "weight_grad"].steps.tolist() == [0, 2, 4]
        assert found["2", "grad"].steps.tolist() == [0, 2, 4]
        assert np.any(found[name, "update"].values[2] != 0)


def test_ending_one_of_several_processes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")  # as torchrun sets it
    with pytest.raises(BadArgument, match="would leave the others waiting for ever"):
        tl.watch(torch.nn.Linear(2, 2), stop_on="error")


COMPILED = """
    import copy
    import torch._dynamo
    import torch.distributed._functional_collectives as collectives
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.norm = nn.Linear(4, 8), nn.BatchNorm1d(8)
            self.drop, self.last = nn.Dropout(0.2), nn.Linear(8, 2)
        def forward(self, x):
            return self.last(self.drop(self.norm(self.first(x)).relu()))
    class Gathers(Net):
        def forward(self, x):
            x = self.first(x)
            return self.last(x + 0.1 * collectives.all_reduce(x.detach(), "sum", dist.group.WORLD))
    class Synchronises(Net):
        def __init__(self):
            super().__init__()
            self.norm = nn.SyncBatchNorm(8)
    DDP = nn.parallel.DistributedDataParallel
    def compiled(model, backend="aot_eager", **options):
        return torch.compile(model, backend=backend, **options)
    def in_place(model, **options):
        model.compile(backend="aot_eager", **options)
        return model
    def trained(make, net=Net, to=None):
        torch.manual_seed(0)
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        inner = net()
        model, problems, offered = make(inner), [], 0
        if to is None:
            losses = train(model)
        else:
            transport = Transport(8 << 20, drain_secs=60)
            with tl.watch(model, what=("output", "grad"), every=2, to=to, keep="*", transport=transport) as w:
                losses = train(model)
            problems, offered = w.problems, w.account.offered
        counters = torch._dynamo.utils.counters
        graphs = [counters["stats"]["unique_graphs"], len(counters["graph_break"])]
        state = [value.tolist() for value in inner.state_dict().values()]
        return {"result": [losses, state, graphs], "problems": problems, "offered": offered}
"""


def run_compiled(tmp_path: Path, make: str, net: str = "Net") -> list[dict[str, Any]]:
    """What two ranks tell of a compiled model that is trained without and with a watch."""
    told = run(
        tmp_path,
        textwrap.dedent(COMPILED)
        + f"""
make = {make}
tell(plain=trained(make, {net}), watched=trained(make, {net}, "run"))
""",
    )
    for rank in told:
        assert rank["plain"]["result"] == rank["watched"]["result"]
    return told


@pytest.mark.parametrize(
    "make",
    [
        pytest.param("lambda net: DDP(compiled(net, fullgraph=True))", marks=pytest.mark.slow),
        pytest.param("lambda net: compiled(DDP(net))", marks=pytest.mark.slow),
        pytest.param("lambda net: DDP(in_place(net, fullgraph=True))", marks=pytest.mark.slow),
        pytest.param("lambda net: DDP(compiled(net, 'inductor', fullgraph=True))", marks=pytest.mark.slow),
    ],
)
def test_of_compiled_replicas_one_is_watched_and_both_compute_the_same_bits(make: str, tmp_path: Path) -> None:
    first, second = run_compiled(tmp_path, make)
    assert first["watched"]["offered"] and not second["watched"]["offered"]
    assert len(first["watched"]["problems"]) == 1 and "eager program" in first["watched"]["problems"][0]
    values = open_watch(tmp_path / "run")
    for layer in ("first", "norm", "drop", "last"):
        assert values[layer, "output"].steps.tolist() == values[layer, "grad"].steps.tolist() == [0, 2, 4]


@pytest.mark.slow
def test_a_compiled_model_with_a_collective_does_not_hang_and_says_once_that_it_is_not_seen(tmp_path: Path) -> None:
    first, second = run_compiled(tmp_path, "lambda net: compiled(net, fullgraph=True)", "Gathers")
    said = [problem for problem in first["watched"]["problems"] if "waits for other processes" in problem]
    assert len(said) == 1 and not second["watched"]["problems"]


@pytest.mark.slow
def test_compiled_code_that_synchronises_batch_norms_is_not_run_twice_and_that_is_said_once(tmp_path: Path) -> None:
    # In evaluation mode: torch trains SyncBatchNorm on a GPU only.
    first, _ = run_compiled(tmp_path, "lambda net: compiled(net.eval(), fullgraph=True)", "Synchronises")
    assert len(first["watched"]["problems"]) == 1 and "no hook is called" in first["watched"]["problems"][0]
