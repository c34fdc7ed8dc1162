"""What a config may leave out: the rest is filled in, says so, and trains."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from seams import assemble, begin, check, reopen, understand
from training_spec_cases import SMALL, WHOLE, add, definition, spec_of

from torcheer.errors import BadConfig

pytestmark = pytest.mark.usefixtures("one_thread")


def names(data: dict[str, Any]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for one in data["initialize"]["definitions"]:
        found.setdefault(one["group"], []).append(one["name"])
    return found


def test_a_dataset_a_model_and_an_optimizer_are_a_session(project) -> None:
    session = assemble(understand(project.config(SMALL))).session
    list(session.run())
    assert len(session.rows[0]) == 20
    assert set(session.rows[0][0]) == {"epoch", "acc", "loss", "val acc", "val loss"}
    assert session.rows[0][-1]["loss"] < session.rows[0][0]["loss"]


def test_a_completed_session_can_say_how_long_it_trains(project) -> None:
    epochs = assemble(understand(project.config(SMALL, lambda data: data.update(train={"epochs": 3})))).session
    list(epochs.run())
    assert len(epochs.rows[0]) == 3
    stop = {"class": "EpochsCompleted", "kwargs": {"num_epochs": 2}}
    stage = {"train": {"stages": [{"stop_condition": stop}]}}
    staged = assemble(understand(project.config(SMALL, lambda data: data.update(stage)))).session
    list(staged.run())
    assert len(staged.rows[0]) == 2 and "val loss" in staged.rows[0][0]


def test_epochs_that_no_stage_is_left_for_are_refused(project) -> None:
    with pytest.raises(BadConfig, match=r"train\.epochs.*every stage has a stop_condition of its own"):
        understand(project.config(WHOLE, lambda data: data["train"].update(epochs=3)))


def test_what_was_filled_in_is_seen_in_the_description(project) -> None:
    begin(understand(project.config(SMALL)))
    data = json.loads(Path("run/spec.json").read_text())
    assert names(data) == {
        "datasets": ["points"],
        "splits": ["split"],
        "data_loaders": ["training_loader", "validation_loader"],
        "collators": ["collator"],
        "models": ["net"],
        "optimizers": ["adam"],
        "batch_processors": ["default_processor"],
        "batch_graphs": ["default_graph"],
        "losses": ["cross_entropy"],
        "metrics": ["accuracy"],
    }
    assert ["splits", "split"] in data["source"]["completed"] and ["pipelines", "training"] in data["source"][
        "completed"
    ]
    assert ["models", "net"] not in data["source"]["completed"]
    assert spec_of(data, "split") == {"dataset_name": "points", "ratio": [0.8, 0.1, 0.1]}
    assert data["train"]["stages"][0]["stop_condition"]["kwargs"] == {"num_epochs": 20}


def test_a_description_that_was_filled_in_is_built_again_as_it_is(project) -> None:
    first = begin(understand(project.config(SMALL)))
    again = reopen("run")
    assert again.spec.data == first.spec.data
    assert again.parts.splits["split"].indices == first.parts.splits["split"].indices


def test_check_looks_at_no_data(project) -> None:
    toys = Path("toys.py")
    toys.write_text(f"if True:\n    raise RuntimeError('imported')\n{toys.read_text()}")
    assert check(project.config(SMALL)) == []


@pytest.mark.parametrize(
    ("kind", "loss", "metric", "columns"),
    [
        ("class", "CrossEntropyLoss", "Accuracy", {"acc", "loss", "val acc", "val loss"}),
        ("number", "MSELoss", "torch.nn.L1Loss", {"loss", "mae", "val loss", "val mae"}),
    ],
)
def test_the_loss_follows_the_type_of_the_target(project, kind, loss, metric, columns) -> None:
    outputs = {"kwargs": {"outputs": 1 if kind == "number" else 2}}
    found = assemble(
        understand(
            project.config(
                SMALL,
                lambda data: (
                    spec_of(data, "points").update(kwargs={"kind": kind}),
                    spec_of(data, "net").update(outputs),
                ),
            )
        )
    )
    classes = {one["name"]: one["spec"].get("class") for one in found.spec.data["initialize"]["definitions"]}
    assert loss in classes.values() and metric in classes.values()
    list(found.session.run())
    assert set(found.session.rows[0][0]) == {"epoch", *columns}


def test_a_prediction_of_one_column_is_compared_with_its_own_target(project) -> None:
    """Torch would compare items × 1 with items each with each, and warn."""

    def change(data: dict[str, Any]) -> None:
        spec_of(data, "points").update(kwargs={"kind": "number"})
        spec_of(data, "net").update(kwargs={"outputs": 1})

    session = assemble(understand(project.config(SMALL, change))).session
    lane = session.runners["training"]
    batch = next(session.feeds["training_loader"].epoch(0))
    with torch.no_grad():
        loss, _ = lane.loss(*lane.forward((batch,)))
        plain = torch.nn.functional.mse_loss(session.models["net"](batch[0])[0][:, 0], batch[1])
    torch.testing.assert_close(loss, plain)


def test_images_are_made_tensors(project) -> None:
    pytest.importorskip("PIL")
    Path("toys.py").write_text(
        Path("toys.py").read_text()
        + """
class Pictures:
    def __len__(self):
        return 12

    def __getitem__(self, index):
        from PIL import Image

        return Image.new("L", (2, 2), 40 * (index % 2)), index % 2


class Flat(Net):
    def forward(self, x):
        return super().forward(x.flatten(1))
"""
    )
    config = project.config(
        SMALL,
        lambda data: spec_of(data, "points").update({"class": "toys.Pictures"}),
        lambda data: spec_of(data, "net").update({"class": "toys.Flat"}),
    )
    session = assemble(understand(config)).session
    list(session.run())
    assert session.rows[0] and session.rows[0][-1]["loss"] < session.rows[0][0]["loss"]  # they can be told apart


def test_two_datasets_are_for_training_and_validation(project) -> None:
    spec = understand(
        project.config(SMALL, add(definition("datasets", "others", class_="toys.Points", kwargs={"seed": 1})))
    )
    assert "splits" not in names(spec.data)
    assert spec_of(spec.data, "training_loader")["dataset"] == "points"
    assert spec_of(spec.data, "validation_loader")["dataset"] == "others"


def test_what_a_user_says_is_kept(project) -> None:
    loss = definition("losses", "own", class_="CrossEntropyLoss", inputs=["y_hat", "input_2"])
    loader = definition("data_loaders", "all", dataset="points", kwargs={"batch_size": 12})
    spec = understand(project.config(SMALL, add(loss, loader)))
    assert names(spec.data)["losses"] == ["own"] and "splits" not in names(spec.data)
    assert list(spec.data["initialize"]["pipelines"]) == ["training"]
    session = assemble(spec).session
    list(session.run())
    assert set(session.rows[0][0]) == {"epoch", "loss"}


def test_loaders_take_the_only_collator(project) -> None:
    collator = definition("collators", "own", class_="torcheer.training.collators.StackTensors")
    loss = definition("losses", "own", class_="CrossEntropyLoss", inputs=["y_hat", "input_2"])
    session = assemble(understand(project.config(SMALL, add(collator, loss)))).session
    assert {type(feed.loader.collate).__name__ for feed in session.feeds.values()} == {"StackTensors"}


def test_a_pipeline_may_leave_out_what_there_is_one_of(project) -> None:
    def leave_out(data: dict[str, Any]) -> None:
        for one in data["initialize"]["pipelines"].values():
            del one["graph"], one["input_injector"][0]["input_port"]
            for term in (*one["losses"], *one["metrics"]):
                del term["node_name"]

    found = understand(project.config(WHOLE, leave_out)).data["initialize"]["pipelines"]["training"]
    assert found["graph"] == "graph" and found["losses"][0]["node_name"] == "processor"


def test_a_processor_reads_the_first_of_the_named_columns(project) -> None:
    def without_graph(data: dict[str, Any]) -> None:
        listed = data["initialize"]["definitions"]
        listed[:] = [one for one in listed if one["group"] not in ("batch_graphs", "batch_processors")]
        for one in data["initialize"]["pipelines"].values():
            del one["graph"]
            for term in (*one["losses"], *one["metrics"]):
                del term["node_name"]

    built = assemble(understand(project.config(WHOLE, without_graph)))
    named = built.spec.data["initialize"]["pipelines"]["training"]["input_injector"][0]["variable_names"]
    processor = spec_of(built.spec.data, "default_processor")
    assert processor["neural_graph"][0]["inputs"] == named[:1]
    list(built.session.run())
    assert built.session.rows[0]


def test_a_stage_without_a_stop_condition_has_twenty_epochs(project) -> None:
    spec = understand(project.config(WHOLE, lambda data: data["train"]["stages"][0].pop("stop_condition")))
    assert spec.data["train"]["stages"][0]["stop_condition"]["kwargs"] == {"num_epochs": 20}


NET = definition("models", "second", class_="toys.Net")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            add(NET),
            "there are no batch_processors, and the models 'net' and 'second': how they hang together has to be said",
        ),
        (
            add(*(definition("datasets", name, class_="toys.Points") for name in "ab")),
            "the datasets 'points', 'a' and 'b': which to train with has to be said",
        ),
        (
            add(*(definition("collators", name, class_="torcheer.training.collators.BatchDivide") for name in "ab")),
            "there are no data_loaders, and which of 'a' or 'b' they take has to be said",
        ),
        (
            lambda data: data["initialize"].update(definitions=data["initialize"]["definitions"][1:]),
            "there are no data_loaders and no pipelines, and no dataset",
        ),
        (
            add(*(definition("data_loaders", name, dataset="points") for name in "abc")),
            "there are no pipelines, and which of the data_loaders 'a', 'b' or 'c' to train with has to be said",
        ),
    ],
)
def test_what_cannot_be_guessed_is_asked_for(project, change, said) -> None:
    assert said in project.complaint(SMALL, change)
    assert any(said in one for one in check(project.config(SMALL, change)))


def test_a_target_without_a_loss_is_asked_about(project) -> None:
    code = (
        Path("toys.py")
        .read_text()
        .replace("return self.x[index], float", "return self.x[index], 'cat'\n        return float")
    )
    Path("toys.py").write_text(code)
    with pytest.raises(BadConfig, match="there are no losses, and the target of a sample is str: which loss it takes"):
        assemble(understand(project.config(SMALL)))


def test_an_error_about_something_filled_in_says_so(project) -> None:
    said = None
    Path("toys.py").write_text(
        Path("toys.py").read_text().replace("def __len__(self):\n        return len(self.x)", "pass")
    )
    with pytest.raises(BadConfig) as caught:
        assemble(understand(project.config(SMALL)))
    said = str(caught.value)
    assert "(this was filled in, since the config does not say it)" in said
