"""CI runs a failed test once more where a busy machine may be to blame, and only there."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
from children import run_python

pytestmark = pytest.mark.house

ROOT = Path(__file__).parents[1]
TESTS = """
import pathlib, pytest
first = pathlib.Path(__file__).with_name("ran")

@pytest.mark.timing
def test_that_is_late_once():
    late = not first.exists()
    first.touch()
    assert not late

def test_that_is_wrong():
    assert {wrong}
"""


@pytest.fixture
def retry() -> ModuleType:
    spec = importlib.util.spec_from_file_location("retry", ROOT / ".ci" / "retry.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("failed", "exits", "reason"),
    [
        ({"tests/test_a.py::test_b": {"timing"}}, [1], ""),
        ({"tests/test_a.py::test_b": {"timing"}, "tests/test_c.py::test_d": {"browser"}}, [1], ""),
        ({"tests/test_a.py::test_b": set()}, [1], "may not fail once: tests/test_a.py::test_b"),
        ({"tests/test_a.py::test_b": {"timing", "hypothesis"}}, [1], "may not fail once"),
        ({f"tests/test_a.py::test_{n}": {"timing"} for n in range(3)}, [1], "3 tests failed; at most 2"),
        ({"tests/test_a.py::test_b": {"timing"}}, [], "did not run to their end"),
        ({"tests/test_a.py::test_b": {"timing"}}, [3], "did not run to their end"),
        ({"tests/test_a.py": set()}, [1], "may not fail once"),
        ({}, [1], "did not run to their end"),
        ({"tests/test_a.py::test_old[4]": {"browser"}}, [1], "listed as such in docs/log.md"),
    ],
)
def test_a_second_try_is_for_few_and_for_those_that_a_clock_can_upset(
    retry: ModuleType, failed: dict[str, set[str]], exits: list[int], reason: str
) -> None:
    said = retry.refusal(failed, exits, {"tests/test_a.py::test_old"})
    assert reason in said and bool(reason) == bool(said)


def test_flaky_tests_are_read_from_the_log(retry: ModuleType, tmp_path: Path) -> None:
    log = tmp_path / "log.md"
    log.write_text("## A\n\n- tests/test_z.py::no\n\n## Flaky tests\n\n- `tests/test_a.py::test_b[3]`: why\n\n## C\n")
    assert retry.listed(log) == {"tests/test_a.py::test_b"}
    assert retry.listed(ROOT / "docs" / "log.md") == set()


def test_what_passes_at_the_second_try_is_told_and_what_fails_again_ends_it(
    retry: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    assert retry.retry(["tests/a::b", "tests/c::d"], lambda test: test == "tests/a::b") == 1
    told = capsys.readouterr()
    assert told.out == "FLAKY tests/a::b\n" and "tests/c::d failed again" in told.err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wrong", "code", "text"), [("1", 0, "FLAKY"), pytest.param("0", 1, "may not fail once", marks=pytest.mark.slow)]
)
def test_a_run_with_a_late_test_goes_on_and_one_with_a_wrong_test_does_not(
    retry: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], wrong: str,
    code: int, text: str,
) -> None:  # fmt: skip
    (tmp_path / "test_x.py").write_text(TESTS.format(wrong=wrong))
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    timing: x\n    browser: x\n")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "log.md").write_text("")
    failures = tmp_path / "failures"
    command = ["-m", "pytest", "-q", "-p", "conftest", "--failures", failures, "test_x.py"]
    run_python(*command, cwd=tmp_path, env={"PYTHONPATH": str(ROOT / "tests")}, status=1)
    monkeypatch.setattr(retry, "ROOT", tmp_path)
    assert retry.main(str(failures)) == code
    assert text in "".join(capsys.readouterr())
