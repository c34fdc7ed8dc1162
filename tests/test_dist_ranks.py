"""Four ranks by torchrun and gloo: tensor parallel and FSDP2 together, watched, captured, saved and shown."""

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
from torcheer.errors import ValueUnavailable
from torcheer.inspector import open_watch

pytestmark = [
    pytest.mark.dist,
    pytest.mark.skipif(not torch.distributed.is_available(), reason="torch without distributed"),
]

BEGIN = """
    import json, os, sys, time, warnings
    import torch, torch.distributed as dist
    from torch import nn
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    import torcheer as tl
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    def step(model, optimizer, seed):
        torch.manual_seed(seed)
        optimizer.zero_grad()
        loss = model(torch.rand(5, 6)).pow(2).sum()
        loss.backward()
        optimizer.step()
        return loss.item()
    def collectives(profile):
        return sorted(event.name for event in profile.events() if event.name.startswith("c10d::"))
    def tell(**what):
        with open(f"told{rank}.json", "w") as file:
            json.dump(what, file)
"""


def run(tmp_path: Path, code: str, ranks: int = 4) -> list[dict[str, Any]]:
    """What the ranks tell."""
    (tmp_path / "script.py").write_text("".join(map(textwrap.dedent, (BEGIN, code, LEAVE_GROUP))))
    arguments = ("-m", "torch.distributed.run", f"--nproc-per-node={ranks}", "--standalone", "script.py")
    run_python(*arguments, cwd=tmp_path, env={"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", "OMP_NUM_THREADS": "1"})
    return [json.loads((tmp_path / f"told{rank}.json").read_text()) for rank in range(ranks)]


def test_fsdp_over_tensor_parallel_is_watched_and_made_whole(tmp_path: Path) -> None:
    told = run(
        tmp_path,
        """
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        parallelize_module(model, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
        fully_shard(model, mesh=mesh["dp"])
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        step(model, optimizer, 0)
        with torch.profiler.profile() as unwatched:
            for number in range(3):
                step(model, optimizer, number + 10 * (rank // 2))
        before = {name: parameter.full_tensor().tolist() for name, parameter in model.named_parameters()}
        what = ("output", "weight")
        with tl.watch(model, every=1, to="run", keep="*/weight", ranks="all", rules=None, what=what) as w:
            with torch.profiler.profile() as watched:
                for number in range(3):
                    step(model, optimizer, number + 10 * (rank // 2))
        tell(before=before, usual=collectives(unwatched), watched=collectives(watched), problems=w.problems)
        """,
    )
    for rank in told:
        assert rank["watched"] == rank["usual"] != [] and rank["problems"] == []
    watched = open_watch(tmp_path / "run")
    assert sorted(watched.ranks) == [0, 1, 2, 3] and watched.rank_count == 4
    for name, values in told[0]["before"].items():
        series = watched[name, "weight"]
        assert np.array_equal(series.values[0], np.array(values, np.float32)), name
        assert series.count[0] == np.size(values) and np.isclose(series.norm[0], np.linalg.norm(values))
    assert watched["2", "output"].count.tolist() == [2 * 5 * 3] * 3  # of two batches; the other two ranks have the same
    assert [row.differs for row in watched.board.rows] == [""] * 4 and not watched.alerts


def test_a_tensor_parallel_pass_is_captured_without_a_collective_more_and_assembled(tmp_path: Path) -> None:
    told = run(
        tmp_path,
        """
        mesh = init_device_mesh("cpu", (2,))
        parallelize_module(model, mesh, {"0": ColwiseParallel(use_local_output=False), "2": RowwiseParallel()})
        x = torch.rand(5, 6)
        model(x)
        with torch.profiler.profile() as plain:
            output = model(x)
        with torch.profiler.profile() as captured:
            history = tl.log_forward_pass(model, x)
            history.save("pass", parameters=True, ranks="all")
        hidden = history["linear_1"].tensor_contents
        whole = hidden.full_tensor().tolist() if hasattr(hidden, "full_tensor") else hidden.tolist()
        tell(plain=collectives(plain), captured=collectives(captured), hidden=whole, output=output.tolist(),
             weight=model[0].weight.full_tensor().tolist(),
             same=bool((history["output_1"].tensor_contents == output).all()))
        """,
        ranks=2,
    )
    assert all(rank["plain"] == rank["captured"] != [] and rank["same"] for rank in told)
    loaded = tl.load(tmp_path / "pass")
    assert np.array_equal(loaded["linear_1"].tensor_contents, np.array(told[0]["hidden"], np.float32))
    assert np.array_equal(loaded.trace.stored_value("0.weight"), np.array(told[0]["weight"], np.float32))
    with pytest.raises(ValueUnavailable, match="there is only rank 1"):
        tl.load(tmp_path / "pass@rank1")["linear_1"].tensor_contents  # noqa: B018


def test_live_and_show_act_on_rank_0_and_nothing_collides_or_hangs(tmp_path: Path) -> None:
    told = run(
        tmp_path,
        """
        wrapped = nn.parallel.DistributedDataParallel(model)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        found = {}
        for name, ranks in (("first", 0), ("every", "all")):
            with tl.live(wrapped, to=name, ranks=ranks, browser=False) as view:
                for number in range(3):
                    view.log(loss=step(wrapped, optimizer, number + rank))
                found[name] = bool(view.url)
        with tl.show(model, torch.rand(2, 6), browser=False, block=False) as viewer:
            found["show"] = bool(viewer.url)
        tell(**found)
        """,
        ranks=2,
    )
    assert told == [{"first": True, "every": True, "show": True}, {"first": False, "every": True, "show": False}]
    folders = sorted(path.parent.name for path in tmp_path.glob("*/run.json"))
    assert folders == ["every", "every@rank1", "first"]
    for folder in folders:
        assert len(tl.load(tmp_path / folder).tables["train_step"]["loss"]) == 3


def test_a_rank_that_waits_for_another_is_not_called_slow(tmp_path: Path) -> None:
    """Passes of FSDP2, tensor parallel and DDP with buffers wait for the other ranks."""
    run(
        tmp_path,
        """
        from torch.nn.parallel import DistributedDataParallel
        def build(kind):
            torch.manual_seed(0)
            model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8) if kind == "ddp" else nn.ReLU(), nn.Linear(8, 3))
            if kind == "tp":
                plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
                return parallelize_module(model, init_device_mesh("cpu", (2,)), plan)
            return DistributedDataParallel(model) if kind == "ddp" else fully_shard(model)
        for kind in ("ddp", "tp", "fsdp"):
            for late in ("optimizer", "data"):
                model = build(kind)
                optimizer = torch.optim.SGD(model.parameters(), 0.1, foreach=False)
                with tl.watch(model, every=1, to=f"{kind}-{late}", ranks="all"):
                    for number in range(7):
                        model(torch.rand(5, 6)).pow(2).sum().backward()
                        time.sleep(0.4 * (rank == 1 and late == "optimizer"))
                        optimizer.step()
                        time.sleep(0.4 * (rank == 1 and late == "data"))
        tell()
        """,
        ranks=2,
    )
    for kind in ("ddp", "tp", "fsdp"):
        waiting, _ = open_watch(tmp_path / f"{kind}-optimizer").board.rows
        assert not waiting.is_slow and (waiting.forward_secs or 0.0) < 0.5 * waiting.step_secs
        watched = open_watch(tmp_path / f"{kind}-data")
        assert [alert.variable for alert in watched.alerts if alert.rule == "straggler"] == ["rank 1"]
