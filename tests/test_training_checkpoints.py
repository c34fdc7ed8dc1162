"""Checkpoints and tables: there whole or not at all, the newest good one is found, damage is told."""

from __future__ import annotations

import csv
import errno
import json
import os
import random
import resource
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from children import Child
from seams import (
    BEST,
    MANIFEST,
    MODEL,
    OPTIM,
    STATE,
    Checkpoints,
    CheckpointStore,
    EpochTables,
    Packed,
    begin_run,
    choose_checkpoint,
    describe_run,
    leave_part,
    locked,
    metric_csv,
    open_comparison,
    read_checkpoint,
    read_run,
    write_checkpoint,
)
from seams import pack_state as pack
from training_cases import session

import torcheer as tl
from torcheer.errors import ArchiveBusy, ArchiveDamaged, BadArgument, CannotWrite, TorcheerError
from torcheer.training.stop_conditions import EarlyStopping


class Standing:
    """As much of a session as a CheckpointStore looks at."""

    ranks = None

    def __init__(self) -> None:
        self.place = {"stage": 0, "epoch": 0, "round": 0, "step": 0, "ended": []}
        self.rows: list[list[dict[str, Any]]] = [[]]
        self.weights = torch.zeros(3)

    def at(self, step: int, epoch: int = 0, round: int = 1, **columns: float) -> Standing:
        self.place |= {"step": step, "epoch": epoch, "round": round}
        self.weights = torch.full((3,), float(step))
        if columns:
            self.rows[0].append({"epoch": epoch, **columns})
        return self

    def state(self) -> dict[str, Any]:
        return {"place": self.place, "rows": self.rows, "models": {"m": {"w": self.weights}}, "rng": torch.ones(2)}


def steps_of(directory: Path) -> list[int]:
    return sorted(int(path.name) for path in (directory / "checkpoints").iterdir())


@pytest.fixture
def three(tmp_path: Path) -> Iterator[CheckpointStore]:
    """Three checkpoints, of steps 1, 2 and 3."""
    store, standing = CheckpointStore(tmp_path, keep_last=3), Standing()
    with store.locked():
        for step in (1, 2, 3):
            store.save(standing.at(step))
        yield store


def step_found(store: CheckpointStore) -> int:
    state, path, _ = store.newest()
    assert state is not None and path is not None
    assert torch.equal(state["models"]["m"]["w"], torch.full((3,), float(state["place"]["step"])))
    return int(state["place"]["step"])


# Saving


def test_what_was_saved_is_found(tmp_path: Path) -> None:
    path = CheckpointStore(tmp_path).save(Standing().at(5, epoch=1, round=0, loss=float("nan"), acc=0.1))
    assert path == tmp_path / "checkpoints" / "5"
    assert sorted(file.name for file in path.iterdir()) == sorted([MODEL, OPTIM, STATE, MANIFEST])
    state, found, problems = CheckpointStore(tmp_path).newest()
    assert state is not None and found == path and not problems
    assert repr(state["rows"]) == "[[{'epoch': 1, 'loss': nan, 'acc': 0.1}]]"
    manifest = json.loads((path / MANIFEST).read_text())
    assert manifest["row"] == {"acc": 0.1} and sorted(manifest["files"]) == sorted([MODEL, OPTIM, STATE])


def test_the_weights_are_named_by_model_and_parameter(tmp_path: Path) -> None:
    library = pytest.importorskip("safetensors.torch")
    path = CheckpointStore(tmp_path).save(session("plain"))
    names = set(library.load_file(path / MODEL))
    assert {"body.0.weight", "body.1.running_mean", "head.bias", "other.weight"} <= names
    assert "averages.body.0.weight" in library.load_file(path / OPTIM)


def test_saving_at_the_same_step_twice_keeps_the_second(tmp_path: Path) -> None:
    store, standing = CheckpointStore(tmp_path), Standing()
    store.save(standing.at(4, epoch=0))
    store.save(standing.at(4, epoch=1))
    state, _, _ = store.newest()
    assert state is not None and state["place"]["epoch"] == 1 and steps_of(tmp_path) == [4]


def test_only_the_last_ones_are_kept(tmp_path: Path) -> None:
    store, standing = CheckpointStore(tmp_path, keep_last=2), Standing()
    for step in (1, 5, 9, 20, 100):
        store.save(standing.at(step))
    assert steps_of(tmp_path) == [20, 100]


def test_the_best_one_is_kept_as_well(tmp_path: Path) -> None:
    store, standing = CheckpointStore(tmp_path, keep_last=1, keep_best="val loss"), Standing()
    for step, loss in enumerate((0.5, 0.2, float("nan"), 0.2, 0.4), 1):
        store.save(standing.at(step, epoch=step, round=0, **{"val loss": loss}))
        store.save(standing.at(10 * step, epoch=step, round=3))  # inside an epoch no row belongs to the weights
        standing.place["step"] = step
    assert store.best() == tmp_path / "checkpoints" / "2"


@pytest.mark.parametrize("column", ["-height", "acc", "-acc", "val f1"])
def test_more_is_better_behind_a_minus_and_of_what_is_called_so(column: str, tmp_path: Path) -> None:
    store, standing = CheckpointStore(tmp_path, keep_last=1, keep_best=column), Standing()
    for step, value in enumerate((0.5, 0.9, 0.2), 1):
        store.save(standing.at(step, epoch=step, round=0, **{column.removeprefix("-"): value}))
    assert steps_of(tmp_path) == [2, 3] and store.best() == tmp_path / "checkpoints" / "2"


@pytest.mark.parametrize(("column", "values"), [("val acc", (0.9, 1.0, 1.0)), ("val loss", (0.3, 0.2, 0.2))])
def test_of_equally_good_checkpoints_training_evaluation_and_the_studio_take_the_first(
    column: str, values: tuple[float, ...], tmp_path: Path
) -> None:
    store, standing = CheckpointStore(tmp_path, keep_last=1, keep_best=column), Standing()
    for step, value in enumerate(values, 1):
        store.save(standing.at(step, epoch=step, round=0, **{column: value}))
    (tmp_path / "spec.json").write_text(json.dumps({"keep_best": column}))
    assert steps_of(tmp_path) == [2, 3] and store.best() == tmp_path / "checkpoints" / "2"
    assert choose_checkpoint(tmp_path, BEST).step == 2
    rows = [{"epoch": step, column: value} for step, value in enumerate(values, 1)]
    assert "in epoch 2)" in EarlyStopping(column, patience=0).reason(rows), "an equal value is no improvement"


def test_without_a_column_there_is_no_best(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, keep_best="val loss")
    store.save(Standing().at(1, epoch=1, round=0, acc=1.0))
    assert store.best() is None


def test_keeping_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadArgument, match="at least one"):
        CheckpointStore(tmp_path, keep_last=0)


def test_a_state_that_cannot_be_kept_is_named_and_leaves_nothing(tmp_path: Path) -> None:
    store, standing = CheckpointStore(tmp_path), Standing()
    store.save(standing.at(1))
    standing.rows[0].append({"epoch": 0, "bad": object()})
    with pytest.raises(BadArgument, match=r"rows\.0\.0\.bad is a builtins\.object"):
        store.save(standing.at(2))
    assert steps_of(tmp_path) == [1] and step_found(store) == 1


# Finding


def test_an_empty_directory_has_no_checkpoint(tmp_path: Path) -> None:
    assert CheckpointStore(tmp_path / "none").newest() == (None, None, [])


@pytest.mark.parametrize("name", [MODEL, OPTIM, STATE, MANIFEST])
@pytest.mark.parametrize("damage", ["flip", "cut", "grow", "gone", "empty"])
def test_a_damaged_checkpoint_is_told_and_the_one_before_it_used(
    three: CheckpointStore, name: str, damage: str
) -> None:
    file = three.folder / "3" / name
    data = bytearray(file.read_bytes())
    if damage == "flip":
        data[len(data) // 2] ^= 4
    file.write_bytes({"cut": data[:-3], "grow": data + b"x", "empty": b""}.get(damage, data))
    if damage == "gone":
        file.unlink()
    state, path, problems = three.newest()
    assert step_found(three) == 2 and path == three.folder / "2" and state is not None
    assert len(problems) == 1 and problems[0].startswith(f"checkpoint {three.folder / '3'} cannot be used: ")


def test_every_flipped_byte_of_a_checkpoint_is_noticed(three: CheckpointStore) -> None:
    draw, path = random.Random(0), three.folder / "3"
    for name in (MODEL, OPTIM, STATE, MANIFEST):
        data = (path / name).read_bytes()
        for at in sorted(draw.sample(range(len(data)), min(len(data), 250))):
            changed = bytearray(data)
            changed[at] ^= 1 << draw.randrange(8)
            (path / name).write_bytes(changed)
            with pytest.raises(TorcheerError):
                read_checkpoint(path)
        (path / name).write_bytes(data)
    read_checkpoint(path)


def test_where_every_checkpoint_is_damaged_nothing_begins_anew(three: CheckpointStore) -> None:
    for path in three.folder.iterdir():
        (path / STATE).unlink()
    with pytest.raises(ArchiveDamaged, match=r"no checkpoint of .* can be used") as caught:
        three.newest()
    assert str(caught.value).count("there is no state.json") == 3


def test_a_checkpoint_of_a_later_version_is_told(three: CheckpointStore) -> None:
    manifest = three.folder / "3" / MANIFEST
    manifest.write_text(manifest.read_text().replace('"version":2', '"version":3'))
    _, _, problems = three.newest()
    assert "version 3" in problems[0] and "update" in problems[0]


def test_a_damaged_one_ahead_is_gone_once_there_is_a_new_one(three: CheckpointStore) -> None:
    (three.folder / "3" / MODEL).unlink()
    assert step_found(three) == 2
    three.save(Standing().at(2, round=2))
    assert steps_of(three.directory) == [1, 2] and step_found(three) == 2


def test_what_a_killed_trainer_was_writing_is_removed_by_the_next_one_only(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    store.save(Standing().at(1))
    rest = store.folder / ".tmp-2-99"
    shutil.copytree(store.folder / "1", rest)
    assert step_found(CheckpointStore(tmp_path)) == 1 and rest.exists()  # a reader leaves it
    with CheckpointStore(tmp_path).locked():
        assert not rest.exists()


def test_one_that_was_being_replaced_is_still_found(three: CheckpointStore) -> None:
    (three.folder / "3").rename(three.folder / ".old-3-123")  # killed before the new one got its name
    assert step_found(three) == 3
    three.save(Standing().at(3))
    assert steps_of(three.directory) == [1, 2, 3]


def test_whatever_else_lies_there_is_left_alone(three: CheckpointStore) -> None:
    (three.folder / "notes.txt").write_text("mine")
    (three.folder / "3-copy").mkdir()
    three.save(Standing().at(4))
    assert step_found(three) == 4 and (three.folder / "notes.txt").exists() and (three.folder / "3-copy").exists()


# What the system refuses


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EIO])
@pytest.mark.parametrize("call", ["fsync", "mkdir", "rename"])
def test_what_the_system_refuses_is_named_and_leaves_the_old_ones(
    three: CheckpointStore, monkeypatch: pytest.MonkeyPatch, call: str, number: int
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(number, os.strerror(number))

    before = {file: file.read_bytes() for file in three.folder.rglob("*") if file.is_file()}
    with monkeypatch.context() as patch:
        patch.setattr(os, call, refuse)
        with pytest.raises(CannotWrite, match="The checkpoints before it are as they were") as caught:
            three.save(Standing().at(4))
    assert caught.value.errno == number and isinstance(caught.value, OSError)
    assert {file: file.read_bytes() for file in three.folder.rglob("*") if file.is_file()} == before
    three.save(Standing().at(4))
    assert step_found(three) == 4


def test_too_many_open_files_are_named(three: CheckpointStore) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, before[1]))
    try:
        with pytest.raises(CannotWrite, match=r"Too many open files.*ulimit -n"):
            three.save(Standing().at(4))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert step_found(three) == 3


def test_a_file_where_the_directory_should_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("")
    with pytest.raises(CannotWrite, match="x"):
        CheckpointStore(tmp_path / "x").save(Standing())


# The run directory


def test_a_run_directory_says_what_made_it(tmp_path: Path) -> None:
    about = begin_run(tmp_path / "run", config_hash="abc")
    assert about["format"] == "torcheer run" and about["config"] == "abc" and "torch" in about["versions"]
    assert begin_run(tmp_path / "run", config_hash="other") == about == read_run(tmp_path / "run")


@pytest.mark.parametrize(
    ("text", "word"), [("{}", "ours"), ("", "cannot be read"), ('{"format":"torcheer run","version":9}', "update")]
)
def test_a_run_directory_of_something_else_is_refused(tmp_path: Path, text: str, word: str) -> None:
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(TorcheerError, match=word):
        begin_run(tmp_path)


def test_a_second_trainer_in_one_process_is_refused(tmp_path: Path) -> None:
    with CheckpointStore(tmp_path).locked(), pytest.raises(ArchiveBusy, match="is being trained by this process"):
        CheckpointStore(tmp_path).save(Standing())


def test_a_second_process_is_refused_until_the_first_is_killed(tmp_path: Path) -> None:
    script = f"""
from torcheer.training.checkpoints.run_directory import locked
from pathlib import Path
with locked(Path({str(tmp_path)!r})):
    print("locked", flush=True)
    input()
"""
    with Child("-c", script, stdin=subprocess.PIPE) as other:
        assert other.line() == "locked"
        with pytest.raises(ArchiveBusy, match="is being trained by another process"):
            CheckpointStore(tmp_path).save(Standing())
        other.kill()
    with locked(tmp_path):
        pass


# Tables


def rows_in(path: Path) -> list[list[str]]:
    return list(csv.reader(path.open(newline="")))


def test_a_table_has_the_epoch_first_and_full_precision(tmp_path: Path) -> None:
    EpochTables(tmp_path).write([[{"epoch": 1, "val loss": 1 / 3, "acc": 0.1 + 0.2, "loss": float("nan")}]])
    text = b"epoch,val loss,acc,loss\r\n1,0.3333333333333333,0.30000000000000004,nan\r\n"
    assert (tmp_path / "0.csv").read_bytes() == text


def test_rows_are_added_to_the_file_that_is_there(tmp_path: Path) -> None:
    tables, rows = EpochTables(tmp_path), [{"epoch": 1, "loss": 0.5}]
    tables.write([rows, []])
    file = (tmp_path / "0.csv").open()
    rows.append({"epoch": 2, "loss": 0.25})
    tables.write([rows, []])
    tables.write([rows, []])
    assert file.read() == "epoch,loss\n1,0.5\n2,0.25\n" and not (tmp_path / "1.csv").exists()


def test_a_column_that_comes_later_is_empty_in_the_rows_before(tmp_path: Path) -> None:
    tables, rows = EpochTables(tmp_path), [{"epoch": 1, "loss": 0.5}]
    tables.write([rows])
    rows.append({"epoch": 2, "loss": 0.25, "a, b": 1.0})
    tables.write([rows])
    assert rows_in(tmp_path / "0.csv") == [["epoch", "loss", "a, b"], ["1", "0.5", ""], ["2", "0.25", "1.0"]]


def test_rewriting_takes_away_rows_that_will_come_again(tmp_path: Path) -> None:
    rows = [{"epoch": 1, "loss": 0.5}]
    EpochTables(tmp_path).write([[*rows, {"epoch": 2, "loss": 0.1}], [{"epoch": 3, "loss": 0.1}]])
    (tmp_path / "notes.csv").write_text("mine")
    EpochTables(tmp_path).rewrite([rows, []])
    assert rows_in(tmp_path / "0.csv") == [["epoch", "loss"], ["1", "0.5"]]
    assert not (tmp_path / "1.csv").exists() and (tmp_path / "notes.csv").exists()


def test_a_row_that_could_not_be_written_is_written_the_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables, rows = EpochTables(tmp_path), [{"epoch": 1, "loss": 0.5}]
    tables.write([rows])
    rows.append({"epoch": 2, "loss": 0.25})

    def refuse(*_: Any, sync: bool) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(metric_csv, "append", refuse)
        with pytest.raises(OSError, match="No space left"):
            tables.write([rows])
    assert rows_in(tmp_path / "0.csv")[1:] == [["1", "0.5"]]
    tables.write([rows])
    assert rows_in(tmp_path / "0.csv")[1:] == [["1", "0.5"], ["2", "0.25"]]


def test_a_checkpoint_holds_no_pickle_and_no_name_of_code(tmp_path: Path) -> None:
    path = CheckpointStore(tmp_path).save(session("plain"))
    for file in path.iterdir():
        assert (
            b"torch." not in file.read_bytes().replace(b"torch.float", b"")
            and b"\x80\x04" not in file.read_bytes()[:64]
        )
    tensors, _ = pack(read_checkpoint(path))
    assert tensors


WHOLE = torch.arange(12.0).reshape(4, 3)


def part_of(rank: int) -> Packed:
    """What one of two ranks has of a checkpoint: a part of a weight split by rows, and of one split by columns."""
    rows, columns = (WHOLE[:2], WHOLE[:, :2]) if rank == 0 else (WHOLE[2:], WHOLE[:, 2:])
    tensors = {"net.rows": rows, "net.columns": columns, "net.bias": torch.ones(3)}
    pieces = {
        "net.rows": {"shape": [4, 3], "begin": [2 * rank, 0], "is_saved": True},
        "net.columns": {"shape": [4, 3], "begin": [0, 2 * rank], "is_saved": True},
    }
    place = {"stage": 0, "epoch": 1, "round": 0, "step": 3, "ended": []}
    return Packed({"models": tensors, "others": {}}, {}, {"models": pieces, "others": {}}, place, {})


def leave_sharded_checkpoint(folder: Path) -> torch.Tensor:
    """A checkpoint as two ranks write it; returns what both weights are."""
    folder.mkdir(parents=True)
    leave_part(folder, part_of(1), 1)
    write_checkpoint(folder, part_of(0), others=1)
    return WHOLE


def test_a_part_of_a_killed_rank_is_not_waited_for_once_training_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torcheer.training.checkpoints.checkpoint_files._GRACE_SECS", 0.1)
    with pytest.raises(CannotWrite, match="rank 1 has not written its part"):
        write_checkpoint(tmp_path, part_of(0), others=1, has_failed=lambda: True)
    leave_part(tmp_path, part_of(1), 1)
    write_checkpoint(tmp_path, part_of(0), others=1, has_failed=lambda: True)


def test_a_sharded_checkpoint_is_read_whole_wherever_its_file_is_opened(tmp_path: Path) -> None:
    whole = leave_sharded_checkpoint(tmp_path / "run" / "checkpoints" / "3").numpy()
    file = tl.load(tmp_path / "run" / "checkpoints" / "3" / "model.safetensors")
    assert repr(file).endswith("safetensors of 2 ranks: 3 tensors, 108 B)")
    for name in ("net.rows", "net.columns"):
        assert file[name].shape == (4, 3) and np.array_equal(file[name].numpy(), whole)
        assert np.array_equal(file[name][1:3], whole[1:3]) and np.array_equal(file[name].mapped(), whole)
    viewed = Checkpoints(tmp_path / "run")
    viewed.refresh()
    assert np.array_equal(viewed.weights(3, "columns"), whole)
    compared = open_comparison(tmp_path / "run", tmp_path / "run" / "checkpoints" / "3")
    assert [layer.shape for name in file if (layer := compared.layer(name))] == [(4, 3), (4, 3), (3,)]
    begin_run(tmp_path / "run")
    assert "27 numbers" in "\n".join(describe_run(tmp_path / "run"))
    (tmp_path / "run" / "checkpoints" / "3" / "model-1.safetensors").unlink()
    part = tl.load(tmp_path / "run" / "checkpoints" / "3" / "model.safetensors")
    assert part["net.rows"].shape == (2, 3), "what the file has, where the others are gone"
