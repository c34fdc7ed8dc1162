"""A config that was written for TorchAssistant: what it means is kept, and what differs is said where it is met."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from seams import (
    DIFFERENCES,
    PAGE,
    RATIO,
    RATIOS,
    EpochDone,
    StageDone,
    StepDone,
    assemble,
    begin,
    fill_eval_steps,
    reopen,
    share_of,
    understand,
)
from training_spec_cases import WHOLE, Change, Project, add, changed, definition, spec_of

from torcheer.cli import main
from torcheer.config import Config
from torcheer.training.stop_conditions import EarlyStopping, EpochsCompleted, reason_met

pytestmark = pytest.mark.usefixtures("one_thread")
ROOT = Path(__file__).parents[1]
STOPS = "torchassistant.stop_conditions"
BOTH = ["training", "validation"]


def stage(**keys: Any) -> Change:
    return lambda data: data["train"]["stages"][0].update(keys)


def stop(name: str, **kwargs: Any) -> Change:
    return stage(stop_condition={"class": f"{STOPS}.{name}", "kwargs": kwargs})


def loader(name: str, **kwargs: Any) -> Change:
    return lambda data: spec_of(data, name)["kwargs"].update(kwargs)


def also(kind: str, **term: Any) -> Change:
    """Another term of the pipeline that is trained."""
    return lambda data: data["initialize"]["pipelines"]["training"][kind].append({"node_name": "processor", **term})


def many(*changes: Change) -> Change:
    def change(data: dict[str, Any]) -> None:
        for each in changes:
            each(data)

    return change


def debug(data: dict[str, Any]) -> None:
    inputs = data["initialize"]["pipelines"]["validation"]["input_injector"]
    data["initialize"]["debug_pipelines"] = {"shown": {"graph": "graph", "input_injector": inputs}}
    data["train"]["stages"][0]["debug_pipelines"] = ["shown"]


# A config of TorchAssistant that behaves here as there.
THEIRS = changed(
    WHOLE,
    stop("EpochsCompleted", num_epochs=2),
    stage(validation_pipelines=BOTH),
    loader("training_loader", num_workers=0),
    loader("validation_loader", num_workers=0),
)
TEXTS = definition("preprocessors", "words", class_="torchassistant.preprocessors.TextPreprocessor", args=[0], fit="")
# what meets a difference -> what is said
MET = {
    "compares each epoch with the best before it": stop("EarlyStopping", monitor="val loss"),
    "waits for 'val acc' to rise": stop("EarlyStopping", monitor="val acc"),
    "numbers each word once": add(TEXTS),
    "metrics and losses of 'training' are those of all samples": loader("training_loader", batch_size=4),
    "have columns, too: 'acc', 'loss'": stage(validation_pipelines=["validation"]),
    "the losses of 'training' are added up for one step": many(
        add(definition("losses", "second", class_="CrossEntropyLoss", inputs=["y_hat", "y"])),
        also("losses", loss_name="second"),
    ),
    "for 2 worker processes, write num_workers: 2": lambda data: spec_of(data, "training_loader")["kwargs"].pop(
        "num_workers"
    ),
    "'validation' has no eval_steps and is evaluated on all batches": stage(eval_steps={"training": 1}),
    "the interval of debug pipelines counts epochs": debug,
}


def differences(config: Config) -> list[str]:
    return assemble(understand(config)).differences


def test_a_config_that_means_the_same_here_is_told_of_no_difference(project: Project) -> None:
    assert differences(project.config(THEIRS)) == []


@pytest.mark.parametrize("said", MET)
def test_a_difference_is_said_where_it_is_met(project: Project, said: str) -> None:
    found = differences(project.config(THEIRS, MET[said]))
    assert any(said in each for each in found), found
    assert len(found) == 1 + ("to rise" in said), "and no other"


def test_every_difference_has_a_case() -> None:
    assert len(DIFFERENCES) == len(MET) + 1, "the last, of a run that goes on, has a test of its own"


def test_a_ratio_is_not_the_mean_of_the_ratios_of_batches(project: Project) -> None:
    def f1(data: dict[str, Any]) -> None:
        spec_of(data, "accuracy")["class"] = "F1"

    assert "metrics and losses of 'training'" in differences(project.config(THEIRS, f1))[0]
    few = many(f1, stage(eval_steps=1), loader("training_loader", batch_size=4))
    assert differences(project.config(THEIRS, few)) == [], "one batch is its own mean"


@pytest.mark.parametrize("said", MET)
def test_a_config_that_is_not_torchassistants_is_told_nothing(project: Project, said: str) -> None:
    ours = json.loads(json.dumps(changed(THEIRS, MET[said])).replace("torchassistant.", "torcheer.training."))
    if "TextPreprocessor" in json.dumps(ours):
        return  # there is none of ours
    assert differences(project.config(ours)) == []


def test_a_run_that_goes_on_inside_an_epoch_says_where(project: Project) -> None:
    built = begin(understand(project.config(THEIRS, lambda data: data.update(checkpoint_steps=1))))
    for event in built.session.run():
        if isinstance(event, StepDone) and event.step == 5:
            built.session.stop_reason = "enough"
    again = reopen("run")
    assert again.differences == []
    again.session.resume()
    assert again.differences == [
        "this run goes on after batch 2 of epoch 2, with the same random numbers; there, it would begin the epoch anew"
    ]


def test_differences_are_printed_once_as_one_block(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    project.config(THEIRS, MET["numbers each word once"], stop("EarlyStopping", monitor="val loss", patience=0))
    assert main(["init", "training.json"]) == 0
    captured = capsys.readouterr()
    lines = captured.err.splitlines()
    assert captured.out.startswith("A session is ready") and len(lines) == 3
    assert lines[0] == f"Different from TorchAssistant here ({PAGE}):" and (ROOT / PAGE.split()[0]).is_file()
    assert [line[:17] for line in lines[1:3]] == ["- EarlyStopping c", "- TextPreprocesso"]
    assert main(["train", "run", "--no-control"]) == 0
    captured = capsys.readouterr()
    assert "TorchAssistant" not in captured.out + captured.err
    assert main(["train", "training.json", "session_dir=other", "--no-control", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert len(facts["differences"]) == 2 and facts["stages"][0]["ended_by"].startswith("EarlyStopping, as val loss")


# What a config means is what it meant


def test_columns_are_in_the_order_of_pipelines_metrics_before_losses(project: Project) -> None:
    def rename(data: dict[str, Any]) -> None:
        data["initialize"]["pipelines"]["training"]["metrics"][0]["display_name"] = "zero-one"
        data["initialize"]["pipelines"]["validation"]["losses"][0]["loss_display_name"] = "a loss"

    built = begin(understand(project.config(THEIRS, rename)))
    for event in built.session.run():
        if isinstance(event, EpochDone) and event.epoch == 1:
            built.session.stop_reason = "enough"
    list(reopen("run").session.run())
    rows = Path("run/metrics/0.csv").read_text().splitlines()
    assert rows[0] == "epoch,zero-one,loss,val acc,a loss" and len(rows) == 3
    values = dict(zip(rows[0].split(","), map(float, rows[2].split(","))))
    assert values["zero-one"] <= 1.0 and values["epoch"] == 2


def test_a_scheduler_steps_after_each_update_and_its_rate_is_shown(project: Project) -> None:
    scheduler = {"class": "torch.optim.lr_scheduler.ExponentialLR", "kwargs": {"gamma": 0.5}}

    def add_scheduler(data: dict[str, Any]) -> None:
        spec_of(data, "sgd")["lr_scheduler"] = dict(scheduler)

    def rates(config: Config) -> list[Any]:
        return [event.rates for event in assemble(understand(config)).session.run() if isinstance(event, EpochDone)]

    theirs = rates(project.config(THEIRS, add_scheduler))
    assert theirs == [{"sgd": (0.1, 0.0125)}, {"sgd": (0.0125, 0.0015625)}], "3 batches an epoch"
    assert rates(project.config(WHOLE, add_scheduler)) == [{"sgd": (0.1, 0.05)}, {"sgd": (0.05, 0.025)}]
    assert understand(project.config(THEIRS, add_scheduler)).text().count('"every": "step"') == 1
    assert rates(project.config(THEIRS)) == [{}, {}]


def test_pipelines_may_refer_to_the_loss_and_the_metric_that_are_filled_in(project: Project) -> None:
    def leave_out(data: dict[str, Any]) -> None:
        entries = data["initialize"]["definitions"]
        entries[:] = [each for each in entries if each["group"] not in ("losses", "metrics")]
        for pipeline in data["initialize"]["pipelines"].values():
            del pipeline["input_injector"][0]["variable_names"]
            pipeline["losses"][0]["loss_name"] = "cross_entropy"
        spec_of(data, "processor")["neural_graph"][0]["inputs"] = ["input_1"]

    built = assemble(understand(project.config(THEIRS, leave_out)))
    list(built.session.run())
    assert list(built.session.rows[0][0]) == ["epoch", "acc", "loss", "val acc", "val loss"]


def test_what_a_model_returns_beyond_its_outputs_is_ignored(project: Project) -> None:
    code = Path("toys.py").read_text()
    Path("toys.py").write_text(code.replace("return [self.layers(x)]", "return self.layers(x), x"))
    assert len(list(assemble(understand(project.config(THEIRS))).session.run())) > 2


def test_a_batch_processor_of_a_class_of_ones_own_is_refused_with_what_to_do(project: Project) -> None:
    own = definition("batch_processors", "detach", class_="torchassistant.processing_graph.DetachBatch")
    assert "name this one as the output_adapter of the processor before it" in project.complaint(THEIRS, add(own))


@pytest.mark.parametrize(("batches", "share"), [(100, None), (101, 0.5), (1001, 0.2), (10_001, 0.1), (10**6 + 1, 0.01)])
def test_of_many_batches_a_share_is_evaluated(project: Project, batches: int, share: float | None) -> None:
    spec = fill_eval_steps(understand(project.config(THEIRS)), batches)
    assert spec.data["train"]["stages"][0].get("eval_steps") == share


@pytest.mark.parametrize(("size", "train"), [(10**4, 0.5), (10**4 + 1, 0.6), (10**5 + 1, 0.8), (10**7 + 1, 0.98)])
def test_of_more_samples_more_are_to_train_with(size: int, train: float) -> None:
    ratio = share_of(RATIOS, size, RATIO)
    assert ratio[0] == train and sum(ratio) == pytest.approx(1) and ratio[1] == ratio[2]


def test_an_evaluation_config_says_on_how_many_batches(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    project.config(THEIRS)
    assert main(["train", "training.json", "--no-control"]) == 0
    said = []
    for steps in (1, 1.0):
        config = {"session_dir": "run", "validation_pipelines": ["training"], "eval_steps": steps}
        Path("evaluation.json").write_text(json.dumps(config))
        capsys.readouterr()
        assert main(["evaluate", "evaluation.json"]) == 0
        said.append(capsys.readouterr().out)
    assert said[0] != said[1]


def test_a_session_that_torchassistant_began_is_refused_with_what_to_do(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    project.config(THEIRS, name="spec.json")
    Path("run/checkpoints/0").mkdir(parents=True)
    Path("spec.json").rename("run/spec.json")
    Path("run/checkpoints/0/checkpoint.pt").write_bytes(b"pickled")
    for command in ("train", "evaluate"):
        assert main([command, "run"]) == 1
        assert "run: TorchAssistant began this session, and its checkpoints are pickled" in capsys.readouterr().err
    assert not Path("run/run.json").exists()


# Why a stage ended


def rows(*losses: float) -> list[dict[str, Any]]:
    return [{"epoch": number, "val loss": loss} for number, loss in enumerate(losses, 1)]


@pytest.mark.parametrize(("condition", "losses", "reason"), [
    (EpochsCompleted(2), (3, 2), ""),
    (EarlyStopping("val loss"), (3, 2, 2.1, 2.2),
     "EarlyStopping, as val loss has not improved for 2 epochs (best: 2.0000 in epoch 2)"),
    (EarlyStopping("val loss", max_epochs=2), (3, 2), "EarlyStopping, as its max_epochs is 2"),
    (EarlyStopping("val loss", patience=0), (float("nan"),), "EarlyStopping, as val loss has not improved for 1 epoch"),
    (lambda epoch, history: True, (3,), "<lambda>"),
])  # fmt: skip
def test_the_reason_that_ended_a_stage_is_said(condition: Any, losses: Any, reason: str) -> None:
    assert reason_met(condition, rows(*losses)) == reason


def test_the_event_of_a_stage_says_what_ended_it(project: Project) -> None:
    config = project.config(THEIRS, stop("EarlyStopping", monitor="val loss", min_delta=9, patience=0))
    ends = [event for event in assemble(understand(config)).session.run() if isinstance(event, StageDone)]
    assert len(ends) == 1 and ends[0].reason.startswith("EarlyStopping, as val loss has not improved for 1 epoch")
