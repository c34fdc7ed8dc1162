"""The `torcheer` command."""

import io
import json
import logging
import os
import re
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from fast_cases import fast_first
from seams import run_as_json, terminal

from torcheer import cli
from torcheer.errors import ConfigWarning, TorcheerWarning


class Screen(io.StringIO):
    """A stream that is a terminal."""

    def isatty(self) -> bool:
        return True


def test_version_is_the_packages_own(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.main(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out == f"torcheer {cli.package_version('torcheer')}\n"


def test_doctor_names_versions_and_what_is_missing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli, "list_extras", lambda: {"all": ["numpy", "no-such-package"]})
    assert cli.main(["doctor"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["torch", cli.package_version("torch")] in lines
    assert ["numpy", cli.package_version("numpy")] in lines
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


@pytest.mark.parametrize(
    "arguments", [*([name, "--help"] for name in cli.COMMANDS), ["--help"], ["--version"]], ids=str
)
def test_help_is_a_document_of_every_command(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*arguments, "--json"]) == 0
    out, err = capsys.readouterr()
    document = json.loads(out)
    assert document["status"] == 0 and document["command"] == (arguments[0] if len(arguments) > 1 else "")
    text = "\n".join(document["output"])
    assert text in err and ("usage: torcheer" in text or text == f"torcheer {cli.package_version('torcheer')}")


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


def test_an_error_that_a_terminal_folds_is_whole_in_the_document(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = Screen()
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr(sys, "stderr", shown)
    assert cli.main(["doctor", "--json", "--no-such-option", "and", "some", "more"]) == 2
    assert json.loads(capsys.readouterr().out)["error"] == "unrecognized arguments: --no-such-option and some more"
    assert max(map(len, shown.getvalue().splitlines())) <= 40


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


COMPLETED = {"torcheer tra": "train", "torcheer train --over": "--overfit-one-batch", "torcheer archive ver": "verify"}


def test_bash_completes_commands_options_and_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["completion", "bash"]) == 0
    (tmp_path / "completion.sh").write_text(capsys.readouterr().out)
    (tmp_path / "my run").mkdir()
    lines = "\n".join([*COMPLETED, "torcheer show my"])
    ask = "source ./completion.sh; while read -r words; do COMP_WORDS=($words); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); "
    ask += '_torcheer; printf "%s\\n" "${COMPREPLY[@]}"; done'
    answer = subprocess.run(["bash", "-c", ask], cwd=tmp_path, capture_output=True, text=True, input=f"{lines}\n")
    assert answer.stdout.splitlines() == [*COMPLETED.values(), "my run"], answer.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a terminal of its own")
@pytest.mark.parametrize("shell", [["bash", "--norc", "-i"], ["fish", "--no-config", "-i"]], ids=["bash", "fish"])
def test_a_shell_completes_what_is_typed(shell: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from terminals import Terminal

    if not shutil.which(shell[0]):
        pytest.skip(f"{shell[0]} is not installed")
    assert cli.main(["completion", shell[0]]) == 0
    (tmp_path / "completion").write_text(capsys.readouterr().out)
    program = f"import os; os.execvp({shell[0]!r}, {shell!r})"
    terminal = Terminal("-c", program, env={"TERM": "dumb", "PS1": "$ ", "HOME": str(tmp_path)}, cwd=tmp_path)
    try:
        terminal.type(f"source ./completion; echo read{'(math 1)' if shell[0] == 'fish' else '$((2 - 1))'}\n")
        terminal.until("read1")
        for typed, word in COMPLETED.items():
            terminal.type(f"{typed}\t")
            terminal.until(re.escape(word))
            terminal.type("\x15")
    finally:
        terminal.close()


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


def test_a_notice_is_left_to_the_handlers_of_the_root_and_never_printed_twice(
    capsys: pytest.CaptureFixture[str],
) -> None:
    root, kept = logging.getLogger(), Kept()
    terminal.notice("disk", "before")  # the program configures logging after the first
    root.addHandler(kept)
    try:
        terminal.notice("disk", "no locks here")
    finally:
        root.removeHandler(kept)
    assert [text for _, _, text in kept.records] == ["no locks here"]
    assert capsys.readouterr().err == "torcheer: before\n"


def test_warnings_have_a_category_of_their_own() -> None:
    with pytest.warns(TorcheerWarning, match="look"):
        terminal.warn_or_print("look")
    assert issubclass(ConfigWarning, TorcheerWarning)
    before = warnings.formatwarning
    with cli.plain_warnings():
        assert warnings.formatwarning("look", ConfigWarning, "dialects.py", 56) == "torcheer: look\n"
        assert "UserWarning" in warnings.formatwarning("look", UserWarning, "mine.py", 3)
    assert warnings.formatwarning is before
    assert issubclass(TorcheerWarning, UserWarning) and issubclass(TorcheerWarning, RuntimeWarning)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a terminal of its own")
@pytest.mark.parametrize(
    "arguments",
    fast_first(
        [
            [],
            ["trian"],
            ["watch", "run"],
            ["archive", "ls", "a", "--colours", "of each layer"],
            ["evaluate", "nowhere"],
        ],
        4,
    ),
    ids=" ".join,
)
def test_on_a_narrow_terminal_lines_end_between_words(arguments: list[str], tmp_path: Path) -> None:
    from terminals import Terminal

    from torcheer.integrations import OutsideRun

    if arguments[-1:] == ["run"]:
        with OutsideRun(tmp_path / "run", made_by="a test", system_secs=0) as run:
            run.log({"loss": float("nan")}, 0)
    whole = subprocess.run([sys.executable, "-m", "torcheer", *arguments], cwd=tmp_path, capture_output=True, text=True)
    terminal = Terminal("-m", "torcheer", *arguments, env={"COLUMNS": "40"}, cwd=tmp_path)
    try:
        assert terminal.ends() == whole.returncode
    finally:
        terminal.close()
    shown = terminal.text.partition("the shell is back")[0]
    assert max(map(len, shown.splitlines())) <= 40
    words = (whole.stdout + whole.stderr).partition("error: ")[2] or whole.stdout + whole.stderr
    assert set(words.split()) <= set(shown.split())


def test_notices_and_warnings_end_between_words(monkeypatch: pytest.MonkeyPatch) -> None:
    shown, text = Screen(), "a sentence that is longer than forty characters in one line"
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr(sys, "stderr", shown)
    terminal.notice("disk", text)
    with cli.plain_warnings(), warnings.catch_warnings():
        warnings.simplefilter("always")
        shown.write(warnings.formatwarning(text, ConfigWarning, "dialects.py", 56))
        warnings.simplefilter("error")
        terminal.warn_or_print(text)
    lines = ["torcheer: a sentence that is longer than", "  forty characters in one line"]
    assert shown.getvalue().splitlines() == lines * 3


def test_what_goes_to_a_file_is_not_folded() -> None:
    assert terminal.folded("word " * 100, io.StringIO()) == "word " * 100
