"""`torcheer sweep`: a grid over a config's fields, each trial a real process with a run directory of its own."""

from __future__ import annotations

import importlib.util
import json
import signal
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from children import Child, run_python
from ray_processes import assert_no_dashboard, dashboards
from seams import (
    DONE,
    FAILED,
    STOPPED,
    Monitor,
    RunIndex,
    SweepFolder,
    is_live,
    joined_cluster,
    kind_of,
    known_key,
    last_words,
    list_cells,
    list_columns,
    parse_axes,
    runs_below,
    split_values,
    trials_of,
)
from studio_runs import fake
from waiting import wait_until

from torcheer import cli
from torcheer.config import Config, read
from torcheer.errors import BadArgument

CODE = """
import os
import time
import torch
from torch import nn

class Rows(torch.utils.data.Dataset):
    def __init__(self, gate="", count=32):
        self.gate, self.count, self.read = gate, count, 0
    def __len__(self):
        return self.count
    def __getitem__(self, index):
        self.read += 1
        while self.gate and self.read > 80 and os.path.exists(self.gate):  # in the second epoch, while it is closed
            time.sleep(0.005)
        return torch.eye(4)[index % 4], index % 4

class Net(nn.Linear):
    def __init__(self):
        super().__init__(4, 4)

class Breaks(nn.Module):
    def __init__(self):
        raise ValueError("this net cannot be built")
"""
CONFIG = """
session_dir: run
batch_size: 8
checkpoint_steps: 1
system_secs: 0
train: {epochs: 3}
initialize:
  definitions:
  - {group: datasets, name: rows, spec: {class: code_of_sweep.Rows, kwargs: {gate: ""}}}
  - {group: models, name: net, spec: {class: code_of_sweep.Net}}
  - {group: optimizers, name: sgd, spec: {class: SGD, kwargs: {lr: 0.1, momentum: 0.9}, model: net}}
"""


@pytest.fixture(name="config")
def _config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "code_of_sweep.py").write_text(CODE)
    (tmp_path / "training.yaml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TORCHEER_STATE", str(tmp_path / "state"))
    return tmp_path / "training.yaml"


def swept(*arguments: Any, status: int = 0, env: dict[str, str] | None = None) -> str:
    return run_python("-m", "torcheer", "sweep", *arguments, status=status, env=env).stdout


def states(folder: Path) -> dict[str, str]:
    return {file.stem: json.loads(file.read_text())["status"] for file in (folder / ".sweep").glob("*.json")}


# The grid


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("1e-3,1e-4", ["1e-3", "1e-4"]),
        ("[1,2],[3]", ["[1,2]", "[3]"]),
        ('{"a":[1,2]},none', ['{"a":[1,2]}', "none"]),
        ('"a,b",c', ['"a,b"', "c"]),
        ("one", ["one"]),
    ],
)
def test_values_are_split_at_commas_that_are_not_inside(text: str, values: list[str]) -> None:
    assert list(split_values(text)) == values


def test_a_short_name_means_the_one_field_that_ends_with_it(config: Path) -> None:
    known = read(config)
    whole = "initialize.definitions.sgd.spec.kwargs.lr"
    assert known_key("lr", known) == known_key("kwargs.lr", known) == known_key(whole, known) == whole
    assert known_key("epochs", known) == "train.epochs"
    assert known_key("seed", known) == "seed"  # at its default in the config
    assert known_key("initialize.definitions.sgd.spec.kwargs.nesterov", known).endswith("nesterov")


@pytest.mark.parametrize(
    ("argument", "text"),
    [
        ("class=a,b", "could be any of initialize.definitions.rows.spec.class, initialize.definitions.net.spec.class"),
        ("learning=1", "has no field learning"),
        ("momentun=1", "Did you mean 'momentum'?"),
        ("lr", "write it as KEY=VALUE,VALUE"),
        ("lr=", "write it as KEY=VALUE,VALUE"),
        ("lr=1,,2", "write it as KEY=VALUE,VALUE"),
        ("lr=1,1", "1 is given twice"),
        ("lr=0.1,1e-1", "1e-1 is given twice"),
        ("session_dir=a,b", "session_dir cannot be varied"),
    ],
)
def test_mistakes_in_the_grid_are_said(config: Path, argument: str, text: str) -> None:
    with pytest.raises(BadArgument) as caught:
        parse_axes([argument], read(config))
    assert text in str(caught.value)


def test_a_field_that_is_varied_twice_is_refused(config: Path) -> None:
    with pytest.raises(BadArgument, match="varied twice"):
        parse_axes(["lr=1,2", "sgd.spec.kwargs.lr=3"], read(config))


def test_trials_are_all_combinations_and_named_by_their_values(config: Path) -> None:
    trials = trials_of(parse_axes(["lr=1e-3,1e-4", "batch_size=8,16"], read(config)))
    assert [trial.name for trial in trials] == [
        "lr=1e-3,batch_size=8", "lr=1e-3,batch_size=16", "lr=1e-4,batch_size=8", "lr=1e-4,batch_size=16",
    ]  # fmt: skip
    assert trials[1].changes == ("initialize.definitions.sgd.spec.kwargs.lr=1e-3", "batch_size=16")


def test_names_are_those_of_files_and_never_the_same() -> None:
    config = Config({"a": "x"}, Path("x.json"), {})
    trials = trials_of(parse_axes(["a=/etc/x,_etc_x," + "y" * 300 + "," + "y" * 300 + "z"], config))
    names = [trial.name for trial in trials]
    assert len(set(names)) == 4 and all("/" not in name and len(name) < 140 for name in names)


@pytest.mark.parametrize(("text", "best"), [("val loss", 1.0), ("acc", 3.0), ("-reward", 3.0), ("nobody", None)])
def test_the_best_epoch_counts_and_nan_never_does(text: str, best: float | None) -> None:
    rows = [{"val loss": 2.0, "acc": 1.0, "reward": 3.0}, {"val loss": 1.0, "acc": 3.0}, {"val loss": float("nan")}]
    found = Monitor.parse(text).best(rows)
    assert found == best or (best is None and found != found)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["lr=1", "--jobs", "0"], "at least one trial"),
        (["lr=1", "--scheduler", "asha"], "is Ray's: add --engine ray"),
        (["batch_size=many,few"], "batch_size"),
        (["lr=1e-3,1e-x"], "lr=1e-x: the config has a number there, 0.1, and this is a string. If a string is meant"),
        (["lr=1", "--monitor", "val loss", "--to", "/dev/null/x"], "/dev/null"),
        (["lr=1", "--monitor", "val los"], "Did you mean 'val loss'?"),
        (["lr=1", "--monitor=-nothing"], "no stage has a column 'nothing'"),
    ],
)  # fmt: skip
def test_mistakes_are_said_before_anything_runs(
    config: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], text: str
) -> None:
    assert cli.main(["sweep", str(config), *arguments]) == 1
    assert text in capsys.readouterr().err
    assert not Path("run-sweep").exists()


@pytest.mark.skipif(importlib.util.find_spec("ray") is not None, reason="Ray is installed")
def test_without_ray_its_engine_says_what_to_install(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["sweep", str(config), "lr=1", "--engine", "ray"]) == 1
    assert "pip install 'ray[tune]', or --engine local" in capsys.readouterr().err


# Runs


@pytest.mark.dist
def test_a_stopped_sweep_goes_on_and_its_runs_are_in_the_studios_list(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gate, folder = config.with_name("gate"), config.with_name("run-sweep")
    gate.touch()
    values = f"gate=none,{gate}"  # the second trial waits at the gate, in its second epoch
    with Child("-m", "torcheer", "sweep", config, values) as sweep:
        lines = [sweep.line() for _ in range(4)]
        assert "2 trials under" in lines[0] and "gate=none: begins" in lines[1]
        assert "gate=none: done in" in lines[2] and lines[3].startswith("[2/2] gate=") and lines[3].endswith(": begins")
        wait_until(lambda: list(folder.glob("gate=*gate-*/checkpoints/[4-9]")), "a checkpoint of the second trial")
        sweep.send_signal(signal.SIGINT)
        assert sweep.line() == "SIGINT was received: 1 running trial saves and ends"
        gate.unlink()  # only now can the step end that it waits in
        assert sweep.line().endswith("stopped, with everything saved")
        rest = sweep.stdout.read()  # type: ignore[union-attr]
        assert "The same command goes on" in rest and sweep.wait() == 130
    assert states(folder) == {"gate=none": DONE}
    assert cli.main(["sweep", str(config), values]) == 0
    text = capsys.readouterr().out
    assert "[1/2] gate=none: done before" in text and ": goes on" in text
    assert list(states(folder).values()) == [DONE, DONE]
    sweep_folder = SweepFolder(folder, trials_of(parse_axes([values], read(config))))
    assert [len(sweep_folder.rows(trial)) for trial in sweep_folder.trials] == [3, 3]
    index = RunIndex(folder, kind_of, is_live)
    for _ in range(2):  # the first call may only take what was kept
        index.refresh(runs_below(folder), 60.0)
    varying = [column.name for column in list_columns(index) if column.varies and column.group == "config"]
    column = next(name for name in varying if name.endswith("gate"))
    assert sorted(list_cells(index, [column])["columns"][column]) == sorted(["none", str(gate)])


def test_the_table_begins_with_the_best_and_says_how_each_trial_stands(config: Path) -> None:
    trials = trials_of(parse_axes(["epochs=2,4,6,8"], read(config)))
    folder = SweepFolder(config.with_name("out"), trials)
    for trial, epochs in zip(trials[:3], (2, 4, 6), strict=True):
        fake(folder.home(trial), epochs)
        (folder.home(trial) / "spec.json").write_text("{}")
    folder.end(trials[0], DONE, 3.0)
    folder.end(trials[1], STOPPED, 65.0)
    lines = [line.split() for line in folder.table(folder.monitor("", {}))]
    assert " ".join(lines[0]) == "epochs best val loss epochs took status folder"
    assert [line[0] for line in lines[1:]] == ["6", "4", "2", "8"]  # the longer, the smaller its loss
    assert [" ".join(line[3:-1]) for line in lines[1:]] == [
        "– not finished",
        "65 s stopped",
        "3 s done",
        "– not begun",
    ]
    with pytest.raises(BadArgument, match=r"no trial has a column 'val los'; there are .* Did you mean 'val loss'"):
        folder.monitor("val los", {})


@pytest.mark.slow
def test_a_trial_that_fails_is_said_and_run_again(config: Path) -> None:
    folder = config.with_name("out")
    options = ("net.spec.class=code_of_sweep.Net,code_of_sweep.Breaks", "--jobs", "2", "--to", folder)
    text = swept(config, *options, status=1)
    assert "this net cannot be built" in text and "1 trial failed" in text
    assert sorted(states(folder).values()) == [DONE, FAILED]
    config.with_name("code_of_sweep.py").write_text(
        CODE.replace(
            'raise ValueError("this net cannot be built")',
            "super().__init__(); self.layer = nn.Linear(4, 4)\n    def forward(self, x):\n        return self.layer(x)",
        )
    )
    again = swept(config, *options)
    assert "done before" in again and list(states(folder).values()) == [DONE, DONE]


def test_a_trial_that_fails_in_training_shows_the_exception_and_what_is_known_of_it(config: Path) -> None:
    breaks = CODE.replace(
        "class Net(nn.Linear):",
        "class Net(nn.Linear):\n    def forward(self, x):\n        raise ValueError('bad row 17')\n",
    )
    config.with_name("code_of_sweep.py").write_text(breaks)
    text = swept(config, "lr=0.1", status=1)
    (problem,) = (json.loads(file.read_text())["problem"] for file in Path("run-sweep/.sweep").glob("*.json"))
    assert problem.startswith("ValueError: bad row 17\n") and "code_of_sweep.py:" in problem
    assert f"[1/1] lr=0.1: failed with status 1:\n{problem}" in text and "Traceback" not in text


@pytest.mark.parametrize(
    ("printed", "words"),
    [
        ("a\nb\nc", "b\nc"),
        ('Traceback (most recent call last):\n  File "a.py"\nKeyError: 1\nknown', "KeyError: 1\nknown"),
        (
            'Traceback (most recent call last):\n  File "a.py"\nValueError: Caught ValueError in DataLoader worker '
            'process 0.\nOriginal Traceback (most recent call last):\n  File "b.py"\nValueError: bad row\n\nknown',
            "ValueError: bad row\n\nknown",
        ),
    ],
)
def test_the_words_of_a_failed_trial_are_its_exception(printed: str, words: str) -> None:
    assert last_words(SimpleNamespace(printed=printed), 2) == words  # type: ignore[arg-type]


def test_a_trial_that_is_stopped_while_it_starts_is_stopped_not_failed(config: Path) -> None:
    config.with_name("code_of_sweep.py").write_text(f"open('begun', 'w').close()\nimport time\ntime.sleep(600)\n{CODE}")
    trials = trials_of(parse_axes(["lr=0.1,0.2"], read(config)))
    SweepFolder(Path("run-sweep").absolute(), trials).end(trials[0], FAILED, 1.0, "in a run before this one")
    with Child("-m", "torcheer", "sweep", config, "lr=0.1,0.2") as sweep:
        wait_until(Path("begun").exists)
        sweep.send_signal(signal.SIGTERM)
        text = sweep.ends(130)
    assert "[1/2] lr=0.1: stopped, before it trained" in text and "failed" not in text
    assert not states(Path("run-sweep"))


@pytest.mark.parametrize(
    "engine", [pytest.param("local", marks=pytest.mark.slow), pytest.param("ray", marks=pytest.mark.dist)]
)
def test_a_trial_that_a_signal_ends_is_stopped_not_failed_and_goes_on(
    config: Path, request: pytest.FixtureRequest, engine: str
) -> None:
    env = request.getfixturevalue("cluster") if engine == "ray" else None
    ends_itself = (
        "        if self.read == 70 and not os.path.exists('ended'):\n            open('ended', 'w').close()\n"
    )
    ends_itself += "            os.kill(os.getpid(), 15)\n"
    config.with_name("code_of_sweep.py").write_text(
        CODE.replace("        self.read += 1\n", f"        self.read += 1\n{ends_itself}")
    )
    folder = config.with_name("run-sweep")
    text = swept(config, "lr=0.1", "--engine", engine, status=130, env=env)
    assert "lr=0.1: stopped, with everything saved" in text and "failed" not in text and "Traceback" not in text
    assert "1 trial stopped by a signal; the same command goes on" in text and not states(folder)
    assert "lr=0.1: goes on" in swept(config, "lr=0.1", "--engine", engine, env=env)
    assert states(folder) == {"lr=0.1": DONE}


# Ray


@pytest.fixture(name="cluster", scope="module")
def _cluster() -> Iterator[dict[str, str]]:
    """A Ray of this machine that sweeps join by RAY_ADDRESS: starting one takes long."""
    ray = pytest.importorskip("ray", reason="Ray is not installed here: `make test-dist` has it")
    with joined_cluster(ray):
        yield {"RAY_ADDRESS": ray.get_runtime_context().gcs_address}


@pytest.mark.dist
def test_a_ray_that_a_sweep_starts_has_no_dashboard_and_sends_no_reports(cluster: dict[str, str]) -> None:
    assert_no_dashboard(dashboards())


@pytest.mark.dist
def test_ray_tune_runs_the_same_trials(config: Path, cluster: dict[str, str]) -> None:
    folder = config.with_name("out")
    options = ("--engine", "ray", "--jobs", "2", "--to", folder, "--monitor", "val loss")
    for _ in range(2):  # the second time nothing is left to do
        text = swept(config, "lr=1e-5,0.1", *options, env=cluster)
        assert states(folder) == {"lr=1e-5": DONE, "lr=0.1": DONE}
        assert text.rindex("lr=0.1") < text.rindex("lr=1e-5")  # in the table, the best first
    assert len(runs_below(folder)) == 2  # nothing of Ray's own among them


@pytest.mark.dist
def test_a_sweep_on_ray_that_is_stopped_goes_on(config: Path, cluster: dict[str, str]) -> None:
    gate, folder = config.with_name("gate"), config.with_name("run-sweep")
    gate.touch()
    arguments = (config, f"gate={gate}", "--engine", "ray", "--jobs", "1")
    with Child("-m", "torcheer", "sweep", *arguments, env=cluster) as sweep:
        wait_until(lambda: list(folder.glob("gate=*/checkpoints/[4-9]")), "a checkpoint")
        sweep.send_signal(signal.SIGINT)
        gate.unlink()
        text = sweep.ends(130)
    assert "Stopped: SIGINT was received. The same command goes on" in text
    assert "ended by the scheduler" not in text and STOPPED not in states(folder).values()
    swept(*arguments, env=cluster)
    assert list(states(folder).values()) == [DONE]


@pytest.mark.dist
def test_asha_ends_the_trials_that_are_behind(config: Path, cluster: dict[str, str]) -> None:
    folder, values = config.with_name("ended"), ["lr=0.1,1e-5", "train.epochs=30"]
    # One after the other: ASHA compares with those that came before.
    options = ("--engine", "ray", "--jobs", "1", "--to", folder, "--monitor", "val loss", "--scheduler", "asha")
    swept(config, *values, *options, env=cluster)
    found = SweepFolder(folder, trials_of(parse_axes(values, read(config))))
    status = {trial.values["lr"]: found.status(trial) for trial in found.trials}
    assert status == {"0.1": DONE, "1e-5": STOPPED}
    assert len(found.rows(found.trials[0])) == 30
