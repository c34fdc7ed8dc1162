"""Drop-in W&B and TensorBoard writers, and the run behind them: an ordinary run folder, without either package."""

from __future__ import annotations

import math
import subprocess
import sys
import textwrap
import warnings
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from seams import RunLog, read_end, read_facts, read_notes
from torch import nn

import torcheer as tl
import torcheer.integrations.wandb as wandb
from torcheer.errors import BadArgument
from torcheer.integrations import OutsideRun
from torcheer.integrations.tensorboard import SummaryWriter


@pytest.fixture(autouse=True)
def no_run_left(monkeypatch: pytest.MonkeyPatch) -> Any:
    for name in ("WANDB_MODE", "WANDB_DIR"):
        monkeypatch.delenv(name, raising=False)
    yield
    wandb.finish()


def outside(folder: Path, **options: Any) -> OutsideRun:
    return OutsideRun(folder, made_by="a test", system_secs=0, **options)


def metrics(run: Path) -> dict[str, list[Any]]:
    table = tl.load(run).tables["metric"]
    return {name: [None if cell != cell else cell for cell in table[name].tolist()] for name in table.columns}


# a run of somebody else's loop


def test_what_comes_of_one_step_at_different_times_is_one_row_and_rows_are_by_step(tmp_path: Path) -> None:
    with outside(tmp_path / "run") as run:
        run.log({"loss": 2.0}, 1)
        run.log({"val": {"loss": 5}}, 0)
        run.log({"acc": torch.tensor(0.5)}, 1)
    assert metrics(tmp_path / "run") == {
        "Step": [0, 1],
        "val.loss": [5, None],
        "loss": [None, 2.0],
        "acc": [None, 0.5],
    }


def test_a_metric_that_goes_wrong_is_an_alert_of_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with outside(tmp_path / "run", stop_on="error") as run:
        run.log({"loss": 1.0}, 0)
        assert not run.should_stop
        run.log({"loss": math.nan, "note": "text is not judged"}, 1)
        assert run.should_stop
    [alert] = tl.load(tmp_path / "run").alerts
    assert (alert.rule, alert.layer, alert.step) == ("nan_inf", "loss", 1)
    assert "torcheer: nan_inf at step 1: loss (metric): it is NaN" in capsys.readouterr().err


def test_with_a_watch_its_rules_judge_the_metrics_and_the_log_has_them_once(tmp_path: Path) -> None:
    net = nn.Linear(3, 2)
    with outside(tmp_path / "run") as run:
        run.watch(net, every=1)
        with pytest.raises(BadArgument, match="watches a Linear already"):
            run.watch(net)
        for step in range(3):
            loss = net(torch.ones(1, 3)).sum()
            loss.backward()
            run.log({"loss": math.nan if step == 2 else loss}, step)
    loaded = tl.load(tmp_path / "run")
    assert [alert.layer for alert in loaded.alerts if alert.rule == "nan_inf"] == ["loss"]
    assert len(loaded.tables["metric"]["loss"]) == 3
    [watch] = loaded.watches.values()
    assert watch["Linear", "output"].steps.tolist() == [0, 1, 2]


def test_settings_are_kept_whatever_they_are(tmp_path: Path) -> None:
    with outside(tmp_path / "run", config=Namespace(lr=0.1, train={"path": Path("a/b")})) as run:
        run.configure({"nan": math.nan, "numpy": np.float32(0.5), "several": (1, 2), "object": nn.ReLU})
    config = tl.load(tmp_path / "run").config
    assert config == {
        "lr": 0.1, "train": {"path": "a/b"}, "nan": "nan", "numpy": 0.5, "several": [1, 2], "object": str(nn.ReLU),
    }  # fmt: skip
    facts = read_facts(tmp_path / "run", "run")
    assert facts.config["lr"] == 0.1 and facts.config["train.path"] == "a/b" and facts.made_by == "a test"


@pytest.mark.parametrize(
    ("keep_until", "steps"), [(None, [0, 1, 2, 3]), (1, [0, 1, 2, 3]), (0, [0, 2, 3]), (-1, [2, 3])]
)
def test_a_second_run_in_a_folder_says_what_of_the_first_holds(
    tmp_path: Path, keep_until: int | None, steps: list[int]
) -> None:
    for first, keep in ((0, None), (2, keep_until)):
        with outside(tmp_path / "run", keep_until=keep) as run:
            for step in (first, first + 1):
                run.log({"loss": step}, step)
    assert metrics(tmp_path / "run")["Step"] == steps


def test_two_writers_of_one_folder_are_refused(tmp_path: Path) -> None:
    with outside(tmp_path / "run"), pytest.raises(BadArgument, match=r"cannot be written to: .*use another folder"):
        outside(tmp_path / "run")


@pytest.mark.parametrize(
    ("last", "status", "why"),
    [
        ("raise ValueError('of the test')", "failed", "ValueError: of the test"),
        ("os._exit(3)", "lost", ""),
    ],
)
def test_how_a_program_ended_stands_in_the_run(tmp_path: Path, last: str, status: str, why: str) -> None:
    program = f"""
    import os, sys
    from torcheer.integrations import OutsideRun
    run = OutsideRun("run", made_by="a test", system_secs=0)
    run.log({{"loss": 1.0}}, 0)
    run.flush()
    if os.fork() == 0:  # a worker of a DataLoader
        run.log({{"loss": 2.0}}, 1)
        run.finish()
        os._exit(0)
    os.wait()
    {last}
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], cwd=tmp_path, capture_output=True)
    assert read_end(tmp_path / "run") == (status, why)
    assert metrics(tmp_path / "run")["loss"] == [1.0]


# TensorBoard


def test_a_summary_writer_leaves_a_run_with_everything_it_was_given(tmp_path: Path) -> None:
    with SummaryWriter(tmp_path / "run", system_secs=0) as writer:
        for step in range(3):
            writer.add_scalar("train/loss", torch.tensor(1.0 / (step + 1)), step)
        writer.add_scalar("counted", 5)
        writer.add_scalar("counted", 6)
        writer.add_scalars("both", {"a": 1, "b": 2}, 2)
        writer.add_histogram("weights", torch.tensor([-1.0, 0.0, 0.0, 2.0]), 1)
        writer.add_histogram_raw("made", -1, 1, 3, 0, 1, [-1.0, 0.5, 1.0], [0, 1, 2], 1)
        writer.add_image("picture", np.zeros((4, 6, 3), np.uint8), 1, dataformats="HWC")
        writer.add_images("several", torch.zeros(2, 1, 4, 4), 1)
        writer.add_text("said", "hello", 2)
        writer.add_audio("sound", torch.zeros(1, 80), 2, sample_rate=8000)
        writer.add_graph(nn.Sequential(nn.Linear(3, 2), nn.ReLU()), torch.zeros(1, 3))
        writer.add_hparams({"lr": 0.1, "optimizer": "adam"}, {"hparam/acc": 0.75})
        assert writer.get_logdir() == str(tmp_path / "run")
    run = tl.load(tmp_path / "run")
    rows = metrics(tmp_path / "run")
    assert rows["Step"] == [0, 1, 2] and rows["counted"] == [5, 6, None] and rows["both/b"] == [None, None, 2]
    assert rows["hparam/acc"] == [None, None, 0.75] and run.config == {"lr": 0.1, "optimizer": "adam"}
    assert int(run.tables["weights histogram"]["histogram"].sum()) == 4
    assert int(run.tables["made histogram"]["histogram"].sum()) == 3
    assert [(sample.kind, sample.name) for sample in run.samples()] == [
        ("image", "picture"), ("image", "several"), ("text", "said"), ("audio", "sound"),
    ]  # fmt: skip
    assert run.samples("image", "picture")[0].pixels.shape[:2] == (4, 6)
    facts = read_facts(tmp_path / "run", "run")
    assert facts.results["train/loss"] == pytest.approx(1 / 3) and facts.config["optimizer"] == "adam"
    network = RunLog(tmp_path / "run").network
    assert network is not None and "Linear" in str(network)


def test_a_summary_writer_goes_on_where_another_ended_and_purges(tmp_path: Path) -> None:
    for purge_step in (None, 2):
        with SummaryWriter(tmp_path, purge_step=purge_step, system_secs=0) as writer:
            for step in range(purge_step or 0, 4):
                writer.add_scalar("loss", 1.0 if purge_step is None else 2.0, step)
    assert metrics(tmp_path)["loss"] == [1.0, 1.0, 2.0, 2.0]


def test_an_unknown_method_of_a_summary_writer_says_what_to_try(tmp_path: Path) -> None:
    with SummaryWriter(tmp_path, system_secs=0) as writer:
        with pytest.raises(AttributeError, match=r"has no 'file_writer': there are no event files; writer\.run"):
            writer.file_writer.flush()
        with pytest.raises(AttributeError, match="Did you mean 'add_scalar'"):
            writer.add_scaler("loss", 1.0)


def test_what_is_added_after_close_opens_the_run_again(tmp_path: Path) -> None:
    writer = SummaryWriter(tmp_path, system_secs=0)
    for step in range(2):
        writer.add_scalar("loss", float(step), step)
        writer.close()
        writer.close()
    assert metrics(tmp_path)["loss"] == [0.0, 1.0] and read_end(tmp_path).status == "done"


def test_what_our_log_has_no_kind_for_is_kept_as_a_table_or_picture_and_said_once(tmp_path: Path) -> None:
    with SummaryWriter(tmp_path, system_secs=0) as writer:
        with pytest.warns(RuntimeWarning, match="add_video: up to 16 of its frames are kept"):
            writer.add_video("film", torch.rand(1, 40, 3, 4, 4), 1)
        with pytest.warns(RuntimeWarning, match="walltime= has no effect"):
            writer.add_scalar("loss", 1.0, 1, walltime=5.0)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            writer.add_video("film", torch.rand(1, 2, 3, 4, 4), 2)
            writer.add_scalar("loss", 1.0, 2, walltime=5.0)
            writer.add_pr_curve("pr", [0, 1], [0.2, 0.9], 2, num_thresholds=3)
        with pytest.raises(BadArgument, match="add_video: 'film' has 3 axes; it is batch × time"):
            writer.add_video("film", torch.rand(3, 4, 4), 2)
        with pytest.raises(TypeError, match=r"add_scalar: 'loss' is \[1, 2\], not one number"):
            writer.add_scalar("loss", [1, 2], 3)
    run = tl.load(tmp_path)
    assert [sample.caption for sample in run.samples("image")] == ["40 frames, 4 a second", "2 frames, 4 a second"]
    assert list(run.samples("table", "pr")[0].table["recall"]) == [1.0, 1.0, 0.0]


# W&B


def test_files_and_artifacts_of_a_wandb_script_are_copied_and_found_again(tmp_path: Path) -> None:
    model = tmp_path / "model.bin"
    for epoch in range(2):
        with wandb.init(dir=tmp_path / "runs", project="p", name=f"run{epoch}") as run:
            model.write_text(f"epoch {epoch}")
            artifact = wandb.Artifact("net", "model", metadata={"epoch": epoch})
            artifact.add_file(model)
            model.unlink()  # the artifact has a copy
            assert run.log_artifact(artifact, aliases=["best"] if epoch == 0 else None).version == f"v{epoch}"
            log = tmp_path / "train.log"
            log.write_text("begun")
            [copy] = run.save(str(log))
            log.write_text("ended")
        assert Path(copy) == tmp_path / f"runs/p/run{epoch}/files/train.log" and Path(copy).read_text() == "ended"
    with wandb.init(dir=tmp_path / "runs", project="p") as run:
        for name, epoch in (("net", 1), ("net:latest", 1), ("net:v0", 0), ("me/p/net:best", 0)):
            found = run.use_artifact(name)
            assert found.metadata == {"epoch": epoch} and Path(found.file()).read_text() == f"epoch {epoch}"
        with pytest.raises(wandb.Error, match=r"have no artifact 'nett'; there are net-v0, net-v1"):
            run.use_artifact("nett")
        with pytest.raises(BadArgument, match="lies outside of the artifact"):
            wandb.Artifact("a", "b").add_file(log, "../../outside")


def test_a_setting_changes_only_when_that_is_allowed(tmp_path: Path) -> None:
    with wandb.init(dir=tmp_path, id="x", config={"lr": 0.1}) as run:
        run.config.update({"lr": 0.1})
        with pytest.raises(wandb.errors.ConfigError, match=r"lr=0\.1 already, and would be changed to 0\.5"):
            wandb.config.lr = 0.5
        run.config.update({"lr": 0.5}, allow_val_change=True)
        assert wandb.init(project="other") is run  # as W&B does
    assert tl.load(tmp_path / "uncategorized" / "x").config == {"lr": 0.5}
    with wandb.init(dir=tmp_path, id="x", resume="must", config={"lr": 0.2}) as run:
        assert run.resumed and run.config.lr == 0.2
    with pytest.raises(wandb.UsageError, match="resume='must', and there is no run in"):
        wandb.init(dir=tmp_path, id="y", resume="must")
    with pytest.raises(wandb.UsageError, match="resume='never', and"):
        wandb.init(dir=tmp_path, id="x", resume="never")


def test_a_wandb_script_leaves_a_run_with_its_config_steps_and_samples(tmp_path: Path) -> None:
    with wandb.init(project="demo", name="first run", dir=tmp_path, config={"lr": 0.1}, tags=["a b"], notes="n") as run:
        assert wandb.run is run and run.name == "first run" and run.id
        wandb.config.update({"batch": 8})
        wandb.config.depth = 3
        assert wandb.config["depth"] == 3 and wandb.config.lr == 0.1 and "batch" in wandb.config
        for epoch in range(3):
            wandb.log({"loss": torch.tensor(1.0 / (epoch + 1), requires_grad=True)}, commit=False)
            wandb.log({"acc": 0.5 - 0.1 * epoch, "nested": {"a": epoch}})
        wandb.log(
            {
                "picture": [wandb.Image(np.zeros((4, 4)), caption="one"), wandb.Image(torch.zeros(3, 4, 4))],
                "worst": wandb.Table(columns=["id", "loss"], data=[[3, 0.5]]),
                "weights": wandb.Histogram(np.array([1.0, 2.0])),
                "counted": wandb.Histogram(np_histogram=np.histogram([1.0, 2.0, 3.0], bins=4)),
                "sound": wandb.Audio(np.zeros(80), sample_rate=8000),
                "matrix": wandb.plot.confusion_matrix(y_true=[0, 1, 1], preds=[0, 0, 1], class_names=["a", "b"]),
            }
        )
        wandb.alert("title", "look at this")
        wandb.summary["parameters"] = 7
    folder = tmp_path / "demo" / "first-run"
    loaded, rows = tl.load(folder), metrics(folder)
    assert rows["Step"] == [0, 1, 2] and rows["acc"] == [0.5, 0.4, 0.3] and rows["nested.a"] == [0, 1, 2]
    assert loaded.config == {"lr": 0.1, "batch": 8, "depth": 3}
    kinds = {sample.name: sample.kind for sample in loaded.samples()}
    assert kinds == {"picture": "image", "worst": "table", "sound": "audio", "matrix": "confusion"}
    assert loaded.samples("image")[0].caption == "one" and len(loaded.samples("image")) == 2
    assert loaded.samples("confusion")[0].array.tolist() == [[1, 0], [1, 1]]
    assert int(loaded.tables["counted histogram"]["histogram"].sum()) == 3
    assert loaded.tables["summary"].columns == ("parameters",)
    assert [alert.what for alert in loaded.alerts] == ["look at this"]
    notes = read_notes(folder)
    assert (notes.name, notes.tags, notes.note) == ("first run", ("a-b",), "n")
    assert wandb.run is None and read_end(folder).status == "done"


def test_images_in_a_table_of_wandb_are_shown_beside_it_and_what_is_left_out_is_said(tmp_path: Path) -> None:
    table = wandb.Table(columns=["id", "face", "page", "spread"])
    for number in range(2):
        face = wandb.Image(np.full((4, 4), number / 2), caption="Ann" if number else "")
        table.add_data(number, face, wandb.Html("<b>"), wandb.Histogram([1.0, 2.0]))
    with (
        wandb.init(dir=tmp_path, id="x") as run,
        pytest.warns(RuntimeWarning, match=r"a Histogram in a cell is left out; wandb\.log\(\{name: wandb\.Histogram"),
    ):
        run.log({"val": {"worst": table}})
    loaded = tl.load(tmp_path / "uncategorized" / "x")
    assert [(image.name, image.caption) for image in loaded.samples("image")] == [
        ("val.worst.face", "row 0"), ("val.worst.face", "row 1: Ann")
    ]  # fmt: skip
    assert loaded.samples("image")[1].array.tolist() == [[0.5] * 4] * 4
    [written] = loaded.samples("table")
    assert written.table["face"].tolist() == ["val.worst.face, row 0", "val.worst.face, row 1"]
    assert written.table["page"].tolist() == ["<b>", "<b>"] and written.table["spread"][0] == "(Histogram)"


def test_nested_values_of_wandb_are_kept_or_left_out_with_a_word(tmp_path: Path) -> None:
    film = wandb.Video(np.zeros((3, 3, 4, 4), np.uint8))
    with wandb.init(dir=tmp_path, id="x") as run, pytest.warns(RuntimeWarning, match="up to 16 of its frames are kept"):
        run.log({"val": {"film": film, "spread": wandb.Histogram([1.0, 2.0]), "loss": 2}})
        assert run.summary["val.loss"] == 2
    loaded = tl.load(tmp_path / "uncategorized" / "x")
    assert [image.name for image in loaded.samples("image")] == ["val.film"]
    assert "val.spread histogram" in loaded.tables and metrics(loaded.path) == {"Step": [0], "val.loss": [2]}


def test_a_step_that_is_given_holds_until_a_larger_one_and_none_before_it_is_taken(tmp_path: Path) -> None:
    run = wandb.init(dir=tmp_path, id="x")
    run.log({"a": 1}, step=5)
    run.log({"b": 2}, step=5)
    with pytest.warns(RuntimeWarning, match="step 3 is before 5"):
        run.log({"a": 9}, step=3)
    run.log({"a": 3}, step=6)
    run.log({"a": 4}, commit=True)
    run.log({"a": 5})
    run.finish()
    assert metrics(tmp_path / "uncategorized" / "x") == {
        "Step": [5, 6, 6, 7],
        "a": [1, 3, 4, 5],
        "b": [2, None, None, None],
    }


@pytest.mark.parametrize(("resume", "losses"), [("allow", [0, 1, 2, 3]), (None, [2, 3])])
def test_a_run_of_the_same_id_goes_on_or_begins_anew(tmp_path: Path, resume: Any, losses: list[int]) -> None:
    for first in (0, 2):
        with wandb.init(dir=tmp_path, project="p", id="same", resume=resume) as run:
            for value in (first, first + 1):
                run.log({"loss": value})
    assert metrics(tmp_path / "p" / "same") == {"Step": list(range(len(losses))), "loss": losses}


def test_the_best_value_is_the_summary_where_the_script_says_so(tmp_path: Path) -> None:
    with wandb.init(dir=tmp_path, id="x") as run:
        run.define_metric("acc", summary="max")
        run.define_metric("val/*", step_metric="epoch", summary="min")
        for acc in (0.2, 0.9, 0.4):
            run.log({"acc": acc, "val/loss": 1 - acc, "plain": acc})
    table = tl.load(tmp_path / "uncategorized" / "x").tables["summary"]
    assert {name: table[name].tolist() for name in table.columns} == {"acc": [0.9], "val/loss": [pytest.approx(0.1)]}
    assert run.summary.plain == 0.4


def test_wandb_watch_is_our_watch(tmp_path: Path) -> None:
    net = nn.Linear(2, 1)
    with wandb.init(dir=tmp_path, id="x") as run:
        wandb.watch(net, log="all", log_freq=1)
        net(torch.ones(1, 2)).sum().backward()
        run.log({"loss": 1.0})
    [watch] = tl.load(tmp_path / "uncategorized" / "x").watches.values()
    assert ("weight", "weight") in watch and ("Linear", "grad") in watch
    network = RunLog(tmp_path / "uncategorized" / "x").network
    assert network is not None and [layer["name"] for layer in network["layers"]] == ["Input", "linear"]


def test_a_disabled_run_takes_everything_and_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with wandb.init(mode="disabled", config={"lr": 1}) as run:
        run.log({"loss": 1.0})
        wandb.watch(nn.Linear(1, 1))
        assert wandb.config.lr == 1 and run.step == 1
    assert list(tmp_path.iterdir()) == []


def test_names_that_are_not_there_say_what_to_try(tmp_path: Path) -> None:
    assert wandb.run is None and wandb.login()
    with pytest.raises(BadArgument, match=r"wandb\.log: there is no run; wandb.init"):
        wandb.log({"loss": 1})
    with pytest.raises(AttributeError, match="has no 'sweep': torcheer sweep CONFIG tries"):
        wandb.sweep  # noqa: B018
    with pytest.raises(AttributeError, match="Did you mean 'Table'"):
        wandb.Tabel  # noqa: B018
    with pytest.raises(AttributeError, match="has no 'roc_curve': torchmetrics computes the curve"):
        wandb.plot.roc_curve([0], [1])
    with wandb.init(dir=tmp_path) as run:
        with pytest.raises(AttributeError, match=r"a run of torcheer has no 'restore': a run's files lie in run\.dir"):
            run.restore("model.pt")
        with pytest.raises(AttributeError, match="there is no 'learning_rate' among none"):
            wandb.config.learning_rate  # noqa: B018
        with pytest.raises(BadArgument, match="takes a dict of values, not a float"):
            run.log(3.0)  # type: ignore[arg-type]


# packages that are not there


def test_a_missing_package_is_named_when_it_is_used() -> None:
    program = """
    from importlib import import_module
    from importlib.machinery import PathFinder
    find = PathFinder.find_spec
    hidden = ("lightning", "pytorch_lightning", "transformers", "accelerate", "captum")
    PathFinder.find_spec = lambda name, *rest: None if name.split(".")[0] in hidden else find(name, *rest)
    import torch
    from torcheer.errors import BadArgument
    from torcheer.integrations import attribute
    for module, name in (("lightning", "TorcheerCallback"), ("lightning", "TorcheerLogger"),
                         ("transformers", "TorcheerCallback"), ("accelerate", "TorcheerTracker")):
        try:
            getattr(import_module(f"torcheer.integrations.{module}"), name)
        except BadArgument as error:
            print(error)
    try:
        attribute(torch.nn.ReLU(), torch.ones(1))
    except BadArgument as error:
        print(error)
    """
    told = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True)
    ends = [line.rpartition("pip install ")[2] for line in told.stdout.splitlines()]
    assert ends == ["lightning", "lightning", "transformers", "accelerate", "captum"], told.stderr


def test_no_foreign_package_is_loaded_by_the_writers() -> None:
    program = """
    import sys, torcheer
    assert not [name for name in sys.modules if name.startswith("torcheer.integrations")]
    import torcheer.integrations.wandb, torcheer.integrations.tensorboard, torcheer.integrations.lightning
    import torcheer.integrations.transformers, torcheer.integrations.accelerate, torcheer.integrations.captum
    foreign = {"wandb", "tensorboard", "lightning", "transformers", "accelerate", "captum", "mlflow", "matplotlib"}
    assert not foreign & set(sys.modules), foreign & set(sys.modules)
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True)
