"""The form of a config: groups that people know, names that are unique, whatever stands in it."""

from __future__ import annotations

from typing import Any

from torcheer.control.config_form import form_of

CONFIG = {
    "session_dir": "run",
    "seed": 3,
    "watch": {"every": 10, "video": ["a/output", "b/output"]},
    "initialize": {
        "definitions": [
            {"group": "datasets", "name": "digits", "spec": {"class": "digits.Digits", "kwargs": {"path": "a.gz"}}},
            {"group": "models", "name": "net", "spec": {"class": "digits.Net"}},
            {"group": "batch_processors", "name": "net", "spec": {"neural_graph": [{"model_name": "net"}]}},
        ],
        "pipelines": {"training": {"graph": "net"}},
    },
    "train": {"stages": [{"training_pipelines": ["training"]}]},
    "source": {"version": 1},
}


def test_each_definition_is_a_group_and_nothing_is_numbered_that_has_a_name() -> None:
    assert [(one.group, one.name, one.value, one.kind) for one in form_of(CONFIG)] == [
        ("session", "session_dir", "run", "text"),
        ("session", "seed", 3, "integer"),
        ("session", "watch.every", 10, "integer"),
        ("session", "watch.video", "a/output, b/output", "text"),
        ("digits · datasets", "digits.class", "digits.Digits", "text"),
        ("digits · datasets", "digits.kwargs.path", "a.gz", "text"),
        ("net · models", "models.net.class", "digits.Net", "text"),
        ("net · batch_processors", "batch_processors.net.neural_graph.0.model_name", "net", "text"),
        ("pipelines", "pipelines.training.graph", "net", "text"),
        ("train", "train.stages.0.training_pipelines", "training", "text"),
    ]
    assert not any(one.editable for one in form_of(CONFIG))


def test_a_config_that_is_not_as_it_should_be_gives_what_it_can() -> None:
    nested: list[Any] = []
    nested.append(nested)
    strange = {"initialize": {"definitions": [7, {"name": "a"}]}, "train": None, "x": float("nan"), "y": nested}
    assert [(one.name, one.value) for one in form_of(strange)] == [("x", "nan")]
    assert form_of({"initialize": 3}) == []
