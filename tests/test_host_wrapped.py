"""Models inside DistributedDataParallel and DataParallel, loops with forked workers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed
from host_viewer import ALL, Viewer
from seams import Host
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from waiting import wait_until

import torcheer as tl

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def group(tmp_path: Path) -> Iterator[None]:
    torch.distributed.init_process_group("gloo", f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


def names_of(viewer: Viewer) -> set[str]:
    return {key[1] for key in viewer.values}


@pytest.mark.usefixtures("group")
def test_a_model_in_ddp_is_shown_under_its_own_names_and_learns_the_same() -> None:
    def losses(model: nn.Module) -> list[float]:
        optimizer, found = torch.optim.SGD(model.parameters(), 0.1), []
        for step in range(8):
            optimizer.zero_grad()
            x = torch.rand(6, 4, generator=torch.Generator().manual_seed(step))
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            found.append(loss.item())
        return found

    expected = losses(nn.parallel.DistributedDataParallel(net()))
    model = nn.parallel.DistributedDataParallel(net())
    with tl.live(model, open_server=False) as view, Viewer(view.host, ALL) as viewer:
        assert losses(model) == expected
        wait_until(lambda: (viewer.hear(), {"Input", "0", "2", "0.weight"} <= names_of(viewer))[1], "its values")
        assert viewer.last("network_came")["network"]["name"] == "Sequential" and not view.problems


def test_a_model_in_data_parallel_is_shown() -> None:
    model = nn.DataParallel(net())
    with tl.live(model, open_server=False) as view, Viewer(view.host, ALL) as viewer:
        for _ in range(4):
            model(torch.rand(6, 4)).sum().backward()
        assert wait_until(lambda: (viewer.hear(), {"Input", "0", "2"} <= names_of(viewer))[1], "its values")


def test_a_loader_with_forked_workers_and_a_loop_that_is_looked_at_get_along() -> None:
    data = DataLoader(TensorDataset(torch.rand(40, 4)), batch_size=4, num_workers=2, multiprocessing_context="fork")
    model = net()
    with tl.live(model, open_server=False) as view, Viewer(view.host, ALL) as viewer:
        for _ in range(2):
            for (x,) in data:
                model(x).sum().backward()
        assert len(viewer.moments(10)) >= 10 and view.path is not None and view.path.is_socket()
    assert not view.problems


def test_a_model_that_is_watched_and_shown_at_once_is_both() -> None:
    import torcheer as tl

    model = net()
    with Host() as host:
        assert host.path
    with tl.watch(model, every=1, what="output") as watch, tl.live(model, open_server=False) as view:
        with Viewer(view.host, ALL) as viewer:
            for _ in range(6):
                model(torch.rand(6, 4)).sum().backward()
            viewer.moments(3)
    assert watch.account.handled >= 12 and not view.problems
    assert not model._forward_pre_hooks and not model[0]._forward_hooks and "forward" not in vars(model)
