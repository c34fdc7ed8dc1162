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
from torcheer.errors import BadArgument, ValueUnavailable
from torcheer.inspector import open_watch

pytestmark = pytest.mark.skipif(not torch.distributed.is_available(), reason="torch without distributed")

BEGIN = """
    import json, os, sys, warnings
    import torch, torch.distributed as dist
    from torch import nn
    import torcheer as tl
    from torcheer.inspector import Transport
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


SHARDED = """
        from torch.distributed.fsdp import fully_shard
        def sharded(model):
            for part in (model[0], model[2]):
                fully_shard(part)
            return fully_shard(model)
        what = ("output", "grad", "weight", "weight_grad", "update")
        def collectives(profile):
            return sorted(event.name for event in profile.events() if event.name.startswith("c10d::"))
"""


@pytest.mark.slow
def test_ranks_log_shards_without_a_collective_and_the_reader_makes_them_whole(tmp_path: Path) -> None:
    told = run(
        tmp_path,
        SHARDED
        + """
        import copy
        with torch.profiler.profile() as unwatched:
            plain = train(sharded(copy.deepcopy(model)))
        model = sharded(model)
        with tl.watch(model, what=what, every=2, to="run", keep="*", ranks="all",
                      transport=Transport(8 << 20, drain_secs=60)) as w:
            with torch.profiler.profile() as profile:
                watched = train(model)
        before = collectives(profile)
        whole = model[2].weight.full_tensor().tolist()  # as it is after the last step
        tell(same=plain == watched, problems=w.problems, whole=whole, to=str(w.to), losses=watched,
             collectives=before, usual=collectives(unwatched), local=model[2].weight.to_local().tolist())
        """,
    )
    for rank in told:
        assert rank["same"] and rank["problems"] == [] and rank["to"] == str(tmp_path / "run")
        assert rank["collectives"] == rank["usual"] != []
    logs = sorted(path.name for path in (tmp_path / "run" / "log").iterdir())
    assert logs == ["watch", "watch@rank1"]
    watched, single = open_watch(tmp_path / "run"), open_watch(tmp_path / "run" / "log" / "watch@rank1")
    assert sorted(watched.ranks) == [0, 1] and watched.problems == []
    update, before = watched["2.weight", "update"], watched["2.weight", "weight"]
    assert update.steps.tolist() == watched["2.weight", "weight_grad"].steps.tolist() == [0, 2, 4]
    assert np.allclose(before.values[4] + update.values[4], told[0]["whole"])
    for step, array in before.values.items():
        place = before.steps.tolist().index(step)
        assert before.count[place] == array.size and before.minimum[place] == array.min()
        assert np.isclose(before.mean[place], array.mean()) and np.isclose(before.std[place], array.std())
        assert np.isclose(before.norm[place], np.linalg.norm(array))
        assert before.histogram[place].sum() == array.size
    outputs = [watched.ranks[rank]["2", "output"] for rank in (0, 1)]
    merged = watched["2", "output"]
    both = np.concatenate([outputs[rank].values[2] for rank in (0, 1)])
    assert merged.count[1] == both.size and np.isclose(merged.std[1], both.std())
    assert (merged.histogram == outputs[0].histogram + outputs[1].histogram).all()
    with pytest.raises(ValueUnavailable, match="have each its own, of their own batches"):
        merged.values[2]
    with pytest.raises(ValueUnavailable, match="lacks 8 of its 16 numbers: of 2 ranks there is only rank 0"):
        del watched._rows._sources[watched._rows.places["2.weight", "weight"][0]][1:]
        before.values[0]
    assert np.array_equal(single["2.weight", "weight"].values[0].shape, (1, 8))
    rows = watched.board.rows
    assert [row.rank for row in rows] == [0, 1] and all(row.step == 4 and row.step_secs > 0 for row in rows)
    assert all(row.forward_secs is None and not row.differs for row in rows)  # it waits for the other rank


@pytest.mark.dist
def test_of_shards_rank_0_logs_its_own_part_and_says_so(tmp_path: Path) -> None:
    first, second = run(
        tmp_path,
        SHARDED
        + """
        model = sharded(model)
        with tl.watch(model, every=2, to="run", tell=lambda text: None) as w:
            train(model)
        tell(problems=w.problems, offered=w.account.offered)
        """,
    )
    assert "4 weights are sharded over 2 processes" in first["problems"][0] and "ranks='all'" in first["problems"][0]
    assert first["offered"] and not second["offered"] and second["problems"] == []
    assert [path.name for path in (tmp_path / "run" / "log").iterdir()] == ["watch"]
    assert repr(open_watch(tmp_path / "run")).endswith("ended, rank 0 of 2>")


@pytest.mark.dist
def test_a_rank_whose_weights_differ_is_an_alert_of_the_merged_log(tmp_path: Path) -> None:
    run(
        tmp_path,
        """
        wrapped = nn.parallel.DistributedDataParallel(model)
        with tl.watch(wrapped, every=1, to="run", ranks="all", rules=None) as w:
            train(wrapped, 3)
            if rank == 1:
                with torch.no_grad():
                    model[2].bias[0] += 1e-6
            train(wrapped, 3)
        tell(alerts=[str(alert) for alert in w.alerts])
        """,
    )
    watched = open_watch(tmp_path / "run")
    (alert,) = [alert for alert in watched.alerts if alert.rule == "different_weights"]
    assert (alert.step, alert.layer, alert.values["ranks"]) == (3, "2.bias", [1])
    assert "rank 1 has other weights than rank 0: 2.bias" in alert.what
    assert watched["2.bias", "weight"].count.tolist() == [2] * 6  # replicas are counted once
    assert watched["2", "output"].count.tolist() == [12] * 6  # batches are not
    assert [row.differs for row in watched.board.rows] == ["", "other weights than rank 0 since step 3: 2.bias"]


def test_ending_one_of_several_processes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")  # as torchrun sets it
    with (
        pytest.raises(BadArgument, match="would leave the others waiting for ever"),
        tl.watch(torch.nn.Linear(2, 2), stop_on="error", tell=lambda text: None) as w,
    ):
        assert w is None  # not reached


def test_one_of_several_processes_knows_that_it_is_time_to_agree_on_a_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    model = torch.nn.Linear(2, 2)
    w = tl.watch(model, every=1, stop_on="error", tell=lambda text: None, on_alert=lambda alert: None)
    model(torch.full((1, 2), float("nan")))
    assert w.should_stop  # to be all-reduced, as the error of a `with` block says
    w.close()


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
