"""Run directories at rest: tables, alerts, captured layers; and the moment when somebody goes on training."""

from __future__ import annotations

import gc
import json
import math
import tracemalloc
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from children import run_python
from models import small
from safetensors.torch import load_file, save_file
from seams import (
    Host,
    Layer,
    LogSource,
    LogWriter,
    Network,
    Projection,
    Variable,
    Wants,
    begin_run,
    followed_log,
    log_reader,
    log_source,
    open_source,
    statistics_of,
    to_json,
)
from studio_hosts import NETWORK, started
from studio_runs import captured, fake, log_rows, trained
from torch import nn
from waiting import wait_until
from watch_checks import train

import torcheer as tl
from torcheer.archive import Archive, Writer
from torcheer.records import Sample
from torcheer.samples import Delivery


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("runs") / "stages")


def test_the_tables_of_a_real_run(run: Path) -> None:
    source = LogSource(run)
    epochs, steps = source.tables["train_epoch"], source.tables["train_step"]
    assert epochs.head.x == "Epoch" and epochs.columns["Epoch"] == [1, 2, 3, 4, 5]
    assert epochs.columns["loss"][2:] == [None] * 3 and epochs.columns["two loss"][:2] == [None] * 2
    assert all(isinstance(cell, float) for cell in epochs.columns["val loss"])
    assert steps.head.x == "Step" and {"one loss", "two loss"} <= steps.columns.keys()
    assert {len(cells) for cells in steps.columns.values()} == {steps.count}
    first = (run / "metrics" / "0.csv").read_text().splitlines()[1].split(",")
    assert epochs.columns["error"][0] == float(first[1])
    assert source.state.status == "done" and source.state.counters["Epoch"] == 5
    assert source.state.message.startswith("5 epochs · val loss 0.")


def test_the_captures_of_a_real_run_are_moments(run: Path) -> None:
    source, archive = LogSource(run), Archive(run / "captures")
    assert source.net is not None and [one.layer.name for one in source.net.layers] == ["body.0", "body.4", "head"]
    assert [one.step for one in source.moments] == archive.steps
    assert source.moments[0].counters == {"Epoch": 1, "Name": "one"}
    entry = archive.find("body.0", "value", 5)
    moment = next(one for one in source.moments if one.step == 5)
    for item in range(4):
        assert np.array_equal(source.units(moment.id, "body.0", "Act", item), archive.array(entry)[item])  # type: ignore[arg-type]
    assert source.units(moment.id, "body.0", "Act", 4) is None and source.state.batch == 4
    assert source.kind == "run" and source.home == run / "recordings"


def test_the_alerts_of_a_watch(tmp_path: Path) -> None:
    run, model = fake(tmp_path / "run"), small()
    nn.init.constant_(model[0].weight, float("nan"))  # type: ignore[arg-type]
    with tl.watch(model, every=1, to=run):
        train(model, 3)
    source = LogSource(run)
    first = source.alerts[0]
    assert (first.rule, first.severity) == ("nan_inf", "error") and first.layer.startswith("0")
    assert "NaN" in first.text and not source.poll()


def test_what_is_written_later_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torcheer.studio.sources.log_source._SCAN_SECS", 0.0)
    source = LogSource(fake(tmp_path / "run"))
    assert source.net is None and source.moments == [] and not source.poll()
    log_rows(tmp_path / "run", "train_epoch/0", [{"epoch": 4, "loss": 0.25}])
    changes = source.poll()
    assert changes.tables == {"train_epoch"} and changes.state
    assert source.tables["train_epoch"].columns["Epoch"] == [1, 2, 3, 4]
    captured(tmp_path / "run" / "captures", 2)
    changes = source.poll()
    assert changes.net and [one.step for one in changes.moments_came] == [0, 10]
    with Writer(tmp_path / "run" / "captures") as writer:
        writer.step([Sample(99, "out", "value", -1, np.ones((4, 10)))], epoch=9)
    changes = source.poll()
    assert [one.step for one in changes.moments_came] == [99] and not changes.net
    assert source.units(source.moments[-1].id, "out", "Act", 3).tolist() == [1.0] * 10  # type: ignore[union-attr]
    assert source.units(source.moments[0].id, "conv", "Act", 3) is not None
    log_rows(tmp_path / "run", "train_epoch/0", [{"epoch": 1, "loss": 0.5}], step=-1, epoch=0)  # it starts over
    source.poll()
    assert source.tables["train_epoch"].count == 1 and source.tables["train_epoch"].restarts


def test_captures_of_a_run_that_was_begun_anew_replace_the_old_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torcheer.studio.sources.log_source._SCAN_SECS", 0.0)
    run = fake(tmp_path / "run")
    captured(run / "captures", 4)
    source = LogSource(run)
    old = [one.id for one in source.moments]
    (run / "earlier" / "1").mkdir(parents=True)
    (run / "captures").rename(run / "earlier" / "1" / "captures")
    captured(run / "captures", 2)
    changes = source.poll()
    assert changes.moments_gone == old and [one.step for one in source.moments] == [0, 10]
    assert min(one.id for one in source.moments) > max(old)
    assert source.units(source.moments[1].id, "out", "Act", 0) is not None


def test_what_was_changed_from_the_form_is_a_table(tmp_path: Path) -> None:
    run = fake(tmp_path / "run")
    log_rows(run, "changes", [{"Step": 7, "Epoch": 1, "name": "sgd.lr", "before": 0.1, "after": 0.05}])
    table = LogSource(run).tables["changes"]
    assert table.columns == {"Step": [7], "Epoch": [1], "name": ["sgd.lr"], "before": [0.1], "after": [0.05]}


def test_odd_cells_do_not_matter(tmp_path: Path) -> None:
    run, cells = fake(tmp_path / "run", epochs=0), [math.nan, math.inf, None, "x"]
    log_rows(run, "train_epoch/0", [{"epoch": epoch, "loss": cell} for epoch, cell in enumerate(cells)])
    table = LogSource(run).tables["train_epoch"]
    assert [str(cell) for cell in table.columns["loss"]] == ["nan", "inf", "None", "x"]


def test_captures_alone_can_be_opened_and_single_numbers_are_no_layers(tmp_path: Path) -> None:
    source = open_source(captured(tmp_path / "captures", 3, seal=True))
    assert source.net is not None
    assert [(one.layer.name, one.layer.shape) for one in source.net.layers] == [("conv", (3, 5, 5)), ("out", (10,))]
    assert source.net.layers[0].grid == (1, 3, 5, 5) and len(source.moments) == 3
    assert source.home == tmp_path / "recordings"


def test_damaged_captures_are_told_and_what_can_be_trusted_is_shown(tmp_path: Path) -> None:
    run = fake(tmp_path / "run")
    captured(run / "captures", 4)
    index = run / "captures" / "000000.index"
    raw = bytearray(index.read_bytes())
    raw[len(raw) // 2] ^= 255
    index.write_bytes(raw)
    source = LogSource(run)
    assert source.poll().problems and source.tables["train_epoch"].count == 3
    for moment in source.moments:
        assert source.units(moment.id, "out", "Act", 0) is not None


def test_thousands_of_captures_are_thinned(tmp_path: Path) -> None:
    with Writer(tmp_path / "captures", about={"kind": "captures"}, fsync="never") as writer:
        for step in range(4100):
            writer.step([Sample(step, "out", "value", -1, np.full((2, 2), step, np.int32))])
    source = open_source(tmp_path / "captures")
    assert 1000 <= len(source.moments) <= 2001
    last = source.moments[-1]
    assert last.step >= 4097 and source.units(last.id, "out", "Act", 0).tolist() == [last.step] * 2  # type: ignore[union-attr]


def test_the_config_can_be_read_and_not_changed(tmp_path: Path) -> None:
    run = fake(tmp_path / "run")
    (run / "spec.json").write_text('{"seed": 3, "train": {"batch": 8}}')
    found = LogSource(run).parameters
    assert {3, 8} <= {one.value for one in found} and not any(one.editable for one in found)
    for odd in ("[" * 100_000, "[]", "3", '{"initialize": 5}', '{"initialize": {"definitions": [3, null]}}', "{"):
        (run / "spec.json").write_text(odd)
        assert LogSource(run).tables["train_epoch"].count == 3


# -- a run that has described its network ------------------------------------------------------------------------------


def described(folder: Path) -> Path:
    """A run of a small network: described, captured each tenth step, weights saved at steps 10 and 20."""
    run, model = fake(folder), nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 3))
    network = Network(
        "net", (Layer("Input", (4,), "Input"), Layer("net.0", (6,), "Linear"), Layer("net.1", (3,), "Linear")),
        (Projection("net.0.weight", "Input", "net.0", "linear", (6, 4)),
         Projection("net.1.weight", "net.0", "net.1", "linear", (3, 6))),
        (Variable("Act", doc="what came out"),),
    )  # fmt: skip
    (run / "network.json").write_text(json.dumps(asdict(network)))
    with Writer(run / "captures", about={"kind": "captures"}) as writer:
        for step in (0, 10, 20):
            nn.init.normal_(model[1].weight)  # type: ignore[arg-type]
            hidden = model[0](torch.randn(2, 4))
            samples = [Sample(step, "0", "value", -1, hidden), Sample(step, "net.1", "value", -1, model[1](hidden))]
            writer.step(samples, epoch=1)
            if step:
                saved = run / "checkpoints" / str(step)
                saved.mkdir(parents=True)
                save_file({f"net.{name}": one for name, one in model.state_dict().items()}, saved / "model.safetensors")
                (saved / "MANIFEST.json").write_text("{}")
    return run


def test_a_described_run_at_rest_shows_its_network_and_the_weights_of_its_checkpoints(tmp_path: Path) -> None:
    source = LogSource(described(tmp_path / "run"))
    assert source.net is not None
    assert [one.layer.name for one in source.net.layers] == ["Input", "net.0", "net.1"]
    assert [one.name for one in source.net.variables] == ["Act", "r.Wt", "s.Wt", "r.DWt", "s.DWt"]
    first, second, third = source.moments
    assert source.units(first.id, "net.0", "r.Wt", 0, ("net.1", 2)) is None  # before the first checkpoint
    for moment in (second, third):
        row = source.units(moment.id, "net.0", "r.Wt", 0, ("net.1", 2))
        sent, got = source.units(moment.id, "net.0", "Act", 1), source.units(moment.id, "net.1", "Act", 1)
        assert row is not None and sent is not None and got is not None
        saved = load_file(tmp_path / "run" / "checkpoints" / str(moment.step) / "model.safetensors")
        assert row @ sent + float(saved["net.1.bias"][2]) == pytest.approx(got[2], abs=1e-5)
    change = source.units(third.id, "net.0", "r.DWt", 0, ("net.1", 2))
    assert change is not None and np.abs(change).max() > 0
    source.save("kept")
    kept = open_source(tmp_path / "run" / "recordings" / "kept")
    assert np.array_equal(kept.units(third.id, "net.0", "r.DWt", 0, ("net.1", 2)), change)  # type: ignore[arg-type]


def test_a_description_that_comes_later_is_taken_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torcheer.studio.sources.log_source._SCAN_SECS", 0.0)
    run = described(tmp_path / "run")
    text = (run / "network.json").read_text()
    (run / "network.json").unlink()
    source = LogSource(run)
    assert [one.layer.name for one in source.net.layers] == ["0", "net.1"]  # type: ignore[union-attr]
    (run / "network.json").write_text(text)
    changes = source.poll()
    assert changes.net and [one.layer.name for one in source.net.layers] == ["Input", "net.0", "net.1"]  # type: ignore[union-attr]
    assert source.units(source.moments[0].id, "net.0", "Act", 0) is not None and not source.poll()


@pytest.mark.parametrize(
    "damage", ["", "{", '{"name": 3}', "[]", '{"name": "x", "layers": [{"name": "a", "shape": [-1]}]}']
)
def test_a_description_or_weights_that_are_damaged_do_not_matter(tmp_path: Path, damage: str) -> None:
    run = described(tmp_path / "run")
    (run / "network.json").write_text(damage)
    for path in run.glob("checkpoints/*/model.safetensors"):
        path.write_bytes(b"\x05\0\0\0\0\0\0\0[1,2]" + bytes(10))
    source = LogSource(run)
    assert source.tables["train_epoch"].count == 3 and source.net is not None
    assert [one.layer.name for one in source.net.layers] == ["0", "net.1"]
    for moment in source.moments:
        assert source.units(moment.id, "0", "r.Wt", 0, ("net.1", 0)) is None


# -- live again --------------------------------------------------------------------------------------------------------


def test_a_run_that_is_hosted_is_live_with_the_rows_of_its_past(tmp_path: Path) -> None:
    run = fake(tmp_path / "run", epochs=2)
    with Host(run, title="on") as host:
        host.network = NETWORK
        host.row("train_epoch", {"Epoch": 3, "loss": 0.3})
        host.row("train_epoch", {"Epoch": 4, "loss": 0.2})
        source = open_source(run, url="http://127.0.0.1:9/")
        assert source.kind == "live"
        wait_until(lambda: source.net is not None and source.tables["train_epoch"].count == 4, poll=source.poll)
        assert source.tables["train_epoch"].columns["Epoch"] == [1, 2, 3, 4]
        assert source.tables["train_epoch"].columns["val loss"] == [0.6, 0.35, None, None]
        assert host.viewer == "http://127.0.0.1:9/" and source.home == run / "recordings"
        source.close()


def test_a_run_at_rest_becomes_live_when_somebody_trains_it_and_stays_when_that_is_killed(tmp_path: Path) -> None:
    run = fake(tmp_path / "run", epochs=2)
    captured(run / "captures", 2)
    source = open_source(run)
    assert source.kind == "run" and len(source.moments) == 2
    source.wants(Wants(("Act",)))
    came: list[Any] = []
    with started(run, 3, 2):
        wait_until(lambda: (came.append(source.poll()), source.kind == "live" and len(source.moments) > 2)[1])
        changes = next(one for one in came if one.moments_gone)
        assert changes.net and changes.state and changes.moments_gone == [0, 1]
        assert min(one.id for one in source.moments) > 1
        wait_until(lambda: source.tables["train_epoch"].columns["Epoch"] == [1, 2, 3, 4], poll=source.poll)
    wait_until(lambda: source.state.status == "lost", poll=source.poll)
    assert source.units(source.moments[-1].id, "in", "Act", 0) is not None
    source.close()


def test_the_viewer_needs_no_torch(run: Path) -> None:
    code = (
        "import sys; from torcheer.studio.sources.open_source import open_catalog; place = open_catalog(sys.argv[1]); "
        "source = place.first(); source.poll(); assert source.moments and place.runs; "
        "assert source.units(source.moments[0].id, 'body.0', 'Act', 0) is not None; print('torch' in sys.modules)"
    )
    done = run_python("-c", code, run.parent)
    assert done.stdout == "False\n", done.stderr


def test_of_a_long_log_the_last_rows_are_there_at_once_and_the_others_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_reader, "LONG_BYTES", 1000)
    monkeypatch.setattr(log_source, "_SCAN_SECS", 0.0)
    begin_run(tmp_path)
    log = LogWriter(tmp_path, "live", tell=pytest.fail)
    for step in range(1200):
        log.row("train_step", {"loss": step}, step)
        log.commit()
    log.close()
    source = LogSource(tmp_path)
    assert source.tables["train_step"].columns["Step"] == list(range(700, 1200))
    assert source.state.message == "the last rows; more are being read"
    before = source.tables["train_step"].restarts
    assert "train_step" in source.poll().tables
    assert source.tables["train_step"].columns["Step"] == list(range(1200))
    assert source.tables["train_step"].restarts != before
    assert source.state.message == "1,199 steps"


@pytest.mark.slow
def test_what_a_viewer_holds_of_a_watch_does_not_grow_with_its_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_source, "_SCAN_SECS", 0.0)
    monkeypatch.setattr(followed_log, "_MOST_NUMBERS", 60_000)
    array, summary = np.arange(8.0), statistics_of(np.arange(8.0))

    def followed(run: Path) -> tuple[LogSource, list[int]]:
        """What a source holds of 3000 steps, and the memory in use after each thousand."""
        log, sizes, source = LogWriter(run, "watch", tell=pytest.fail), list[int](), LogSource(run)
        for step in range(3000):
            log.value(Delivery(Sample(step, "conv", "output", array=array)), summary)
            if step % 10 == 9:
                log.commit()
            if step % 1000 == 999:
                source.poll()
                gc.collect()
                sizes.append(tracemalloc.get_traced_memory()[0])
        log.close()
        return source, sizes

    followed(tmp_path / "first")  # what is cached or imported at the first time is there from here on
    tracemalloc.start()
    try:
        source, sizes = followed(tmp_path / "second")
    finally:
        tracemalloc.stop()
    table = source.tables["conv output"]
    assert sizes[2] - sizes[0] < 200_000, sizes  # two thousand more rows, of 13 numbers and a histogram each
    assert table.count < 1600 and table.columns["Step"][-250:] == list(range(2750, 3000))


def test_a_network_that_is_described_anew_is_shown_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_source, "_SCAN_SECS", 0.0)
    log = LogWriter(tmp_path, "live", tell=pytest.fail)
    log.network(to_json(Network("first", (Layer("a", (3,)),))))
    log.commit()
    source = LogSource(tmp_path)
    assert source.net is not None and [placed.layer.name for placed in source.net.layers] == ["a"]
    log.network(to_json(Network("second", (Layer("a", (3,)), Layer("b", (4,))))))
    log.commit()
    assert source.poll().net and [placed.layer.name for placed in source.net.layers] == ["a", "b"]
    log.close()
