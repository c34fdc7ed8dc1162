"""What pages say: read strictly, and whatever they say, nothing breaks."""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any

import pytest
from seams import FROM_PAGE, Every, Hub, InvalidMessage, PageConnection, Problem, messages
from seams import MOST_MESSAGE_BYTES as MOST_BYTES
from seams import parse_message as parse
from studio_socket import FakeSocket
from studio_socket import Page as SocketPage
from studio_stage import Stage, StagePlace, stage

GOOD: list[dict[str, Any]] = [
    {"kind": "look", "look": 3, "variable": "Act", "item": 1, "moment": 4, "layer": "Hidden1", "unit": 2, "raster": 10},
    {"kind": "look", "look": 4, "variable": "r.Wt", "train": {"unit": "epoch", "count": 3}, "test": {"unit": "off"}},
    {"kind": "seen", "look": 3, "moment": 4},
    {"kind": "act", "action": "step_n", "count": 5, "item": 2},
    {"kind": "change", "name": "optimizer.lr", "value": 0.5},
    {"kind": "change", "name": "model.layers", "value": [1, 2.5, "three", True]},
    {"kind": "control", "take": True},
    {
        "kind": "ask_value",
        "question": 1,
        "layer": "Conv",
        "unit": 7,
        "variable": "Act",
        "moment": 2,
        "of_layer": "Input",
    },
    {"kind": "ask_trace", "question": 2, "layer": "Conv", "unit": 7, "variables": ["Act", "Grad"], "item": 1},
    {"kind": "ask_analysis", "question": 3, "table": "patterns", "column": "Input", "analysis": "pca"},
    {"kind": "ask_sample", "question": 4, "id": 2},
    {"kind": "ask_graph", "question": 5},
    {"kind": "ask_backward", "question": 6},
    {"kind": "ask_tensors", "question": 5, "layer": "Conv", "moment": 2},
    {
        "kind": "ask_slice",
        "question": 6,
        "layer": "Conv",
        "variable": "Wt",
        "parameter": "conv.weight",
        "rows": 1,
        "columns": 0,
        "index": [0, 0, 1, 2],
        "firsts": [0, 2, 3],
        "counts": [-1, 4, 4],
        "most_cells": 4096,
    },
    {"kind": "ask_statistics", "question": 7, "layer": "Conv", "variable": "Act"},
    {"kind": "save_recording", "name": "a-name_1"},
    {"kind": "open_recording", "id": 0},
    {"kind": "open_run", "id": 1},
    {"kind": "open_comparison", "first": 0, "second": 1, "first_step": 20, "second_step": -1},
    {"kind": "ask_run_columns", "question": 5},
    {"kind": "ask_runs", "question": 6, "columns": ["Name", "train.lr"]},
    {"kind": "ask_run_details", "question": 7, "runs": [0, 2]},
    {"kind": "ask_curves", "question": 8, "runs": [0, 1], "series": ["loss"]},
    {"kind": "ask_checkpoints", "question": 8, "runs": [0, 1]},
    {"kind": "note_run", "question": 9, "run": 1, "name": "best", "tags": ["paper"], "note": "why"},
    {"kind": "delete_runs", "question": 10, "runs": [1]},
    {"kind": "tag_runs", "question": 12, "runs": [0, 1], "add": ["paper"], "remove": []},
    {"kind": "restore_runs", "question": 13, "places": ["20261118-010101/run"]},
    {"kind": "close_studio"},
]


def test_the_examples_here_are_all_kinds_of_messages() -> None:
    assert {message["kind"] for message in GOOD} == set(FROM_PAGE)


@pytest.mark.parametrize("message", GOOD, ids=lambda message: message["kind"])
def test_a_good_message_becomes_its_dataclass(message: dict[str, Any]) -> None:
    found = parse(json.dumps(message))
    assert type(found) is FROM_PAGE[message["kind"]]
    for name, value in message.items():
        if name in ("train", "test"):
            value = Every(**value)
        if name != "kind":
            field = getattr(found, name)
            assert (list(field) if isinstance(field, tuple) else field) == value


def test_what_is_left_out_has_its_default() -> None:
    assert parse('{"kind": "look", "look": 1, "variable": ""}') == messages.Look(1, "")
    assert parse(b'{"kind": "save_recording"}') == messages.SaveRecording("")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "not JSON"),
        ("[]", "an object with a `kind`"),
        ("null", "an object with a `kind`"),
        ('"look"', "an object with a `kind`"),
        ("{}", "no message is called null; there are look, seen, act"),
        ('{"kind": "hello"}', 'no message is called "hello"'),
        ('{"kind": ["look"]}', "no message is called a list"),
        ('{"kind": "seen", "look": 1}', "seen: moment is missing"),
        ('{"kind": "seen", "look": 1, "moment": 1, "lok": 2}', "Did you mean 'look'?"),
        ('{"kind": "seen", "look": 1, "look": 2, "moment": 1}', "says a thing twice"),
        ('{"kind": "seen", "look": 1.0, "moment": 1}', "look is 1.0; it must be a whole number"),
        ('{"kind": "seen", "look": true, "moment": 1}', "look is true; it must be a whole number"),
        ('{"kind": "seen", "look": -1, "moment": 1}', "look is -1; it must be from 0 to"),
        ('{"kind": "seen", "look": 1e400, "moment": 1}', "it must be a whole number"),
        ('{"kind": "seen", "look": NaN, "moment": 1}', "not JSON"),
        ('{"kind": "seen", "look": 9007199254740993, "moment": 1}', "it must be from 0 to 9007199254740991"),
        ('{"kind": "look", "look": 1, "variable": 5}', "variable is 5; it must be text"),
        ('{"kind": "look", "look": 1, "variable": "\\ud800"}', "that UTF-8 cannot say"),
        (
            '{"kind": "look", "look": 1, "variable": "a", "raster": 10001}',
            "raster is 10001; it must be from 0",
        ),
        ('{"kind": "look", "look": 1, "variable": "a", "train": "auto"}', "an object with `unit` and `count`"),
        ('{"kind": "look", "look": 1, "variable": "a", "train": {"unit": "day"}}', "one of auto, trial, epoch, off"),
        ('{"kind": "look", "look": 1, "variable": "a", "test": {"count": 0}}', "count is 0; it must be 1 or more"),
        ('{"kind": "act", "action": "explode"}', 'action is "explode"; it must be one of init, train, stop'),
        ('{"kind": "control", "take": 1}', "take is 1; it must be true or false"),
        ('{"kind": "change", "name": "a", "value": null}', "it must be text, a number, true or false"),
        ('{"kind": "change", "name": "a", "value": {"a": 1}}', "value is an object; it must be text"),
        ('{"kind": "change", "name": "a", "value": [[1]]}', "it must be text, a number, true or false, or a list"),
        ('{"kind": "change", "name": "a", "value": 1e999}', "it must be text, a number"),
        ('{"kind": "ask_trace", "question": 1, "layer": "a", "unit": 0, "variables": "Act"}', "at most 32 texts"),
        ('{"kind": "ask_trace", "question": 1, "layer": "a", "unit": 0, "variables": [1]}', "at most 32 texts"),
        (
            '{"kind": "ask_analysis", "question": 1, "table": "a", "column": "b", "analysis": "c"}',
            "one of similarity, pca",
        ),
    ],
)
def test_a_bad_message_is_refused_in_a_sentence(text: str, says: str) -> None:
    with pytest.raises(InvalidMessage) as refused:
        parse(text)
    assert says in str(refused.value)


@pytest.mark.parametrize(
    "text",
    ["[" * 60_000, '{"a":' * 10_000, "1" * 60_000, "x" * (MOST_BYTES + 1), '{"kind":"look","look":' + "9" * 5000 + "}"],
    ids=["brackets", "braces", "digits", "long", "a number of 5000 digits"],
)
def test_what_would_exhaust_a_parser_is_refused(text: str) -> None:
    with pytest.raises(InvalidMessage):
        parse(text)


def test_a_refused_question_says_which_one_it_was() -> None:
    with pytest.raises(InvalidMessage) as refused:
        parse('{"kind": "ask_value", "question": 12, "layer": 5}')
    assert refused.value.question == 12


def damaged(chance: random.Random) -> str | bytes:
    """A message with something wrong in it, somewhere."""
    message = dict(chance.choice(GOOD))
    text = json.dumps(message)
    match chance.randrange(7):
        case 0:
            return text[: chance.randrange(len(text))]
        case 1:
            where = chance.randrange(len(text))
            return text[:where] + chr(chance.randrange(1, 0x3000)) + text[where + 1 :]
        case 2:
            broken = bytearray(text.encode())
            broken[chance.randrange(len(broken))] ^= 1 << chance.randrange(8)
            return bytes(broken)
        case 3:
            message[chance.choice(list(message))] = chance.choice(STRANGE)
        case 4:
            message[chance.choice(["id", "item", "unit", "__class__", "<b>", ""])] = chance.choice(STRANGE)
        case 5:
            del message[chance.choice(list(message))]
        case _:
            where = chance.randrange(len(text))
            return text[:where] + text[chance.randrange(len(text)) :]
    return json.dumps(message)


STRANGE: list[Any] = [
    None, True, -1, 0, 2**53, 2**70, 1e308, -0.0, "", "a" * 5000, "\ud800", "\x00", "<img src=x onerror=alert(1)>",
    "../../etc/passwd", [], {}, [[]], {"unit": []}, ["a"] * 40, "r.DWt", "Hidden1", [1, 2, 3], 99,
]  # fmt: skip


def test_ten_thousand_damaged_messages_break_nothing(capfd: Any) -> None:
    chance = random.Random(8)
    source = Stage(paused=True, states=5)

    async def send(message: str | bytes) -> None:
        raise AssertionError("nothing is sent here")

    async def hear() -> tuple[Hub, int]:
        hub, page = Hub(StagePlace(source)), PageConnection(FakeSocket(send))
        hub.join(page)
        return hub, sum([await one_more(hub, page) for _ in range(10_000)])

    async def one_more(hub: Hub, page: PageConnection) -> int:
        hub.handle(page, damaged(chance))
        await asyncio.sleep(0)  # recordings are written by others
        refused = sum(isinstance(answer, Problem) for answer in page._replies)
        assert not any("could not do this" in getattr(answer, "text", "") for answer in page._replies)
        page._replies.clear()
        if page.channel is not None:
            page.channel.source.pin(set())
        del source.saved[3:]
        return refused

    hub, refused = asyncio.run(hear())
    assert 5_000 < refused < 10_000  # some damage leaves a good message
    assert "Traceback" not in capfd.readouterr().err
    assert {show.source.kind for show in hub.channels.values()} <= {"live", "run", "recording"}


def test_damaged_messages_over_the_socket_are_answered_and_the_page_goes_on() -> None:
    chance = random.Random(9)
    with stage(paused=True, states=5) as (url, _), SocketPage(url) as page:
        for _ in range(300):
            page.send(damaged(chance))
        page.say("open_recording", id=-1)
        page.say("ask_value", question=987654, layer="Conv", unit=0, variable="Act", moment=2)
        page.until("answer", lambda answer: answer["question"] == 987654)
        assert sum(isinstance(one, dict) and one["kind"] == "problem" for one in page.heard) > 100


def test_a_page_names_no_path_no_address_and_no_class() -> None:
    for cls in FROM_PAGE.values():
        assert not {"path", "file", "folder", "directory", "url", "cls", "module"} & set(cls.__dataclass_fields__)  # type: ignore[attr-defined]
