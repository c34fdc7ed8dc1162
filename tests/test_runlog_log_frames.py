"""Frames whose checksums are right and whose parts are not: they are left out with a sentence, the rest is read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from seams import about_log, cell_of, decode_cell, encode_cell, is_cell, is_understood, open_source, read_facts

import torcheer as tl
from torcheer.archive import Writer
from torcheer.errors import ArchiveDamaged
from torcheer.records import Sample

RECORD = {"count": 1, "types": {"loss": "float"}}


def bits(*numbers: float) -> list[int]:
    return np.array(numbers, np.float64).view(np.int64).tolist()


LINES = [[1], bits(1.0), bits(0.5)]  # a step, its time, a loss


def write_run(path: Path, *abouts: dict[str, Any]) -> Path:
    """A run with a log of these frames; `lines` are the array of its rows."""
    path.mkdir()
    (path / "run.json").write_text("{}")
    with Writer(path / "log" / "train", about=about_log("train")) as writer:
        for about in abouts:
            facts, tables = dict(about), about.get("rows")
            lines = facts.pop("lines", LINES)
            samples = [Sample(1, "(rows)", table, array=np.array(lines)) for table in tables or () if lines is not None]
            writer.step(samples, **facts)
    return path


def rows_with(lines: Any = LINES, table: str = "metric", **change: Any) -> dict[str, Any]:
    return {"rows": {table: RECORD | change}, "lines": lines}


HOSTILE: list[dict[str, Any]] = [
    rows_with(lines=None), rows_with(lines=LINES[:2]), rows_with(lines=[*LINES, [1]]), rows_with(lines=[1, 2, 3]),
    rows_with(lines=[[1], bits(float("inf")), bits(0.5)]), rows_with(lines=[[1.0], [1.0], [0.5]]),
    rows_with(count="1"), rows_with(types={}), rows_with(types={"loss": "double"}), rows_with(types=["float"]),
    rows_with(types={"loss": "text"}, lines=LINES[:2]), rows_with(texts={"loss": ["a text"]}),
    rows_with(types={"loss": "text"}, texts={"loss": ["a text"]}, lines=LINES[:2]),
    rows_with(types={"loss": "text"}, texts={"loss": [[1, [2]]]}, lines=LINES[:2]),
    rows_with(types={"loss": "text"}, texts={"loss": []}, lines=LINES[:2]),
    rows_with(types={"loss": "text"}, texts={"loss": [10**400]}, lines=LINES[:2], table="other"),
    {"heads": {"metric": 1}},
    {"heads": {"metric": {"title": 1}}},
    {"heads": {"metric": {"columns": [{"name": 1}]}}}, {"heads": {"metric": {"columns": [{"type": "int"}]}}},
    {"heads": {"metric": {"columns": [{"name": "x", "type": "tensor", "shape": [2**40]}]}}},
    {"heads": {"metric": {"columns": [{"name": "x", "fixed": [1]}]}}},
    {"heads": {"train_epoch": {"tested": {"0": [1]}}}},
    {"values": [["layer"]]}, {"values": [[1, "output"]]}, {"values": ["text"]}, {"values": [["layer", ""]]},
    {"hashes": ["x"]}, {"alerts": [1]}, {"alerts": {}}, {"cut": {"step": "1"}}, {"cut": {"step": None}},
    {"cleared": [1]}, {"rank": {"of": 10**9}}, {"rank": {"of": "2"}}, {"ended": {"status": 1}}, {"opened": "now"},
    {"network": []}, {"samples": {}}, {"account": 1},
]  # fmt: skip


@pytest.mark.parametrize("about", HOSTILE, ids=lambda about: str(about)[:60])
def test_a_frame_that_is_otherwise_is_left_out_with_a_sentence(about: dict[str, Any], tmp_path: Path) -> None:
    path = write_run(tmp_path / "run", rows_with(), about)
    opened = tl.load(path)
    assert opened.tables["metric"]["loss"].tolist() == [0.5] and opened.alerts == [] and len(opened.samples()) == 0
    facts = read_facts(path, "run")
    assert ("another version" in facts.problem or "are lost" in facts.problem) and facts.results["loss"] == 0.5
    source = open_source(path)
    try:
        assert any("another version" in text or "are lost" in text for text in source.poll().problems)
        assert source.tables["metric"].columns["loss"] == [0.5]
    finally:
        source.close()


def test_a_curve_leaves_out_a_number_that_no_float_holds(tmp_path: Path) -> None:
    from seams import read_curves

    path = write_run(
        tmp_path / "run", rows_with(), rows_with(types={"loss": "text"}, texts={"loss": [10**400]}, lines=LINES[:2])
    )
    assert read_curves(path, "run", ["loss"])["loss"].y.tolist() == [0.5]


def test_operations_whose_numbers_are_others_are_damage(tmp_path: Path) -> None:
    from torcheer.archive import Archive

    saved = Archive(Path(__file__).parent / "data" / "fuzz" / "history").frames[0]["about"]
    for number in (2**70, -1, 1.5):
        about = json.loads(json.dumps(saved))
        about["ops"]["index"][-1] = number
        with Writer(tmp_path / str(number), about={"kind": "history"}) as writer:
            writer.step([], **about)
        with pytest.raises(ArchiveDamaged, match="cannot be read"):
            str(tl.load(tmp_path / str(number)))


@pytest.mark.parametrize("change", [{"written": ""}, {"written": "1"}, {"handled": None}, {"lost": [1]}])
def test_an_account_whose_counts_are_no_numbers_is_none(change: dict[str, Any], tmp_path: Path) -> None:
    from seams import WriterLog

    account = {"offered": 2, "handled": 1, "lost": 0, "damaged": 0, "restarts": 0, "dropped": [], "written": 1}
    log = write_run(tmp_path / "good", {"account": account}) / "log" / "train"
    assert WriterLog(log).account is not None
    assert WriterLog(write_run(tmp_path / "run", {"account": account | change}) / "log" / "train").account is None


def test_a_frame_nested_a_thousand_deep_is_left_out() -> None:
    deep: Any = 1
    for _ in range(5000):
        deep = [deep]
    said: list[str] = []
    assert not is_understood({"step": 1, "about": {"alerts": [{"what": deep}]}}, said.append)
    assert said == ["step 1: what it holds is of another version of torcheer"]


def test_an_alert_whose_parts_are_of_other_types_is_left_out(tmp_path: Path) -> None:
    alert = {"rule": "r", "layer": "l", "variable": "v", "step": 1, "since": 1, "what": "w", "advice": "", "values": {}}
    alerts = [
        alert,
        *({**alert, **change} for change in ({"step": "1"}, {"layer": [1]}, {"values": 3}, {"what": None})),
    ]
    assert [each.what for each in tl.load(write_run(tmp_path / "run", {"alerts": alerts})).alerts] == ["w"]


@pytest.mark.parametrize("value", [1.5, float("inf"), -3, "text", None, True, [1, [2.0]], {"a": [1]}, {"$float": "x"}])
def test_a_cell_is_read_as_it_was_written(value: Any) -> None:
    encoded = encode_cell(value)
    assert is_cell(encoded) and decode_cell(encoded) == value


def test_cells_of_several_kinds_are_texts(tmp_path: Path) -> None:
    head = {"columns": [{"name": "x", "type": "tensor", "shape": [2]}, {"name": "y", "type": "int"}], "title": "T"}
    texts = {"x": [[1, 2], [[1], [2, 3]]], "y": [1, {"a": 1}]}
    types = {"x": "text", "y": "text", "": "int"}
    lines = [[1, 2], bits(1.0, 2.0), [1, 2]]
    path = write_run(tmp_path / "run", {"heads": {"t": head}}, rows_with(lines, "t", types=types, texts=texts))
    table = tl.load(path).tables["t"]
    assert table["x"].tolist() == ["[1, 2]", "[[1], [2, 3]]"] and table["y"].tolist() == ["1", "{'a': 1}"]
    assert table["(no name)"].tolist() == [1, 2]


def test_a_list_of_lists_of_different_lengths_is_a_cell() -> None:
    assert cell_of([[1], [1, 2]]) == "a list of 2" and cell_of([[1], [2]]) == [[1], [2]]


@pytest.mark.parametrize("text", ["", "{", "[1]", "[" * 100_000])
def test_a_damaged_config_of_a_run_names_its_file(text: str, tmp_path: Path) -> None:
    path = write_run(tmp_path / "run", rows_with())
    (path / "spec.json").write_text(text)
    with pytest.raises(ArchiveDamaged, match=r"spec\.json cannot be read"):
        _ = tl.load(path).config


def test_the_statistics_of_a_value_without_a_shape_are_reported(tmp_path: Path) -> None:
    from seams import COUNTS, STATISTICS

    from torcheer.inspector import open_watch

    with Writer(tmp_path / "log" / "watch", about=about_log("watch")) as writer:
        arrays = {"statistics": np.zeros((1, len(STATISTICS))), "counts": np.zeros((1, len(COUNTS)), np.int64)}
        samples = [Sample(0, "(watch)", name, array=array) for name, array in arrays.items()]
        columns = {"statistics": list(STATISTICS), "counts": list(COUNTS)}
        writer.step(samples, values=[["layer", "output", "float32", "shape"]], columns=columns)
    assert open_watch(tmp_path).problems == ["step 0: its statistics are of another version of torcheer"]


def test_a_history_whose_records_are_damaged_names_its_folder(tmp_path: Path) -> None:
    with Writer(tmp_path / "saved", about={"kind": "history"}) as writer:
        writer.step([], records={}, info={}, ops={})
    with pytest.raises(ArchiveDamaged, match=r"saved: the records of a history cannot be read"):
        str(tl.load(tmp_path / "saved"))
