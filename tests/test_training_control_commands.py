"""`torcheer train` and somebody who looks on: real processes, signals, several runs in one directory."""

from __future__ import annotations

import io
import json
import signal
from collections.abc import Iterator
from contextlib import ExitStack, chdir, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from children import Child
from control_cases import Looker, page_at
from studio_socket import Page
from waiting import wait_until

from torcheer import cli
from torcheer.archive import Archive

CODE = """
import torch
from torch import nn

class Points(torch.utils.data.Dataset):
    def __init__(self, count):
        draw = torch.Generator().manual_seed(count)
        self.x, self.y = torch.rand(count, 6, generator=draw), torch.randint(0, 3, (count,), generator=draw)
    def __len__(self):
        return len(self.x)
    def __getitem__(self, index):
        return self.x[index], self.y[index]

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.drop, self.last = nn.Linear(6, 8), nn.Dropout(0.2), nn.Linear(8, 3)
    def forward(self, x):
        return self.last(self.drop(torch.relu(self.first(x))))
"""
COMMAND = "import sys, torch; torch.set_num_threads(1)\nfrom torcheer.cli import main\nsys.exit(main())"

EPOCHS = "train.epochs"


def config_of(**changes: Any) -> dict[str, Any]:
    definitions = [
        ("datasets", "points", {"class": "points.Points", "kwargs": {"count": 480}}),
        ("splits", "split", {"dataset_name": "points", "ratio": [0.8, 0.2], "seed": 1}),
        ("models", "net", {"class": "points.Net"}),
        ("optimizers", "sgd", {"class": "SGD", "kwargs": {"lr": 0.1, "momentum": 0.9}, "model": "net"}),
    ]
    listed = [{"group": group, "name": name, "spec": spec} for group, name, spec in definitions]
    return {"session_dir": "run", "initialize": {"definitions": listed}, "train": {"epochs": 3}, "seed": 5, **changes}


class Project:
    """A folder in which `torcheer train` is run."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.run = folder, folder / "run"
        self.processes = ExitStack()
        (folder / "points.py").write_text(CODE)
        self.configure()

    def configure(self, **changes: Any) -> None:
        (self.folder / "training.json").write_text(json.dumps(config_of(**changes)))

    def train(self, *arguments: str) -> Child:
        return self.processes.enter_context(Child("-c", COMMAND, "train", "training.json", *arguments, cwd=self.folder))

    def trained(self, *arguments: str) -> str:
        """Run to the end, in this process; what it printed."""
        with chdir(self.folder), redirect_stdout(io.StringIO()) as printed:
            assert cli.main(["train", "training.json", *arguments]) == 0
        return printed.getvalue()

    def look(self) -> Looker:
        return Looker(self.run / "control.sock")

    def files(self, folder: Path | None = None) -> dict[str, bytes]:
        """The last checkpoint of a run, and its metrics."""
        home = self.run if folder is None else folder
        last = max((home / "checkpoints").glob("[0-9]*"), key=lambda path: int(path.name))
        found = [*last.iterdir(), *(home / "metrics").iterdir()]
        return {str(file.relative_to(home)): file.read_bytes() for file in found if file.name != "MANIFEST.json"}


@pytest.fixture
def project(tmp_path: Path, one_thread: None) -> Iterator[Project]:
    made = Project(tmp_path)
    with made.processes:
        yield made


def test_a_run_from_the_command_line_can_be_looked_at_paused_and_killed_and_loses_nothing(
    project: Project, tmp_path_factory: pytest.TempPathFactory
) -> None:
    process = project.train("--paused")
    looker = project.look()
    looker.paused(0)
    looker.until(lambda: looker.parameters)
    model = looker.parameters["net.class"]
    assert (model["value"], model["editable"], model["group"]) == ("points.Net", False, "net · model")
    epochs = looker.parameters[EPOCHS]
    assert (epochs["value"], epochs["editable"], epochs["group"]) == (3, False, "train")
    looker.act("step_n", count=3)
    looker.paused(3)
    process.kill()
    process.ends(-signal.SIGKILL)
    project.trained()
    assert not (project.run / "control.sock").exists()
    other = Project(tmp_path_factory.mktemp("undisturbed"))
    other.trained("--no-control")
    assert project.files() == other.files()


def test_a_paused_run_answers_sigterm_as_ever(project: Project) -> None:
    process = project.train("--paused", "studio=true")
    looker = project.look()
    looker.act("step_trial")
    looker.paused(1)
    process.send_signal(signal.SIGTERM)
    assert "Paused after step 1 by the studio; Ctrl-C saves and ends" in process.ends(130)
    assert (
        "Stopped: SIGTERM was received. Saved in run/checkpoints/1; go on with: torcheer train run"
        in process.error_text
    )


def test_init_and_new_seed_begin_another_run_and_lose_nothing(project: Project) -> None:
    process = project.train("--paused", "--stay")
    looker = project.look()
    looker.act("train")
    looker.status("done")
    first = project.files()
    looker.act("init")
    looker.until(lambda: looker.state["counters"]["Run"] == 2 and looker.state["status"] == "paused")
    looker.until(lambda: looker.rows("train_epoch") == 0)
    looker.act("train")
    looker.until(lambda: looker.state["status"] == "done" and looker.rows("run") == 2)
    assert project.files() == first == project.files(project.run / "earlier" / "1")
    looker.act("new_seed")
    looker.until(lambda: looker.state["message"] == "seed 6, from the next Init on")
    assert looker.state["counters"]["Run"] == 2 and not (project.run / "earlier" / "2").exists()
    looker.act("init")
    looker.until(lambda: looker.state["counters"]["Run"] == 3 and looker.state["status"] == "paused")
    looker.act("step_trial")
    looker.paused(1)
    looker.act("new_seed")
    looker.act("init")  # in the midst of it
    looker.until(lambda: looker.state["counters"]["Run"] == 4)
    looker.act("train")
    looker.until(lambda: looker.state["status"] == "done" and looker.rows("run") == 4)
    assert looker.tables["run"]["Seed"] == [5, 5, 6, 7]
    assert looker.tables["run"]["Epochs"] == [3, 3, 0, 3]
    assert looker.tables["run"]["val loss"][:2] == [looker.tables["run"]["val loss"][0]] * 2
    process.send_signal(signal.SIGINT)
    assert "Another run begins, with seed 6; the one before lies under run/earlier/2" in process.ends()
    assert json.loads((project.run / "earlier" / "3" / "result.json").read_text())["seed"] == 6


def test_a_run_with_another_seed_goes_on_with_it_and_is_that_of_a_session_begun_so(
    project: Project, tmp_path_factory: pytest.TempPathFactory
) -> None:
    process = project.train("--paused")
    looker = project.look()
    looker.paused(0)
    looker.act("new_seed")
    looker.act("init")
    looker.act("step_n", count=2)  # in the same moment: it is the next run's
    looker.paused(2, Run=2)
    process.kill()
    process.ends(-signal.SIGKILL)
    project.trained()
    other = Project(tmp_path_factory.mktemp("other"))
    other.configure(seed=6)
    other.trained("--no-control")
    assert project.files() == other.files()
    assert json.loads((project.run / "spec.json").read_text())["seed"] == 6


@pytest.mark.parametrize(
    ("argument", "is_tried"), [("studio=true", True), ("studio=false", False), ("--no-control", False)]
)
def test_a_directory_that_takes_no_socket_does_not_stop_training(
    argument: str, is_tried: bool, project: Project
) -> None:
    (project.run / "control.sock").mkdir(parents=True)
    out = project.trained(argument)
    assert ("no studio can look on, training goes on without" in out) == is_tried
    assert "Training is completed" in out


def test_the_studio_beside_a_run_prints_its_address_first_and_ends_with_it(project: Project) -> None:
    process = project.train("--studio", "--no-browser", "--paused")
    url = process.line()
    assert url.startswith("http://127.0.0.1:") and "?token=" in url
    assert page_at(url) == 200
    # The address is there before the loop that a signal stops.
    wait_until(lambda: Page(url).hello["state"]["status"] == "paused", "the loop")
    process.send_signal(signal.SIGINT)
    assert "Look at it again with: torcheer studio run" in process.ends(130)
    with pytest.raises(OSError):
        page_at(url)


def test_the_watch_looks_as_often_as_the_form_says_also_after_a_resume(project: Project) -> None:
    project.configure(watch={"every": 4, "what": "output"})
    process = project.train("--paused")
    looker = project.look()
    looker.until(lambda: looker.parameters)
    assert looker.parameters["watch.every"]["value"] == 4
    looker.act("step_n", count=5)
    looker.paused(5)
    looker.change("watch.every", 2)
    looker.until(lambda: looker.parameters["watch.every"]["value"] == 2)
    looker.change("watch.rules.dead_relu.share", 0.75)
    looker.change("watch.stop_on", "nan_inf")
    looker.until(lambda: looker.parameters["watch.stop_on"]["value"] == "nan_inf")
    looker.act("step_n", count=4)
    looker.paused(9)
    process.send_signal(signal.SIGTERM)
    process.ends(130)
    watch = json.loads((project.run / "spec.json").read_text())["watch"]
    assert (watch["every"], watch["stop_on"]) == (2, ["nan_inf"])
    assert watch["rules"] == {"dead_relu": {"share": 0.75}}
    project.trained()
    steps = {frame["step"] for frame in Archive(project.run / "log" / "watch").frames}
    assert {0, 4, 6, 8, 10, 12} <= steps and not {1, 2, 3, 5, 7, 9} & steps
