"""`torcheer init`, `train`, `evaluate`, `check`, `show` and `export`, as a person types them."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import shutil
import signal
import sys
import termios
from pathlib import Path
from typing import Any

import pytest
import torch
from children import Child, run_python
from fast_cases import fast_first
from seams import export_weights
from seams import read_checkpoint_folder as read_checkpoint
from torch import nn
from waiting import WAIT_SECS, wait_until

from torcheer import cli
from torcheer.training import Graph, Input, Loader, Measure, Node, Options, Pipeline, Processor, Session, Term

ROOT = Path(__file__).parent.parent

CODE = """
import time
import torch
from torch import nn

class Rows(torch.utils.data.Dataset):
    def __init__(self, count, wait_secs=0.0):
        self.count, self.wait_secs = count, wait_secs
    def __len__(self):
        return self.count
    def __getitem__(self, index):
        time.sleep(self.wait_secs)
        label = index % 4
        return [float(label == place) + 0.01 * (index % 7) for place in range(4)], label

class Net(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.first, self.last = nn.Linear(4, width), nn.Linear(width, 4)
    def forward(self, x):
        return [self.last(torch.tanh(self.first(x)))]

class InputAdapter:
    def __call__(self, frame):
        return {"net": {"x": torch.tensor(frame["rows"])}}

def with_tensor(y_hat, y):
    return y_hat, torch.tensor(y)

def classes(y_hat, y):
    return y_hat.argmax(-1), torch.tensor(y)
"""


def definition(group: str, name: str, **spec: Any) -> dict[str, Any]:
    return {"group": group, "name": name, "spec": spec}


def pipeline(loader: str, prefix: str) -> dict[str, Any]:
    return {
        "graph": "graph",
        "input_factories": [{"input_alias": "batch", "variable_names": ["rows", "y"], "loader_factory": loader}],
        "losses": [{"node_name": "processor", "loss_name": "ce", "loss_display_name": f"{prefix}loss"}],
        "metrics": [{"node_name": "processor", "metric_name": "accuracy", "display_name": f"{prefix}acc"}],
    }


def config_of(**changes: Any) -> dict[str, Any]:
    """A config in the seed's dialect."""
    nodes = [{"model_name": "net", "inputs": ["x"], "outputs": ["y_hat"], "optimizer_name": "adam"}]
    definitions = [
        definition("datasets", "train_rows", **{"class": "my_net.Rows", "kwargs": {"count": 40}}),
        definition("datasets", "test_rows", **{"class": "my_net.Rows", "kwargs": {"count": 20}}),
        definition("collators", "divide", **{"class": "torchassistant.collators.BatchDivide"}),
        definition(
            "loader_factories",
            "train",
            dataset="train_rows",
            collator="divide",
            kwargs={"batch_size": 4, "num_workers": 0},
        ),
        definition(
            "loader_factories",
            "test",
            dataset="test_rows",
            collator="divide",
            kwargs={"batch_size": 4, "num_workers": 0},
        ),
        definition("models", "net", **{"class": "my_net.Net"}),
        definition("optimizers", "adam", **{"class": "Adam", "kwargs": {"lr": 0.05}, "model": "net"}),
        definition(
            "losses",
            "ce",
            **{"class": "CrossEntropyLoss", "inputs": ["y_hat", "y"], "transform": "my_net.with_tensor"},
        ),
        definition(
            "metrics", "accuracy", **{"class": "accuracy", "inputs": ["y_hat", "y"], "transform": "my_net.classes"}
        ),
        definition(
            "batch_processors",
            "processor",
            input_adapter={"class": "my_net.InputAdapter"},
            neural_graph=nodes,
            device="cpu",
        ),
        definition(
            "batch_graphs",
            "graph",
            nodes=["processor"],
            input_aliases=["batch"],
            ingoing_edges={"processor": ["batch"]},
        ),
    ]
    stage = {
        "mode": "interleave",
        "training_pipelines": ["training"],
        "validation_pipelines": ["training", "evaluation"],
        "stop_condition": {"class": "torchassistant.stop_conditions.EpochsCompleted", "kwargs": {"num_epochs": 3}},
    }
    pipelines = {"training": pipeline("train", ""), "evaluation": pipeline("test", "val ")}
    return {
        "session_dir": "pretrained",
        "initialize": {"definitions": definitions, "pipelines": pipelines},
        "train": {"stages": [stage]},
        **changes,
    }


SLOW = "initialize.definitions.0.spec.kwargs.wait_secs=0.02"
EPOCHS = "train.stages.0.stop_condition.kwargs.num_epochs"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_thread: None) -> Path:
    """A folder with a config and the code that it names, where the commands run."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_net.py").write_text(CODE)
    (tmp_path / "training.json").write_text(json.dumps(config_of(), indent=1))
    return tmp_path


def run(*arguments: str) -> int:
    return cli.main(list(arguments))


def started(*arguments: str, **options: Any) -> Child:
    return Child("-m", "torcheer", *arguments, **options)


# init


def test_init_writes_a_session_with_checkpoint_0(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("init", "training.json") == 0
    assert capsys.readouterr().out == (
        "A session is ready under pretrained; train it with: torcheer train pretrained\n"
    )
    found = {str(path.relative_to("pretrained")) for path in Path("pretrained").rglob("*") if path.is_file()}
    assert {"run.json", "spec.json", "static/splits.json", "checkpoints/0/MANIFEST.json"} <= found


def test_init_again_says_that_there_is_a_session(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("init", "training.json") == 0
    assert run("init", "training.json") == 1
    assert capsys.readouterr().err == "torcheer init: Session already exists under pretrained\n"


def test_a_config_that_is_wrong_leaves_nothing_behind(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("init", "training.json", "initialize.definitions.5.spec.class=my_net.Nett") == 1
    assert "Did you mean 'Net'?" in capsys.readouterr().err
    assert not Path("pretrained").exists()


# train


def test_train_prints_the_seeds_lines_and_where_the_results_are(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("init", "training.json") == 0
    assert run("train", "pretrained") == 0
    out = re.sub(r"\d\.\d{4}", "0.0000", capsys.readouterr().out)
    row = "[acc 0.0000, loss 0.0000, val acc 0.0000, val loss 0.0000]"
    assert out.splitlines()[1:] == [
        "Training stage 0 in progress",
        f"Epoch     1 {row}",
        f"Epoch     2 {row}",
        f"Epoch     3 {row}",
        "Training stage 0 is completed",
        "Training is completed",
        "Results are under pretrained: metrics, checkpoints/30",
    ]
    lines = Path("pretrained/metrics/0.csv").read_text().splitlines()
    assert lines[0] == "epoch,acc,loss,val acc,val loss" and [line[:2] for line in lines[1:]] == ["1,", "2,", "3,"]


def test_a_config_begins_a_session_and_goes_on_with_it(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("train", "training.json") == 0
    assert "Training stage 0 in progress" in capsys.readouterr().out
    assert run("train", "training.json") == 0
    said = capsys.readouterr().out.splitlines()
    assert (
        said[0].startswith("nothing is left to train: checkpoint 30 (step 30, ") and said[1] == "Training is completed"
    )


def test_outside_the_configs_folder_the_first_line_says_where_the_run_directory_is(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("configs").mkdir()
    Path("training.json").rename("configs/training.json")
    for _ in range(2):
        assert run("train", "configs/training.json") == 0
        first = capsys.readouterr().out.splitlines()[0]
        assert f"the run directory is {project / 'pretrained'}: session_dir belongs to the folder that you are" in first


def test_a_config_at_once_trains_the_same_as_init_before(project: Path) -> None:
    assert run("train", "training.json", "session_dir=at_once") == 0
    assert run("init", "training.json", "session_dir=before") == run("train", "before") == 0
    once, before = (Path(name, "checkpoints/30/model.safetensors").read_bytes() for name in ("at_once", "before"))
    assert once == before


def test_more_epochs_later_are_the_same_as_more_epochs_from_the_start(project: Path) -> None:
    assert run("train", "training.json", "session_dir=long") == 0
    assert run("train", "training.json", "session_dir=later", f"{EPOCHS}=2") == 0
    assert run("train", "later", f"{EPOCHS}=3") == 0
    for name in ("checkpoints/30/model.safetensors", "metrics/0.csv"):
        assert Path("long", name).read_bytes() == Path("later", name).read_bytes()


def test_the_users_own_error_says_where_it_can_go_on(project: Path) -> None:
    broken = CODE.replace("        time.sleep(self.wait_secs)", "        if index == 13: raise ValueError('bad row')")
    (project / "my_net.py").write_text(broken)
    with pytest.raises(ValueError, match="bad row") as caught:
        run("train", "training.json")
    (note,) = caught.value.__notes__
    assert note.endswith("go on with: torcheer train pretrained")


FORWARD = "        return [self.last(torch.tanh(self.first(x)))]"


HANG = """
def hang():
    while True:
        time.sleep(0.01)
        with open("beats", "a") as file:
            file.write("x")
"""


def fails_at(call: int, error: str = "ValueError('bad row')") -> str:
    """The code, with a model that fails in one of its calls while it trains."""
    counts = "        self.calls = getattr(self, 'calls', 0) + self.training\n"
    return CODE.replace(FORWARD, f"{counts}        if self.calls == {call}: raise {error}\n{FORWARD}")


def test_a_failure_says_what_was_saved_when_and_what_was_not(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "my_net.py").write_text(fails_at(8, "__import__('torcheer.errors').errors.BadArgument('bad row')"))
    assert run("train", "training.json", "checkpoint_steps=5") == 1
    said = capsys.readouterr().err.splitlines()
    assert re.fullmatch(
        r"  saved: The newest checkpoint is pretrained/checkpoints/5: step 5, saved at [0-9:]{8}, [0-9]+ s ago\. "
        r"The 2 steps after it are not saved\.",
        said[-2],
    )
    assert said[-1] == "  go on with: torcheer train pretrained"


def test_a_checkpoint_that_was_cut_is_not_said_to_be_saved(project: Path) -> None:
    (project / "my_net.py").write_text(fails_at(8))
    assert run("init", "training.json") == 0
    with pytest.raises(ValueError, match="bad row"):
        run("train", "pretrained", "checkpoint_steps=2", "keep_last=3")
    os.truncate("pretrained/checkpoints/6/model.safetensors", 10)
    with pytest.raises(ValueError, match="bad row") as caught:  # eight steps on
        run("train", "pretrained", "checkpoint_steps=100")
    saved = "The newest checkpoint is pretrained/checkpoints/4: step 4, saved at "
    (note,) = caught.value.__notes__
    line = next(line for line in note.splitlines() if f"saved: {saved}" in line)
    assert line.endswith("The 7 steps after it are not saved.")


@pytest.mark.slow
def test_ending_at_once_does_not_say_that_all_is_saved(project: Path) -> None:
    (project / "my_net.py").write_text(fails_at(3, "SystemExit(hang())") + HANG)
    beats = Path("beats")
    with started("train", "training.json") as trainer:
        for _ in range(2):  # the first asks, and the step never ends
            wait_until(lambda: beats.exists() and beats.stat().st_size > 2)
            trainer.send_signal(signal.SIGINT)
            os.truncate(beats, 0)  # bytes that come now come after the signal
        trainer.ends(130)
        said = trainer.error_text
    assert said.startswith(
        "Stopped: ended at once. The newest checkpoint is pretrained/checkpoints/0: step 0, saved at "
    )
    assert said.endswith("The 2 steps after it are not saved. Go on with: torcheer train pretrained\n")


def test_a_killed_run_says_what_it_resumes_from_and_how_many_steps_run_again(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "my_net.py").write_text(fails_at(7, "SystemExit(hang())") + HANG)
    with started("train", "training.json", "checkpoint_steps=4") as trainer:
        wait_until(lambda: Path("beats").exists() and Path("pretrained/checkpoints/4").exists())
        trainer.kill()
        trainer.wait()
    (project / "my_net.py").write_text(CODE)
    assert run("train", "training.json", "lr=0.02", f"{EPOCHS}=2") == 0
    said = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"resumed from checkpoint 4 \(step 4, [0-9]+ s old\): 2 steps run again", said[0])
    assert said[1] == "changed since then: lr 0.05 → 0.02, train.stages.0.stop_condition.num_epochs 3 → 2"
    assert run("train", "training.json") == 0
    said = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"nothing is left to train: checkpoint [0-9]+ .* is the end of this run", said[0])


@pytest.mark.slow
def test_a_run_that_was_killed_before_it_saved_says_that_its_steps_are_lost(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "my_net.py").write_text(fails_at(7, "SystemExit(hang())") + HANG)
    with started("train", "training.json") as trainer:
        wait_until(Path("beats").exists)
        trainer.kill()
        trainer.wait()
    (project / "my_net.py").write_text(CODE)
    assert run("train", "training.json", f"{EPOCHS}=1") == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "the 6 steps that were trained here were not saved: the session begins anew"


@pytest.mark.slow
def test_a_terminal_that_is_closed_saves_and_ends(project: Path) -> None:
    """Its kernel sends SIGHUP to all that run in it, workers included; nobody can be told anything."""
    workers = "initialize.definitions.3.spec.kwargs.num_workers=2"
    master, slave = pty.openpty()
    options = {"stdin": slave, "stdout": slave, "stderr": slave}
    options["preexec_fn"] = lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # of the session that it begins
    with started("train", "training.json", SLOW, workers, "checkpoint_steps=1", "--plain", **options) as trainer:
        os.close(slave)
        wait_until(lambda: Path("pretrained/checkpoints/2").exists())
        os.close(master)
        assert trainer.wait(WAIT_SECS) == 130
    assert run("train", "pretrained", "initialize.definitions.0.spec.kwargs.wait_secs=0") == 0
    rows = Path("pretrained/metrics/0.csv").read_text().splitlines()[1:]
    assert [row.split(",")[0] for row in rows] == ["1", "2", "3"]


def test_a_config_opens_captures_and_the_profiler(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    changes = ['capture={"layers":["first"],"every":10}', 'profile={"wait":1,"active":1}', "steps_csv=5"]
    assert run("train", "training.json", *changes) == 0
    out = capsys.readouterr().out
    assert "profiled up to step 3: pretrained/profile/step-3.json" in out
    assert "Results are under pretrained: metrics, captures, profile, checkpoints/30" in out
    assert run("archive", "verify", "pretrained/captures") == 0
    assert "3 steps, 3 values" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("layers", "values"), [('"Linear"', 2), ('["linear_1"]', 1), ('"linear_*"', 2), ("[1]", 1), ('["*.first"]', 1)]
)
def test_a_config_names_layers_as_every_verb_does(
    layers: str, values: int, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("train", "training.json", f'capture={{"layers":{layers},"every":30}}', f"{EPOCHS}=1") == 0
    assert run("archive", "verify", "pretrained/captures") == 0
    assert f"1 step, {values} value" in capsys.readouterr().out


def test_a_config_refuses_a_predicate_with_what_works(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("train", "training.json", 'capture={"layers":"lambda layer: True"}') != 0
    error = capsys.readouterr().err
    assert "capture (config) cannot take a predicate" in error and "It takes 'all', 'none', 'relu_1'" in error


def test_changes_of_the_command_line_are_kept_in_the_session(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("train", "training.json", f"{EPOCHS}=1", "seed=3") == 0
    assert run("train", "pretrained", f"{EPOCHS}=2") == 0
    assert "Epoch     2 [" in capsys.readouterr().out
    assert run("show", "pretrained") == 0
    out = capsys.readouterr().out
    listed = f"changed on the command line\n  {EPOCHS}=1\n  seed=3\n  {EPOCHS}=2\n"
    assert listed in out and "until EpochsCompleted(num_epochs=2)  done" in out


def test_a_change_that_does_not_fit_the_checkpoint_is_not_kept(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("init", "training.json") == 0
    before = Path("pretrained/spec.json").read_bytes()
    assert run("train", "pretrained", 'initialize.definitions.5.spec.kwargs={"width":9}') == 1
    assert "model 'net' is not the one of this session" in capsys.readouterr().err
    assert Path("pretrained/spec.json").read_bytes() == before


def test_the_same_command_goes_on_also_where_definitions_were_filled_in_before_those_it_changes(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = [one for one in config_of()["initialize"]["definitions"] if one["name"] in ("train_rows", "net", "adam")]
    Path("small.json").write_text(json.dumps({"session_dir": "small", "initialize": {"definitions": kept}}))
    rate, net = "initialize.definitions.2.spec.kwargs.lr", "initialize.definitions.1.spec.kwargs.width=5"
    assert run("train", "small.json", f"{rate}=0.5", net, "keep_last=1") == 0
    assert run("train", "small.json", f"{rate}=0.5", net, "keep_last=3") == 0
    spec = json.loads(Path("small/spec.json").read_text())
    assert spec["source"]["overrides"] == [f"{rate}=0.5", net, "keep_last=1", "keep_last=3"] and spec["keep_last"] == 3
    assert (
        next(one for one in spec["initialize"]["definitions"] if one["name"] == "adam")["spec"]["kwargs"]["lr"] == 0.5
    )
    assert run("train", "small.json", "keep_last=1") == 0  # it was 3 meanwhile
    assert json.loads(Path("small/spec.json").read_text())["keep_last"] == 1


def test_a_change_of_the_split_stays_with_the_session(project: Path) -> None:
    config = config_of()
    definitions = config["initialize"]["definitions"]
    definitions[1] = definition("splits", "halves", dataset_name="train_rows", ratio=[0.5, 0.5])
    definitions[3]["spec"]["dataset"], definitions[4]["spec"]["dataset"] = "halves.train", "halves.val"
    Path("training.json").write_text(json.dumps(config))
    assert run("train", "training.json") == 0
    before = Path("pretrained/static/splits.json").read_text()
    assert run("train", "pretrained", f"{EPOCHS}=4", "initialize.definitions.1.spec.seed=5") == 0
    after = Path("pretrained/static/splits.json").read_text()
    assert run("train", "pretrained", f"{EPOCHS}=5") == 0
    assert after != before and Path("pretrained/static/splits.json").read_text() == after


def test_a_config_that_was_edited_since_is_said_to_be_another(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("train", "training.json", f"{EPOCHS}=1") == 0
    (project / "training.json").write_text(json.dumps(config_of(seed=9)))
    assert run("train", "training.json") == 0
    assert "training.json has changed since this session began; it goes on as it was begun." in capsys.readouterr().out


@pytest.mark.parametrize("number", fast_first([signal.SIGINT, signal.SIGTERM, signal.SIGHUP]))
def test_a_signal_saves_and_ends_with_130_and_train_goes_on(project: Path, number: int) -> None:
    with started("train", "training.json", SLOW, "checkpoint_steps=1") as trainer:
        wait_until(lambda: Path("pretrained/checkpoints/2").exists())
        trainer.send_signal(number)
        out, err = trainer.ends(130), trainer.error_text
    step = max(int(path.name) for path in Path("pretrained/checkpoints").iterdir())
    name = signal.Signals(number).name
    assert err == (
        f"Stopped: {name} was received. Saved in pretrained/checkpoints/{step}; go on with: torcheer train pretrained\n"
    )
    assert "Training is completed" not in out and "Traceback" not in err
    assert run("train", "pretrained", "initialize.definitions.0.spec.kwargs.wait_secs=0") == 0
    rows = Path("pretrained/metrics/0.csv").read_text().splitlines()[1:]
    assert [row.split(",")[0] for row in rows] == ["1", "2", "3"]


# A folder for PYTHONPATH: Python imports it before anything else, and waits for ever where torch is to be imported.
WAITS = """
import sys, time
class Waits:
    def find_spec(self, name, *_):
        if name == "torch":
            open("importing", "w").close()
            while True:
                time.sleep(0.01)
sys.meta_path.insert(0, Waits())
"""


@pytest.fixture
def waits_for_torch(project: Path) -> dict[str, str]:
    """Variables with which a process stands where it imports torch."""
    (project / "site").mkdir()
    (project / "site" / "sitecustomize.py").write_text(WAITS)
    return {"PYTHONPATH": os.pathsep.join([str(project / "site"), os.environ.get("PYTHONPATH", "")])}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("command", [("train", "training.json"), ("sweep", "training.json", "lr=0.1,0.2")])
def test_a_signal_while_torch_is_imported_ends_with_130_and_a_sentence(
    waits_for_torch: dict[str, str], number: int, command: tuple[str, ...]
) -> None:
    with started(*command, env=waits_for_torch) as trainer:
        wait_until(Path("importing").exists)
        trainer.send_signal(number)
        assert trainer.ends(130) == ""
        name = signal.Signals(number).name
        assert trainer.error_text == (
            f"torcheer {command[0]}: {name} was received before training began: nothing is lost, and the same command "
            "trains\n"
        )


def test_a_signal_at_the_start_is_the_reason_of_a_document(waits_for_torch: dict[str, str]) -> None:
    with started("train", "training.json", "--json", env=waits_for_torch) as trainer:
        wait_until(Path("importing").exists)
        trainer.send_signal(signal.SIGTERM)
        document = json.loads(trainer.ends(130))
    assert document["status"] == 130 and document["reason"].startswith("SIGTERM was received before training began")


@pytest.mark.parametrize(("rank", "says"), [("0", True), ("1", False)])
def test_a_signal_to_ranks_that_start_is_said_by_the_first(
    waits_for_torch: dict[str, str], rank: str, says: bool
) -> None:
    ranks = {"WORLD_SIZE": "2", "RANK": rank, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    with started("train", "training.json", env={**waits_for_torch, **ranks}) as trainer:
        wait_until(Path("importing").exists)
        trainer.send_signal(signal.SIGTERM)
        trainer.ends(130)
        assert ("SIGTERM was received before training began" in trainer.error_text) is says


def test_a_signal_while_ranks_start_ends_nproc_with_130_and_one_sentence(waits_for_torch: dict[str, str]) -> None:
    with started("train", "training.json", "--nproc", "2", env=waits_for_torch) as launcher:
        wait_until(Path("importing").exists)
        launcher.send_signal(signal.SIGTERM)
        launcher.ends(130)
        assert launcher.error_text.count("SIGTERM was received before training began") == 1


def test_a_signal_while_the_users_code_is_imported_ends_with_130(project: Path) -> None:
    (project / "my_net.py").write_text(f"{CODE}\nopen('importing', 'w').close()\ntime.sleep(600)\n")
    with started("train", "training.json") as trainer:
        wait_until(Path("importing").exists)
        trainer.send_signal(signal.SIGTERM)
        trainer.ends(130)
        assert "SIGTERM was received before training began" in trainer.error_text
    (project / "my_net.py").write_text(CODE)
    assert run("train", "training.json", f"{EPOCHS}=1") == 0


@pytest.mark.slow
def test_where_nobody_reads_it_saves_and_stops(project: Path) -> None:
    with started("train", "training.json", SLOW) as trainer:
        assert trainer.line() == "Training stage 0 in progress" and trainer.stdout is not None
        trainer.stdout.close()  # as `head -1` does
        assert trainer.wait(WAIT_SECS) == 130
        assert trainer.error_text.startswith("Stopped: nobody reads what it prints. Saved in pretrained/checkpoints/")


@pytest.mark.slow
def test_where_there_is_no_output_at_all_it_trains(project: Path) -> None:
    text = "import sys; sys.stdout = None; from torcheer.cli import main; sys.exit(main(['train', 'training.json']))"
    run_python("-c", text)
    assert len(Path("pretrained/metrics/0.csv").read_text().splitlines()) == 4


def test_a_second_trainer_is_refused_and_show_names_the_first(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with started("train", "training.json", SLOW, "checkpoint_steps=1") as trainer:
        wait_until(lambda: Path("pretrained/checkpoints/1").exists())
        assert run("train", "pretrained") == 1
        assert "pretrained is being trained by another process" in capsys.readouterr().err
        assert run("show", "pretrained") == 0
        if sys.platform == "linux":
            assert f"; process {trainer.pid} trains it now\n" in capsys.readouterr().out


# evaluate


def test_evaluate_prints_the_columns_of_its_config(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("train", "training.json") == 0
    (project / "evaluation.json").write_text('{"session_dir": "pretrained", "validation_pipelines": ["evaluation"]}')
    capsys.readouterr()
    assert run("evaluate", "evaluation.json") == 0
    found = capsys.readouterr()
    assert re.fullmatch(r"\[val acc \d\.\d{4}, val loss \d\.\d{4}\]\n", found.out)
    assert found.err == "Using pretrained/checkpoints/30\n"


def test_evaluating_a_session_gives_the_last_row_of_its_table(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("train", "training.json") == 0
    row = capsys.readouterr().out.splitlines()[3]
    assert run("evaluate", "pretrained") == 0
    assert row == f"Epoch     3 {capsys.readouterr().out.strip()}"


def test_a_session_is_evaluated_by_the_config_that_it_was_trained_with(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(ROOT / "src" / "torcheer" / "demo" / "project", "demo")  # which leaves much to be filled in
    settings = ["train.epochs=1", "watch=null", "capture=null", "session_dir=run"]
    assert run("train", "demo/training.yaml", *settings) == 0
    capsys.readouterr()
    assert run("evaluate", "run") == run("evaluate", "demo/training.yaml") == 0
    of_session, of_config = capsys.readouterr().out.splitlines()
    assert of_session == of_config
    assert run("infer", "demo/training.yaml", ", ".join(["0.5"] * 64)) == 0


def test_the_best_checkpoint_can_be_asked_for(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("train", "training.json", "keep_best=val loss") == 0
    assert run("evaluate", "pretrained", "--best") == 0
    assert capsys.readouterr().err == "Using pretrained/checkpoints/30\n"
    assert run("export", "pretrained", "best.safetensors", "--best") == 0


def test_without_a_best_checkpoint_it_says_how_to_get_one(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("init", "training.json") == 0
    assert run("evaluate", "pretrained", "--best") == 1
    assert "train with keep_best=COLUMN, such as 'val loss'" in capsys.readouterr().err


# check


def test_check_says_ok_only_of_what_was_checked(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("check", "training.json") == 0
    unchecked = "whether my_net imports without an error: --import runs it"
    assert capsys.readouterr().out == f"ok, but not checked:\n- {unchecked}\n"
    assert run("check", "training.json", "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["ok"] is True and answer["not_checked"] == [unchecked]
    assert run("check", "training.json", "--import") == 0
    assert capsys.readouterr().out == "ok\n"


def test_check_says_every_problem_with_its_line(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = config_of()
    config["initialize"]["definitions"][6]["spec"]["kwarg"] = {}
    config["train"]["stages"][0]["training_pipelines"] = ["trainning"]
    (project / "training.json").write_text(json.dumps(config, indent=1))
    assert run("check", "training.json") == 1
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 and all(re.match(r"training\.json:\d+: ", line) for line in lines)
    assert "Did you mean 'kwargs'?" in lines[0] and "Did you mean 'training'?" in lines[1]


@pytest.mark.parametrize("options", [(), ("--import",)])
def test_check_looks_at_your_own_classes(
    project: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...]
) -> None:
    assert run("check", "training.json", 'initialize.definitions.5.spec.kwargs={"widht":3}', *options) == 1
    assert "Net has no argument 'widht'" in capsys.readouterr().out


# show


def test_show_says_what_a_session_is(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torcheer.training.loop.training_loop.SHARE", 0.0)  # every epoch is saved, however short
    monkeypatch.setattr("torcheer.training.loop.training_loop.LEAST_SECS", 0.0)
    assert run("train", "training.json") == 0
    capsys.readouterr()
    assert run("show", "pretrained") == 0
    out = re.sub(r"\d\.\d{4}", "0.0000", capsys.readouterr().out)
    out = re.sub(r"\(torcheer .*\)", "(versions)", re.sub(r"\d+\.\d [KM]B", "0.0 KB", out))
    row = "acc 0.0000, loss 0.0000, val acc 0.0000, val loss 0.0000"
    assert out == (
        "pretrained: a session from training.json (versions)\n\n"
        "models\n  net  my_net.Net  76 parameters\n\n"
        "stages\n  0  train training; validate training, evaluation; until EpochsCompleted(num_epochs=3)  done\n\n"
        "metrics\n  epoch     acc    loss  val acc  val loss\n"
        + "".join(f"      {number}  0.0000  0.0000   0.0000    0.0000\n" for number in (1, 2, 3))
        + "\ncheckpoints\n"
        f"  step 20  whole, 0.0 KB  {row}\n"
        f"  step 30  whole, 0.0 KB  {row}\n\n"
        "size\n  0.0 KB: checkpoints 0.0 KB, log 0.0 KB, spec.json 0.0 KB\n"
    )


def test_show_names_a_checkpoint_that_is_damaged(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torcheer.training.loop.training_loop.SHARE", 0.0)  # every epoch is saved, however short
    monkeypatch.setattr("torcheer.training.loop.training_loop.LEAST_SECS", 0.0)
    assert run("train", "training.json") == 0
    for step, name in (("20", "model.safetensors"), ("30", "MANIFEST.json")):
        file = Path("pretrained/checkpoints") / step / name
        data = bytearray(file.read_bytes())
        data[-20] ^= 1
        file.write_bytes(data)
    assert run("show", "pretrained") == 0
    out = capsys.readouterr().out
    assert re.search(r"step 20 +damaged: model.safetensors differs", out)
    assert re.search(r"step 30 +damaged: ", out)


def test_show_needs_neither_torch_nor_the_users_code(project: Path) -> None:
    assert run("init", "training.json") == 0
    (project / "my_net.py").unlink()
    text = "import sys; from torcheer.cli import main; main(['show', 'pretrained']); assert 'torch' not in sys.modules"
    run_python("-c", text)


def test_show_says_where_there_is_a_session_instead(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("init", "training.json") == 0
    assert run("show", ".") == run("show", "nowhere") == 1
    err = capsys.readouterr().err.splitlines()
    assert err == [
        "torcheer show: . is no session: there is no run.json in it. There is one in pretrained.",
        "torcheer show: nowhere is no session: there is no run.json in it. Nor is there such a folder.",
    ]


# export


def test_export_writes_weights_that_load_into_the_model(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    load_file = pytest.importorskip("safetensors.torch").load_file
    assert run("train", "training.json") == 0
    capsys.readouterr()
    assert run("export", "pretrained", "net.safetensors") == 0
    assert capsys.readouterr().out == "wrote net.safetensors: net: 4 tensors, 76 numbers\n"
    weights = load_file("net.safetensors")
    assert {name: tuple(one.shape) for name, one in weights.items()} == {
        "first.weight": (8, 4), "first.bias": (8,), "last.weight": (4, 8), "last.bias": (4,),
    }  # fmt: skip


def test_tied_weights_are_exported_with_their_one_average(tmp_path: Path) -> None:
    load_file = pytest.importorskip("safetensors.torch").load_file
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[1].weight = model[0].weight
    other = nn.Sequential(nn.ReLU(), model[0])
    data = torch.utils.data.TensorDataset(torch.rand(8, 4), torch.rand(8, 4))
    session = Session(
        models={"m": model, "other": other},
        optimizers={"o": torch.optim.SGD(model.parameters(), 0.1)},
        loaders={"data": Loader(data, 4)},
        losses={"loss": Measure(nn.MSELoss(), ("y_hat", "y"))},
        processors={"p": Processor((Node("m", ("x",), ("y_hat",), "o"),))},
        graphs={"g": Graph(("p",), ("in",), {"p": ("in",)})},
        pipelines={"data": Pipeline("g", (Input("data", ("x", "y")),), (Term("loss", "p", "loss"),))},
        options=Options(ema=0.5),
        to=tmp_path,
    )
    for _ in session.run():
        pass
    export_weights(read_checkpoint(tmp_path / "checkpoints" / "2"), tmp_path / "m.safetensors")
    found = load_file(tmp_path / "m.safetensors")
    average = session.averages["m"].state()["0.weight"]
    assert all(torch.equal(found[name], average) for name in ("m.0.weight", "m.1.weight", "other.1.weight"))
    assert not torch.equal(model[0].weight, average)


def test_export_does_not_replace_a_file_unasked(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("init", "training.json") == 0
    Path("net.safetensors").write_text("mine")
    assert run("export", "pretrained", "net.safetensors") == 1
    assert "net.safetensors is there already; --overwrite replaces it" in capsys.readouterr().err
    assert Path("net.safetensors").read_text() == "mine"
    assert run("export", "pretrained", "net.safetensors", "--overwrite") == 0


def test_a_program_runs_without_the_code_and_on_batches_of_any_size(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("train", "training.json", "ema=0.5") == 0
    capsys.readouterr()
    assert run("export", "pretrained", "net.pt2") == run("export", "pretrained", "net.safetensors") == 0
    assert capsys.readouterr().out.splitlines() == [
        "wrote net.pt2: net, as it ran on (4, 4)",
        "wrote net.safetensors: net: 4 tensors, 76 numbers (averaged)",
    ]
    from safetensors.torch import load_file

    weights, inputs = load_file("net.safetensors"), torch.rand(7, 4)
    middle = torch.tanh(inputs @ weights["first.weight"].T + weights["first.bias"])
    found = torch.export.load("net.pt2").module()(inputs)[0]
    torch.testing.assert_close(found, middle @ weights["last.weight"].T + weights["last.bias"])


def test_onnx_is_written_where_it_is_installed(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("init", "training.json") == 0
    try:
        import onnx
        import onnxscript  # noqa: F401
    except ImportError:
        assert run("export", "pretrained", "net.onnx") == 1
        assert "net.onnx: ONNX needs onnx" in capsys.readouterr().err
        return
    assert run("export", "pretrained", "net.onnx") == run("export", "pretrained", "net.pt2") == 0
    onnx.checker.check_model("net.onnx")
    runtime = pytest.importorskip("onnxruntime").InferenceSession("net.onnx")
    inputs = torch.rand(7, 4)
    (found,) = runtime.run(None, {runtime.get_inputs()[0].name: inputs.numpy()})
    torch.testing.assert_close(torch.from_numpy(found), torch.export.load("net.pt2").module()(inputs)[0])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("net.pt",), "the end of its name says what is written, and is one of .safetensors (weights), .pt2"),
        (("net.safetensors", "--model", "nett"), "there is no model 'nett'; there is net. Did you mean 'net'?"),
    ],
)
def test_export_says_what_it_cannot_do(
    project: Path, arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("init", "training.json") == 0
    assert run("export", "pretrained", *arguments) == 1
    assert message in capsys.readouterr().err


# wrong words


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("train", "nowhere"), "nowhere: there is no such session directory; a config has a name such as nowhere.json"),
        (("train", "trainin.json"), "there is no such file. Did you mean 'training.json'?"),
        (("train", "."), "there is no session here"),
        (("train", "training.json", "seed"), "write it as key.path=value"),
        (("train", "training.json", "sead=3"), "Did you mean 'seed'?"),
        (("train", "training.json", "--device", "gpu"), "device = 'gpu'"),
        (("train", "training.json", "sead=3", "--nproc", "2"), "Did you mean 'seed'?"),
        (("train", "trainin.json", "--nproc", "2"), "Did you mean 'training.json'?"),
        (("evaluate", "training.yaml"), "there is no such file"),
        (("evaluate", "nowhere"), "there is no such session directory"),
        (("export", "nowhere", "x.safetensors"), "nowhere is no session directory"),
    ],
)
def test_what_is_wrong_on_the_command_line_is_told(
    project: Path, arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*arguments) == 1
    assert message in capsys.readouterr().err


def test_options_may_stand_between_changes(project: Path) -> None:
    assert run("train", "training.json", f"{EPOCHS}=1", "--plain", "seed=4", "--device", "cpu") == 0
    assert json.loads(Path("pretrained/spec.json").read_text())["seed"] == 4


def test_every_command_has_help(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("init", "train", "evaluate", "infer", "check", "show", "export"):
        with pytest.raises(SystemExit) as stop:
            run(command, "--help")
        assert stop.value.code == 0 and f"usage: torcheer {command}" in capsys.readouterr().out
