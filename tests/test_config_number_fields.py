"""Texts where numbers are wanted, `1e-3` to YAML above all: refused with their line, and with how to write them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from hypothesis import given
from hypothesis import strategies as st
from training_spec_cases import WHOLE, Change, Project, changed, spec_of

from torcheer import cli
from torcheer.config import read
from torcheer.config.number_fields import (
    format_number,
    misplaced_texts,
    number_types,
    signature_parameters,
    source_parameters,
)
from torcheer.errors import BadConfig
from torcheer.training.spec import assemble, check, understand

pytestmark = [pytest.mark.usefixtures("one_thread"), pytest.mark.filterwarnings("ignore:.*is a string")]

MORE = '''

class Slow(torch.optim.Adam):
    """Hands everything on."""

    def __init__(self, params, **kwargs):
        super().__init__(params, **kwargs)


class Named(nn.Module):
    def __init__(self, name, version="1e5", width: int = 4, share: "float | None" = None):
        super().__init__()
        self.name, self.version, self.weight = name, version, nn.Parameter(torch.ones(1))

    def forward(self, x):
        return [x[:, :2] * self.weight]
'''


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.chdir(tmp_path)
    found = Project(tmp_path)
    with open("toys.py", "a") as file:
        file.write(MORE)
    return found


def put(name: str, **changes: Any) -> Change:
    return lambda data: spec_of(data, name).update({key.rstrip("_"): value for key, value in changes.items()})


def written(*changes: Change) -> Path:
    """A config in YAML; PyYAML writes `1e-3` as people do, without quotes."""
    Path("training.yaml").write_text(yaml.safe_dump(changed(WHOLE, *changes), sort_keys=False))
    return Path("training.yaml")


STEP = {"class": "StepLR", "kwargs": {"step_size": "1e2"}}
WRONG = {  # what is changed -> key, what is written, what should be
    "optimizer": (put("sgd", kwargs={"lr": "1e-3"}), "kwargs.lr = '1e-3': SGD takes a number", "1.0e-3"),
    "by place": (put("sgd", args=["1e-3"], kwargs={}), "args.0 = '1e-3': SGD takes a number", "1.0e-3"),
    "dotted": (put("sgd", class_="torch.optim.SGD", kwargs={"lr": "1e-3"}), "kwargs.lr = '1e-3'", "1.0e-3"),
    "in a list": (put("sgd", class_="Adam", kwargs={"betas": ["9e-1", 0.99]}), "kwargs.betas.0 = '9e-1'", "9.0e-1"),
    "whole": (put("sgd", kwargs={"lr": 0.1}, lr_scheduler=STEP), "step_size = '1e2': StepLR takes a number", "100"),
    "quoted": (put("sgd", kwargs={"lr": "0.001"}), "kwargs.lr = '0.001': SGD takes a number", "0.001"),
    "no number": (put("sgd", kwargs={"lr": "1e-x"}), "lr = '1e-x': SGD takes a number", "a number, such as 0.001"),
    "loss": (put("loss", kwargs={"label_smoothing": "1e-1"}), "label_smoothing = '1e-1'", "1.0e-1"),
    "weights of a loss": (put("loss", kwargs={"weight": ["1e0", 2.0]}), "kwargs.weight.0 = '1e0'", "1.0e+0"),
    "loader": (put("training_loader", kwargs={"batch_size": 6, "timeout": "1e2"}), "timeout = '1e2'", "1.0e+2"),
    "batch size": (put("training_loader", kwargs={"batch_size": "1e2"}), "batch_size = '1e2'", "100"),
    "user's model": (put("net", kwargs={"width": "1e2"}), "kwargs.width = '1e2': Net takes a number", "100"),
    "annotated": (put("net", class_="toys.Named", kwargs={"name": "a", "share": "1e-1"}), "share = '1e-1'", "1.0e-1"),
    "split": (put("split", ratio=["9e-1", 0.1]), "ratio.0 = '9e-1': this is a string", "9.0e-1"),
    "seed": (lambda data: data.update(seed="1e2"), "seed = '1e2': this is a string", "100"),
    "rule": (
        lambda data: data.update(watch={"rules": {"frozen_layer": {"share": "1e-1"}}}),
        "watch.rules.frozen_layer.share = '1e-1': rule frozen_layer: share='1e-1' is not a number",
        "1.0e-1",
    ),
    "stop": (
        lambda data: data["train"]["stages"][0].update(stop_condition={"class": "EpochsCompleted", "args": ["1e2"]}),
        "args.0 = '1e2': EpochsCompleted takes a number",
        "100",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_check_and_training_refuse_a_text_where_a_number_is_wanted(project: Project, name: str, capsys: Any) -> None:
    change, said, number = WRONG[name]
    config = read(written(change))
    (found,) = check(config)
    text = said.split("'")[1]
    line = next(
        at for at, one in enumerate(config.path.read_text().splitlines(), 1) if one.endswith((text, f"'{text}'"))
    )
    assert found.startswith(f"training.yaml:{line}: ") and said in found and found.endswith(f"Write {number}."), found
    with pytest.raises(BadConfig, match="Write"):
        assemble(understand(config), trusted=["toys"])
    assert cli.main(["check", "training.yaml"]) == 1 and f"Write {number}." in capsys.readouterr().out
    assert cli.main(["train", "training.yaml", "--trust", "toys"]) == 1 and "Write" in capsys.readouterr().err
    assert not Path("run").exists()


def test_what_a_users_optimizer_hands_on_is_looked_at_where_it_ends(project: Project) -> None:
    config = read(written(put("sgd", class_="toys.Slow", kwargs={"lr": "1e-3"})))
    (found,) = check(config, trusted=["toys"], imports=True)
    assert "kwargs.lr = '1e-3': Slow takes a number here, and this is a string. Write 1.0e-3." in found
    with pytest.raises(BadConfig, match=r"Write 1\.0e-3"):
        assemble(understand(config), trusted=["toys"])


def test_a_text_is_kept_where_a_text_is_fine(project: Project) -> None:
    config = read(written(put("net", class_="toys.Named", kwargs={"name": "1e5", "version": "1e5"})))
    assert check(config) == check(config, trusted=["toys"], imports=True) == []
    net = assemble(understand(config), trusted=["toys"]).session.models["net"]
    assert (net.name, net.version) == ("1e5", "1e5")


def test_json_and_the_command_line_are_judged_alike(project: Project, capsys: Any) -> None:
    config = project.config(WHOLE, put("sgd", kwargs={"lr": "1e-3"}))
    assert "Write 1.0e-3." in check(config)[0]
    project.config(WHOLE)
    place = "initialize.definitions.5.spec.kwargs.lr"
    assert cli.main(["check", "training.json", f"{place}=1e-3"]) == 0
    assert cli.main(["check", "training.json", f'{place}="1e-3"']) == 1
    assert "(overridden): " in (said := capsys.readouterr().out) and "Write 1.0e-3." in said


def test_every_number_of_torchs_optimizers_and_schedulers_is_known_to_be_one() -> None:
    schedulers = torch.optim.lr_scheduler
    kinds = [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.RMSprop, torch.optim.Adagrad]
    kinds += [schedulers.StepLR, schedulers.CosineAnnealingLR, schedulers.ExponentialLR, schedulers.OneCycleLR]
    known = {f"{kind.__name__}.{one.name}" for kind in kinds for one in signature_parameters(kind) if number_types(one)}
    assert {
        "SGD.lr", "SGD.momentum", "Adam.lr", "Adam.betas", "Adam.eps", "AdamW.weight_decay", "RMSprop.alpha",
        "Adagrad.lr_decay", "StepLR.step_size", "StepLR.gamma", "CosineAnnealingLR.T_max", "CosineAnnealingLR.eta_min",
        "ExponentialLR.gamma", "OneCycleLR.max_lr", "OneCycleLR.pct_start",
    } <= known  # fmt: skip
    texts = {"OneCycleLR.anneal_strategy", "SGD.params", "SGD.nesterov", "Adam.amsgrad"}
    assert not texts & known


def test_what_is_read_from_a_source_is_what_the_code_itself_says(project: Project) -> None:
    import importlib.util

    place = importlib.util.spec_from_file_location("toys_of_numbers", "toys.py")
    assert place is not None and place.loader is not None
    module = importlib.util.module_from_spec(place)
    place.loader.exec_module(module)
    for name in ("Points", "Net", "Named", "build_net"):
        mine, theirs = source_parameters(Path("toys.py"), name), signature_parameters(getattr(module, name))
        assert [one.name for one in mine] == [one.name for one in theirs]
        assert list(map(number_types, mine)) == list(map(number_types, theirs))


@given(st.floats(allow_nan=False, allow_infinity=False), st.sampled_from(["e", "E"]))
def test_every_float_in_any_of_its_forms_is_written_so_that_all_readers_have_it(value: float, mark: str) -> None:
    for text in (repr(value).replace("e", mark), f"{value:.17e}".replace("e", mark).replace("+", "")):
        number = format_number(text)
        assert yaml.safe_load(number) == json.loads(number) == value


@given(st.text(alphabet="0123456789eE+-._ x", max_size=8))
def test_what_python_reads_as_no_number_is_none_here(text: str) -> None:
    number = format_number(text)
    if number:
        assert float(number) == float(text.replace("_", "")) == yaml.safe_load(number)


def test_nothing_is_found_in_arguments_that_nobody_describes() -> None:
    def anything(*args: Any, **kwargs: Any) -> None: ...

    def unclear(scale, rate=None, mode: str = "1e5", either: float | str = 1.0, flag=True) -> None: ...

    def years(year=2012, width: int = 3) -> None: ...

    assert (
        list(misplaced_texts(signature_parameters(years), [], {"year": "2012"})) == []
    )  # it may make a number of it itself
    assert list(misplaced_texts(signature_parameters(years), [], {"width": "2012"})) == [(("kwargs", "width"), "2012")]
    assert list(misplaced_texts(signature_parameters(years), [], {"year": "now", "width": "inf"})) == []
    texts = dict.fromkeys(("scale", "rate", "mode", "either", "flag"), "1e5")
    assert list(misplaced_texts(signature_parameters(anything), ["1e5"], {"rate": "1e5"})) == []
    assert list(misplaced_texts(signature_parameters(unclear), [], texts)) == []
    assert list(misplaced_texts(signature_parameters(unclear), ["1e5"], {})) == []
