"""Values that live on a GPU: fetched without waiting, whole, and in their states."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from host_viewer import ALL, Viewer
from seams import Host, LayerProbes, Wants
from torch import nn
from waiting import wait_until

import torcheer as tl

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")


def test_values_from_a_gpu_arrive_as_they_were_though_they_are_overwritten() -> None:
    with Host() as host, Viewer(host, Wants(("Act",))) as viewer:
        expected, numbers = {}, []
        for step in range(20):
            value = torch.rand(4, 50_000, device="cuda")
            expected[step] = value.cpu().numpy()
            number = host.values.begin(step)
            assert host.values.offer(number, value, "fc", "Act")
            value.zero_()
            host.values.end(number)
            numbers.append(number)
            wait_until(lambda count=step + 1: len(viewer.states()) >= count, "the state")
        for step, number in enumerate(numbers):
            assert np.array_equal(viewer.values[number, "fc", "Act"].array, expected[step])


def test_nothing_waits_for_the_gpu() -> None:
    with Host() as host, Viewer(host, Wants(("Act",))) as viewer:
        value = torch.ones(8, 1000, device="cuda")
        _ = value * 2  # CUDA loads what it computes with when it is first used, and waits for the GPU then
        torch.cuda._sleep(1)
        state = host.values.begin(0)
        host.values.offer(state, value, "fc", "Act")
        host.values.end(state)
        viewer.moments()
        torch.cuda.synchronize()
        began, ended = torch.cuda.Event(), torch.cuda.Event()
        began.record()
        torch.cuda._sleep(2_000_000_000)  # cycles: about a second
        ended.record()
        state = host.values.begin(1)
        assert host.values.offer(state, value * 2, "fc", "Act")
        host.values.end(state)
        assert not ended.query()  # the GPU is still busy, and we are here already
        assert len(viewer.states()) == 1
        viewer.moments(2)
        assert ended.query() and (viewer.values[state, "fc", "Act"].array == 2).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_training_step_on_a_gpu_is_the_same_and_is_seen(dtype: torch.dtype) -> None:
    def losses(host: Host | None) -> list[float]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 8)).to("cuda", dtype)
        optimizer, probing = torch.optim.SGD(model.parameters(), 0.1), LayerProbes(model, host) if host else None
        found = []
        for step in range(10):
            x = torch.rand(16, 32, device="cuda", generator=torch.Generator("cuda").manual_seed(step)).to(dtype)
            if probing is not None:
                probing.begin(step)
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            if probing is not None:
                probing.finish()
            found.append(loss.item())
        return found

    with Host() as host, Viewer(host, ALL) as viewer:
        assert losses(host) == losses(None)
        assert len(viewer.moments(9)) == 9
        assert {key[1:] for key in viewer.values} >= {("0", "Act"), ("0", "Net"), ("0", "Grad"), ("0.weight", "Wt")}
        assert not host.problems


def test_numbers_on_a_gpu_become_rows_in_their_order() -> None:
    model = nn.Linear(4, 2).cuda()
    with tl.live(model, open_server=False) as view, Viewer(view.host) as viewer:
        for step in range(50):
            view.log(loss=model(torch.rand(3, 4, device="cuda")).sum() * 0 + step, plain=step)
        view._metrics.flush(wait=True)
        wait_until(lambda: len(viewer.rows("train_step").get("loss", [])) == 50, "rows")
        assert viewer.rows("train_step")["loss"] == viewer.rows("train_step")["plain"] == list(range(50))
