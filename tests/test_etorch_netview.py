"""`NetView`: what a network's values do on their way to a page."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from seams import Every, Host, Wants
from studio_client import ALL, Client
from torch import nn
from waiting import wait_until

from torcheer.errors import BadArgument
from torcheer.studio import NetView, Network, State

EACH = Wants(variables=("Act", "Net", "Grad"), weights=True, train=Every("trial"))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.out = nn.Conv2d(1, 2, 3), nn.Linear(32, 3)
        self.est = State(self)
        self.est.rec_wts = self.est.rec_grads = True
        self.est.wtmap = {"ImageToConv": "conv", "ConvToOut": "out"}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.est.rec(x, "Image.Act")
        x = torch.relu(self.conv(x))
        self.est.rec(x, "Conv.Act")
        x = self.out(x.flatten(1))
        self.est.rec(x, "Out.Act")
        return x


@pytest.fixture
def host() -> Iterator[Host]:
    with Host(title="test") as found:
        yield found


@pytest.fixture
def model() -> Model:
    torch.manual_seed(0)
    return Model()


def test_what_was_recorded_arrives(host: Host, model: Model) -> None:
    view = NetView(model.est.net, host=host)
    with Client(host.path, EACH) as client:
        client.until(lambda: host.wants == EACH)
        x = torch.randn(2, 1, 6, 6)
        y = model(x)
        y.square().sum().backward()
        view.update({"Epoch": 3, "Trial": 7})
        client.until(lambda: client.source.moments)
        moment = client.source.moments[-1]
        assert (moment.counters, moment.test) == ({"Epoch": 3, "Trial": 7}, False)
        for item in (0, 1):
            assert np.array_equal(client.newest("Image", "Act", item=item), x[item].flatten().numpy())
            assert np.array_equal(client.newest("Out", "Act", item=item), y[item].detach().numpy())
        assert np.allclose(client.newest("Out", "Grad"), 2 * y[0].detach().numpy())
        into = client.newest("Conv", "r.Wt", of=("Out", 1))
        assert np.array_equal(into, model.out.weight[1].detach().numpy())
        assert {one.layer.name for one in client.source.net.layers} == {"Image", "Conv", "Out"}
    view.close()


def test_a_page_that_comes_late_sees_the_newest_state(host: Host, model: Model) -> None:
    view = NetView(model.est.net, host=host)
    for step in range(3):
        x = torch.full((1, 1, 6, 6), float(step))
        model(x)
        view.update({"Trial": step})
    with Client(host.path) as client:  # nothing happens any more
        client.until(lambda: client.source.moments)
        assert client.source.moments[-1].counters == {"Trial": 2}
        assert set(client.newest("Image", "Act")) == {2.0}
        client.source.wants(Wants(variables=("Grad", "Act")))  # looks at something else
        client.until(lambda: len(client.source.moments) > 1)
    for _ in range(5):  # and every next viewer, however soon it comes
        with Client(host.path) as client:
            client.until(lambda: client.source.moments)
            assert set(client.newest("Image", "Act")) == {2.0}
    view.close()


def test_a_state_stays_as_it_was_when_update_was_called(host: Host, model: Model) -> None:
    view = NetView(model.est.net, host=host)
    model(torch.zeros(1, 1, 6, 6))
    view.update()
    model(torch.ones(1, 1, 6, 6))  # recorded, and not shown
    with Client(host.path) as client:
        client.until(lambda: client.source.moments)
        assert not client.newest("Image", "Act").any()
    view.close()


def test_updates_come_as_often_as_the_page_asks(host: Host, model: Model) -> None:
    view = NetView(model.est.net, host=host)
    model(torch.zeros(1, 1, 6, 6))
    with Client(host.path, Wants(variables=("Act",), train=Every("trial", 5))) as client:
        client.until(lambda: host.wants.variables)
        for trial in range(20):
            view.update({"Trial": trial})
        view.update({"Trial": 20, "Name": "now"}, now=True)
        client.until(lambda: client.source.moments and client.source.moments[-1].counters["Trial"] == 20)
        assert [one.counters["Trial"] for one in client.source.moments] == [0, 5, 10, 15, 20]
    view.close()


def test_without_a_page_nothing_is_sent_and_without_open_nothing_is_started(model: Model) -> None:
    threads = threading.active_count()
    view = NetView(model.est.net)
    model(torch.zeros(1, 1, 6, 6))
    for _ in range(10):
        view.update({"Epoch": 1})
    assert view.host is None and view.url == "" and threading.active_count() == threads
    view.close()


def test_the_item_that_is_looked_at_is_among_those_kept(host: Host) -> None:
    est = State()
    est.limit_bytes = 3 * 8 * 4
    view = NetView(est.net, host=host)
    wants = Wants(variables=("Act",), item=10, train=Every("trial"))
    with Client(host.path, wants) as client:
        client.until(lambda: host.wants == wants)
        x = torch.arange(16.0).repeat(8, 1).T.contiguous()
        for _ in range(2):  # the first one tells which item is wanted
            est.rec(x, "A.Act")
            view.update()
        client.until(
            lambda: (
                client.source.moments and client.source.units(client.source.moments[-1].id, "A", "Act", 10) is not None
            )
        )
        assert set(client.newest("A", "Act", item=10)) == {10.0}
    view.close()


def test_of_large_weights_those_of_the_clicked_units_are_sent(host: Host) -> None:
    net = Network("large")
    net.add_layer("In", (2000,))
    net.add_layer("Out", (1000,))
    weights = np.random.default_rng(0).normal(size=(1000, 2000)).astype(np.float32)
    net.connect("In", "Out").States["Wt"] = weights
    net["In"].States["Act"] = np.zeros(2000)
    view = NetView(net, host=host)
    with Client(host.path, Wants(variables=("Act",), weights=True, units=(("Out", 7), ("In", 1999)))) as client:
        view.update()
        client.until(lambda: client.source.moments)
        assert np.array_equal(client.newest("In", "r.Wt", of=("Out", 7)), weights[7])
        assert np.array_equal(client.newest("Out", "s.Wt", of=("In", 1999)), weights[:, 1999])
    view.close()


def test_of_a_large_convolution_those_of_the_clicked_units_are_sent(host: Host) -> None:
    est = State(nn.ModuleDict({"conv": nn.Conv2d(256, 512, 3, padding=1)}))
    est.rec_wts, est.wtmap = True, {"InToOut": "conv"}
    est.rec(torch.zeros(1, 256, 4, 4), "In.Act")
    est.rec(torch.zeros(1, 512, 4, 4), "Out.Act")
    weight = est.nn["conv"].weight.detach().numpy()
    assert weight.nbytes > 4 << 20
    view = NetView(est.net, host=host)
    unit, source = 300 * 16 + 5, 200 * 16 + 5  # in the second row and column of maps 300 and 200
    with Client(host.path, Wants(variables=("Act",), weights=True, units=(("Out", unit), ("In", source)))) as client:
        view.update()
        client.until(lambda: client.source.moments)
        into = client.newest("In", "r.Wt", of=("Out", unit)).reshape(256, 4, 4)
        assert np.array_equal(into[:, :3, :3], weight[300]) and np.isnan(into[:, 3]).all()
        out = client.newest("Out", "s.Wt", of=("In", source)).reshape(512, 4, 4)
        assert np.array_equal(out[:, 0, 0], weight[:, 200, 2, 2])
    view.close()


def test_weight_changes_are_seen_between_two_states(host: Host, model: Model) -> None:
    view = NetView(model.est.net, host=host)
    with Client(host.path, EACH) as client:
        client.until(lambda: host.wants == EACH)
        model(torch.ones(1, 1, 6, 6))
        view.update()
        with torch.no_grad():
            model.out.weight.add_(0.5)
        model(torch.ones(1, 1, 6, 6))
        view.update()
        client.until(lambda: len(client.source.moments) == 2)
        assert np.allclose(client.newest("Conv", "r.DWt", of=("Out", 0)), 0.5, atol=1e-6)
    view.close()


def test_a_network_that_grows_is_told(host: Host) -> None:
    est = State()
    view = NetView(est.net, host=host)
    with Client(host.path) as client:
        for name in ("A", "B"):
            est.rec(torch.zeros(1, 3), f"{name}.Act")
            view.update()
        assert client.until(lambda: client.source.net is not None and len(client.source.net.layers) == 2)
    view.close()


def test_counters_may_be_a_text_as_emergents_are(host: Host) -> None:
    est = State()
    est.rec(torch.zeros(1, 3), "A.Act")
    view = NetView(est.net, host=host)
    with Client(host.path) as client:
        view.Record("Trial 3, a dog")
        view.GoUpdate()
        client.until(lambda: client.source.moments)
        assert client.source.moments[-1].counters == {"Name": "Trial 3, a dog"}
    view.close()


def test_a_killed_viewer_and_a_closed_host_do_no_harm(host: Host, model: Model) -> None:
    view = NetView(model.est.net, host=host)
    client = Client(host.path, EACH)
    client.until(lambda: host.wants == EACH)
    client.close()
    for _ in range(50):
        model(torch.zeros(1, 1, 6, 6))
        view.update()
    host.close()
    view.update()
    assert copy.deepcopy(view) is view
    saved = pickle.loads(pickle.dumps(view))  # as a part of a model that is saved whole
    assert (saved.title, list(saved.net.layers), saved.url) == (view.title, list(view.net.layers), "")
    view.close()
    view.close()


@pytest.mark.slow
def test_memory_stays_flat_over_many_updates(host: Host) -> None:
    est = State()
    view = NetView(est.net, host=host)
    counts = []
    with Client(host.path, ALL) as client:
        for step in range(600):
            est.rec(torch.zeros(4, 50), "A.Act")
            view.update({"Trial": step})
            client.source.poll()
            if step in (200, 599):
                gc.collect()
                counts.append(sum(type(one) is torch.Tensor for one in gc.get_objects()))
    assert counts[1] <= counts[0] + 5
    view.close()


def test_only_networks_are_shown() -> None:
    with pytest.raises(BadArgument, match=r"NetView shows a torcheer.studio.Network, not a Linear"):
        NetView(nn.Linear(1, 1))  # type: ignore[arg-type]


def test_open_starts_the_studio_and_close_ends_it(model: Model, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("uvicorn")
    model(torch.zeros(1, 1, 6, 6))
    with NetView(model.est.net) as view:
        assert view.open() is view
        view.update()
        assert capsys.readouterr().out.splitlines()[0] == view.url and "token=" in view.url
        wait_until(lambda: view.host.viewer)
        viewer, path = view.viewer, view.host.path
    assert not viewer.alive and not path.exists()


def test_a_state_that_finds_no_room_at_first_is_sent_again(host: Host) -> None:
    net = Network("large")
    for name in "ABCDE":
        net.add_layer(name, (1000, 1000)).States["Act"] = np.full((1000, 1000), ord(name))
    view = NetView(net, host=host)
    with Client(host.path) as client:
        client.until(lambda: host.wants.variables)
        view.update({"Trial": 1})  # once, and 20 MB: more than a host begins with
        client.until(lambda: client.source.moments)
        assert [set(client.newest(name, "Act")) for name in "AE"] == [{65.0}, {69.0}]
    view.close()
