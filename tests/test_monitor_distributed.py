"""Watching several processes that train one model: real torchrun, gloo, on the CPU."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

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
