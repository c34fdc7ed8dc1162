"""Evaluation and inference configs over the description of a session."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from seams import begin, check, inference, merged, read_spec, reopen, understand
from training_spec_cases import WHOLE, Project, definition, spec_of

from torcheer.config import read
from torcheer.errors import BadConfig


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.chdir(tmp_path)
    found = Project(tmp_path)
    understand(found.config(WHOLE)).save(Path("run"))
    return found


def over(project: Project, name: str = "evaluation.json", **data: Any):
    return project.config({"session_dir": "run", **data}, name=name)


def definitions(*options: dict[str, Any], keys: Any = ("group", "name"), strategy: str = "override") -> dict[str, Any]:
    note = {"replace_strategy": strategy, "override_key": list(keys), "options": list(options)}
    return {"initialize": {"definitions": note}}


def test_mappings_merge_and_lists_are_replaced(project) -> None:
    spec = merged(Path("run"), over(project, device="auto", train={"stages": [{"training_pipelines": ["validation"]}]}))
    assert spec.data["device"] == "auto"
    assert [one["training_pipelines"] for one in spec.data["train"]["stages"]] == [["validation"]]
    assert len(spec.data["initialize"]["definitions"]) == 10


def test_items_of_a_list_are_overridden_by_their_keys(project) -> None:
    change = {"group": "data_loaders", "name": "validation_loader", "spec": {"kwargs": {"batch_size": 2}}}
    new = definition("datasets", "new", class_="toys.Points")
    data = merged(Path("run"), over(project, **definitions(change, new))).data
    assert spec_of(data, "validation_loader") == {"dataset": "split.val", "kwargs": {"batch_size": 2}}
    assert data["initialize"]["definitions"][-1] == new
    assert len(data["initialize"]["definitions"]) == 11


def test_a_list_inside_an_item_is_overridden_the_same_way(project) -> None:
    nodes = {
        "replace_strategy": "override",
        "override_key": ["model_name"],
        "options": [{"model_name": "net", "alias": "n"}],
    }
    change = {"name": "processor", "spec": {"neural_graph": nodes}}
    data = merged(Path("run"), over(project, **definitions(change, keys=["name"]))).data
    (node,) = spec_of(data, "processor")["neural_graph"]
    assert node == {"model_name": "net", "inputs": ["x"], "outputs": ["y_hat"], "optimizer_name": "sgd", "alias": "n"}


def test_a_mapping_may_be_replaced(project) -> None:
    kwargs = {"replace_strategy": "replace", "options": {"batch_size": 1}}
    change = {"group": "data_loaders", "name": "training_loader", "spec": {"kwargs": kwargs}}
    data = merged(Path("run"), over(project, **definitions(change))).data
    assert spec_of(data, "training_loader")["kwargs"] == {"batch_size": 1}


def test_an_older_dialect_comes_over_as_well(project) -> None:
    change = {"group": "loader_factories", "name": "training_loader", "spec": {"kwargs": {"batch_size": 1}}}
    inputs = [{"input_alias": "in", "variable_names": ["x", "y"], "loader_factory": "training_loader"}]
    data = definitions(change)
    data["initialize"]["pipelines"] = {"validation": {"input_factories": inputs}}
    found = merged(Path("run"), over(project, **data)).data
    assert spec_of(found, "training_loader")["kwargs"] == {"batch_size": 1}
    assert found["initialize"]["pipelines"]["validation"]["input_injector"][0]["data_loader"] == "training_loader"
    assert "losses" in found["initialize"]["pipelines"]["validation"]


def test_lists_of_the_last_release_come_over_as_well(project) -> None:
    def note(*options: dict[str, Any]) -> dict[str, Any]:
        return {"replace_strategy": "override", "override_key": ["name"], "options": list(options)}

    data = note({"name": "training_loader", "spec": {"kwargs": {"batch_size": 1}}})
    computation = note({"name": "sgd", "spec": {"kwargs": {"lr": 0.5}}})
    both = {"initialize": {"definitions": {"data": data, "computation": computation}}}
    found = merged(Path("run"), over(project, **both)).data
    assert spec_of(found, "training_loader")["kwargs"] == {"batch_size": 1}
    assert spec_of(found, "sgd")["kwargs"] == {"lr": 0.5}


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (
            definitions({"group": "models", "name": "net", "spec": {"clas": "toys.Net"}}),
            "evaluation.json:15: initialize.definitions.options.0.spec.clas = 'toys.Net': a definition of models has",
        ),
        (
            definitions(strategy="overide"),
            "replace_strategy = 'overide': lists and mappings are merged by 'override' or 'replace'.",
        ),
        (definitions({"name": "net"}, keys=()), "to override items of a list, say by which of their keys"),
        (definitions({"spec": {}}), "an item that overrides another has 'group' and 'name', and this is a mapping."),
        (definitions(definition("models", "second")), "definitions.options.0.spec: a definition of models has one of"),
        ({"validation_pipelines": ["validations"]}, "validation_pipelines.0 = 'validations': there is no"),
        ({"inference_pipeline": "x"}, "inference_pipeline = 'x': there is no 'x' among the pipelines"),
        (
            {"inference_pipeline": "validation", "inputs_meta": [{"input_port": "inn"}]},
            "inputs_meta.0.input_port = 'inn': the graph of 'validation' has no port 'inn'; it has in.",
        ),
        ({"resultss": []}, "a training config has no key 'resultss'. Did you mean 'results'?"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_of_its_own_file(project, data, said) -> None:
    config = over(project, **data)
    with pytest.raises(BadConfig) as caught:
        merged(Path("run"), config)
    assert said in str(caught.value) and "evaluation.json" in str(caught.value)
    if any(key in data for key in ("validation_pipelines", "inference_pipeline")) or "initialize" not in data:
        assert any(said in one for one in check(config))


def test_two_of_a_name_are_not_overridden_by_their_name(project) -> None:
    saved = understand(
        project.config(
            WHOLE,
            lambda data: data["initialize"]["definitions"].append(
                definition("metrics", "loss", class_="Accuracy", inputs=["y_hat", "y"])
            ),
        )
    )
    saved.save(Path("run"))
    with pytest.raises(BadConfig, match="there are 2 items with this 'name': override by more keys"):
        merged(Path("run"), over(project, **definitions({"name": "loss", "spec": {}}, keys=["name"])))


def test_there_has_to_be_a_session(project) -> None:
    config = project.config({"session_dir": "runn", "validation_pipelines": []}, name="evaluation.json")
    assert check(config) == ["runn: there is no session here: there is no spec.json in it"]
    with pytest.raises(BadConfig, match="runn: there is no session here"):
        read_spec(Path("runn"))


def test_a_misspelt_session_dir_is_named(project) -> None:
    config = project.config({"sesion_dir": "run", "validation_pipelines": []}, name="evaluation.json")
    assert check(config) == [
        "evaluation.json:1: session_dir: the folder of the session is missing, or not a string. Did you mean "
        "'session_dir'?"
    ]


def test_inference_has_converters_results_and_somewhere_to_go(project) -> None:
    Path("toys.py").write_text(
        Path("toys.py").read_text()
        + """
class Convert:
    def __call__(self, text):
        return torch.tensor([float(one) for one in text.split(",")]), 0


class Best:
    def __init__(self, session):
        self.session = session

    def __call__(self, results):
        return {name: value.argmax(-1) for name, value in results.items()}
"""
    )
    config = over(
        project,
        inference_pipeline="validation",
        inputs_meta=[{"input_alias": "in", "input_adapter": {"class": "toys.Convert"}}],
        post_processor={"class": "toys.Best"},
    )
    assert check(config, imports=True) == []
    found = reopen("run", config)
    asked = inference(found)
    assert (asked.pipeline, asked.results, asked.batch_size) == ("validation", ("y_hat",), 32)
    assert asked.converters["in"]("1,2,3,4")[0].tolist() == [1, 2, 3, 4]
    assert (
        asked.post_processor is not None and asked.post_processor.session.models["net"] is found.session.models["net"]
    )  # type: ignore[attr-defined]
    assert type(asked.output_device).__name__ == "Printer"


def test_inference_runs_the_pipeline_that_is_validated(project) -> None:
    assert inference(reopen("run")).pipeline == "validation"  # what is validated, where nothing is said


def test_what_was_saved_is_not_changed(project) -> None:
    before = Path("run/spec.json").read_text()
    reopen("run", over(project, **definitions({"group": "models", "name": "net", "spec": {"kwargs": {"width": 3}}})))
    assert Path("run/spec.json").read_text() == before
    assert not Path("run/static").exists()


def test_a_session_dir_in_the_other_config_does_not_move_the_session(project) -> None:
    begin(understand(read("training.json")), "elsewhere")
    assert merged(Path("elsewhere"), over(project)).data["session_dir"] == "run"
