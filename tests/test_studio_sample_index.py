"""Samples as pages get them: numbered once, in pieces, each content bounded and never code."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from seams import Answer, FollowedLog, LiveSource, LogSource, LogWriter, SampleIndex, about_log, answer_of, followed_log
from test_runlog_logged_samples import log_to, put, samples
from waiting import wait_until

import torcheer as tl
from torcheer.archive import Writer
from torcheer.errors import BadArgument, TorcheerError
from torcheer.records import Sample


def split(message: Any) -> tuple[dict[str, Any], bytes]:
    """The header of a binary message, and its payload."""
    (length,) = struct.unpack("<I", message[4:8])
    head = json.loads(message[8 : 8 + length])
    start = -(-(8 + length) // 8) * 8
    return head, message[start : start + head["count"]]


def answers(run: Path) -> list[Any]:
    return [answer_of(sample, 7) for sample in samples(run)]


def test_images_are_bytes_by_row_column_and_channel(tmp_path: Path) -> None:
    image = np.random.default_rng(0).integers(0, 256, (3, 5, 7), np.uint8)
    log_to(tmp_path, 0, image=image, odd=tl.Image(np.array([[0.5, 2.0]])))
    (head, payload), (odd, _) = map(split, answers(tmp_path))
    assert head == {"question": 7, "count": 105, "shape": [5, 7, 3], "rate": 0, "note": ""}
    assert payload == image.transpose(1, 2, 0).tobytes() and odd["note"].endswith("shown clipped to 0 to 1")


def test_sound_is_sixteen_bits_by_channel(tmp_path: Path) -> None:
    log_to(tmp_path, 0, tone=tl.Audio(np.array([[1, -2, 3], [4, 5, 6]], np.int16), rate=8000))
    ((head, payload),) = map(split, answers(tmp_path))
    assert head["shape"] == [2, 3] and head["rate"] == 8000
    assert np.frombuffer(payload, "<i2").tolist() == [1, -2, 3, 4, 5, 6]


def test_the_others_are_json(tmp_path: Path) -> None:
    log_to(tmp_path, 0, text="a\udc80", table={"a": [float("nan"), None], "b": [[1, 2], "x" * 900]},
           confusion=tl.Confusion([[5, 1], [0, 7]], names=("a", "b")))  # fmt: skip
    text, table, confusion = answers(tmp_path)
    assert isinstance(text, Answer) and text.value == {"text": "a?", "note": ""}
    assert table.value["names"] == ["a", "b"] and table.value["columns"][1][0] == "[1, 2]"
    assert len(table.value["columns"][1][1]) == 501 and table.value["columns"][0][1] is None
    assert confusion.value == {"names": ["a", "b"], "matrix": [[5, 1], [0, 7]], "note": ""}


def test_what_is_long_is_sent_in_part_and_says_so(tmp_path: Path) -> None:
    log_to(tmp_path, 0, text="x" * 300_000, table={"a": list(range(5000))})
    text, table = answers(tmp_path)
    assert len(text.value["text"]) == 200_000 and text.value["note"] == "the first 200,000 of 300,000 characters"
    assert len(table.value["columns"][0]) == 1000 and table.value["note"] == "the first 1,000 of 5,000 rows"


LIES: dict[str, tuple[str, Any, dict[str, Any]]] = {
    "an image of another layout": ("image", np.zeros((4, 4), np.uint8), {"layout": "NCHW"}),
    "an image without a layout": ("image", np.zeros((4, 4), np.uint8), {}),
    "an image with seven channels": ("image", np.zeros((4, 4, 7), np.uint8), {"layout": "HWC"}),
    "an image that is large": ("image", np.zeros((3000, 3000), np.uint8), {"layout": "HW"}),
    "a sound without a rate": ("audio", np.zeros(9, np.int16), {}),
    "a sound of five axes": ("audio", np.zeros((1, 1, 1, 1, 9), np.int16), {"rate": 8000}),
    "a sound of a negative rate": ("audio", np.zeros(9, np.int16), {"rate": -8000}),
    "a text that is not UTF-8": ("text", np.full(9, 255, np.uint8), {}),
    "a table that is not JSON": ("table", np.full(9, 255, np.uint8), {}),
    "a table that is a list": ("table", np.frombuffer(b"[1, 2]", np.uint8), {}),
    "a table of deep lists": ("table", np.frombuffer(b"[" * 50_000, np.uint8), {}),
    "a matrix that is not square": ("confusion", np.zeros((2, 3)), {}),
}


@pytest.mark.parametrize("case", LIES)
def test_a_log_that_lies_gives_an_error_in_words(tmp_path: Path, case: str) -> None:
    kind, array, record = LIES[case]
    with Writer(tmp_path / "log" / "live", about=about_log("live")) as archive:
        named = {"name": "a", "kind": kind, "item": -1, "time": 1.0, **record}
        archive.step([Sample(0, "a", kind, -1, array)], samples=[named], opened=1.0)
    (sample,) = samples(tmp_path)
    with pytest.raises((TorcheerError, ValueError)):
        answer_of(sample, 0)


def test_numbers_stay_while_more_comes_and_are_never_used_twice(tmp_path: Path) -> None:
    index = SampleIndex()
    log_to(tmp_path, 0, text=["a", "b"])
    assert index.update(samples(tmp_path)) and not index.update(samples(tmp_path))
    assert [head.id for head in index.heads(0, 10)] == [0, 1] and index.restarts == 0
    log = LogWriter(tmp_path, "live", tell=pytest.fail)
    put(log, 1, text="c")
    log.close()
    assert index.update(samples(tmp_path)) and [head.id for head in index.heads(1, 10)] == [1, 2]
    log_to(tmp_path, 0, text="another run")  # begins anew: what was there is void
    assert index.update(samples(tmp_path)) and index.restarts == 1
    (head,) = index.heads(0, 10)
    assert (head.id, index.find(head.id).text) == (3, "another run")
    with pytest.raises(BadArgument, match="no longer in the run's log"):
        index.find(0)


def test_of_very_many_the_oldest_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followed_log, "MOST_SAMPLES", 8)
    log_to(tmp_path, 0, text=[str(number) for number in range(8)])
    log, index = FollowedLog(tmp_path), SampleIndex()
    log.refresh()
    index.update(log.samples)
    assert len(index) == 8
    writer = LogWriter(tmp_path, "live", tell=pytest.fail)
    put(writer, 1, text=["8", "9"])
    writer.close()
    log.refresh()
    index.update(log.samples)
    assert [index.find(head.id).text for head in index.heads(0, 99)] == ["4", "5", "6", "7", "8", "9"]


def test_a_source_of_a_run_has_its_samples_and_follows_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torcheer.studio.sources.log_source._SCAN_SECS", 0.0)
    log = LogWriter(tmp_path, "live", tell=pytest.fail)
    put(log, 0, text="a")
    log.commit()
    source = LogSource(tmp_path)
    assert len(source.samples) == 1 and not source.poll().samples
    put(log, 1, text="b")
    log.commit()
    assert source.poll().samples and len(source.samples) == 2
    log.close()


@pytest.mark.parametrize("has_run", [True, False])
def test_a_live_source_has_them_while_the_loop_runs_with_a_run_or_without(tmp_path: Path, has_run: bool) -> None:
    model = torch.nn.Linear(4, 2)
    with tl.live(model, to=tmp_path if has_run else None, open_server=False) as view:
        assert view.path is not None
        source = LiveSource(view.path)
        for step in range(3):
            model(torch.ones(1, 4))
            view.log(image=torch.zeros(3, 4, 5), text=f"step {step}")
        wait_until(lambda: len(source.samples) == 6, poll=source.poll)
        view.finish()
        source.poll()
        assert source.samples.find(source.samples.heads(5, 1)[0].id).text == "step 2"
    source.close()
    view.close()
