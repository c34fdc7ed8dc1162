"""The fuzzer finds the faults that it looks for, and none in a fixed small corpus of each format."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fuzz.comparing import differences, findings_of
from fuzz.dice import Dice
from fuzz.driver import Child, Fuzzer, replay
from fuzz.explained import explanation
from fuzz.grammars import grammars

pytestmark = [
    pytest.mark.house,
    pytest.mark.skipif(sys.platform != "linux", reason="limits and memory are read from /proc"),
]

FILES = 30  # of each format


@pytest.fixture(scope="module")
def misbehaving() -> Iterator[Child]:
    child = Child("misbehaving", cpu_secs=1.0)
    yield child
    child.close()


@pytest.fixture(scope="module")
def fuzzer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fuzzer]:
    fuzzer = Fuzzer("fixed", tmp_path_factory.mktemp("found"))
    yield fuzzer
    fuzzer.close()


@pytest.mark.parametrize(
    ("door", "kind", "text"),
    [
        ("crash", "crash", "_crash"),
        ("loop", "hang", "_loop"),
        ("loop in C", "hang", "_loop_in_c"),
        ("swell", "memory", "MB"),
        ("take too much", "memory", "MemoryError"),
        ("raise", "exception", "ValueError in serving.py:_answered > misbehaving.py:_raise"),
        ("raise in a thread", "exception", "misbehaving.py:_raise"),
        ("refuse without a name", "message", "something is damaged"),
    ],
)
def test_a_fault_is_a_finding(door: str, kind: str, text: str, misbehaving: Child, tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    path.write_bytes(b"")
    (finding,) = findings_of(path, misbehaving.ask(door, path), None, False)
    assert finding.kind == kind and text in finding.text, finding


def test_a_refusal_is_a_finding_where_the_file_is_good(misbehaving: Child, tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    ours, theirs = misbehaving.ask("refuse", path), misbehaving.ask("read", path)
    assert [finding.kind for finding in findings_of(path, ours, theirs, True)] == ["strict"]
    assert [*findings_of(path, ours, theirs, False)] == [*findings_of(path, ours, ours, True)] == []
    assert [finding.kind for finding in findings_of(path, theirs, ours, False)] == ["lax"]


def test_another_number_is_a_finding_and_an_unknown_one_is_none() -> None:
    ours: dict[str, Any] = {"tensors": {"x": ["float32", [2], "abc"], "y": "?"}}
    assert [*differences(ours, {"tensors": {"x": ["float32", [2], "?"]}})] == []
    (text,) = differences(ours, {"tensors": {"x": ["float32", [2], "abd"], "y": ["int8", [], "a"]}})
    assert text == ".tensors.x[2]: we read abc, the reference abd"
    (text,) = differences(ours, {"tensors": {}})
    assert text == ".tensors: they have no 'x'"


@pytest.mark.parametrize("format", grammars())
def test_a_seed_gives_the_same_files(format: str, tmp_path: Path) -> None:
    written = []
    for attempt in range(2):
        for number in range(8):
            folder = tmp_path / f"{attempt}/{number}"
            folder.mkdir(parents=True)
            grammars()[format].write(Dice(f"{format}/{number}"), folder)
        files = sorted(path for path in (tmp_path / str(attempt)).rglob("*") if path.is_file())
        written.append([(path.relative_to(tmp_path / str(attempt)), path.read_bytes()) for path in files])
    assert written[0] == written[1] and len({data for _, data in written[0]}) > 4


@pytest.mark.parametrize("format", grammars())
def test_a_fixed_corpus_has_no_findings(format: str, fuzzer: Fuzzer) -> None:
    report = fuzzer.run(format, range(FILES))
    assert not report.findings, f"{report.findings}; {report.kept}"
    assert report.files == FILES and report.accepted >= FILES // 10


def test_a_finding_is_kept_and_replayed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    files = tmp_path / "kept" / "files"
    files.mkdir(parents=True)
    (files / "model.safetensors").write_bytes(b"")
    facts = {"format": "safetensors", "path": "model.safetensors", "is_good": True}
    (tmp_path / "kept" / "finding.json").write_text(json.dumps(facts))
    assert replay(tmp_path / "kept") == []  # the reference refuses it, too
    assert "is no safetensors file, or is cut" in capfd.readouterr().out


def test_every_explanation_names_a_format() -> None:
    from fuzz import explained

    names = {name for name, _, _ in (*explained._ON_PURPOSE, *explained._OPEN)}
    assert names <= grammars().keys() and not explanation("gguf", "crash")


def test_a_config_whose_folder_has_too_long_a_name_is_checked(tmp_path: Path) -> None:
    from fuzz.opening import check_config

    path = tmp_path / "training.json"
    path.write_text(json.dumps({"session_dir": "a" * 5000, "seed": 1}))
    assert check_config(path)["data"].startswith("{'session_dir'")
