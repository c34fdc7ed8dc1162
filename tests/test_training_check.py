"""What `torcheer check` finds before anything runs: monitors, devices, batch sizes, inputs of models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from seams import assemble, begin, check, check_parts, reopen, resolve_device, understand
from torch import nn
from training_loop_cases import chain, network, points, session, sgd, train
from training_spec_cases import CODE, SMALL, WHOLE, Project, definition, put, spec_of

from torcheer import cli
from torcheer.errors import BadArgument, BadConfig
from torcheer.training import EarlyStopping, Processor, Stage

pytestmark = pytest.mark.usefixtures("one_thread")


def stops(**kwargs: Any):
    stop = {"class": "EarlyStopping", **kwargs}
    return lambda data: data.setdefault("train", {}).setdefault("stages", [{}])[0].update(stop_condition=stop)


def top(**values: Any):
    return lambda data: data.update(values)


def only(project: Project, *changes: Any, data: dict[str, Any] = WHOLE) -> str:
    """The one thing that is wrong."""
    (found,) = check(project.config(data, *changes))
    return found


# Monitors


@pytest.mark.parametrize("data", [WHOLE, SMALL], ids=["whole", "completed"])
@pytest.mark.parametrize(
    "how", [{"kwargs": {"monitor": "val_loss"}}, {"args": ["val_loss"], "kwargs": {"patience": 2}}]
)
def test_an_early_stopping_that_watches_nothing_is_found(project: Project, data: Any, how: Any) -> None:
    said = only(project, stops(**how), data=data)
    assert "the stage has no column 'val_loss'; it has" in said and "Did you mean 'val loss'?" in said


@pytest.mark.parametrize("column", ["val loss", "val acc", "val mae", "loss"])
def test_columns_that_a_sample_may_bring_are_known(project: Project, column: str) -> None:
    assert check(project.config(SMALL, stops(kwargs={"monitor": column}), top(keep_best=column))) == []


def test_columns_of_metrics_that_are_given_do_not_hide_those_of_losses_to_come(project: Project) -> None:
    def change(data: dict[str, Any]) -> None:
        listed = data["initialize"]["definitions"]
        listed.remove(next(one for one in listed if one["group"] == "losses"))
        for one in data["initialize"]["pipelines"].values():
            del one["losses"]

    assert check(project.config(WHOLE, change, stops(kwargs={"monitor": "val loss"}))) == []
    assert "has no column 'val lost'; it has acc, val acc, loss, val loss" in only(
        project, change, stops(kwargs={"monitor": "val lost"})
    )


@pytest.mark.parametrize("monitor", [5, ["val loss"]])
def test_a_monitor_that_is_no_text_is_found(project: Project, monitor: Any) -> None:
    assert "has no column" in only(project, stops(kwargs={"monitor": monitor}))


@pytest.mark.parametrize("data", [WHOLE, SMALL], ids=["whole", "completed"])
def test_a_best_of_nothing_and_a_scheduler_of_nothing_are_found(project: Project, data: Any) -> None:
    assert "no stage has a column 'val_acc'" in only(project, top(keep_best="val_acc"), data=data)
    optimizer = "sgd" if data is WHOLE else "adam"
    plateau = {"class": "ReduceLROnPlateau", "monitor": "valloss"}
    assert "has no column 'valloss'" in only(project, put(optimizer, lr_scheduler=plateau), data=data)


def test_a_session_in_python_says_it_before_its_first_step() -> None:
    one = session({"m": network()})
    one.stages[0] = Stage(one.stages[0].training, (), EarlyStopping("p data msee"))
    with pytest.raises(BadArgument, match="EarlyStopping watches 'p data msee', and the stage has only p data mse"):
        check_parts(one)


# Devices


@pytest.mark.parametrize(
    ("given", "meant"), [("gpu", "cuda"), ("GPU", "cuda"), ("gpu:1", "cuda:1"), ("cuda0", "cuda:0")]
)
def test_a_gpu_is_called_cuda(project: Project, given: str, meant: str) -> None:
    assert f"Did you mean {meant!r}, as torch calls GPUs?" in only(project, top(device=given))


@pytest.mark.parametrize("device", ["cuda", "cuda:7", "mps", "xpu"])
def test_a_device_that_is_not_there_is_found(project: Project, device: str) -> None:
    kind, _, number = device.partition(":")
    if getattr(torch, kind).device_count() > int(number or 0):
        pytest.skip("it is there")
    said = only(project, top(device=device))
    assert "'auto' takes what there is" in said or "here" in said
    with pytest.raises(BadArgument, match=f"device '{device}': there"):
        resolve_device(device)


def test_devices_that_are_there_are_none_of_its_business(project: Project) -> None:
    assert check(project.config(WHOLE, top(device="auto"))) == check(project.config(WHOLE)) == []


# The batch size at the top


def test_a_batch_size_at_the_top_is_that_of_loaders_without_one(project: Project) -> None:
    config = project.config(WHOLE, top(batch_size=9), put("training_loader", kwargs={"shuffle": False}))
    assert check(config) == []
    loaders = assemble(understand(config)).parts.data_loaders
    assert (loaders["training_loader"].batch_size, loaders["validation_loader"].batch_size) == (9, 6)


def test_loaders_that_are_filled_in_have_it_too_and_keep_it(project: Project) -> None:
    built = begin(understand(project.config(SMALL, top(batch_size=3, device="cpu"))))
    assert {one.batch_size for one in built.parts.data_loaders.values()} == {3}
    assert {one.batch_size for one in reopen("run").parts.data_loaders.values()} == {3}
    assert {one.batch_size for one in reopen("run", changes=["batch_size=5"]).parts.data_loaders.values()} == {5}


def test_a_training_config_with_one_is_checked_as_a_training_config(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    project.config(SMALL, top(batch_size=3))
    assert cli.main(["check", "training.json", "--import"]) == 0 and capsys.readouterr().out == "ok\n"


def test_one_that_would_change_nothing_is_refused(project: Project) -> None:
    said = only(project, top(batch_size=3))
    assert "'training_loader' and 'validation_loader' have a batch_size of their own" in said


def test_a_session_that_was_begun_with_one_still_opens_and_a_new_one_in_vain_is_refused(project: Project) -> None:
    begin(understand(project.config(WHOLE)))
    spec = json.loads(Path("run/spec.json").read_text())
    Path("run/spec.json").write_text(json.dumps({**spec, "batch_size": 3}))
    assert reopen("run").parts.data_loaders["training_loader"].batch_size == 6
    with pytest.raises(BadConfig, match="have a batch_size of their own"):
        reopen("run", changes=["batch_size=4"])


def test_inference_has_its_own(project: Project) -> None:
    begin(understand(project.config(WHOLE)))
    config = project.config({"session_dir": "run", "inference_pipeline": "validation", "batch_size": 2}, name="i.json")
    assert check(config) == [] and reopen("run", config).spec.data["batch_size"] == 2


# Names of code


def test_a_module_that_is_nowhere_is_said_to_be_in_none_of_the_folders(project: Project, tmp_path: Path) -> None:
    (tmp_path / "configs").mkdir()
    config = project.config(WHOLE, put("net", class_="toyz.Net"), name="configs/training.json")
    (said,) = check(config)
    assert f"there is no module toyz in {tmp_path} or {tmp_path / 'configs'}. Did you mean 'toys'?" in said
    assert "--trust" not in said
    with pytest.raises(BadConfig, match=f"no module toyz in {tmp_path} or {tmp_path / 'configs'}"):
        assemble(understand(config))


# Inputs of models

TWO = [
    {"model_name": "net", "inputs": ["x"], "outputs": ["h"], "optimizer_name": "sgd"},
    {"model_name": "head", "inputs": ["h"], "outputs": ["y_hat"]},
]


def two(adapter: Any, **changes: Any):
    """A second model behind the first; `changes` are its own."""

    def change(data: dict[str, Any]) -> None:
        data["initialize"]["definitions"].append(definition("models", "head", class_="torch.nn.Linear", args=[2, 2]))
        spec_of(data, "processor").update(neural_graph=[TWO[0], {**TWO[1], **changes}], input_adapter=adapter)

    return change


@pytest.mark.parametrize(
    "adapter",
    [
        {"class": "torcheer.training.adapters.ToModel", "args": ["net", ["x"]]},
        {"class": "torchassistant.adapters.ToModel", "kwargs": {"model": "net", "columns": {"x": "x"}}},
        {"class": "toys.Adapter"},
    ],
)
def test_inputs_that_nothing_gives_are_found_behind_an_adapter(project: Project, adapter: Any) -> None:
    assert check(project.config(WHOLE, two(adapter))) == []
    said = only(project, two(adapter, inputs=["hh"]))
    assert "neural_graph.1.inputs.0 = 'hh': there is no 'hh' for head; there is h. Did you mean 'h'?" in said


def test_an_adapter_that_names_another_model_is_found(project: Project) -> None:
    said = only(project, put("processor", input_adapter={"class": "toys.Adapter"}), rename_net)
    assert "there is no 'x' for body; there is nothing: the input adapter gives net" in said


def rename_net(data: dict[str, Any]) -> None:
    text = json.dumps(data["initialize"]).replace('"net"', '"body"')
    data["initialize"] = json.loads(text)


def test_an_adapter_whose_source_does_not_tell_is_believed(project: Project) -> None:
    sources = [
        "def free(frame):\n    return {name: frame for name in ('net', 'head')}\n",
        "def free(frame):\n    return {'net': {**frame}}\n",
        "def free(frame):\n    if frame:\n        return {'net': {}}\n    return {'head': {}}\n",
        "def wrap(call):\n    return call\n\n@wrap\ndef free(frame):\n    return {'net': {'x': 0}}\n",
        "def free(frame):\n    return {'net': {'x': 0}}\n\nfree = max(free, key=id) if free else free\n",
    ]
    for source in sources:
        Path("toys.py").write_text(f"{CODE}\n\n{source}")
        assert check(project.config(WHOLE, two({"class": "toys.free"}, inputs=["anything"]))) == []


def test_frames_that_flow_together_are_looked_at_too(project: Project) -> None:
    def change(data: dict[str, Any]) -> None:
        spec_of(data, "graph").update(input_ports=["in", "other"], ingoing_edges={"processor": ["in", "other"]})
        for one in data["initialize"]["pipelines"].values():
            one["input_injector"].append({**one["input_injector"][0], "input_port": "other"})
        spec_of(data, "processor")["neural_graph"][0]["inputs"] = ["xx"]

    assert "there is no 'xx' for net; there is x, y" in only(project, change)


def test_an_adapter_need_not_name_models_that_are_fed_by_others() -> None:
    nodes = chain("first", "second").nodes
    models = {"first": network(nn.Linear(4, 3)), "second": network(nn.Linear(3, 1))}
    given = {"processors": {"p": Processor(nodes, lambda frame: {"first": {"x": frame["x"]}})}}
    one = session(models, {"o": sgd(nn.ModuleList(models.values()))}, data={"data": points(8)}, epochs=1, **given)
    assert train(one)
    wrong = Processor(chain("first", "second").nodes, lambda frame: {"second": {"x": frame["x"]}})
    one = session(models, {"o": sgd(nn.ModuleList(models.values()))}, data={"data": points(8)}, processors={"p": wrong})
    with pytest.raises(BadArgument, match=r"gives nothing for 'first', which takes 'x'; it gives second"):
        train(one)
