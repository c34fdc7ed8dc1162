"""The `torcheer` command."""

import pytest

from torcheer import cli


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
