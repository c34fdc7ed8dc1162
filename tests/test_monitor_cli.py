"""`torcheer watch`: a table, alerts, drops, JSON; without torch, on any terminal, with errors that help."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from children import run_python
from seams import LogPlace, Plan, WatchAnalysis, resolve_rules, write_account

import torcheer as tl
from torcheer.cli import main
from torcheer.inspector import open_watch
from torcheer.records import Sample
from torcheer.samples import Account, Delivery

LONG = "encoder.layers.11.self_attention.output_projection"


def log(folder: Path, account: Account | None = None) -> Path:
    """A log of two looks at a layer and a loss, which is NaN in the end."""
    reader = WatchAnalysis(Plan(to=str(folder), rules=resolve_rules(["nan_inf"])), lambda what: None)
    for step in (0, 20):
        reader.take(Delivery(Sample(step, LONG, "output", array=np.array([[step - 5.0, 1.0], [2.0, step + 3.0]]))))
        reader.take(Delivery(Sample(step, "loss", "metric", array=np.array(1.5 if step == 0 else np.nan))))
    reader.close()
    if account is not None:
        write_account(LogPlace(folder), account, ended=True)
    return folder


def printed(capsys: pytest.CaptureFixture[str], *arguments: object) -> list[str]:
    assert main(["watch", *map(str, arguments)]) == 0
    return capsys.readouterr().out.splitlines()


def test_a_table_of_values_the_drops_and_the_alerts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    log(tmp_path, Account(9, 4, {(LONG, "output"): 3, ("loss", "metric"): 1}, lost=1))
    head, drops, title, layer, loss, alert = printed(capsys, tmp_path)
    assert head == f"Watched {tmp_path}: steps 0 to 20, 2 keys, 1 alert, ended"
    assert drops == f"of 9 values 1 lost; 4 dropped: {LONG} (output) 3, loss (metric) 1"
    assert title.split("  ")[0] == "layer" and title.split()[-6:] == ["last", "mean", "min", "max", "NaN,", "Inf"]
    assert layer.split() == [LONG, "output", "2", "10.25", "-5", "23", "0"]
    assert loss.split() == ["loss", "metric", "2", "–", "1.5", "1.5", "1"]
    begun = "it may have begun after step 0, the last look before"
    assert alert.startswith(f"! nan_inf at step 20: loss (metric): it is NaN; {begun}. Try: ")
    assert printed(capsys, "--alerts", tmp_path) == [alert]


@pytest.mark.parametrize("width", [80, 60, 40, 24])
def test_a_narrow_terminal_gets_shorter_names_and_fewer_columns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    log(tmp_path)
    monkeypatch.setenv("COLUMNS", str(width))
    _, title, layer, loss, _ = printed(capsys, tmp_path)
    assert max(map(len, (title, layer, loss))) <= width
    assert "…" in layer and layer.split()[0].startswith("enc") and title.endswith("NaN, Inf")
    assert loss.split()[-1] == "1"


def test_json_has_everything_and_no_number_that_json_lacks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log(tmp_path, Account(9, 8, {(LONG, "output"): 1}))
    (found,) = json.loads("\n".join(printed(capsys, "--json", tmp_path)), parse_constant=pytest.fail)
    assert found["path"] == str(tmp_path) and found["ended"] and found["problems"] == []
    layer, loss = found["series"]
    assert layer == {"layer": LONG, "variable": "output", "looks": 2, "first_step": 0, "last_step": 20,
                     "last_mean": 10.25, "minimum": -5.0, "maximum": 23.0, "nans": 0, "infs": 0}  # fmt: skip
    assert loss["last_mean"] is None and loss["minimum"] == 1.5 and loss["nans"] == 1
    assert [alert["rule"] for alert in found["alerts"]] == ["nan_inf"]
    assert found["account"]["dropped"] == [[LONG, "output", 1]] and found["account"]["offered"] == 9


def test_a_run_with_several_models_shows_the_log_of_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("net", "other"):
        log(tmp_path / "run" / "watch" / name)
    lines = printed(capsys, tmp_path / "run")
    assert [line for line in lines if line.startswith("Watched")] == [
        f"Watched {tmp_path / 'run' / 'watch' / name}: steps 0 to 20, 2 keys, 1 alert, ended"
        for name in ("net", "other")
    ]
    assert main(["watch", str(tmp_path / "run" / "watch" / "nte")]) == 1
    assert f"there is no folder {tmp_path}/run/watch/nte. Did you mean" in capsys.readouterr().err
    assert main(["watch", str(tmp_path / "run" / "watch" / "net" / "log")]) == 1
    assert "holds nothing that was watched" in capsys.readouterr().err


def test_an_account_is_of_the_watch_that_wrote_last(tmp_path: Path) -> None:
    log(tmp_path, Account(9, 8, {(LONG, "output"): 1}))
    assert open_watch(tmp_path).account == Account(9, 8, {(LONG, "output"): 1})
    log(tmp_path)  # a watch that is open, or was killed
    assert open_watch(tmp_path).account is None
    (tmp_path / "account.json").write_text("{")
    assert open_watch(tmp_path).account is None


def test_the_command_needs_no_torch(tmp_path: Path) -> None:
    log(tmp_path)
    code = "import sys; from torcheer.cli import main; main(['watch', sys.argv[1]]); assert 'torch' not in sys.modules"
    done = run_python("-c", code, tmp_path)
    assert done.returncode == 0 and done.stdout.startswith("Watched "), done.stderr


def test_what_people_logged_is_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = torch.nn.Linear(4, 2)
    with tl.watch(model, every=1, to=tmp_path / "run", rules=None, tell=lambda text: None) as w:
        for step in range(3):
            model(torch.rand(3, 4)).sum().backward()
            w.log(loss=1.0, image=torch.rand(8, 8), text=f"step {step}")
    lines = printed(capsys, tmp_path / "run")
    listed = [line.split() for line in lines[lines.index("logged") + 1 :]]
    assert listed == [
        ["image", "3", "images", "3", "steps,", "0", "to", "2"],
        ["text", "3", "texts", "3", "steps,", "0", "to", "2"],
    ]
    (facts,) = json.loads("".join(printed(capsys, tmp_path / "run", "--json")))
    assert [(sample["name"], sample["kind"], sample["step"]) for sample in facts["samples"]][:2] == [
        ("image", "image", 0), ("text", "text", 0),
    ]  # fmt: skip
    assert facts["samples"][0]["shape"] == [8, 8]
