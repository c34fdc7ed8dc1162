"""The form of a config: groups that people know, names that are unique, whatever stands in it."""

from __future__ import annotations

from typing import Any

from seams import form_of

NODE = {"model_name": "net", "inputs": ["image"], "optimizer_name": "adam"}
STOP = {"class": "torcheer.training.stop_conditions.EpochsCompleted", "kwargs": {"num_epochs": 8}}
CONFIG = {
    "session_dir": "run",
    "seed": 3,
    "watch": {"every": 10, "video": ["a/output", "b/output"]},
    "initialize": {
        "definitions": [
            {"group": "datasets", "name": "digits", "spec": {"class": "digits.Digits", "kwargs": {"path": "a.gz"}}},
            {"group": "models", "name": "net", "spec": {"class": "digits.Net"}},
            {"group": "batch_processors", "name": "net", "spec": {"neural_graph": [NODE]}},
        ],
        "pipelines": {"training": {"graph": "net", "losses": [{"loss_name": "label", "weight": 0.1}]}},
    },
    "train": {"stages": [{"training_pipelines": ["training"], "stop_condition": STOP}]},
    "source": {"version": 1},
}


def test_each_definition_is_a_group_and_nothing_is_numbered_that_has_a_name() -> None:
    assert [(one.group, one.name, one.value, one.kind) for one in form_of(CONFIG)] == [
        ("session", "session_dir", "run", "text"),
        ("session", "seed", 3, "integer"),
        ("watch", "watch.every", 10, "integer"),
        ("watch", "watch.video", "a/output, b/output", "text"),
        ("digits · dataset", "digits.class", "digits.Digits", "text"),
        ("digits · dataset", "digits.path", "a.gz", "text"),
        ("net · model", "models.net.class", "digits.Net", "text"),
        ("net · batch processor", "batch_processors.net.net.inputs", "image", "text"),
        ("net · batch processor", "batch_processors.net.net.optimizer", "adam", "text"),
        ("training · pipeline", "pipelines.training.graph", "net", "text"),
        ("training · pipeline", "pipelines.training.losses.label.weight", 0.1, "number"),
        ("train", "train.training_pipelines", "training", "text"),
        ("train", "train.stop_condition", "EpochsCompleted(num_epochs=8)", "text"),
    ]
    assert not any(one.editable for one in form_of(CONFIG))


def test_a_config_that_is_not_as_it_should_be_gives_what_it_can() -> None:
    nested: list[Any] = []
    nested.append(nested)
    strange = {"initialize": {"definitions": [7, {"name": "a"}]}, "train": None, "x": float("nan"), "y": nested}
    assert [(one.name, one.value) for one in form_of(strange)] == [("x", "nan")]
    assert form_of({"initialize": 3}) == []


def test_what_was_filled_in_to_connect_the_parts_is_told_as_facts_of_the_model_and_of_training() -> None:
    processor = {
        "input_adapter": {"class": "torcheer.training.adapters.ToModel", "args": ["net", ["image"]]},
        "neural_graph": [NODE],
    }
    config = {
        "initialize": {
            "definitions": [
                {"group": "models", "name": "net", "spec": {"class": "digits.Net"}},
                {"group": "batch_processors", "name": "default_processor", "spec": processor},
                {"group": "losses", "name": "loss", "spec": {"class": "MSELoss"}},
            ],
            "pipelines": {"training": {"graph": "default_graph"}},
        },
        "train": {"stages": [{"stop_condition": STOP}]},
        "source": {"completed": [
            ["batch_processors", "default_processor"], ["pipelines", "training"], ["losses", "loss"],
            ["train", "stages", 0],
        ]},
    }  # fmt: skip
    assert [(one.group, one.name, one.value) for one in form_of(config)] == [
        ("net · model", "net.class", "digits.Net"),
        ("net · model", "net.inputs", "image"),
        ("net · model", "net.optimizer", "adam"),
        ("loss · loss", "loss.class", "MSELoss"),
        ("train", "train.epochs", 8),
    ]


def test_what_is_called_is_written_as_in_python() -> None:
    spec = {
        "class": "torcheer.training.collators.ColumnWiseCollator",
        "args": [3, ["a"]],
        "kwargs": {"column_transforms": [{"function": "torcheer.training.collators.stacked"}]},
        "input_adapter": {"class": "mine.Adapter", "args": [1], "kwargs": {"deep": {"x": [2]}}},
    }
    config = {"initialize": {"definitions": [{"group": "collators", "name": "both", "spec": spec}]}}
    assert {one.name: one.value for one in form_of(config)} == {
        "both.class": "ColumnWiseCollator",
        "both.arguments": "3, [a]",
        "both.column_transforms": "stacked",
        "both.input_adapter": "mine.Adapter(1, deep={x: [2]})",
    }
