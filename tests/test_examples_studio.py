"""The studio's examples as processes of their own: headless, and with a viewer that presses every button."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from children import Child, children_of, has_ended, run_python
from fast_cases import fast_first
from seams import Every, Wants
from studio_client import Client
from waiting import wait_until

ROOT = Path(__file__).parents[1]
ASSOCIATOR = ROOT / "examples" / "random_associator" / "main.py"
ALEXNET = ROOT / "examples" / "alexnet_netview" / "main.py"
EACH = Wants(variables=("Act", "Net", "Grad"), weights=True, train=Every("trial"), test=Every("trial"))


def run(script: Path, *options: str | Path) -> str:
    return run_python(script, *options).stdout


@contextmanager
def looked_at(script: Path, folder: Path, *options: str) -> Iterator[Client]:
    """A process that listens, and a viewer; ended by Ctrl-C, quietly."""
    with Child(script, "--listen", folder, *options) as process:
        assert process.line() == f"listening: torcheer studio {folder}"
        with Client(folder / "control.sock", EACH) as client:
            client.until(lambda: client.source.state.can and client.source.moments)
            yield client
        process.send_signal(signal.SIGINT)
        process.ends()
        assert process.error_text == ""
        assert not (folder / "control.sock").exists()


@pytest.mark.slow
def test_the_random_associator_learns_all_patterns(tmp_path: Path) -> None:
    said = run(ASSOCIATOR, "--headless", "--save", tmp_path / "weights.npz")
    assert said.startswith("run 0 is over: 5 epochs without an error; SSE 0.000, errors 0%")
    weights = np.load(tmp_path / "weights.npz")
    assert weights["InputToHidden1.Wt"].shape == (35, 25) and weights["Output.Bias"].shape == (1, 5, 5)


@pytest.mark.slow
def test_the_random_associator_stops_after_so_many_epochs() -> None:
    assert run(ASSOCIATOR, "--headless", "--epochs", "3").startswith("run 0 is over: all 3 epochs done; SSE")


@pytest.mark.slow
def test_every_button_of_the_random_associator(tmp_path: Path) -> None:
    with looked_at(ASSOCIATOR, tmp_path) as client:
        source = client.source
        assert {one.layer.name: one.layer.shape for one in source.net.layers} == {
            "Input": (5, 5), "Hidden1": (5, 7), "Hidden2": (5, 7), "Output": (5, 5),
        }  # fmt: skip
        client.until(lambda: len(client.rows("patterns").get("Name", ())) == 25)
        patterns = {column: list(client.rows("patterns")[column]) for column in ("Name", "Input")}
        assert all(np.sum(one) == 6 for one in patterns["Input"])

        client.press("test_item", item=4)
        client.until(lambda: source.moments[-1].counters.get("Name") == "p04")
        assert np.array_equal(client.newest("Input", "Act"), np.ravel(patterns["Input"][4]))
        hidden, net = client.newest("Hidden1", "Act"), client.newest("Hidden1", "Net")
        assert np.array_equal(hidden, net.clip(0)) and (net < 0).any()

        client.press("step_trial")
        client.until(lambda: not source.moments[-1].test and source.moments[-1].counters.get("Trial") == 0)
        shown = patterns["Name"].index(source.moments[-1].counters["Name"])
        assert np.array_equal(client.newest("Input", "Act"), np.ravel(patterns["Input"][shown]))
        assert np.abs(client.newest("Output", "Grad")).sum() > 0

        client.press("step_n", count=3)
        client.until(lambda: source.state.counters.get("Trial") == 3 and source.state.status == "paused")
        into = client.newest("Hidden1", "r.Wt", of=("Hidden2", 7))
        assert into.shape == (35,) and np.isfinite(into).all() and into.std() > 0
        out = client.newest("Hidden1", "s.Wt", of=("Input", 3))
        assert out.shape == (35,) and np.isfinite(out).all()
        changed = client.newest("Input", "r.DWt", of=("Hidden1", 0))
        assert changed is not None and np.isfinite(changed).all()

        client.press("step_epoch")
        client.until(lambda: client.rows("train_epoch").get("Epoch") == [0])
        client.press("test_all")
        client.until(lambda: len(client.rows("test_epoch").get("Err", ())) == 1)
        assert client.rows("test_trial")["Name"] == patterns["Name"]
        assert np.shape(client.rows("test_trial")["Output"]) == (25, 5, 5)

        client.change("lr", 0.4)
        client.until(lambda: client.parameters["lr"] == 0.4)
        client.press("train")
        client.until(lambda: len(client.rows("train_epoch").get("Epoch", ())) > 3)
        client.press("stop")
        client.status("paused")

        client.press("new_seed")
        client.until(lambda: client.parameters["seed"] != 1)
        client.press("init")
        client.until(lambda: not client.rows("train_epoch").get("Epoch") and source.state.counters["Epoch"] == 0)
        client.change("lr", 0.2)
        client.press("train")
        client.until(lambda: len(client.rows("run").get("Run", ())) == 1)
        client.status("done")
        assert client.rows("run")["Seed"] == [client.parameters["seed"]]
        assert not source.alerts


@pytest.mark.slow
def test_alexnet_prints_every_step_of_a_picture_of_ones_own(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    image.new("RGB", (30, 20), (200, 30, 30)).save(tmp_path / "red.png")
    lines = run(ALEXNET, "--headless", tmp_path / "red.png").splitlines()
    assert lines[:3] == [
        "Image.Act torch.Size([1, 3, 224, 224])",
        "C1.Net torch.Size([1, 64, 55, 55])",
        "C1.Act torch.Size([1, 64, 55, 55])",
    ]
    assert len([line for line in lines if "torch.Size" in line]) == 20
    assert len(lines) == 21 and lines[-1].startswith("red.png: class ")


def test_alexnets_feature_maps_arrive_at_every_step(tmp_path: Path) -> None:
    with looked_at(ALEXNET, tmp_path) as client:
        source = client.source
        shapes = {one.layer.name: one.layer.shape for one in source.net.layers}
        assert shapes == {
            "Image": (3, 224, 224), "C1": (64, 55, 55), "P1": (64, 27, 27), "C2": (192, 27, 27), "P2": (192, 13, 13),
            "C3": (384, 13, 13), "C4": (256, 13, 13), "C5": (256, 13, 13), "P5": (256, 6, 6), "AP": (256, 6, 6),
            "Cl1": (4096,), "Cl2": (4096,), "Out": (1000,),
        }  # fmt: skip
        assert source.state.can == ("test_trial", "test_item", "test_all", "stop") and source.state.items == 4
        client.press("test_item", item=3)
        client.until(lambda: source.moments[-1].counters.get("Name") == "disk")
        moment = source.moments[-1].id
        for layer, shape in shapes.items():
            values = source.units(moment, layer, "Act", 0)
            assert values.shape == (np.prod(shape),) and np.isfinite(values).all() and values.std() > 0, layer
        assert (source.units(moment, "C3", "Net", 0) < 0).any()
        field = source.units(moment, "Image", "r.Wt", 0, of=("C1", 55 * 27 + 27)).reshape(3, 224, 224)
        assert np.isfinite(field).sum() == 3 * 11 * 11
        client.press("test_all")
        client.until(lambda: client.rows("test_trial").get("Name") == ["noise", "rings", "grating", "disk"])


@pytest.mark.slow
@pytest.mark.parametrize("script", fast_first([ASSOCIATOR, ALEXNET]), ids=lambda script: script.parent.name)
def test_an_example_opens_the_studio_and_ends_with_it(script: Path) -> None:
    pytest.importorskip("uvicorn")
    with Child(script, env={"TORCHEER_NO_BROWSER": "1"}) as process:
        assert process.line().startswith("http://127.0.0.1:")
        children = wait_until(lambda: children_of(process.pid), "the viewer")
        process.kill()  # no chance to say goodbye
        wait_until(lambda: all(map(has_ended, children)), "the viewer's end")
