"""The page's types are the server's."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import message_types
import pytest
from seams import Rows, message_kind, messages, serialize


def test_the_page_has_the_types_that_the_messages_give_today() -> None:
    assert message_types.main(["--check"]) == 0


def test_a_page_with_other_types_is_found_and_written_anew(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setattr(message_types, "PAGE_FOLDER", tmp_path)
    (tmp_path / "studio").mkdir()
    assert message_types.main(["--check"]) == 1
    assert "run `python web/message_types.py`" in capsys.readouterr().err
    assert message_types.main([]) == 0
    assert message_types.main(["--check"]) == 0
    assert message_types.main(["--chek"]) == 2


TYPESCRIPT = (message_types.PAGE_FOLDER / "studio" / "messages.ts").read_text("utf-8")


@pytest.mark.parametrize(
    "cls", [*messages.TO_PAGE.values(), *messages.FROM_PAGE.values()], ids=lambda cls: cls.__name__
)
def test_every_message_is_an_interface_with_its_kind_and_fields(cls: type) -> None:
    text = re.search(rf"export interface {cls.__name__} {{(.*?)\n}}", TYPESCRIPT, re.DOTALL)
    assert text is not None
    assert f'kind: "{message_kind(cls)}";' in text[1]
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]
        assert re.search(rf"^  {field.name}\??: ", text[1], re.MULTILINE)


def test_kinds_are_the_names_in_small_letters() -> None:
    assert [message_kind(cls) for cls in (messages.Hello, messages.NetCame, messages.AskValue)] == [
        "hello",
        "net_came",
        "ask_value",
    ]


def test_no_two_messages_share_a_kind() -> None:
    assert not messages.TO_PAGE.keys() & messages.FROM_PAGE.keys()


def test_what_json_cannot_say_has_its_name() -> None:
    text = serialize(Rows("a", 0, {"x": [1.0, float("nan"), float("inf")], "t": [[[float("nan")]]]}))
    assert text == '{"kind":"rows","table":"a","first":0,"columns":{"x":[1.0,"NaN","Infinity"],"t":[[["NaN"]]]}}'


def test_numbers_of_numpy_and_things_without_json_are_said_plainly() -> None:
    import numpy as np

    columns = {"x": [np.float32(0.5), np.int64(3), np.arange(2), Path("a")], "y": [float("nan"), np.float64("nan")]}
    text = serialize(Rows("a", 0, columns))
    assert '"x":[0.5,3,[0,1],"a"],"y":["NaN","NaN"]' in text
