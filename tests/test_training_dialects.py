"""The three dialects of TorchAssistant: what each says, and that errors speak the one of the config."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from seams import check, understand
from training_spec_cases import WHOLE, Project, changed, definition, spec_of

from torcheer.config import read
from torcheer.errors import BadConfig


def as_the_seed(data: dict[str, Any]) -> dict[str, Any]:
    """Dialect A: `loader_factories`, `input_factories`, `input_aliases`, a device in each processor."""
    data = copy.deepcopy(data)
    spec_of(data, "processor")["device"] = data.pop("device")
    graph = spec_of(data, "graph")
    graph["input_aliases"] = graph.pop("input_ports")
    for one in data["initialize"]["definitions"]:
        one["group"] = one["group"].replace("data_loaders", "loader_factories")
    for one in data["initialize"]["pipelines"].values():
        one["input_factories"] = one.pop("input_injector")
        for each in one["input_factories"]:
            each["input_alias"], each["loader_factory"] = each.pop("input_port"), each.pop("data_loader")
    return data


def as_later(data: dict[str, Any]) -> dict[str, Any]:
    """Dialect B: the names of the last release, a flat list, a device in each processor."""
    data = copy.deepcopy(data)
    spec_of(data, "processor")["device"] = data.pop("device")
    return data


def as_the_last_release(data: dict[str, Any]) -> dict[str, Any]:
    """Dialect C: definitions in two lists."""
    data = copy.deepcopy(data)
    listed = data["initialize"]["definitions"]
    data["initialize"]["definitions"] = {"data": listed[:4], "computation": listed[4:]}
    return data


DIALECTS = [as_the_seed, as_later, as_the_last_release]


def understood(project: Project, data: dict[str, Any]) -> dict[str, Any]:
    found = understand(project.config(data)).data
    del found["source"]
    return found


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_dialect_says_the_same(project, dialect) -> None:
    assert understood(project, dialect(WHOLE)) == understood(project, WHOLE)


def test_what_is_understood_is_understood_again_as_it_is(project) -> None:
    once = understand(project.config(as_the_seed(WHOLE)))
    once.save(project.folder)
    again = understand(read("spec.json"))
    assert {**again.data, "source": 0} == {**once.data, "source": 0}
    assert again.data["source"]["config"] == "training.json"


def test_dialects_may_be_mixed(project) -> None:
    mixed = as_the_last_release(as_the_seed(WHOLE))
    assert understood(project, mixed) == understood(project, WHOLE)


def test_json_yaml_and_toml_say_the_same(project) -> None:
    yaml = pytest.importorskip("yaml")
    Path("a.yaml").write_text(yaml.safe_dump(WHOLE, sort_keys=False))
    Path("a.toml").write_text(toml(WHOLE))
    for name in ("a.yaml", "a.toml"):
        found = understand(read(name)).data
        assert {**found, "source": 0} == {**understood(project, WHOLE), "source": 0}


def toml(data: dict[str, Any]) -> str:
    def value(one: Any) -> str:
        if isinstance(one, dict):
            return "{" + ", ".join(f'"{key}" = {value(item)}' for key, item in one.items()) + "}"
        if isinstance(one, list):
            return "[" + ", ".join(map(value, one)) + "]"
        return f'"{one}"' if isinstance(one, str) else str(one)

    return "\n".join(f"{key} = {value(item)}" for key, item in data.items())


# Errors


def test_an_error_speaks_the_dialect_of_the_config(project) -> None:
    data = as_the_seed(WHOLE)
    data["initialize"]["pipelines"]["training"]["input_factories"][0]["loader_factory"] = "training_factory"
    said = project.complaint(data)
    assert "initialize.pipelines.training.input_factories.0.loader_factory = 'training_factory'" in said
    assert "there is no 'training_factory' among the data_loaders; there is training_loader" in said
    assert "Did you mean 'training_loader'?" in said


@pytest.mark.parametrize(
    ("where", "typo", "meant"),
    [
        (lambda data: data["initialize"]["pipelines"]["training"], "input_factory", "input_factories"),
        (lambda data: spec_of(data, "graph"), "input_alias", "input_aliases"),
        (lambda data: data["initialize"]["definitions"][2], "group", "loader_factories"),
    ],
)
def test_the_nearest_word_may_be_of_another_dialect(project, where, typo, meant) -> None:
    data = as_the_seed(WHOLE)
    where(data)[typo] = "loader_factorys"
    assert f"Did you mean {meant!r}?" in project.complaint(data)


def test_the_line_is_that_of_the_list_it_stands_in(project) -> None:
    data = as_the_last_release(WHOLE)
    data["initialize"]["definitions"]["computation"][1]["spec"]["modle"] = "net"
    said = project.complaint(data)
    line = next(
        number for number, text in enumerate(Path("training.json").read_text().splitlines(), 1) if "modle" in text
    )
    assert said.startswith(f"training.json:{line}: initialize.definitions.computation.1.spec.modle")


def test_the_same_thing_in_two_dialects_is_refused(project) -> None:
    data = changed(WHOLE, lambda data: spec_of(data, "graph").update(input_aliases=["in"]))
    assert "this says the same as 'input_ports', in another dialect" in project.complaint(data)


def test_lists_of_definitions_have_known_names(project) -> None:
    data = as_the_last_release(WHOLE)
    data["initialize"]["definitions"]["compute"] = []
    said = project.complaint(data)
    assert "definitions are one list, or have the keys 'data', 'computation' or 'callbacks'; 'compute' is none" in said


def test_callbacks_of_the_last_release_have_a_list_of_their_own(project) -> None:
    data = as_the_last_release(WHOLE)
    data["initialize"]["definitions"]["callbacks"] = [definition("callbacks", "erase", class_="toys.Erase")]
    data["train"]["stages"][0]["run_before_epoch"] = ["erase", "validation"]
    found = understood(project, data)
    assert found["initialize"]["definitions"][-1]["group"] == "callbacks"
    assert found["train"]["stages"][0]["run_before_epoch"] == ["erase", "validation"]


# The device


def test_the_device_of_processors_is_the_sessions(project) -> None:
    assert understood(project, as_the_seed(WHOLE))["device"] == "cpu"
    assert "device" not in spec_of(understood(project, as_the_seed(WHOLE)), "processor")


def test_two_devices_are_refused(project) -> None:
    data = changed(WHOLE, lambda data: spec_of(data, "processor").update(device="cuda"))
    said = project.complaint(data)
    assert "spec.device = 'cuda': the session's models live on one device, and elsewhere it is 'cpu'" in said


def test_names_of_the_old_package_are_understood(project) -> None:
    stop = {"class": "torchassistant.stop_conditions.EpochsCompleted", "kwargs": {"num_epochs": 1}}
    data = changed(WHOLE, lambda data: data["train"]["stages"][0].update(stop_condition=stop))
    assert check(project.config(data)) == []


def test_damage_below_a_dialects_keys_is_an_error_of_ours(project) -> None:
    for junk in (None, 3, "x", [], {}, [[]]):
        data = as_the_seed(WHOLE)
        data["initialize"]["pipelines"]["training"]["input_factories"] = junk
        with pytest.raises(BadConfig):
            understand(project.config(data))
