"""One way to address a key: in every form of a config, and in every command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from seams import begin, find_key, parse_axes, read_spec, trials_of, understand
from training_spec_cases import CODE

from torcheer import cli
from torcheer.config import Config, read
from torcheer.errors import BadArgument

pytestmark = pytest.mark.usefixtures("one_thread")

SAME = {"session_dir": "run", "dataset": "toys.Points", "model": "toys.Net", "epochs": 1, "num_workers": 0}
LONG = {"group": "optimizers", "name": "adam", "spec": {"class": "Adam", "kwargs": {"lr": 0.1}}}
FORMS: dict[str, dict[str, Any]] = {
    "one": {"optimizer": {"class": "Adam", "lr": 0.1}},
    "kwargs": {"optimizer": {"class": "Adam", "kwargs": {"lr": 0.1}}},
    "named": {"optimizers": {"adam": {"class": "Adam", "lr": 0.1}}},
    "long": {"initialize": {"definitions": [LONG]}},
}
KEYS = (
    "lr", "adam.lr", "optimizer.lr", "optimizers.adam.lr", "optimizer.kwargs.lr",
    "initialize.definitions.adam.spec.kwargs.lr",
)  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("toys.py").write_text(CODE)
    return tmp_path


def config(form: str) -> Config:
    Path("training.json").write_text(json.dumps(SAME | FORMS[form]))
    return read("training.json")


def rate(data: Any) -> list[float]:
    """The rates of all optimizers in a description."""
    listed = data["initialize"]["definitions"]
    return [each["spec"]["kwargs"]["lr"] for each in listed if each["group"] == "optimizers"]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("key", KEYS)
def test_a_key_means_the_same_in_check_train_and_sweep_and_in_every_form(
    folder: Path, capsys: pytest.CaptureFixture[str], form: str, key: str
) -> None:
    made = config(form)
    assert cli.main(["check", "training.json", f"{key}=0.25", "--expand"]) == 0
    assert rate(json.loads(capsys.readouterr().out)) == [0.25]
    axes = parse_axes([f"{key}=0.25,0.5"], made)
    for trial, expected in zip(trials_of(axes), (0.25, 0.5), strict=True):
        assert cli.main(["check", "training.json", *trial.changes, "--expand"]) == 0
        assert rate(json.loads(capsys.readouterr().out)) == [expected]
    with pytest.raises(BadArgument, match="varied twice"):
        parse_axes(["lr=1,2", f"{key}=3"], made)
    with pytest.raises(BadArgument, match="the config has a number there"):
        parse_axes([f"{key}=abc"], made)


@pytest.mark.parametrize("form", FORMS)
def test_a_key_means_the_same_over_a_session(folder: Path, form: str) -> None:
    begin(understand(config(form)))
    for number, key in enumerate(KEYS, 1):
        assert rate(read_spec(Path("run"), [f"{key}=0.{number}"]).data) == [number / 10]


def test_training_takes_the_short_key_and_the_same_command_goes_on(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config("one")
    assert cli.main(["train", "training.json", "lr=0.25"]) == 0
    assert rate(json.loads(Path("run/spec.json").read_text())) == [0.25]
    assert cli.main(["train", "training.json", "lr=0.25"]) == 0
    assert cli.main(["train", "run", "optimizers.adam.lr=0.5", "epochs=2"]) == 0
    assert rate(json.loads(Path("run/spec.json").read_text())) == [0.5]


@pytest.mark.parametrize(
    ("data", "key", "path"),
    [
        ({"train": {"epochs": 1}}, "epochs", "train.epochs"),
        ({"epochs": 1}, "train.epochs", "epochs"),
        ({"epochs": 1}, "seed", "seed"),
        ({"seed": 1, "model": {"class": "Net", "seed": 2}}, "seed", "seed"),
        ({"model": {"class": "Net"}}, "model.width", "model.width"),
        ({"model": {"class": "Net"}}, "models.net.width", "model.width"),
        ({"models": {"net": {"class": "Net"}}}, "model.width", "models.net.width"),
        ({"model": {"class": "Net", "width": 3}}, "width", "model.width"),
        ({"model": {"class": "Net", "width": 3}}, "wdth", ""),
    ],
)
def test_a_key_is_a_path_of_any_form_or_the_end_of_one(data: dict[str, Any], key: str, path: str) -> None:
    assert find_key(data, key) == path


def test_a_key_that_could_be_any_of_several_is_refused_with_their_paths(folder: Path) -> None:
    data = {"optimizers": {"one": {"class": "SGD", "lr": 1}, "two": {"class": "SGD", "lr": 2}}}
    with pytest.raises(BadArgument, match=r"lr could be any of optimizers.one.lr, optimizers.two.lr; write more"):
        find_key(data, "lr")
    assert find_key(data, "two.lr") == "optimizers.two.lr"
    with pytest.raises(BadArgument, match=r"optimizer.lr could be any of optimizers.one.lr, optimizers.two.lr; write"):
        find_key(data, "optimizer.lr")


COMMANDS = (["check", "training.json"], ["train", "training.json"], ["sweep", "training.json"])


@pytest.mark.parametrize("command", COMMANDS, ids=["check", "train", "sweep"])
@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("lrr=1", "training.json has no field lrr. Did you mean 'lr'?"),
        ("sead=1", "training.json has no field sead. Did you mean 'seed'?"),
        ("lr=abc", "lr=abc: the config has a number there, 0.1, and this is a string"),
        ("optimizer.lr=0x1e5", "optimizer.lr=0x1e5: the config has a number there"),
    ],
)
def test_an_unknown_key_and_a_word_for_a_number_are_refused_alike_by_every_command(
    folder: Path, capsys: pytest.CaptureFixture[str], command: list[str], key: str, words: str
) -> None:
    config("one")
    assert cli.main([*command, key]) == 1
    assert words in capsys.readouterr().err
    assert not Path("run").exists()


def test_a_word_in_quotes_is_meant(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config("one")
    assert cli.main(["check", "training.json", 'lr="abc"', "--expand"]) == 0
    assert rate(json.loads(capsys.readouterr().out)) == ["abc"]


KINDS = """
from typing import Any, List, Literal, Optional, Union
from torch import Tensor, nn

class Net(nn.Linear):
    def __init__(self, width=4, scale=0.5, kind="a", norm=None, bias=False, size: int = 3, rate: "float | None" = None,
                 most: Optional[int] = 1, pair: "tuple[int, int]" = (1, 2), both: Union[int, str] = 1,
                 flag: bool = True, mode: Optional[str] = None, modes: List[str] = (), anything: Any = 1,
                 choice: Literal["x", 1] = 1, unknown: "Size" = 1, many: "list[Tensor]" = (), **more):
        super().__init__(4, 2)

    def forward(self, x):
        return [super().forward(x)]
"""
REFUSED = {
    "width=abc": "by default Net has a number there, 4, and this is a string. If a string is meant, put it in quotes",
    "scale=big": "by default Net has a number there, 0.5, and this is a string",
    "width=None": "by default Net has a number there, 4, and this is a string: write null",
    "bias=False": "by default Net has true or false there, and this is a string: write false",
    "size=abc": "Net takes int there, and this is a string",
    "rate=abc": "Net takes float | None there, and this is a string",
    "most=abc": "Net takes Optional[int] there",
    "pair=abc": "there, and this is a string",
    "flag=True": "Net takes bool there, and this is a string: write true",
    "flag=perhaps": "Net takes bool there, and this is a string",
    "many=abc": "there, and this is a string",
}
TAKEN = (
    "width=5", 'width="abc"', "kind=abc", "norm=abc", "norm=4", "bias=batch", "bias=false", "size=5", 'size="abc"',
    "rate=null", "both=abc", "mode=abc", "modes=abc", "anything=abc", "choice=x", "unknown=abc", "other=abc",
)  # fmt: skip


@pytest.fixture
def kinds(folder: Path) -> None:
    """A config that leaves all arguments of its model to the code."""
    Path("kinds.py").write_text(KINDS)
    parts = {"model": {"class": "kinds.Net"}, "data_loaders": {"all": {"dataset": "dataset", "shuffle": True}}}
    Path("training.json").write_text(json.dumps(SAME | FORMS["one"] | parts))


@pytest.mark.parametrize("options", [[], ["--import"]], ids=["read", "imported"])
@pytest.mark.usefixtures("kinds")
def test_a_word_is_refused_where_an_annotation_or_a_default_of_the_code_is_plainly_no_string(
    capsys: pytest.CaptureFixture[str], options: list[str]
) -> None:
    for change, words in REFUSED.items():
        assert cli.main(["check", "training.json", f"model.{change}", *options]) == 1, change
        assert words in capsys.readouterr().out, change


@pytest.mark.parametrize("options", [[], ["--import"]], ids=["read", "imported"])
@pytest.mark.usefixtures("kinds")
def test_a_word_is_taken_where_the_code_does_not_say_that_it_takes_none(options: list[str]) -> None:
    for change in TAKEN:
        assert cli.main(["check", "training.json", f"model.{change}", *options]) == 0, change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("model.width=4,abc", "with model.width=abc:\ntraining.json (overridden): model.width = 'abc': by default Net"),
        ("models.net.width=4,abc", "by default Net has a number there, 4"),
        ("optimizer.weight_decay=0,abc", "Adam takes float there, and this is a string"),
        ("data_loaders.all.timeout=0,abc", "DataLoader takes float there, and this is a string"),
        ("model.bias=True,False", "by default Net has true or false there, and this is a string: write true"),
    ],
)
@pytest.mark.usefixtures("kinds")
def test_a_sweep_refuses_a_word_for_a_number_of_the_code_before_its_first_trial(
    capsys: pytest.CaptureFixture[str], change: str, words: str
) -> None:
    assert cli.main(["sweep", "training.json", change]) == 1
    assert words in capsys.readouterr().err
    assert not Path("run-sweep").exists()


def test_training_refuses_a_word_for_a_number_of_the_code_at_its_start_and_over_a_session(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("training.json").write_text(json.dumps(SAME | FORMS["one"] | {"model": {"class": "toys.Net"}}))
    assert cli.main(["train", "training.json", "model.width=abc"]) == 1
    assert not Path("run").exists()
    begin(understand(read("training.json")))
    assert cli.main(["train", "run", "models.net.width=abc"]) == 1
    for text in capsys.readouterr().err.splitlines():
        assert "by default Net has a number there, 8, and this is a string" in text


def test_a_word_of_python_for_true_or_false_is_refused_where_the_config_has_one(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("training.json").write_text(json.dumps(SAME | {"optimizer": {"class": "Adam", "amsgrad": True}}))
    assert cli.main(["check", "training.json", "optimizer.amsgrad=False"]) == 1
    assert "optimizer.amsgrad=False: the config has true or false there" in capsys.readouterr().err
    assert cli.main(["check", "training.json", "optimizer.amsgrad=false"]) == 0
