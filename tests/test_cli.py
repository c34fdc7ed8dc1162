"""The `torcheer` command."""

import json
import logging
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from torcheer import cli, terminal
from torcheer.commands.json_results import run_as_json
from torcheer.errors import ConfigWarning, TorcheerWarning


def test_version_is_the_packages_own(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.main(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out == f"torcheer {cli.version('torcheer')}\n"


def test_doctor_names_versions_and_what_is_missing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli, "list_extras", lambda: {"all": ["numpy", "no-such-package"]})
    assert cli.main(["doctor"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["torch", cli.version("torch")] in lines
    assert ["numpy", cli.version("numpy")] in lines
    assert ["torcheer[all]"] in lines
    assert ["no-such-package", "missing"] in lines


def test_extras_are_read_from_the_packages_own_metadata() -> None:
    assert {"pandas", "pyarrow", "rich"} <= set(cli.list_extras()["all"])


def test_an_unknown_command_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.main(["fly"])
    assert stop.value.code == 2
    assert "doctor" in capsys.readouterr().err


def test_a_misspelt_command_is_answered_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.main(["trian"])
    assert stop.value.code == 2
    assert "there is no command 'trian'. Did you mean 'train'? There are new, " in capsys.readouterr().err


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_every_command_has_json_and_says_what_it_does(command: str) -> None:
    text = cli.make_parser(command).format_help()
    assert "--json" in text and f"usage: torcheer {command} " in text


def test_json_is_one_document_and_text_goes_to_stderr(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["new", "regression", ".", "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out) == {"command": "new", "status": 0, "config": "config.yaml", "data": "data.py"}
    assert "torcheer train config.yaml" in err
    assert cli.main(["check", "config.yaml", "--json", "optimizer.class=Adma"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["status"] == 1 and "Did you mean" in document["problems"][0] and document["ok"] is False
    assert cli.main(["train", "config.yaml", "--plain", "epochs=1", "studio=false", "--json"]) == 0
    trained = json.loads(capsys.readouterr().out)
    assert (trained["epoch"], trained["completed"], trained["session_dir"]) == (1, True, "run")
    assert cli.main(["evaluate", "run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["values"]["val loss"] == trained["values"]["val loss"]
    assert cli.main(["show", "run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["lines"]
    assert cli.main(["infer", "run", "0.1 0.2 0.3", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["results"]) == 1
    assert cli.main(["export", "run", "weights.safetensors", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["file"] == "weights.safetensors"
    assert cli.main(["draw", "config.yaml", "--out", "net.svg", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["boxes"] == 7 and (tmp_path / "net.svg").read_text().startswith("<svg")


def test_an_error_is_a_document_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["evaluate", "nowhere", "--json"]) == 1
    out, err = capsys.readouterr()
    document = json.loads(out)
    assert (document["status"], document["kind"]) == (1, "BadArgument") and document["error"] in err


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_a_wrong_option_is_an_error_in_the_document_too(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([command, "--json", "--no-such-option"]) == 2
    out, err = capsys.readouterr()
    document = json.loads(out)
    assert (document["command"], document["status"], document["kind"]) == (command, 2, "UsageError")
    assert document["error"] and document["error"] in err


@pytest.mark.parametrize("arguments", [["plan", "nowhere.yaml"], ["watch", "nowhere"], ["mcp", "nowhere"]])
def test_commands_with_documents_of_their_own_form_give_errors_in_the_common_one(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main([*arguments, "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["status"] == 1 and "nowhere" in document["error"]


def test_no_command_and_an_unknown_one_are_errors_in_a_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["trian", "--json"]) == 2
    assert "Did you mean 'train'?" in json.loads(capsys.readouterr().out)["error"]
    assert cli.main(["--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"].startswith("a command is needed: new, init, train")
    assert cli.main(["train", "--help", "--json"]) == 0
    assert any("--overfit-one-batch" in line for line in json.loads(capsys.readouterr().out)["output"])


def test_what_json_cannot_hold_is_told_as_it_can(capsys: pytest.CaptureFixture[str]) -> None:
    def run() -> int:
        terminal.tell(rate=float("nan"), shape=(2, 3), path=Path("a"), values={1: np.ones(2)})
        terminal.tell_now(url="x")
        return 3

    assert run_as_json("some", run) == 3
    first, last = map(json.loads, capsys.readouterr().out.splitlines())
    assert first == {"command": "some", "url": "x"}
    assert last == {
        "command": "some", "status": 3, "rate": None, "shape": [2, 3], "path": "a", "values": {"1": [1.0, 1.0]},
    }  # fmt: skip


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_is_told_every_command_and_option(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["completion", shell]) == 0
    script = capsys.readouterr().out
    words = set(re.findall(r"[\w-]+", script))
    assert set(cli.COMMANDS) <= words and {"regression", "verify"} <= words
    assert {"overfit-one-batch", "--overfit-one-batch"} & words
    if shutil.which(shell):
        assert subprocess.run([shell, "-n"], input=script, text=True).returncode == 0


def test_bash_completes_commands_and_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["completion", "bash"]) == 0
    (tmp_path / "completion.sh").write_text(capsys.readouterr().out)
    ask = 'source ./completion.sh; for words in "torcheer tr" "torcheer train --over"; do COMP_WORDS=($words); '
    ask += 'COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _torcheer; echo "${COMPREPLY[@]}"; done'
    answer = subprocess.run(["bash", "-c", ask], cwd=tmp_path, capture_output=True, text=True)
    assert answer.stdout.split() == ["train", "--overfit-one-batch"]


DRAWN = {
    ("torch.nn.Linear", "in_features=3", "out_features=2", "--input", "1,3"): "linear_1_1  1×2",
    ("torch.nn.ReLU",): "give the shape of its input, as --input 1,3,224,224",
    ("torch.nn.Linear", "--input", "1,3"): "give arguments as KEY=VALUE",
    ("torch.nn.Linear", "--out", "a.jpg"): "a.jpg: the ending says how it is drawn",
    ("torch.nn.ReLU", "--input", "1,three"): "a shape is whole numbers",
    ("nowhere",): "there is nothing at nowhere",
}


@pytest.mark.parametrize("arguments", DRAWN)
def test_a_class_is_drawn_or_what_is_missing_is_said(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    cli.main(["draw", *arguments])
    assert DRAWN[arguments] in "".join(capsys.readouterr())


class Kept(logging.Handler):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[tuple[str, int, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append((record.name, record.levelno, record.getMessage()))


def test_notices_go_through_logging(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.notice("disk", "no locks here")
    assert capsys.readouterr().err == "torcheer: no locks here\n"
    logger, kept = logging.getLogger("torcheer"), Kept()
    before, logger.handlers = logger.handlers, [kept]  # as a program's own settings do
    try:
        terminal.notice("disk", "no locks here")
        assert capsys.readouterr().err == ""
        assert kept.records == [("torcheer.disk", logging.WARNING, "no locks here")]
    finally:
        logger.handlers = before


def test_warnings_have_a_category_of_their_own() -> None:
    with pytest.warns(TorcheerWarning, match="look"):
        terminal.warn_or_print("look")
    assert issubclass(ConfigWarning, TorcheerWarning)
    assert issubclass(TorcheerWarning, UserWarning) and issubclass(TorcheerWarning, RuntimeWarning)
