"""Logs of others as runs: TensorBoard's event files, written by torch's SummaryWriter, and Lightning's CSV."""

from __future__ import annotations

import shutil
import struct
import time
from pathlib import Path

import numpy as np
import pytest
from seams import (
    EDGES,
    EVENTS,
    LIGHTNING,
    Budget,
    EventReader,
    ForeignRun,
    Messages,
    State,
    find_records,
    masked_sums,
    open_catalog,
    open_source,
    read_curves,
    read_facts,
    read_foreign,
)

from torcheer.errors import ArchiveDamaged

WRITTEN = Path(__file__).parent / "data" / "tensorboard"  # by torch.utils.tensorboard of torch 2.11, tensorboard 2.21
FILE = WRITTEN / "events.out.tfevents.1000.fixture.0"


def read_events(folder: Path) -> ForeignRun:
    return read_foreign(folder, EVENTS)


def read_lightning(folder: Path) -> ForeignRun:
    return read_foreign(folder, LIGHTNING)


@pytest.fixture(autouse=True)
def state(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHEER_STATE", str(tmp_path_factory.mktemp("state")))


def framed(body: bytes) -> bytes:
    """A record of an event file."""
    length = struct.pack("<Q", len(body))
    return (
        length
        + struct.pack("<I", masked_sums([memoryview(length)])[0])
        + body
        + struct.pack("<I", masked_sums([memoryview(body)])[0])
    )


def crc(data: bytes) -> int:
    """The checksum without its mask."""
    rotated = (masked_sums([memoryview(data)])[0] - 0xA282EAD8) & 0xFFFFFFFF
    return (rotated >> 17 | rotated << 15) & 0xFFFFFFFF


def test_checksums_are_those_of_the_standard() -> None:
    assert crc(b"123456789") == 0xE3069283 and crc(bytes(32)) == 0x8A9136AA and crc(b"") == 0  # RFC 3720
    long = np.random.default_rng(0).bytes(10_000)
    state = 0xFFFFFFFF
    for byte in long:
        state ^= byte
        for _ in range(8):
            state = state >> 1 ^ 0x82F63B78 * (state & 1)
    assert crc(long) == state ^ 0xFFFFFFFF


def test_scalars_of_either_encoding_are_columns() -> None:
    run = read_events(WRITTEN)
    table = run.tables["metric"]
    assert run.problems == [] and table.columns["Step"] == list(range(20)) and table.head.x == "Step"
    assert table.columns["loss/train"] == [float(np.float32(1 / (step + 1))) for step in range(20)]
    assert table.columns["acc"] == [float(np.float32(step / 20)) for step in range(20)]
    assert table.columns["precise"] == [step / 3 for step in range(20)]
    assert table.columns["bad"][2] is None and np.isnan(table.columns["bad"][3])


def test_histograms_are_counted_in_the_bins_of_a_watch() -> None:
    table = read_events(WRITTEN).tables["weights histogram"]
    assert table.columns["Step"] == [0, 5, 10, 15]
    (bins,) = [column for column in table.head.columns if column.name == "histogram"]
    assert bins.edges == EDGES[1:-1]
    for step, counts in zip(table.columns["Step"], table.columns["histogram"]):
        assert sum(counts) == 101
        used = [place for place, count in enumerate(counts) if count]
        assert max(abs(EDGES[used[0] + 1]), abs(EDGES[used[-1]])) <= step + 1


def test_sound_is_a_sample_with_its_rate_and_what_is_none_says_so(tmp_path: Path) -> None:
    writer = pytest.importorskip("torch.utils.tensorboard").SummaryWriter(str(tmp_path))
    tone = np.sin(np.arange(800) / 5).astype(np.float32)
    writer.add_audio("<b>tone</b>", tone[None], 5, sample_rate=8000)
    from tensorboard.compat.proto.summary_pb2 import Summary

    broken = Summary.Value(tag="broken", audio=Summary.Audio(encoded_audio_string=b"RIFF no sound"))
    writer.file_writer.add_summary(Summary(value=[broken]), 9)
    writer.close()
    shown = open_source(tmp_path).samples.heads(0, 9)
    assert [(head.name, head.kind, head.step) for head in shown] == [
        ("<b>tone</b>", "audio", 5),
        ("broken", "audio", 9),
    ]
    sound, broken = read_events(tmp_path).samples
    assert sound.rate == 8000 and sound.array.shape == (1, 800) and np.abs(sound.array[0] / 32767 - tone).max() < 1e-3
    with pytest.raises(ArchiveDamaged, match="no sound that can be decoded"):
        _ = broken.array


def test_images_and_text_are_samples() -> None:
    words, picture, large = read_events(WRITTEN).samples
    assert (words.name, words.kind, words.step, words.text) == ("words", "text", 2, "hello <b>*world*</b>")
    assert (picture.name, picture.step, picture.pixels.shape) == ("picture", 7, (4, 4, 3))
    assert np.array_equal(picture.pixels[0, :, 0], np.arange(4) * 255 // 48)
    assert large.pixels.shape == (64, 64, 3)


def test_hyperparameters_are_the_config() -> None:
    assert read_facts(WRITTEN / "hp", "events").config == {"lr": 0.1, "opt": "adam", "flag": 1.0}


def records_of(data: bytes) -> tuple[list[bytes], int, str]:
    """The intact records of a file, where the last of them ends, and what is wrong with what follows."""
    found = find_records(memoryview(data), "events.out.tfevents.1", Budget())
    return [data[begin : begin + length] for begin, length in found.places], found.end, found.problem


def test_a_file_that_ends_anywhere_gives_what_is_whole() -> None:
    data = FILE.read_bytes()[:3000]
    whole = records_of(data)[0]
    for end in (*range(0, 600), *range(600, 3000, 37)):
        part, place, problem = records_of(data[:end])
        assert part == whole[: len(part)] and problem == ""
        assert part + records_of(data[place:])[0] == whole


def test_a_flipped_byte_ends_the_file_there_and_is_reported() -> None:
    data = FILE.read_bytes()[:3000]
    whole, whole_end, _ = records_of(data)
    for place in range(0, whole_end, 7):
        part, end, problem = records_of(data[:place] + bytes([data[place] ^ 0x20]) + data[place + 1 :])
        assert len(part) < len(whole) and part == whole[: len(part)]
        assert end <= place
        assert "is damaged from byte" in problem


def test_events_that_are_no_protobuf_are_reported_and_the_rest_is_read(tmp_path: Path) -> None:
    file = tmp_path / "events.out.tfevents.1"
    file.write_bytes(framed(b"\xff\xff\xff") + FILE.read_bytes())
    run = read_events(tmp_path)
    assert "cannot be read" in run.problems[0] and run.tables["metric"].count == 20
    for junk in (b"\x0a\xff", b"\x0b", b"\x2a\x05\x0a\x99", b"\x80" * 12):
        with pytest.raises(ArchiveDamaged):
            list(EventReader(Messages(Budget(), "a file")).values(memoryview(junk)))


def test_a_field_of_another_form_than_tensorboard_says_is_left_out() -> None:
    """A tag in eight bytes of a number is no tag, and a number in eight bytes no float."""

    def values(fields: bytes) -> list[tuple[str, str]]:
        summary = b"\x0a" + bytes([len(fields)]) + fields
        event = b"\x10\x03\x2a" + bytes([len(summary)]) + summary + b"\x1a\x00"
        return [
            (value.tag, value.kind) for value in EventReader(Messages(Budget(), "a file")).values(memoryview(event))
        ]

    number = b"\x15" + struct.pack("<f", 2)
    assert values(b"\x0a\x04loss" + number) == [("loss", "scalar")]
    assert values(b"\x09learning" + number) == [("", "scalar")]
    assert values(b"\x0a\x04loss\x11" + struct.pack("<d", 2)) == []


def test_a_picture_that_is_none_says_so(tmp_path: Path) -> None:
    image = b"\x22\x05junk!"
    value = b"\x0a\x01p\x22" + bytes([len(image)]) + image
    summary = b"\x0a" + bytes([len(value)]) + value
    (tmp_path / "events.out.tfevents.1").write_bytes(framed(b"\x10\x03\x2a" + bytes([len(summary)]) + summary))
    (sample,) = read_events(tmp_path).samples
    with pytest.raises(ArchiveDamaged, match="no picture"):
        _ = sample.pixels


def test_a_later_file_of_the_same_run_replaces_steps_and_adds_others(tmp_path: Path) -> None:
    def event(step: int, number: float) -> bytes:
        value = b"\x0a\x04loss\x15" + struct.pack("<f", number)
        summary = b"\x0a" + bytes([len(value)]) + value
        return framed(b"\x10" + bytes([step]) + b"\x2a" + bytes([len(summary)]) + summary)

    (tmp_path / "events.out.tfevents.1").write_bytes(event(1, 1.0) + event(2, 2.0))
    (tmp_path / "events.out.tfevents.2").write_bytes(event(2, 3.0) + event(3, 4.0))
    assert read_events(tmp_path).tables["metric"].columns == {"Step": [1, 2, 3], "loss": [1.0, 3.0, 4.0]}


def lightning(folder: Path) -> Path:
    """As Lightning's CSVLogger leaves it."""
    folder.mkdir(parents=True)
    rows = ["epoch,step,train_loss,val_loss", "0,9,1.5,", "0,9,,1.25", "1,19,0.75,", "1,19,,nan", "2,2"]
    (folder / "metrics.csv").write_text("\n".join(rows))
    (folder / "hparams.yaml").write_text("lr: 0.01\nmodel:\n  width: 64\n  layers:\n  - 1\n  - 2\noptimizer: adam\n")
    return folder


def test_lightning_s_log_is_a_run(tmp_path: Path) -> None:
    run = read_lightning(lightning(tmp_path / "version_0"))
    table = run.tables["metric"]
    assert table.count == 4 and table.head.x == "Step" and table.columns["train_loss"] == [1.5, None, 0.75, None]
    assert run.config == {"lr": 0.01, "model.width": 64, "model.layers": "1, 2", "optimizer": "adam"}
    facts = read_facts(tmp_path / "version_0", "lightning")
    assert facts.results["Step"] == 19 and facts.results["train_loss"] == 0.75 and np.isnan(facts.results["val_loss"])
    curve = read_curves(tmp_path / "version_0", "lightning", ["train_loss"])["train_loss"]
    assert (curve.x_name, curve.x.tolist(), curve.y.tolist()) == ("Step", [9, 19], [1.5, 0.75])


def test_settings_that_are_objects_of_python_run_no_code(tmp_path: Path) -> None:
    folder = lightning(tmp_path / "version_0")
    touched = tmp_path / "touched"
    evil = f"evil: !!python/object/apply:os.system ['touch {touched}']\nlr: 0.5\n"
    (folder / "hparams.yaml").write_text(evil)
    assert read_lightning(folder).config == {"lr": 0.5} and not touched.exists()


def test_a_folder_lists_the_runs_of_others_beside_its_own_and_opens_them(tmp_path: Path) -> None:
    shutil.copytree(WRITTEN, tmp_path / "board")
    lightning(tmp_path / "lightning" / "version_0")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    catalog = open_catalog(tmp_path)
    assert {run.name: run.summary for run in catalog.runs} == {
        "board": "19 steps", "board/hp": "0 steps", "lightning/version_0": "19 steps",
    }  # fmt: skip
    number = next(run.id for run in catalog.runs if run.name == "board")
    source = catalog.open_run(number)
    assert source.tables["metric"].count == 20 and len(source.samples) == 3
    assert source.state == State("done", {"Step": 19}, message="19 steps")
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_an_event_file_that_grows_is_followed(tmp_path: Path) -> None:
    data, file = FILE.read_bytes(), tmp_path / "run" / "events.out.tfevents.1"
    file.parent.mkdir()
    end = records_of(data)[1]
    file.write_bytes(data[: end // 10])
    source = open_source(tmp_path / "run")
    before = source.tables["metric"].count
    source.poll()
    file.write_bytes(data)
    source._next_scan = 0.0  # type: ignore[attr-defined]
    deadline = time.monotonic() + 60
    while "metric" not in source.poll().tables:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert source.tables["metric"].count == 20 > before


def test_whole_numbers_of_a_csv_that_no_float_holds_are_infinite(tmp_path: Path) -> None:
    folder = tmp_path / "version_0"
    folder.mkdir()
    (folder / "metrics.csv").write_text(f"step,loss\n0,{'9' * 400}\n1,{2**63}\n2,{'9' * 5000}\n")
    facts = read_facts(folder, "lightning")
    assert facts.problem == "" and facts.results == {"Step": 2.0, "loss": float("inf")}
