"""What people logged, read back: bit for bit, after kills, while it grows, from damaged and hostile logs."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from children import Child
from seams import FollowedLog, LoggedSamples, LogWriter, RunLog, about_log, read_media
from waiting import wait_until

import torcheer as tl
from torcheer.archive import Writer
from torcheer.errors import BadArgument
from torcheer.records import Sample

KINDS = ("image", "audio", "text", "table", "confusion")


def log_to(run: Path, step: int, writer: str = "live", **entries: Any) -> None:
    log = LogWriter(run, writer, tell=pytest.fail)
    put(log, step, **entries)
    log.close()


def put(log: LogWriter, step: int, **entries: Any) -> None:
    for name, value in entries.items():
        for media in read_media(name, value):
            log.sample(Sample(step, media.name, media.kind, media.item, media.array), media.record, 5.0)


def samples(run: Path) -> LoggedSamples:
    return RunLog(run).samples


@pytest.mark.parametrize("kind", [np.uint8, np.bool_, np.float16, np.float32, np.float64])
def test_an_image_comes_back_bit_for_bit(tmp_path: Path, kind: Any) -> None:
    image = np.random.default_rng(0).random((2, 3, 5, 7)).astype(kind)
    log_to(tmp_path, 7, image=tl.Image(image, caption="é"))
    (read,) = samples(tmp_path)
    assert read.array.dtype == image.dtype and read.array.tobytes() == image.tobytes()
    assert (read.name, read.kind, read.step, read.item, read.caption, read.time_secs) == (
        "image", "image", 7, -1, "é", 5.0
    )  # fmt: skip


def test_a_tables_images_are_kept_beside_it_up_to_64_and_more_are_refused_with_a_word() -> None:
    rows = [{"id": row, "face": tl.Image(np.zeros((2, 2), np.uint8)), "say": tl.Text("hm")} for row in range(65)]
    kept = []
    with pytest.raises(BadArgument, match=r"'worst\.face': of 65 in the table the first 64 are kept"):
        for media in read_media("worst", tl.TableOf(rows, caption="worst")):
            kept.append(media)
    table, *images = kept
    assert [image.record["caption"] for image in images] == [f"row {row}" for row in range(64)]
    cells = json.loads(table.array.tobytes())
    assert (cells["say"][0], cells["face"][64], table.record["caption"]) == ("hm", "worst.face, row 64", "worst")


def test_the_other_kinds_come_back_as_they_were(tmp_path: Path) -> None:
    cells = {"word": ["<b>", None], "p": [float("inf"), 0.1], "v": [[1, 2], [3, 4]]}
    matrix = torch.tensor([[5, 1], [0, 7]])
    entries = {"text": "né <b>\n\udc80", "table": cells, "tone": tl.Audio(torch.ones(2, 9).half(), rate=8000)}
    log_to(tmp_path, 0, **entries, confusion=tl.Confusion(matrix, names=("a", "b")))
    text, table, tone, confusion = samples(tmp_path)
    assert text.text == text.value == entries["text"] and table.cells == cells
    assert table.table["v"].shape == (2, 2) and list(table.value["word"]) == ["<b>", ""]
    assert (tone.rate, tone.array.dtype, tone.shape) == (8000, np.float16, (2, 9))
    assert confusion.names == ("a", "b") and confusion.array.tolist() == matrix.tolist()


def test_bfloat16_keeps_its_values(tmp_path: Path) -> None:
    image = torch.rand(5, 7).bfloat16()
    log_to(tmp_path, 0, image=image)
    assert np.array_equal(samples(tmp_path)[0].array.astype(np.float32), image.float().numpy())


def test_samples_of_many_steps_and_twice_in_a_step_are_all_there(tmp_path: Path) -> None:
    log = LogWriter(tmp_path, "live", tell=pytest.fail)
    for step in (0, 1, 1, 2):
        put(log, step, text=f"step {step}", image=np.full((2, 2), step, np.uint8))
        log.row("train_step", {"loss": 0.5}, step)
    log.close()
    assert [sample.step for sample in samples(tmp_path)] == [0, 0, 1, 1, 1, 1, 2, 2]
    assert RunLog(tmp_path).tables()["train_step"].columns["Step"] == [0, 1, 1, 2]


def test_a_run_that_goes_on_from_an_earlier_step_replaces_what_came_after(tmp_path: Path) -> None:
    for opening, steps in (("first", range(5)), ("second", range(3, 4))):
        log = LogWriter(tmp_path, "live", tell=pytest.fail)
        for step in steps:
            put(log, step, text=f"{opening} {step}")
        log.close()
    assert [sample.text for sample in samples(tmp_path)] == ["first 0", "first 1", "first 2", "second 3"]


def test_a_log_that_grows_is_read_on(tmp_path: Path) -> None:
    log = LogWriter(tmp_path, "live", tell=pytest.fail)
    put(log, 0, text="a")
    log.commit()
    reader = FollowedLog(tmp_path)
    reader.refresh()
    assert [sample.text for sample in reader.samples] == ["a"]
    put(log, 1, text="b")
    log.commit()
    reader.refresh()
    assert [sample.text for sample in reader.samples] == ["a", "b"]
    log.close()


KILLED = """
    import sys, torch, torcheer as tl
    model = torch.nn.Linear(4, 2)
    w = tl.watch(model, every=50, to=sys.argv[1])
    for step in range(20):
        model(torch.ones(1, 4)).sum().backward()
        w.log(loss=0.5, image=torch.full((3, 40, 50), step / 20), text=f"step {step}", table={"step": [step]},
              tone=tl.Audio(torch.full((2, 99), step / 20), rate=8000), confusion=[[step, 0], [0, 1]])
    print("logged", flush=True)
    import time; time.sleep(600)
"""


def test_what_was_logged_before_a_kill_of_the_trainer_is_all_there(tmp_path: Path) -> None:
    with Child("-c", KILLED, tmp_path) as child:
        assert child.line() == "logged"
        child.send_signal(signal.SIGKILL)
        child.wait()
        wait_until(lambda: (tmp_path / "log" / "watch" / "archive.json").exists() and len(samples(tmp_path)) == 100)
    watched = tl.load(tmp_path)
    for kind in KINDS:
        assert [sample.step for sample in watched.samples(kind)] == list(range(20))
    for step, image in enumerate(watched.samples("image")):
        assert image.array.tobytes() == torch.full((3, 40, 50), step / 20).numpy().tobytes()
    assert [sample.text for sample in watched.samples("text")] == [f"step {step}" for step in range(20)]
    assert [sample.array[0, 0] for sample in watched.samples("confusion")] == list(range(20))


def test_files_are_one_line_away(tmp_path: Path) -> None:
    log_to(tmp_path, 0, image=np.zeros((4, 5)), text="é", table={"a": [1, None]}, confusion=[[5, 1], [0, 7]],
           tone=tl.Audio(np.zeros(9), rate=8000))  # fmt: skip
    image, text, table, confusion, tone = samples(tmp_path)
    assert image.save(tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert tone.save(tmp_path / "a.wav").read_bytes().startswith(b"RIFF")
    assert text.save(tmp_path / "a.txt").read_text() == "é"
    assert table.save(tmp_path / "a.csv").read_text().split() == ["a", "1", '""']
    assert confusion.save(tmp_path / "b.csv").read_text().split()[-2:] == ["0,5,1", "1,0,7"]
    assert np.load(image.save(tmp_path / "a.npy")).shape == (4, 5)
    with pytest.raises(BadArgument, match=r"a.jpg: image 'image' can be saved as .png, .npy"):
        image.save(tmp_path / "a.jpg")
    with pytest.raises(BadArgument, match="'image' of step 0 is image, not text"):
        _ = image.text


def test_kinds_and_names_that_are_not_there_are_said(tmp_path: Path) -> None:
    log_to(tmp_path, 3, faces=tl.Image(np.zeros((4, 5))), text="a")
    assert repr(samples(tmp_path)) == "<1 image, 1 text; step 3>" and samples(tmp_path).names == ["faces", "text"]
    with pytest.raises(BadArgument, match=r"no kind 'images'; there are image, audio, .* Did you mean 'image'"):
        samples(tmp_path).of("images")
    with pytest.raises(BadArgument, match=r"nothing was logged as 'face'. Did you mean 'faces'"):
        samples(tmp_path).of(name="face")


HOSTILE: list[Any] = [
    None, 5, {}, {"name": "a"}, {"name": "a", "kind": "image", "item": 0, "time": 1},
    {"name": "a", "kind": "image", "item": -1}, {"name": "a", "kind": "image", "item": -1, "time": "soon"},
    {"name": "a", "kind": "image", "item": -1, "time": 1, "names": 3}, {"name": [], "kind": {}, "item": -1, "time": 1},
    {"name": "a", "kind": "image", "item": -1, "time": 1, "rate": 1e400}, {"name": "a", "kind": "odd", "item": -1},
]  # fmt: skip


@pytest.mark.parametrize("record", HOSTILE, ids=repr)
def test_a_record_that_is_not_ours_is_left_out_and_said(tmp_path: Path, record: Any) -> None:
    with Writer(tmp_path / "log" / "live", about=about_log("live")) as archive:
        if "1e400" not in repr(record) and "inf" not in repr(record):
            arrays = [Sample(0, "a", kind, -1, np.zeros((4, 4), np.uint8)) for kind in ("image", "odd")]
            archive.step(arrays, samples=[record], opened=1.0)
        good = {"name": "b", "kind": "image", "item": -1, "time": 1.0, "layout": "HW"}
        archive.step([Sample(1, "b", "image", -1, np.zeros((4, 4), np.uint8))], samples=[good])
    log = RunLog(tmp_path)
    assert [sample.name for sample in log.samples] == ["b"]
    assert all("a sample cannot be read" in problem for problem in log.problems)


def test_show_lists_how_many_of_each_and_their_steps(tmp_path: Path) -> None:
    from seams import describe_run

    model = torch.nn.Linear(2, 2)
    with tl.live(model, to=tmp_path, open_server=False) as view:
        for _ in range(3):
            model(torch.ones(1, 2))
            view.log(loss=0.5, image=torch.zeros(3, 4, 5))
        view.test(confusion=[[1, 0], [0, 1]])
    lines = [line.split() for line in describe_run(tmp_path)]
    assert "image 3 images 3 steps, 0 to 2".split() in lines and "confusion 1 confusion matrix step 2".split() in lines


@pytest.mark.slow
def test_memory_stays_flat_however_many_are_logged(tmp_path: Path) -> None:
    def resident_bytes() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    log, image = LogWriter(tmp_path, "live", tell=pytest.fail), np.zeros((1024, 1024), np.uint8)
    put(log, 0, image=image)
    before = resident_bytes()
    for step in range(1, 150):
        put(log, step, image=image.copy())
    log.close()
    assert resident_bytes() - before < 64 << 20  # the buffer's 32 MB, and as much on its way to the disk
    reader = RunLog(tmp_path)
    assert len(reader.samples) == 150 and resident_bytes() - before < 64 << 20  # nothing is read before it is asked for
