"""Answers to pages are what their types say: the page's TypeScript is made from the same classes."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from folder_runs import sweep

pytest.importorskip("uvicorn")
from seams import ANSWERS, from_json, messages, start
from studio_socket import Page
from studio_stage import Stage, stage

UNIT = {"layer": "Hidden1", "unit": 3, "variable": "Act", "moment": -1}
LAYER_QUESTIONS: dict[str, dict[str, Any]] = {
    "ask_value": UNIT,
    "ask_trace": {"layer": "Hidden1", "unit": 3, "variables": ["Act"]},
    "ask_tensors": {"layer": "Hidden1", "moment": -1},
    "ask_statistics": {"layer": "Hidden1", "variable": "Act"},
    "ask_analysis": {"table": "patterns", "column": "Input", "analysis": "pca"},
}
RUN_QUESTIONS: dict[str, dict[str, Any]] = {
    "ask_run_columns": {},
    "ask_runs": {"columns": ["Name"]},
    "ask_run_details": {"runs": [0]},
    "ask_curves": {"runs": [0], "series": ["loss"]},
    "note_run": {"run": 1, "name": "best", "tags": [], "note": ""},
    "tag_runs": {"runs": [1, 7], "add": ["paper"]},
    "delete_runs": {"runs": [2]},
    "restore_runs": {"places": ["nowhere/sweep-2"]},
}


@pytest.fixture(scope="module")
def staged() -> Iterator[Page]:
    with stage(Stage(paused=True, states=3)) as (url, _), Page(url) as page:
        yield page


@pytest.fixture(scope="module")
def listed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    folder: Path = sweep(tmp_path_factory.mktemp("answers") / "runs", 3)
    with start(folder, browser=False, quiet=True) as viewer, Page(viewer.url) as page:
        yield page


def check(page: Page, kind: str, fields: dict[str, Any]) -> None:
    answer, hint = page.ask(kind, 1, **fields), ANSWERS[kind]
    (cls,) = typing.get_args(hint) or (hint,)
    for record in answer if typing.get_origin(hint) is list else [answer]:
        from_json(cls, record)
        assert set(record) <= {field.name for field in dataclasses.fields(cls)}, kind


@pytest.mark.parametrize("kind", LAYER_QUESTIONS)
def test_answers_about_layers_and_tables_are_of_their_types(staged: Page, kind: str) -> None:
    check(staged, kind, LAYER_QUESTIONS[kind])


@pytest.mark.parametrize("kind", RUN_QUESTIONS)
def test_answers_about_runs_are_of_their_types(listed: Page, kind: str) -> None:
    check(listed, kind, RUN_QUESTIONS[kind])


def test_every_answer_that_is_typed_is_tried() -> None:
    assert set(ANSWERS) == {*LAYER_QUESTIONS, *RUN_QUESTIONS} <= set(messages.FROM_PAGE)
