"""`torcheer new`: each template trains as it is, and answers."""

from __future__ import annotations

import io
import os
import tomllib
from pathlib import Path

import pytest
import yaml
from seams import KINDS, assemble, check, understand
from seams import new_project_module as new_project

from torcheer import cli
from torcheer.config import override, read
from torcheer.errors import BadArgument

pytestmark = pytest.mark.usefixtures("one_thread")
TEMPLATES = Path(new_project.__file__).parent / "templates"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_project_is_right_and_learns_from_its_first_epoch_on(kind: str, folder: Path) -> None:
    assert cli.main(["new", kind]) == 0
    os.chdir(folder / kind)
    config = override(read("config.yaml"), ["epochs=1"])
    assert check(config, imports=True) == []
    session = assemble(understand(config)).session
    before = session.evaluate()
    list(session.run(progress=False))
    after = session.evaluate()
    losses = [column for column in before if column.endswith("loss") and kind != "gan"]
    assert len(session.rows[0]) == 1 and all(after[column] < before[column] for column in losses)


@pytest.mark.parametrize("kind", KINDS)
def test_the_template_in_toml_says_the_same_with_as_many_comments(kind: str) -> None:
    in_yaml, in_toml = ((TEMPLATES / f"{kind}.{format}").read_text() for format in ("yaml", "toml"))
    assert tomllib.loads(in_toml) == yaml.safe_load(in_yaml)
    assert in_toml.count("#") == in_yaml.count("#") and 15 <= len(in_yaml.splitlines()) <= 27


def test_it_says_what_to_run_and_overwrites_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["new", "text", "mine"]) == 0
    assert capsys.readouterr().out.endswith("  cd mine && torcheer train config.yaml\n")
    (folder / "mine" / "config.yaml").unlink()
    before = (folder / "mine" / "data.py").read_bytes()
    assert cli.main(["new", "gan", "mine"]) == 1
    assert "mine/data.py is there already, and is not overwritten" in capsys.readouterr().err
    assert (folder / "mine" / "data.py").read_bytes() == before and not (folder / "mine" / "config.yaml").exists()


def test_a_folder_without_code_hides_no_module(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["new", "regression", "data"]) == 0  # where a dataset's folder often has that name
    assert cli.main(["train", "data/config.yaml", "--plain", "epochs=1", "studio=false"]) == 0


def test_a_folder_with_a_space_can_be_pasted(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["new", "regression", "my first"]) == 0
    assert capsys.readouterr().out.endswith('  cd "my first" && torcheer train config.yaml\n')


def test_an_unknown_kind_is_refused_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["new", "clasifier"]) == 1
    assert "Did you mean 'classifier'?" in capsys.readouterr().err


def test_without_pyyaml_a_project_is_in_toml(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(new_project, "find_spec", lambda name: None)
    assert [path.name for path in new_project.new_project("text", folder)] == ["config.toml", "data.py"]
    assert check(read(folder / "config.toml")) == []
    with pytest.raises(BadArgument, match="there is no template 'nothing'"):
        new_project.new_project("nothing", folder)


# Inference that asks


def trained(kind: str, folder: Path) -> None:
    new_project.new_project(kind, folder)
    assert cli.main(["train", "config.yaml", "--plain", "epochs=5", "studio=false"]) == 0


def test_infer_without_inputs_answers_line_by_line(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    trained("text", folder)
    capsys.readouterr()
    monkeypatch.setattr("sys.stdin", io.StringIO("a lovely warm film\n\nthe plot was dull and boring\n"))
    assert cli.main(["infer", "config.yaml"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["good", "bad"]
    assert cli.main(["infer", "run", "a lovely film", "dull and cold"]) == 0  # a session, too
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["Running", "good", "bad"]


def test_a_generator_makes_something_of_a_seed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    new_project.new_project("gan", folder)
    assert cli.main(["train", "config.yaml", "--plain", "epochs=1", "studio=false"]) == 0
    assert cli.main(["infer", "config.yaml", "7"]) == 0
    assert "fake:tensor([[" in capsys.readouterr().out
    assert cli.main(["lr-find", "config.yaml"]) == 1
    assert "name one of them as pipeline (--pipeline discriminate)" in capsys.readouterr().err


def test_numbers_are_read_without_a_converter_and_a_wrong_line_is_no_end(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    trained("regression", folder)
    capsys.readouterr()
    monkeypatch.setattr("sys.stdin", io.StringIO("0.1, 0.5\n0.1, 0.5, 0.9\n[0.1 0.5 0.9]\n"))
    assert cli.main(["infer", "run"]) == 1  # of a pipe, one line was not answered
    out, err = capsys.readouterr()
    first, second = out.splitlines()
    assert first.startswith("y_hat:tensor([[") and first == second
    assert "3 numbers (3) are needed, such as 0.1, 0.5; there are 2" in err
